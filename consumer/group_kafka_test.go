//go:build kafka

package consumer

import (
	"context"
	"errors"
	"fmt"
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

// running is a member that handles in the background.
type running struct {
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
