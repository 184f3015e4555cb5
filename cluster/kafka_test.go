//go:build kafka

package cluster

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

var broker *realkafka.Cluster

func TestMain(m *testing.M) {
	os.Exit(sim.NoLeaks(func() int {
		return realkafka.Run(m, realkafka.Options{}, func(c *realkafka.Cluster) { broker = c })
	}))
}

// real connects to the broker of the package.
func real(t *testing.T, change ...func(*Config)) (*Cluster, context.Context) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	cfg := Config{Bootstrap: []string{broker.Bootstrap()}}
	for _, f := range change {
		f(&cfg)
	}
	c, err := Connect(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, ctx
}

// createTopic makes a topic and waits until it has all its leaders.
func createTopic(t *testing.T, ctx context.Context, c *Cluster, name string, partitions int32, replicas int16) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, replicas
	req.Topics = append(req.Topics, rt)
	resp, err := c.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if code := resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		t.Fatal(kerr.ErrorForCode(code))
	}
	for p := range partitions {
		if _, err := leaderSoon(ctx, c, kafka.TopicPartition{Topic: name, Partition: p}, -1); err != nil {
			t.Fatal(err)
		}
	}
}

// leaderSoon waits until a partition has a leader other than not.
func leaderSoon(ctx context.Context, c *Cluster, tp kafka.TopicPartition, not kafka.NodeID) (kafka.Broker, error) {
	for {
		b, err := c.Leader(ctx, tp)
		if err == nil && b.ID != not {
			return b, nil
		}
		if ctx.Err() != nil {
			return b, errors.Join(ctx.Err(), err)
		}
		c.InvalidateLeader(tp)
		time.Sleep(50 * time.Millisecond)
	}
}

func TestKafkaC57K15TheMapOfARealBroker(t *testing.T) {
	c, ctx := real(t)
	if len(c.Brokers()) != 1 || len(c.ID()) != 22 {
		t.Fatalf("map: %v %q", c.Brokers(), c.ID())
	}
	createTopic(t, ctx, c, "cluster-map", 5, 1)
	top, err := c.Topic(ctx, "cluster-map")
	if err != nil || top.Count() != 5 || top.ID.IsZero() {
		t.Fatalf("topic %+v, %v", top, err)
	}
	for i, p := range top.Partitions {
		if p.Leader != c.Brokers()[0].ID || p.Epoch < 0 {
			t.Errorf("partition %d: %+v", i, p)
		}
	}
	names, err := c.TopicNames(ctx)
	if err != nil || !slices.Contains(names, "cluster-map") || slices.Contains(names, "__consumer_offsets") {
		t.Errorf("names %v, %v", names, err)
	}
	_, err = c.Topic(ctx, "bad name!")
	if !errors.Is(err, kerr.InvalidTopicException) {
		t.Errorf("a name that cannot be: %v", err)
	}
}

func TestKafkaRequestsOfEveryRoute(t *testing.T) {
	c, ctx := real(t)
	createTopic(t, ctx, c, "cluster-routes", 3, 1)
	node := c.Brokers()[0].ID
	resources := kmsg.NewPtrDescribeConfigsRequest()
	for kind, name := range map[kmsg.ConfigResourceType]string{kmsg.ConfigResourceTypeBroker: fmt.Sprint(node), kmsg.ConfigResourceTypeTopic: "cluster-routes"} {
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName = kind, name
		resources.Resources = append(resources.Resources, r)
	}
	groups := kmsg.NewPtrDescribeGroupsRequest()
	groups.Groups = []string{"g1", "g2"}
	offsets := kmsg.NewPtrOffsetFetchRequest()
	offsets.Group = "g1"
	txn := kmsg.NewPtrInitProducerIDRequest()
	txn.TransactionalID, txn.TransactionTimeoutMillis = kmsg.StringPtr("cluster-tx"), 10_000
	txn.ProducerID, txn.ProducerEpoch = -1, -1
	idem := kmsg.NewPtrInitProducerIDRequest()
	idem.ProducerID, idem.ProducerEpoch = -1, -1
	describeTxn := kmsg.NewPtrDescribeTransactionsRequest()
	describeTxn.TransactionalIDs = []string{"cluster-tx", "no-such-tx"}
	logDirs := kmsg.NewPtrDescribeLogDirsRequest()
	for _, req := range []kmsg.Request{
		listOffsets(tp("cluster-routes", 2), tp("cluster-routes", 0)), resources, groups, offsets, txn, idem, describeTxn, logDirs,
		kmsg.NewPtrListGroupsRequest(), kmsg.NewPtrListTransactionsRequest(), kmsg.NewPtrDescribeClusterRequest(),
		kmsg.NewPtrApiVersionsRequest(), kmsg.NewPtrDescribeQuorumRequest(),
	} {
		t.Run(kmsg.NameForKey(req.Key()), func(t *testing.T) {
			resp, err := c.Request(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%+v", resp)
			code := soleCode(resp)
			if req.Key() == 55 && code == kerr.InvalidRequest.Code || req.Key() == 15 && code == kerr.GroupIDNotFound.Code {
				return
			}
			if code != 0 {
				t.Errorf("code %v", kerr.ErrorForCode(code))
			}
		})
	}
	resp, err := c.RequestCoordinator(ctx, "g1", func() kmsg.Request { groups.SetVersion(5); return groups }())
	if err != nil || resp.GetVersion() != 5 {
		t.Errorf("at a version of the caller's: %v, %v", resp, err)
	}
	var ve *kafka.VersionError
	hb := kmsg.NewPtrHeartbeatRequest()
	hb.Version = 99
	if _, err := c.RequestCoordinator(ctx, "g1", hb); !errors.As(err, &ve) {
		t.Errorf("at a version that nobody has: %v", err)
	}
	if lo, hi, ok, err := c.CoordinatorVersions(ctx, "g1", 68); err != nil {
		t.Errorf("versions %d-%d %v %v", lo, hi, ok, err)
	}
	if level, ok, err := c.FinalizedFeature(ctx, "metadata.version"); err != nil || !ok || level < 1 {
		t.Errorf("metadata.version: %d %v %v", level, ok, err)
	}
}

func TestKafkaK10B046ARecreatedTopicIsToldAndFollowed(t *testing.T) {
	c, ctx := real(t, func(cfg *Config) { cfg.NoTopicCreation = true })
	createTopic(t, ctx, c, "cluster-again", 4, 1)
	first, err := c.Topic(ctx, "cluster-again")
	if err != nil {
		t.Fatal(err)
	}
	w := c.Watch()
	defer w.Close()
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.TopicNames = []string{"cluster-again"} // the form of old versions
	resp, err := c.Request(ctx, del)
	if err != nil || resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode != 0 {
		t.Fatalf("delete: %+v, %v", resp, err)
	}
	other, _ := real(t)
	for { // names are free again once the deletion is through
		_, err := other.Leader(ctx, tp("cluster-again", 3))
		if errors.Is(err, kerr.UnknownTopicOrPartition) {
			break
		}
		other.InvalidateLeader(tp("cluster-again", 3))
		time.Sleep(20 * time.Millisecond)
	}
	createTopic(t, ctx, other, "cluster-again", 2, 1)
	c.InvalidateLeader(tp("cluster-again", 0))
	for {
		<-w.Ready()
		if i := slices.IndexFunc(w.Take(), func(e Event) bool { return e.Kind == TopicRecreated && e.OldID == first.ID }); i >= 0 {
			break
		}
	}
	again, err := c.Topic(ctx, "cluster-again")
	if err != nil || again.Count() != 2 || again.ID == first.ID {
		t.Errorf("after: %+v, %v", again, err)
	}
}

// TestKafkaR34TheFirstUseOfGroupsAndTransactionsIsPatient meets the three
// errors of coordinators that do not exist yet.
func TestKafkaR34TheFirstUseOfGroupsAndTransactionsIsPatient(t *testing.T) {
	cold := realkafka.Start(t, realkafka.Options{Cold: true})
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	c, err := Connect(ctx, Config{Bootstrap: []string{cold.Bootstrap()}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	of := kmsg.NewPtrOffsetFetchRequest()
	of.Group = "first"
	resp, err := c.Request(ctx, of)
	if err != nil || resp.(*kmsg.OffsetFetchResponse).ErrorCode != 0 {
		t.Errorf("offsets of a group: %+v, %v", resp, err)
	}
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = kmsg.StringPtr("first"), 10_000
	init.ProducerID, init.ProducerEpoch = -1, -1
	resp, err = c.Request(ctx, init)
	if err != nil || resp.(*kmsg.InitProducerIDResponse).ErrorCode != 0 {
		t.Errorf("a transactional producer: %+v, %v", resp, err)
	}
	t.Logf("%d retries, %d look-ups", c.Stats().Retries, c.Stats().CoordinatorLooks)
}

// TestKafkaEveryAPIEndsInAnAnswerOrATypedError sends the empty request of every
// API to a real broker.
func TestKafkaEveryAPIEndsInAnAnswerOrATypedError(t *testing.T) {
	c, _ := real(t, func(cfg *Config) { cfg.RetryTimeout = 5 * time.Second })
	everyAPI(t, c.Request)
}
