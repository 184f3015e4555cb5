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

// reversed has the first broker answer last.
func reversed(id int32) time.Duration { return time.Duration(4-id) * 40 * time.Millisecond }

func TestC47CollectTakesAsLongAsTheSlowest(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect()
		r.marked(reversed)
		_ = c.Collect(t.Context(), questions(1, 2, 3), Dial)
		start := time.Now()
		_ = c.Collect(t.Context(), questions(1, 2, 3), Dial)
		if took := time.Since(start); took < 120*time.Millisecond || took > 150*time.Millisecond {
			t.Errorf("took %v for delays of 120, 80 and 40 ms", took)
		}
	})
}

func TestC48RepliesKeepTheOrderOfTheQuestions(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect()
		r.marked(reversed)
		for i, reply := range c.Collect(t.Context(), questions(1, 3, 2), Dial) {
			if want := []int32{101, 301, 201}[i]; mark(t, reply) != want || reply.Broker != kafka.NodeID(want/100) {
				t.Errorf("reply %d is %d of broker %d, want %d", i, mark(t, reply), reply.Broker, want)
			}
		}
	})
}

func TestC52TheSameBrokerTwiceIsTwoRequestsInOrder(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect()
		r.marked(reversed)
		for i, reply := range c.Collect(t.Context(), questions(2, 3, 2, 2), Dial) {
			if want := []int32{201, 301, 202, 203}[i]; mark(t, reply) != want {
				t.Errorf("reply %d is %d, want %d", i, mark(t, reply), want)
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

func TestC50ABrokenOrExpiredSocketIsDroppedAndHealthyOnesStay(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		r.marked(func(int32) time.Duration { return 0 })
		_ = c.Collect(t.Context(), questions(1, 2, 3), Dial)
		r.sim.Broker(2).Script(60, sim.Answer{End: sim.Close})
		r.sim.Broker(3).Script(60, sim.Answer{Delay: time.Hour}) // runs out of its time
		_ = c.Collect(t.Context(), questions(1, 2, 3), Dial)
		for _, reply := range c.Collect(t.Context(), questions(1, 2, 3), Dial) {
			mark(t, reply)
		}
		for id, want := range map[int32]int{1: 1, 2: 2, 3: 2} {
			if n := r.sim.Broker(id).Accepted(); n != want {
				t.Errorf("broker %d accepted %d sockets, want %d", id, n, want)
			}
		}
	})
}

// TestC51CollectSendsNothingTwice has a broker read the question and close.
// DescribeCluster may be repeated: a plain request to that broker is.
func TestC51CollectSendsNothingTwice(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		r.marked(func(int32) time.Duration { return 0 })
		_ = c.Collect(t.Context(), questions(1, 2, 3), Dial)
		r.sim.Broker(2).Script(60, sim.Answer{End: sim.Close})
		rs := c.Collect(t.Context(), questions(1, 2, 3), Dial)
		mark(t, rs[0])
		mark(t, rs[2])
		var ce *kafka.ConnError
		if n := r.sim.Broker(2).Count(60); n != 2 || !errors.As(rs[1].Err, &ce) {
			t.Errorf("%d requests: %v", n, rs[1].Err)
		}
		mustDo(t, describe(2, c, r)) // connected again
		r.sim.Broker(2).Script(60, sim.Answer{End: sim.Close})
		mustDo(t, describe(2, c, r))
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
