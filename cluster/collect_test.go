package cluster

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// marked has broker i answer DescribeCluster with its id and the number of the
// request, after a delay.
func (r *rig) marked(delay func(id int32) time.Duration) {
	for _, b := range r.sim.Brokers() {
		b.Handle(60, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeClusterResponse)
			resp.ControllerID = 100*b.ID + int32(q.Nth)
			return sim.Answer{Response: resp, Delay: delay(b.ID)}
		})
	}
}

func questions(ids ...kafka.NodeID) []Question {
	qs := make([]Question, len(ids))
	for i, id := range ids {
		qs[i] = Question{Broker: id, Req: kmsg.NewPtrDescribeClusterRequest()}
	}
	return qs
}

func mark(t *testing.T, r Reply) int32 {
	t.Helper()
	if r.Err != nil {
		t.Fatalf("broker %d: %v", r.Broker, r.Err)
	}
	return r.Resp.(*kmsg.DescribeClusterResponse).ControllerID
}

func TestC47C48C52CollectTakesAsLongAsTheSlowestAndKeepsTheOrder(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect()
		r.marked(func(id int32) time.Duration { return time.Duration(4-id) * 40 * time.Millisecond })
		_ = c.Collect(t.Context(), questions(1, 2, 3), Dial)
		start := time.Now()
		rs := c.Collect(t.Context(), questions(1, 2, 3), Dial)
		if took := time.Since(start); took > 150*time.Millisecond {
			t.Errorf("C47: took %v for delays of 120, 80 and 40 ms", took)
		}
		rs = append(rs, c.Collect(t.Context(), questions(2, 3, 2), Dial)...)
		for i, want := range []int32{102, 202, 302, 203, 303, 204} {
			if got := mark(t, rs[i]); got != want {
				t.Errorf("reply %d is %d, want %d", i, got, want)
			}
		}
	})
}

func TestC49AnAddressWithoutASocketIsNotConnectedAtOnce(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		r.marked(func(int32) time.Duration { return 0 })
		start := time.Now()
		rs := c.Collect(t.Context(), questions(2, 1, 3), OpenOnly)
		mark(t, rs[1])
		for _, i := range []int{0, 2} {
			var de *kafka.DialError
			if !errors.As(rs[i].Err, &de) || kafka.MayHaveHappened(rs[i].Err) {
				t.Errorf("reply %d: %v", i, rs[i].Err)
			}
		}
		if took := time.Since(start); took > 5*time.Millisecond {
			t.Errorf("took %v", took)
		}
		time.Sleep(time.Second)
		if n := r.sim.Broker(2).Accepted() + r.sim.Broker(3).Accepted(); n != 0 {
			t.Errorf("%d dials", n)
		}
	})
}

func TestC50C51CollectSendsNothingTwiceAndKeepsHealthySockets(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		r.marked(func(int32) time.Duration { return 0 })
		_ = c.Collect(t.Context(), questions(1, 2, 3), Dial)
		r.sim.Broker(2).Script(60, sim.Answer{End: sim.Close})
		rs := c.Collect(t.Context(), questions(1, 2, 3), Dial)
		mark(t, rs[0])
		mark(t, rs[2])
		var ce *kafka.ConnError
		if !errors.As(rs[1].Err, &ce) {
			t.Errorf("the broken one: %v", rs[1].Err)
		}
		if n := r.sim.Broker(2).Count(60); n != 2 {
			t.Errorf("broker 2 saw %d requests, want two", n)
		}
		_ = c.Collect(t.Context(), questions(1, 2, 3), Dial)
		for id, want := range map[int32]int{1: 1, 2: 2, 3: 1} {
			if n := r.sim.Broker(id).Accepted(); n != want {
				t.Errorf("broker %d accepted %d sockets, want %d", id, n, want)
			}
		}
	})
}

func TestC53CollectEndsWithItsContextAndTheSocketStays(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		r.marked(func(id int32) time.Duration { return time.Duration(id-1) * time.Second })
		start := time.Now()
		rs := c.Collect(r.within(100*time.Millisecond), questions(1, 2), Dial)
		mark(t, rs[0])
		if !errors.Is(rs[1].Err, context.DeadlineExceeded) || time.Since(start) > 101*time.Millisecond {
			t.Errorf("%v after %v", rs[1].Err, time.Since(start))
		}
		if got := mark(t, c.Collect(t.Context(), questions(2), Dial)[0]); got != 202 {
			t.Errorf("the next request got answer %d", got)
		}
		if n := r.sim.Broker(2).Accepted(); n != 1 {
			t.Errorf("%d sockets", n)
		}
	})
}
