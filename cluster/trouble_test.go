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

var cachedBy = []string{"leader", "group", "groups", "member", "once", "controller", "resources"}

// asks are one request of each kind whose broker is cached: of a leader, a
// coordinator in each of its ways, and the controller.
func asks(c *Cluster) map[string]func(context.Context) error {
	return map[string]func(context.Context) error{
		"leader": func(ctx context.Context) error { return second(c.Request(ctx, listOffsets(tp("t", 0)))) },
		"group":  func(ctx context.Context) error { return second(c.Request(ctx, &kmsg.HeartbeatRequest{Group: "g"})) },
		"groups": func(ctx context.Context) error {
			return second(c.Request(ctx, &kmsg.DescribeGroupsRequest{Groups: []string{"g"}}))
		},
		"member": func(ctx context.Context) error {
			return second(c.RequestCoordinator(ctx, "g", &kmsg.SyncGroupRequest{Version: -1, Group: "g"}))
		},
		"once": func(ctx context.Context) error {
			return second(Once(c, GroupCoordinator, "g", -1).Request(ctx, &kmsg.LeaveGroupRequest{Group: "g"}))
		},
		"controller": func(ctx context.Context) error { return second(c.Request(ctx, kmsg.NewPtrCreateTopicsRequest())) },
		"resources":  func(ctx context.Context) error { return second(c.Request(ctx, mixedConfigs())) },
	}
}

// mixedConfigs is a change of a topic and of a broker, which is split.
func mixedConfigs() *kmsg.IncrementalAlterConfigsRequest {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Resources = []kmsg.IncrementalAlterConfigsRequestResource{
		{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"}, {ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "2"},
	}
	return req
}

// stuck connects to a broker 1 that leads, coordinates and controls, and then
// answers nothing of all that any more. Broker 2 answers the rest.
func stuck(t *testing.T, r *rig) *Cluster {
	r.topic("t", 1)
	r.coordinates("g", 1)
	r.sim.Update(func(top *sim.Topology) { top.Controller = 1 })
	c := r.connect()
	mustDo(t, second(c.Topic(t.Context(), "t")))
	mustDo(t, second(c.Coordinator(t.Context(), GroupCoordinator, "g")))
	for _, key := range []int16{2, 12, 13, 14, 15, 19, 44} {
		r.sim.Broker(1).Handle(key, func(*sim.Request) sim.Answer { return sim.Answer{} })
	}
	return c
}

// cached are the broker that leads the partition, the coordinator and the
// controller, as they are without a request.
func cached(t *testing.T, c *Cluster) (leader, coordinator, controller kafka.NodeID) {
	t.Helper()
	mustDo(t, c.settle(t.Context()))
	top, _ := c.CachedTopic("t")
	a := newAnswer()
	c.inbox.post(func(s *state) {
		a.broker, _ = s.coords.Known(keyOf(GroupCoordinator, "g"))
		a.give(nil)
	})
	mustDo(t, c.wait(t.Context(), a, nil))
	return top.Partitions[0].Leader, a.broker.ID, c.snap.Load().Controller
}

// A caller that gives up, for whatever reason of its own, says nothing about
// the broker: others keep what is cached, and nothing is asked anew.
func TestK7C69ACallerThatGivesUpInvalidatesNothing(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := stuck(t, r)
		for _, name := range cachedBy {
			for _, cause := range []error{nil, errors.New("I have had enough")} {
				time.Sleep(2 * time.Second)
				before := len(r.allMetadata()) + r.sim.Count(10)
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
				if err := asks(c)[name](ctx); err == nil {
					t.Errorf("%s: a broker that is silent answered", name)
				}
				if l, k, ct := cached(t, c); l != 1 || k != 1 || ct != 1 {
					t.Errorf("%s, cause %v: leader %d, coordinator %d, controller %d are left", name, cause, l, k, ct)
				}
				time.Sleep(2 * time.Second)
				if n := len(r.allMetadata()) + r.sim.Count(10) - before; n != 0 {
					t.Errorf("%s, cause %v: asked %d times anew", name, cause, n)
				}
			}
		}
	})
}

// A deadline that comes before the answer is the one hint of a stuck broker: what
// is cached is asked for anew, and holds for everybody until the answer.
func TestK7C69ADeadlineRenewsWhatIsCachedAndInvalidatesNothing(t *testing.T) {
	for _, name := range cachedBy {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, r *rig) {
				c := stuck(t, r)
				time.Sleep(2 * time.Second)
				r.everywhere(3, func(q *sim.Request) sim.Answer {
					return sim.Answer{Response: r.sim.Metadata(q), Delay: 100 * time.Millisecond}
				})
				r.everywhere(10, func(q *sim.Request) sim.Answer {
					return sim.Answer{Response: r.sim.FindCoordinator(q), Delay: 100 * time.Millisecond}
				})
				r.sim.SetLeader("t", 0, 2)
				r.coordinates("g", 2)
				r.sim.Update(func(top *sim.Topology) { top.Controller = 2 })

				ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("my own limit"))
				defer cancel()
				if err := asks(c)[name](ctx); err == nil {
					t.Error("a broker that is silent answered")
				}
				if l, k, ct := cached(t, c); l != 1 || k != 1 || ct != 1 {
					t.Errorf("right after the deadline leader %d, coordinator %d, controller %d are left", l, k, ct)
				}
				time.Sleep(time.Second)
				l, k, ct := cached(t, c)
				got := k
				switch name {
				case "leader":
					got = l
				case "controller", "resources":
					got = ct
				}
				if got != 2 {
					t.Errorf("a second later leader %d, coordinator %d, controller %d are known", l, k, ct)
				}
			})
		})
	}
}

// The request's own clock is the other side's fault: what is cached goes.
func TestK7C69ARequestThatOutlivesItsClockInvalidates(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := stuck(t, r)
		r.everywhere(10, func(*sim.Request) sim.Answer { return sim.Answer{} })
		_, err := Once(c, GroupCoordinator, "g", -1).Request(r.within(time.Hour), &kmsg.LeaveGroupRequest{Group: "g"})
		var late *kafka.TimeoutError
		if _, k, _ := cached(t, c); k == 1 || !errors.As(err, &late) {
			t.Errorf("coordinator %d is left after %v", k, err)
		}
	})
}
