//go:build kafka

package consumer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// protocols are the kinds of groups that the broker under test has by default.
func protocols() []kafka.GroupKind {
	if strings.HasPrefix(broker.Version(), "3.") {
		return []kafka.GroupKind{kafka.ClassicGroup}
	}
	return []kafka.GroupKind{kafka.ClassicGroup, kafka.ConsumerGroup}
}

// tally counts what was handled, by value.
type tally struct {
	mu   sync.Mutex
	seen map[string]int
}

func (y *tally) handle(_ context.Context, b Batch) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	for _, r := range b.Records() {
		y.seen[string(r.Value)]++
	}
	return nil
}

func (y *tally) distinct() int {
	y.mu.Lock()
	defer y.mu.Unlock()
	return len(y.seen)
}

// load produces numbered values to the partitions of a topic until stopped, and
// tells how many were acknowledged.
func load(ctx context.Context, t *testing.T, topic string, partitions int32) (stop func() int) {
	t.Helper()
	cl := realPeer(t, kgo.RecordRetries(1000))
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan int, 1)
	go func() {
		n := 0
		for ctx.Err() == nil {
			for range 20 {
				cl.Produce(context.Background(), &kgo.Record{Topic: topic, Partition: int32(n) % partitions, Value: []byte(fmt.Sprint(n))}, func(_ *kgo.Record, err error) {
					if err != nil {
						t.Errorf("produce: %v", err)
					}
				})
				n++
			}
			time.Sleep(10 * time.Millisecond)
		}
		if err := cl.Flush(context.Background()); err != nil {
			t.Errorf("flush: %v", err)
		}
		done <- n
	}()
	return func() int {
		cancel()
		return <-done
	}
}

// running is a member that handles in the background.
type running struct {
	name   string
	c      *Consumer
	client *cluster.Cluster
	cancel context.CancelFunc
	done   chan error
}

// run starts a member with a client of its own.
func run(t *testing.T, cfg GroupConfig, handle func(context.Context, Batch) error) *running {
	t.Helper()
	client, err := cluster.Connect(context.Background(), cluster.Config{Bootstrap: strings.Split(broker.Bootstrap(), ","), MetadataMaxAge: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(client, Config{Group: cfg, MaxPollRecords: 100})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := &running{c: c, client: client, cancel: cancel, done: make(chan error, 1)}
	go func() { r.done <- c.Run(ctx, handle) }()
	t.Cleanup(func() { r.kill() })
	return r
}

// stop ends the member in order.
func (r *running) stop(t *testing.T) {
	t.Helper()
	r.cancel()
	if err := <-r.done; err != nil {
		t.Errorf("Run: %v", err)
	}
	r.done <- nil
	r.client.Close()
}

// kill ends the member as a crash would: nothing is committed or said.
func (r *running) kill() {
	r.client.Close()
	r.cancel()
	r.c.Close()
	<-r.done
	r.done <- nil
}

func wait(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v", what, context.Cause(ctx))
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func TestG3_G31_G36OnKafkaAGroupReadsCommitsAndGoesOn(t *testing.T) {
	for _, protocol := range protocols() {
		t.Run(protocol.String(), func(t *testing.T) {
			topic := "group-" + protocol.String()
			ctx, c := onKafka(t, topic, 3)
			cl := realPeer(t)
			for i := range 300 {
				cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(i % 3), Value: []byte(fmt.Sprint(i))}, nil)
			}
			if err := cl.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			y := &tally{seen: map[string]int{}}
			cfg := GroupConfig{ID: topic, Topics: []string{topic}, Protocol: protocol}
			first := run(t, cfg, y.handle)
			wait(ctx, t, "300 records", func() bool { return y.distinct() == 300 })
			first.stop(t)
			second := run(t, cfg, y.handle)
			cl.Produce(ctx, &kgo.Record{Topic: topic, Value: []byte("last")}, nil)
			wait(ctx, t, "one more", func() bool { return y.distinct() == 301 })
			second.stop(t)
			for v, n := range y.seen {
				if n != 1 {
					t.Errorf("%s was handled %d times", v, n)
				}
			}
			probe, err := New(c, Config{Group: GroupConfig{ID: topic}})
			if err != nil {
				t.Fatal(err)
			}
			defer probe.Close()
			at, err := probe.Group().Committed(ctx, tp(topic, 0), tp(topic, 1), tp(topic, 2))
			if err != nil || len(at) != 3 || at[tp(topic, 0)].Offset != 101 {
				t.Errorf("committed %v, %v", at, err)
			}
		})
	}
}

// The protocol that was chosen is the one that is spoken; where a broker does not
// have it, that is an error.
func TestG21OnKafkaTheProtocolIsNeverReplaced(t *testing.T) {
	ctx, c := onKafka(t, "chosen", 1)
	n, err := New(c, Config{Group: GroupConfig{ID: "chosen", Topics: []string{"chosen"}, Protocol: kafka.ConsumerGroup}})
	if err != nil {
		t.Fatal(err)
	}
	defer n.Close()
	if len(protocols()) == 1 {
		_, err = n.Poll(ctx)
		var ve *kafka.VersionError
		if !errors.As(err, &ve) {
			t.Errorf("Poll: %v", err)
		}
		return
	}
	wait(ctx, t, "the member", func() bool { return n.Group().Stats().Partitions == 1 })
	resp, err := c.Request(ctx, &kmsg.ConsumerGroupDescribeRequest{Groups: []string{"chosen"}})
	if err != nil {
		t.Fatal(err)
	}
	g := resp.(*kmsg.ConsumerGroupDescribeResponse).Groups[0]
	if g.ErrorCode != 0 || len(g.Members) != 1 {
		t.Errorf("as a group of the protocol: code %d, %d members", g.ErrorCode, len(g.Members))
	}
}

func TestG28_G29_B202OnKafkaStaticMembers(t *testing.T) {
	for _, protocol := range protocols() {
		t.Run(protocol.String(), func(t *testing.T) {
			topic := "static-" + protocol.String()
			ctx, _ := onKafka(t, topic, 2)
			y := &tally{seen: map[string]int{}}
			cfg := GroupConfig{ID: topic, InstanceID: "x", Topics: []string{topic}, Protocol: protocol, SessionTimeout: 10 * time.Second}
			first := run(t, cfg, y.handle)
			wait(ctx, t, "a member", func() bool { return first.c.Group().Stats().Partitions == 2 })
			first.stop(t) // says no goodbye
			second := run(t, cfg, y.handle)
			wait(ctx, t, "its successor", func() bool { return second.c.Group().Stats().Partitions == 2 })
			third := run(t, cfg, y.handle)
			loser, winner := second, third
			if protocol == kafka.ConsumerGroup { // there the newcomer is refused
				loser, winner = third, second
			}
			select {
			case err := <-loser.done:
				if !errors.Is(err, kafka.ErrFenced) {
					t.Errorf("the refused one ended with %v", err)
				}
				loser.done <- nil
			case <-ctx.Done():
				t.Fatal("both go on")
			}
			wait(ctx, t, "the winner", func() bool { return winner.c.Group().Stats().Partitions == 2 })
			winner.stop(t)
		})
	}
}

// chaosLength is how long the chaos test runs: OTTLA_GROUP_CHAOS, such as 20m.
func chaosLength(t *testing.T) time.Duration {
	if s := os.Getenv("OTTLA_GROUP_CHAOS"); s != "" {
		d, err := time.ParseDuration(s)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	return 12 * time.Second
}

// Members join, leave and are killed under load, and connections of brokers
// break: every record is handled at least once, and by the callbacks no partition
// has two owners at a time.
func TestG37_G40OnKafkaChaosEveryRecordIsHandledAndNoPartitionHasTwoOwners(t *testing.T) {
	for _, protocol := range protocols() {
		t.Run(protocol.String(), func(t *testing.T) {
			topic := "chaos-" + protocol.String()
			onKafka(t, topic, 12)
			length := chaosLength(t)
			ctx, cancel := context.WithTimeout(context.Background(), length+2*time.Minute)
			defer cancel()
			y := &tally{seen: map[string]int{}}
			l := newLedger(t)
			seed := rand.Uint64()
			rng := rand.New(rand.NewPCG(seed, 1))
			t.Logf("seed %d", seed)
			n := 0
			start := func() *running {
				n++
				name := fmt.Sprint("m", n)
				r := run(t, l.watch(name, GroupConfig{
					ID: topic, Topics: []string{topic}, Protocol: protocol, SessionTimeout: 6 * time.Second, CommitInterval: time.Second,
				}), y.handle)
				r.name = name
				return r
			}
			members := []*running{start(), start()}
			wait(ctx, t, "two members", func() bool {
				return members[0].c.Group().Stats().Partitions+members[1].c.Group().Stats().Partitions == 12
			})
			stop := load(ctx, t, topic, 12)
			for end := time.Now().Add(length); time.Now().Before(end); {
				time.Sleep(time.Duration(1000+rng.IntN(1500)) * time.Millisecond)
				i := rng.IntN(len(members))
				switch k := rng.IntN(4); {
				case len(members) == 1 || k == 0 && len(members) < 5:
					members = append(members, start())
				case k == 1:
					members[i].stop(t)
					members = append(members[:i], members[i+1:]...)
				case k == 2:
					l.killed(members[i].name)
					members[i].kill()
					members = append(members[:i], members[i+1:]...)
				default:
					members[i].stop(t)
					members[i] = start()
				}
			}
			produced := stop()
			wait(ctx, t, fmt.Sprintf("%d records", produced), func() bool { return y.distinct() == produced })
			doubled := 0
			for _, times := range y.seen {
				doubled += times - 1
			}
			t.Logf("%d records, %d handled again, %d members", produced, doubled, n)
			for _, m := range members {
				m.stop(t)
			}
		})
	}
}
