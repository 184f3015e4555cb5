package consumer

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/memnet"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// B148 through the whole client: read to 100 by one leader, the next one has
// other records from 80 on. The loss is told, and what was written since is read
// from 80. Mutation: no question for the end of the epoch.
func TestB148ATruncationIsToldBeforeAnythingBehindIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := scripted(t, 1, 1)
		log := func(end int64, epoch byte) sim.Handler {
			var sessions sim.FetchSessions
			return sessions.Handler(fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) {
				p.HighWatermark = end
				if o < end {
					p.RecordBatches = wireBatch(kafka.Offset(o), int(end-o), int(end-o), record.NoProducer, 0, nil)
					p.RecordBatches[15] = epoch // not covered by the checksum
				}
			}))
		}
		s.Broker(1).Handle(1, log(100, 1))
		s.Broker(2).Handle(1, log(150, 2))
		s.Broker(2).Handle(23, func(r *sim.Request) sim.Answer {
			q := r.Req.(*kmsg.OffsetForLeaderEpochRequest).Topics[0].Partitions[0]
			resp := r.Response().(*kmsg.OffsetForLeaderEpochResponse)
			rt, rp := kmsg.NewOffsetForLeaderEpochResponseTopic(), kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rt.Topic, rp.EndOffset = "t", -1
			if q.LeaderEpoch == 1 {
				rp.EndOffset = 80
			}
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return sim.Reply(resp)
		})
		s.SetLeader("t", 0, 1)
		var resets []PositionReset
		cons, err := New(c, Config{OnReset: func(r PositionReset) { resets = append(resets, r) }})
		if err != nil {
			t.Fatal(err)
		}
		defer cons.Close()
		if err := cons.Assign(t.Context(), map[kafka.TopicPartition]Start{tp("t", 0): AtOffset(0)}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := newReader(t, cons)
		r.until(ctx, 100)
		s.SetLeader("t", 0, 2)
		c.InvalidateLeader(tp("t", 0))
		for len(r.errs) == 0 {
			r.poll(ctx)
		}
		var loss *kafka.DataLossError
		if r.n != 100 || !errors.As(r.errs[0], &loss) || loss.Position != 100 || loss.Remaining != 80 {
			t.Fatalf("%d records, %v", r.n, r.errs)
		}
		if len(resets) != 1 || resets[0].Old != 100 || resets[0].New != 80 {
			t.Errorf("%+v", resets)
		}
		clear(r.last)
		r.errs = nil
		r.until(ctx, 170)
		if v := r.values[tp("t", 0)][100]; v[:2] != "80" {
			t.Errorf("went on at %q", v)
		}
	})
}

// F4 and F51: Close tells brokers that it will not come back, and waits for no
// answer. Mutation: Close without goodbye.
func TestF4_F51CloseClosesTheSessions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := scripted(t, 1, 1, 2)
		var sessions [2]sim.FetchSessions
		for i, b := range s.Brokers() {
			b.Handle(1, sessions[i].Handler(fetchOf(func(*kmsg.FetchResponseTopicPartition, int64) {})))
		}
		cons, err := New(c, Config{})
		if err != nil {
			t.Fatal(err)
		}
		if err := cons.Assign(t.Context(), map[kafka.TopicPartition]Start{tp("t", 0): AtOffset(0), tp("t", 1): AtOffset(0)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		for i := range sessions {
			if sessions[i].Open() != 1 || len(sessions[i].Faults()) > 0 {
				t.Fatalf("%d sessions, %v", sessions[i].Open(), sessions[i].Faults())
			}
		}
		began := time.Now()
		cons.Close()
		if d := time.Since(began); d > 0 {
			t.Errorf("Close took %v", d)
		}
		time.Sleep(5 * time.Second)
		for i := range sessions {
			if sessions[i].Open() != 0 {
				t.Errorf("broker %d keeps the session", i+1)
			}
		}
	})
}

// B140: a replica that leads no partition is in nobody's map of leaders, and is
// read from; one that the cluster does not know is looked for once, and then the
// leader serves, without a spin. Mutation: fetch that does not look.
func TestB140AReplicaThatLeadsNothing(t *testing.T) {
	for name, known := range map[string]bool{"in the list of brokers": true, "unknown": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := memnet.New(1)
				var ls []net.Listener
				for _, a := range []string{"b1:9092", "b2:9092"} {
					l, err := n.Listen(a)
					if err != nil {
						t.Fatal(err)
					}
					ls = append(ls, l)
				}
				s := sim.New(t, ls...)
				s.SetTopic("t", 1)
				c, err := cluster.Connect(t.Context(), cluster.Config{Bootstrap: s.Seeds(), Dial: n.Dial})
				if err != nil {
					t.Fatal(err)
				}
				defer c.Close()
				replica := int32(2)
				if !known {
					replica = 9
				}
				s.Broker(1).Handle(1, func(r *sim.Request) sim.Answer {
					if r.Req.(*kmsg.FetchRequest).Rack == "" {
						return fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) { serveTen(p, o) })(r)
					}
					a := fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) {
						p.HighWatermark, p.PreferredReadReplica = 10, replica
					})(r)
					a.Delay = 0
					return a
				})
				s.Broker(2).Handle(1, fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) { serveTen(p, o) }))
				cons, err := New(c, Config{Rack: "r2"})
				if err != nil {
					t.Fatal(err)
				}
				defer cons.Close()
				if err := cons.Assign(t.Context(), map[kafka.TopicPartition]Start{tp("t", 0): AtOffset(0)}); err != nil {
					t.Fatal(err)
				}
				before := s.Count(3)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				r := newReader(t, cons)
				r.until(ctx, 10)
				time.Sleep(20 * time.Second)
				if got := s.Broker(2).Count(1) > 0; got != known {
					t.Errorf("broker 2 was fetched from: %v", got)
				}
				if looked := s.Count(3) - before; !known && (looked == 0 || looked > 3) {
					t.Errorf("metadata was asked %d times", looked)
				}
				if n := s.Broker(1).Count(1); n > 100 {
					t.Errorf("%d fetches at the leader: a spin", n)
				}
			})
		})
	}
}

// serveTen serves a log of ten records.
func serveTen(p *kmsg.FetchResponseTopicPartition, o int64) {
	p.HighWatermark = 10
	if o < 10 {
		p.RecordBatches = wireBatch(kafka.Offset(o), 1, 1, record.NoProducer, 0, nil)
	}
}
