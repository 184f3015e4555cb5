//go:build kafka

package producer

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
)

// protocols are the ways in which transactions are run on the broker under test:
// the newest that it has, and below KIP-890 part 2.
var protocols = map[string]map[int16]int16{
	"newest": nil,
	"pinned": {keyEnd: 4},
}

// onBothProtocols runs f with a way to make transactional producers, each on a
// handle of its own; timeout is that of their transactions.
func onBothProtocols(t *testing.T, timeout time.Duration, f func(t *testing.T, ctx context.Context, id string, open func(...func(*cluster.Config)) *Producer)) {
	for _, name := range slices.Sorted(maps.Keys(protocols)) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
			defer cancel()
			id := fmt.Sprintf("%s-%d", name, time.Now().UnixNano())
			f(t, ctx, id, func(change ...func(*cluster.Config)) *Producer {
				cfg := cluster.Config{RequestTimeout: 10 * time.Second, MaxVersions: protocols[name]}
				for _, c := range change {
					c(&cfg)
				}
				p, err := New(connectKafka(t, cfg), Config{TransactionalID: id, Partitioner: Manual, TransactionTimeout: timeout})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { p.Close() })
				return p
			})
		})
	}
}

// readCommitted reads a topic up to its last stable offset.
func readCommitted(t *testing.T, ctx context.Context, topic string, partitions int32, want int) map[string]int {
	t.Helper()
	co, err := consumer.New(connectKafka(t, cluster.Config{}), consumer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer co.Close()
	at := map[kafka.TopicPartition]consumer.Start{}
	for i := range partitions {
		at[kafka.TopicPartition{Topic: topic, Partition: i}] = consumer.Earliest()
	}
	if err := co.Assign(ctx, at); err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for n := 0; n < want; {
		bs, err := co.Poll(ctx)
		if err != nil {
			t.Fatalf("after %v: %v", got, err)
		}
		for _, b := range bs {
			for _, r := range b.Records() {
				got[string(r.Value)]++
				n++
			}
		}
	}
	return got
}

func sendTo(ctx context.Context, tx *Tx, topic string, partition int32, value string) error {
	_, err := tx.Send(ctx, kafka.Record{Topic: topic, Partition: partition, Value: []byte(value)})
	return err
}

func ok(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}

// TestKafkaTransactions commits and aborts back to back, so that the broker is
// still busy with the last one when the next begins.
func TestKafkaTransactions(t *testing.T) {
	onBothProtocols(t, time.Minute, func(t *testing.T, ctx context.Context, id string, open func(...func(*cluster.Config)) *Producer) {
		p := open()
		topic := createTopic(t, 3, nil)
		want := map[string]int{}
		for n := range 20 {
			tx, err := p.Begin(ctx)
			ok(t, "begin", err)
			for i := range int32(3) {
				v := fmt.Sprintf("%d/%d", n, i)
				ok(t, "send", sendTo(ctx, tx, topic, i, v))
				if n%3 != 1 {
					want[v] = 1
				}
			}
			if n%5 == 0 {
				ok(t, "offsets", tx.SendOffsets(ctx, kafka.GroupMetadata{Group: id, Generation: kafka.NoGeneration},
					map[kafka.TopicPartition]kafka.Commit{{Topic: topic}: {Offset: kafka.Offset(n + 1), LeaderEpoch: kafka.NoEpoch}}))
			}
			if n%3 == 1 {
				ok(t, "abort", tx.Abort(ctx))
			} else {
				ok(t, "commit", tx.Commit(ctx))
			}
		}
		if got := readCommitted(t, ctx, topic, 3, len(want)); !maps.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group, req.Groups = id, nil
		rt := kmsg.NewOffsetFetchRequestTopic()
		rt.Topic, rt.Partitions = topic, []int32{0}
		req.Topics = append(req.Topics, rt)
		resp, err := cluster.Within(connectKafka(t, cluster.Config{}), 1, 5).Request(ctx, req)
		ok(t, "offset fetch", err)
		if at := resp.(*kmsg.OffsetFetchResponse).Topics[0].Partitions[0].Offset; at != 16 {
			t.Errorf("the group is at %d, want 16", at)
		}
	})
}

// TestB107KafkaATakeoverAbortsWhatWasLeftOpenAndFencesIt leaves a transaction
// open and begins with another instance at once.
func TestB107KafkaATakeoverAbortsWhatWasLeftOpenAndFencesIt(t *testing.T) {
	onBothProtocols(t, time.Minute, func(t *testing.T, ctx context.Context, _ string, open func(...func(*cluster.Config)) *Producer) {
		old, next := open(), open()
		topic := createTopic(t, 2, nil)
		zombie, err := old.Begin(ctx)
		ok(t, "begin", err)
		ok(t, "send", sendTo(ctx, zombie, topic, 0, "zombie"))
		tx, err := next.Begin(ctx)
		ok(t, "begin of the next", err)
		ok(t, "send of the next", sendTo(ctx, tx, topic, 0, "next"))
		if err := sendTo(ctx, zombie, topic, 1, "zombie too"); err == nil || kafka.MayHaveHappened(err) {
			t.Errorf("the zombie writes: %v", err)
		}
		if err := zombie.Commit(ctx); !errors.Is(err, kafka.ErrFenced) || kafka.MayHaveHappened(err) {
			t.Errorf("the zombie commits: %v", err)
		}
		if _, err := old.Begin(ctx); !errors.Is(err, kafka.ErrFenced) {
			t.Errorf("the zombie begins: %v", err)
		}
		ok(t, "commit of the next", tx.Commit(ctx))
		if got := readCommitted(t, ctx, topic, 2, 1); !maps.Equal(got, map[string]int{"next": 1}) {
			t.Errorf("read %v", got)
		}
	})
}

// TestB110KafkaATransactionThatTimedOutIsNotCommitted waits until the broker has
// aborted the transaction: the last stable offset passes it.
func TestB110KafkaATransactionThatTimedOutIsNotCommitted(t *testing.T) {
	t.Parallel()
	onBothProtocols(t, 10*time.Second, func(t *testing.T, ctx context.Context, _ string, open func(...func(*cluster.Config)) *Producer) {
		t.Parallel()
		p := open()
		topic := createTopic(t, 1, nil)
		co, err := consumer.New(connectKafka(t, cluster.Config{}), consumer.Config{})
		ok(t, "consumer", err)
		defer co.Close()
		tx, err := p.Begin(ctx)
		ok(t, "begin", err)
		ok(t, "send", sendTo(ctx, tx, topic, 0, "late"))
		for stable := kafka.Offset(0); stable == 0; time.Sleep(50 * time.Millisecond) {
			end, err := co.End(ctx, kafka.TopicPartition{Topic: topic})
			ok(t, "end of what is committed", err)
			stable = end[kafka.TopicPartition{Topic: topic}]
		}
		err = tx.Commit(ctx)
		if err == nil || kafka.MayHaveHappened(err) {
			t.Fatalf("commit: %v", err)
		}
		if errors.Is(err, kafka.ErrFenced) { // the first protocol cannot tell it from another instance
			p = open()
		} else {
			ok(t, "abort", tx.Abort(ctx))
		}
		tx, err = p.Begin(ctx)
		ok(t, "begin after it", err)
		ok(t, "send after it", sendTo(ctx, tx, topic, 0, "next"))
		ok(t, "commit after it", tx.Commit(ctx))
		if got := readCommitted(t, ctx, topic, 1, 1); !maps.Equal(got, map[string]int{"next": 1}) {
			t.Errorf("read %v", got)
		}
	})
}

// TestB104KafkaLostAnswersOfTheEnd loses every answer for a while when every
// third transaction ends: what Commit and Abort say is so.
func TestB104KafkaLostAnswersOfTheEnd(t *testing.T) {
	onBothProtocols(t, time.Minute, func(t *testing.T, ctx context.Context, _ string, open func(...func(*cluster.Config)) *Producer) {
		var line deafLine
		p := open(func(cfg *cluster.Config) { cfg.Dial = line.dial })
		topic := createTopic(t, 2, nil)
		want := map[string]int{}
		for n := range 24 {
			tx, err := p.Begin(ctx)
			if old := new(kafka.VersionError); errors.As(err, &old) { // before 2.5 only a new producer gets a new epoch
				p = open(func(cfg *cluster.Config) { cfg.Dial = line.dial })
				tx, err = p.Begin(ctx)
			}
			ok(t, "begin", err)
			v := fmt.Sprint(n)
			ok(t, "send", sendTo(ctx, tx, topic, int32(n%2), v))
			if n%3 == 0 {
				line.deaf.Store(true)
				time.AfterFunc(50*time.Millisecond, func() { line.deaf.Store(false) })
			}
			if err = tx.Commit(ctx); err == nil {
				want[v] = 1
			} else if err = tx.Abort(ctx); errors.Is(err, ErrCommitted) {
				want[v] = 1
			} else {
				ok(t, "abort", err)
			}
		}
		if got := readCommitted(t, ctx, topic, 2, len(want)); !maps.Equal(got, want) {
			t.Errorf("read %v, want %v", got, want)
		}
	})
}
