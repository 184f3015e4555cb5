//go:build kafka

package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

var (
	broker       *realkafka.Cluster
	firstWritten = time.Now().Add(-time.Hour).Truncate(time.Millisecond)
)

func TestMain(m *testing.M) {
	os.Exit(sim.NoLeaks(func() int {
		return realkafka.Run(m, realkafka.Options{}, func(c *realkafka.Cluster) { broker = c })
	}))
}

// real makes an Admin at the broker of the package.
func real(t *testing.T) (*Admin, context.Context) {
	t.Helper()
	return at(t, broker)
}

func at(t *testing.T, k *realkafka.Cluster) (*Admin, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	t.Cleanup(cancel)
	c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(k.Bootstrap(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return New(c), ctx
}

// from reports whether the broker under test is of a release or younger.
func from(major, minor int) bool {
	var a, b int
	fmt.Sscanf(broker.Version(), "%d.%d", &a, &b)
	return a > major || a == major && b >= minor
}

// offBefore holds that a call is a VersionError on releases before one, and
// reports whether it works.
func offBefore(t *testing.T, major, minor int, err error) bool {
	t.Helper()
	if from(major, minor) {
		return true
	}
	var ve *kafka.VersionError
	if !errors.As(err, &ve) || kafka.MayHaveHappened(err) {
		t.Errorf("Kafka %s does not have this: %v", broker.Version(), err)
	}
	return false
}

// peer is another client, whose writes are described.
func peer(t *testing.T, opts ...kgo.Opt) *kgo.Client {
	t.Helper()
	cl, err := kgo.NewClient(append(opts, kgo.SeedBrokers(strings.Split(broker.Bootstrap(), ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()))...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return cl
}

// write writes records to partition 0 that are a second apart, from
// firstWritten on. They are young: old ones retention takes away at once.
func write(t *testing.T, ctx context.Context, cl *kgo.Client, topic string, values ...string) {
	t.Helper()
	for i, v := range values {
		r := &kgo.Record{Topic: topic, Value: []byte(v), Timestamp: firstWritten.Add(time.Duration(i) * time.Second)}
		if err := cl.ProduceSync(ctx, r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
}

func create(t *testing.T, ctx context.Context, a *Admin, name string, partitions int32) {
	t.Helper()
	mustDo(t, a.CreateTopics(ctx, []NewTopic{{Name: name, Partitions: partitions, Replicas: 1}}, Visible).Err())
}

func TestKafkaA10_A11TopicsFromCreationToDeletion(t *testing.T) {
	a, ctx := real(t)
	two := []NewTopic{
		{Name: "life", Partitions: 2, Replicas: 1, Configs: map[string]string{"cleanup.policy": "compact"}},
		{Name: "placed", Assignment: [][]kafka.NodeID{{a.c.Brokers()[0].ID}, {a.c.Brokers()[0].ID}, {a.c.Brokers()[0].ID}}},
	}
	dry := a.CreateTopics(ctx, two, ValidateOnly)
	mustDo(t, dry.Err())
	res := a.CreateTopics(ctx, append(two, NewTopic{Name: "bad name", Partitions: 1, Replicas: 1}), Visible)
	if res[0].Err != nil || res[1].Err != nil || res[0].Value.Partitions != 2 || res[1].Value.Partitions != 3 || !errors.Is(res[2].Err, kerr.InvalidTopicException) {
		t.Fatalf("%+v", res)
	}
	if res := a.CreateTopics(ctx, two[:1], Visible); !errors.Is(res[0].Err, kerr.TopicAlreadyExists) || OutcomeOf(res[0].Err) != NotDone {
		t.Errorf("a second time: %v", res[0].Err)
	}
	byDefault := a.CreateTopics(ctx, []NewTopic{{Name: "by-default"}}, Visible)
	if offBefore(t, 2, 4, byDefault.Err()) && (byDefault.Err() != nil || byDefault[0].Value.Partitions != 1) {
		t.Errorf("%+v", byDefault)
	}
	if dry := a.CreatePartitions(ctx, map[string]MorePartitions{"life": {Total: 5}}, ValidateOnly); !offBefore(t, 1, 0, dry.Err()) {
		return
	} else if dry.Err() != nil {
		t.Error(dry.Err())
	}
	grown := a.CreatePartitions(ctx, map[string]MorePartitions{"life": {Total: 4}, "placed": {Total: 3}, "gone": {Total: 2}}, Visible)
	if !errors.Is(grown[0].Err, kerr.UnknownTopicOrPartition) || grown[1].Err != nil || !errors.Is(grown[2].Err, kerr.InvalidPartitions) {
		t.Errorf("%+v", grown)
	}
	got := a.DescribeTopics(ctx, Topics("life", "gone", "placed"))
	if len(got[0].Value.Partitions) != 4 || !errors.Is(got[1].Err, kerr.UnknownTopicOrPartition) || len(got[2].Value.Partitions) != 3 || got[0].Value.Replicas() != 1 {
		t.Fatalf("%+v", got)
	}
	id := got[0].Value.ID
	list, err := a.ListTopics(ctx)
	if err != nil || !slices.ContainsFunc(list, func(x Topic) bool { return x.Name == "life" && x.ID == id }) {
		t.Errorf("%+v, %v", list, err)
	}
	if from(3, 1) {
		byID := a.DescribeTopics(ctx, []TopicRef{{ID: id}, {ID: kafka.TopicID{1, 2, 3}}})
		if byID[0].Value.Name != "life" || !errors.Is(byID[1].Err, kerr.UnknownTopicID) {
			t.Errorf("%+v", byID)
		}
	}
	doomed := Topics("life", "gone", "placed")
	if from(2, 8) {
		doomed[0] = TopicRef{ID: id}
	}
	deleted := a.DeleteTopics(ctx, doomed, Visible)
	if deleted[0].Err != nil || deleted[2].Err != nil || !errors.Is(deleted[1].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("%+v", deleted)
	}
	if got := a.DescribeTopics(ctx, Topics("life")); !errors.Is(got[0].Err, kerr.UnknownTopicOrPartition) {
		t.Errorf("%+v", got)
	}
	c, err := a.DescribeCluster(ctx)
	if err != nil || c.ID == "" || len(c.Brokers) != 1 || c.Controller != c.Brokers[0].ID {
		t.Errorf("%+v, %v", c, err)
	}
}

func TestKafkaA12_A13OffsetsAndTheDeletionOfRecords(t *testing.T) {
	a, ctx := real(t)
	create(t, ctx, a, "offsets", 2)
	write(t, ctx, peer(t), "offsets", "a", "b", "c", "d")
	list := func(at OffsetAt, level Isolation) Result[kafka.TopicPartition, Offset] {
		t.Helper()
		return a.ListOffsets(ctx, map[kafka.TopicPartition]OffsetAt{tp("offsets", 0): at}, level)[0]
	}
	for at, want := range map[OffsetAt]kafka.Offset{
		Latest: 4, Earliest: 0, AtTime(firstWritten.Add(1500 * time.Millisecond)): 2, AtTime(firstWritten.Add(time.Hour)): -1,
	} {
		if r := list(at, ReadCommitted); r.Err != nil || r.Value.Offset != want {
			t.Errorf("at %d: %+v", at, r)
		}
	}
	if r := list(MaxTimestamp, ReadUncommitted); offBefore(t, 3, 0, r.Err) && (r.Value.Offset != 3 || r.Value.Timestamp.Time() != firstWritten.Add(3*time.Second).UTC()) {
		t.Errorf("%+v", r)
	}
	if r := list(EarliestLocal, ReadUncommitted); offBefore(t, 3, 4, r.Err) && (r.Err != nil || r.Value.Offset != 0) {
		t.Errorf("%+v", r)
	}
	if r := list(LatestTiered, ReadUncommitted); offBefore(t, 3, 9, r.Err) && (r.Err != nil || r.Value.Offset != -1) {
		t.Errorf("%+v", r)
	}
	epochs := a.EpochEndOffsets(ctx, map[kafka.TopicPartition]kafka.LeaderEpoch{tp("offsets", 0): 0, tp("offsets", 1): 0})
	// Before 2.0 the end of an epoch without records is not known.
	if epochs.Err() != nil || epochs[0].Value.End != 4 || from(2, 0) && epochs[1].Value.End != 0 {
		t.Errorf("%+v", epochs)
	}
	deleted := a.DeleteRecords(ctx, map[kafka.TopicPartition]kafka.Offset{tp("offsets", 0): 3, tp("offsets", 1): 9})
	if deleted[0].Value != 3 || !errors.Is(deleted[1].Err, kerr.OffsetOutOfRange) {
		t.Errorf("%+v", deleted)
	}
	if r := list(Earliest, ReadCommitted); r.Value.Offset != 3 {
		t.Errorf("%+v", r)
	}
	mustDo(t, a.DeleteRecords(ctx, map[kafka.TopicPartition]kafka.Offset{tp("offsets", 0): AllRecords}).Err())
	if r := list(Earliest, ReadCommitted); r.Value.Offset != 4 {
		t.Errorf("%+v", r)
	}
}

// value is one setting of a resource, "" if it has none.
func value(t *testing.T, ctx context.Context, a *Admin, r Resource, name string) string {
	t.Helper()
	res := a.DescribeConfigs(ctx, []Resource{r})
	mustDo(t, res.Err())
	for _, c := range res[0].Value {
		if c.Name == name && c.Value != nil {
			return *c.Value
		}
	}
	return ""
}

func TestKafkaA7_A14_A15Configs(t *testing.T) {
	a, ctx := real(t)
	create(t, ctx, a, "configs", 1)
	node := a.c.Brokers()[0].ID
	topic := TopicResource("configs")
	change := ConfigChange{Resource: topic, Set: map[string]string{"retention.ms": "3600000", "cleanup.policy": "compact"}}
	if res := a.AlterConfigs(ctx, []ConfigChange{change}, Accepted); !offBefore(t, 2, 3, res.Err()) {
		if got := value(t, ctx, a, topic, "cleanup.policy"); got != "delete" {
			t.Errorf("%s", got)
		}
		return
	} else {
		mustDo(t, res.Err())
	}
	soon := func(r Resource, name, want string) {
		t.Helper()
		for got := ""; ; got = value(t, ctx, a, r, name) {
			if got == want {
				return
			}
			if ctx.Err() != nil {
				t.Fatalf("%s of %s is %q, not %q", name, r, got, want)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	soon(topic, "retention.ms", "3600000")
	mustDo(t, a.AlterConfigs(ctx, []ConfigChange{{Resource: topic, Append: map[string]string{"cleanup.policy": "delete"}, Unset: []string{"retention.ms"}}}, Accepted).Err())
	soon(topic, "cleanup.policy", "compact,delete")
	soon(topic, "retention.ms", "604800000")
	mustDo(t, a.AlterConfigs(ctx, []ConfigChange{{Resource: topic, Subtract: map[string]string{"cleanup.policy": "compact"}}}, Accepted).Err())
	soon(topic, "cleanup.policy", "delete")
	res := a.AlterConfigs(ctx, []ConfigChange{
		{Resource: TopicResource("none"), Set: map[string]string{"retention.ms": "1"}},
		{Resource: topic, Set: map[string]string{"retention.ms": "soon"}},
		{Resource: BrokerResource(node), Set: map[string]string{"log.cleaner.backoff.ms": "200"}},
		{Resource: LoggerResource(node), Set: map[string]string{"no.such.logger": "WARN"}},
	}, ValidateOnly)
	if !errors.Is(res[0].Err, kerr.UnknownTopicOrPartition) || !errors.Is(res[1].Err, kerr.InvalidConfig) && from(3, 3) || res[1].Err == nil || res[2].Err != nil || res[3].Err == nil {
		t.Errorf("%+v", res)
	}
	mustDo(t, a.AlterConfigs(ctx, []ConfigChange{{Resource: BrokerResource(node), Set: map[string]string{"log.cleaner.backoff.ms": "200"}}}, Accepted).Err())
	soon(BrokerResource(node), "log.cleaner.backoff.ms", "200")
	loggers := a.DescribeConfigs(ctx, []Resource{LoggerResource(node)})
	// A broker that logs through something else than log4j has none to tell of.
	if err := loggers.Err(); err != nil && !errors.Is(err, kerr.InvalidRequest) && !errors.Is(err, kerr.UnknownServerError) {
		t.Errorf("%+v", loggers)
	}
	metrics := ClientMetricsResource("all")
	if res := a.AlterConfigs(ctx, []ConfigChange{{Resource: metrics, Set: map[string]string{"interval.ms": "5000"}}}, Accepted); from(3, 7) {
		mustDo(t, res.Err())
		soon(metrics, "interval.ms", "5000")
	} else if res.Err() == nil {
		t.Error("an unknown kind of resource was taken")
	}
	// The list is of what is in force, a moment after it is described.
	lists := func(want Resource, kinds ...kmsg.ConfigResourceType) {
		t.Helper()
		for {
			listed, err := a.ListConfigResources(ctx, kinds...)
			if err == nil && slices.Contains(listed, want) {
				return
			}
			if err != nil || ctx.Err() != nil {
				t.Fatalf("%s is not listed: %v, %v", want, listed, err)
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	if _, err := a.ListConfigResources(ctx, kmsg.ConfigResourceTypeClientMetrics); offBefore(t, 3, 7, err) {
		lists(metrics, kmsg.ConfigResourceTypeClientMetrics)
	}
	if from(4, 1) {
		group := GroupResource("configured")
		mustDo(t, a.AlterConfigs(ctx, []ConfigChange{{Resource: group, Set: map[string]string{"consumer.session.timeout.ms": "5000"}}}, Accepted).Err())
		soon(group, "consumer.session.timeout.ms", "5000")
		lists(group)
		lists(topic)
	}
}

// TestKafkaA26TransactionsAndProducers opens a transaction with another client
// and looks at it from every side.
func TestKafkaA26TransactionsAndProducers(t *testing.T) {
	a, ctx := real(t)
	create(t, ctx, a, "txn", 2)
	cl := peer(t, kgo.TransactionalID("admin-open"))
	mustDo(t, cl.BeginTransaction())
	write(t, ctx, cl, "txn", "a", "b")
	listed, err := a.ListTransactions(ctx, TransactionFilter{})
	if !offBefore(t, 3, 0, err) {
		offBefore(t, 3, 0, a.DescribeTransactions(ctx, []string{"admin-open"}).Err())
		offBefore(t, 2, 8, a.DescribeProducers(ctx, []kafka.TopicPartition{tp("txn", 0)}).Err())
		return
	}
	i := slices.IndexFunc(listed, func(l ListedTransaction) bool { return l.ID == "admin-open" })
	if err != nil || i < 0 || listed[i].State != "Ongoing" {
		t.Fatalf("%+v, %v, %+v", listed, err, a.DescribeTransactions(ctx, []string{"admin-open"}))
	}
	old, err := a.ListTransactions(ctx, TransactionFilter{OlderThan: time.Hour})
	if offBefore(t, 3, 8, err) && (err != nil || len(old) != 0) {
		t.Errorf("%+v, %v", old, err)
	}
	ours, err := a.ListTransactions(ctx, TransactionFilter{Pattern: "admin-o.*"})
	if offBefore(t, 4, 1, err) && (err != nil || len(ours) != 1) {
		t.Errorf("%+v, %v", ours, err)
	}
	res := a.DescribeTransactions(ctx, []string{"admin-open", "none"})
	txn := res[0].Value
	if txn.State != "Ongoing" || txn.ProducerID != listed[i].ProducerID || txn.Start.IsZero() || !slices.Equal(txn.Partitions, []kafka.TopicPartition{tp("txn", 0)}) {
		t.Errorf("%+v", res[0])
	}
	if !errors.Is(res[1].Err, kerr.TransactionalIDNotFound) {
		t.Errorf("%v", res[1].Err)
	}
	producers := a.DescribeProducers(ctx, []kafka.TopicPartition{tp("txn", 0), tp("txn", 1)})
	if p := producers[0].Value; len(p) != 1 || p[0].ID != txn.ProducerID || p[0].Epoch != txn.Epoch || p[0].TxnStart != 0 || p[0].LastSequence != 1 || producers[1].Value != nil {
		t.Errorf("%+v", producers)
	}
	if hanging, err := a.HangingTransactions(ctx, []kafka.TopicPartition{tp("txn", 0)}, time.Nanosecond); err != nil || len(hanging) != 0 {
		t.Errorf("a transaction that is going on: %+v, %v", hanging, err)
	}
	lso := a.ListOffsets(ctx, map[kafka.TopicPartition]OffsetAt{tp("txn", 0): Latest}, ReadCommitted)
	if lso.Err() != nil || lso[0].Value.Offset != 0 {
		t.Errorf("%+v", lso)
	}
	mustDo(t, cl.EndTransaction(ctx, kgo.TryCommit))
}

// TestKafkaA26AHangingTransactionIsFound writes into a transaction that no
// coordinator knows of, as brokers let a client do that do not verify it.
func TestKafkaA26AHangingTransactionIsFound(t *testing.T) {
	if !from(3, 0) {
		t.Skip("Kafka before 3.0 lists no transactions: TestKafkaA26TransactionsAndProducers")
	}
	a, ctx := real(t)
	create(t, ctx, a, "hanging", 1)
	if from(3, 6) {
		verify := ConfigChange{Resource: BrokersResource(), Set: map[string]string{"transaction.partition.verification.enable": "false"}}
		mustDo(t, a.AlterConfigs(ctx, []ConfigChange{verify}, Accepted).Err())
		defer func() {
			verify.Set["transaction.partition.verification.enable"] = "true"
			mustDo(t, a.AlterConfigs(ctx, []ConfigChange{verify}, Accepted).Err())
		}()
	}
	init, err := kmsg.NewPtrInitProducerIDRequest().RequestWith(ctx, a.c)
	mustDo(t, err)
	var b record.Builder
	b.Reset(nil)
	b.Append(kafka.TimestampOf(time.Now()), nil, []byte("v"), nil)
	stamp := record.Stamp{ProducerID: kafka.ProducerID(init.ProducerID), ProducerEpoch: kafka.ProducerEpoch(init.ProducerEpoch), Transactional: true}
	pp := kmsg.NewProduceRequestTopicPartition()
	pp.Records, _ = b.Seal(stamp, compress.None, nil, 0, nil)
	produce := kmsg.NewPtrProduceRequest()
	produce.Acks, produce.TimeoutMillis, produce.TransactionID = -1, 10_000, kmsg.StringPtr("hanging")
	produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "hanging", Partitions: []kmsg.ProduceRequestTopicPartition{pp}}}
	for code := int16(-1); code != 0; { // the setting takes a moment
		answer, err := a.RequestAt(ctx, 9, produce)
		mustDo(t, err)
		code = answer.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
	}
	got, err := a.HangingTransactions(ctx, []kafka.TopicPartition{tp("hanging", 0)}, time.Nanosecond)
	if err != nil || len(got) != 1 || got[0].ID != kafka.ProducerID(init.ProducerID) || got[0].TxnStart != 0 || got[0].TransactionalID != "" {
		t.Errorf("%+v, %v", got, err)
	}
}

// TestKafkaA16_A17_A18_A19AGroupFromItsMembersToItsDeletion looks at a group of
// another client with members, without them, and after its deletion.
func TestKafkaA16_A17_A18_A19AGroupFromItsMembersToItsDeletion(t *testing.T) {
	adm, ctx := real(t)
	a := adm.Groups()
	create(t, ctx, adm, "grouped", 2)
	write(t, ctx, peer(t), "grouped", "a", "b", "c")
	member := peer(t, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("grouped"), kgo.InstanceID("one"), kgo.DisableAutoCommit(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	for n := 0; n < 2; { // two of three
		fs := member.PollRecords(ctx, 2-n)
		mustDo(t, fs.Err0())
		n += fs.NumRecords()
		mustDo(t, member.CommitRecords(ctx, fs.Records()...))
	}
	listed, err := a.List(ctx, GroupFilter{})
	if err != nil || !slices.ContainsFunc(listed, func(g ListedGroup) bool { return g.ID == "g" && g.Protocol == "consumer" }) {
		t.Errorf("%+v, %v", listed, err)
	}
	stable, err := a.List(ctx, GroupFilter{States: []string{"Stable"}})
	if offBefore(t, 2, 6, err) && (err != nil || !slices.ContainsFunc(stable, func(g ListedGroup) bool { return g.ID == "g" && g.State == "Stable" })) {
		t.Errorf("%+v, %v", stable, err)
	}
	share, err := a.List(ctx, GroupFilter{Types: []string{ShareGroup}})
	if offBefore(t, 3, 8, err) && (err != nil || slices.ContainsFunc(share, func(g ListedGroup) bool { return g.ID == "g" })) {
		t.Errorf("%+v, %v", share, err)
	}
	res := a.Describe(ctx, []string{"g", "no-such-group"})
	if g := res[0].Value; res[0].Err != nil || g.State != "Stable" || len(g.Members) != 1 || len(g.Members[0].Assigned) != 2 || !slices.Equal(g.Members[0].Topics, []string{"grouped"}) {
		t.Fatalf("%+v", res)
	}
	if !errors.Is(res[1].Err, kerr.GroupIDNotFound) {
		t.Errorf("%v", res[1].Err)
	}
	lag, err := a.Lag(ctx, "g")
	if err != nil || len(lag) != 2 || lag[0].Value.Committed != 2 || lag[0].Value.End != 3 || lag[0].Value.Records != 1 || lag[0].Value.Member != res[0].Value.Members[0].ID {
		t.Errorf("%+v, %v", lag, err)
	}
	set := map[kafka.TopicPartition]kafka.Commit{tp("grouped", 0): {Offset: 1, LeaderEpoch: kafka.NoEpoch, Metadata: "set"}, tp("grouped", 1): {Offset: 0, LeaderEpoch: kafka.NoEpoch}}
	var ga *GroupActiveError
	if err := a.AlterOffsets(ctx, "g", set).Err(); !errors.As(err, &ga) {
		t.Errorf("with a member: %v", err)
	}
	if err := a.Delete(ctx, []string{"g"}).Err(); from(1, 1) && !errors.Is(err, kerr.NonEmptyGroup) {
		t.Errorf("with a member: %v", err)
	}
	ref := MemberRef{InstanceID: "one"}
	if !from(2, 3) {
		ref = MemberRef{ID: res[0].Value.Members[0].ID}
	}
	member.Close() // a static member stays until it is removed
	if err := a.RemoveMembers(ctx, "g", []MemberRef{ref}, "the test is over").Err(); err != nil && from(2, 3) {
		t.Errorf("%v", err)
	}
	for a.Describe(ctx, []string{"g"})[0].Value.State != "Empty" {
		time.Sleep(20 * time.Millisecond)
		mustDo(t, ctx.Err())
	}
	mustDo(t, a.AlterOffsets(ctx, "g", set).Err())
	got := a.Offsets(ctx, []string{"g", "h"})
	if got.Err() != nil || len(got[0].Value) != 2 || got[0].Value[0].Value.Metadata != "set" || len(got[1].Value) != 0 {
		t.Errorf("%+v", got)
	}
	if err := a.DeleteOffsets(ctx, "g", []kafka.TopicPartition{tp("grouped", 1)}).Err(); offBefore(t, 2, 4, err) && err != nil {
		t.Error(err)
	}
	if err := a.Delete(ctx, []string{"g"}).Err(); !offBefore(t, 1, 1, err) {
		return
	} else if err != nil {
		t.Error(err)
	}
	if got := a.Describe(ctx, []string{"g"}); !errors.Is(got[0].Err, kerr.GroupIDNotFound) {
		t.Errorf("%+v", got)
	}
}
