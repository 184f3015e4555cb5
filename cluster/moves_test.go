package cluster

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// TestC69R33ARejectedLeaderIsAskedNoMoreDuringTheElection fails where the
// router does not forget the leader that refused: while metadata has no new
// one, the old one would be asked again and again.
func TestC69R33ARejectedLeaderIsAskedNoMoreDuringTheElection(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.topic("t", 1, 1)
		r.answerOffsets()
		c := r.connect()
		mustDo(t, second(c.Request(r.within(time.Minute), listOffsets(tp("t", 0), tp("t", 1)))))
		r.sim.Broker(1).Forget()
		r.sim.Broker(1).Handle(2, func(q *sim.Request) sim.Answer {
			resp := offsetsOf(q)
			for i := range resp.Topics[0].Partitions {
				if p := &resp.Topics[0].Partitions[i]; p.Partition == 0 {
					p.ErrorCode = kerr.NotLeaderForPartition.Code
				}
			}
			return sim.Reply(resp)
		})
		r.sim.Update(func(tp *sim.Topology) { tp.Topics[0].Partitions[0] = sim.Partition{Leader: -1, Epoch: -1, Error: 5} })
		time.AfterFunc(3*time.Second, func() {
			r.sim.Update(func(tp *sim.Topology) { tp.Topics[0].Partitions[0] = sim.Partition{Leader: 2, Epoch: 4} })
		})
		resp, err := c.Request(r.within(time.Minute), listOffsets(tp("t", 0), tp("t", 1)))
		mustDo(t, err)
		if got := offsets(t, resp); got[tp("t", 0)] != 2000 || got[tp("t", 1)] != 1001 {
			t.Errorf("offsets %v", got)
		}
		if n := r.sim.Broker(1).Count(2); n != 1 {
			t.Errorf("the leader that refused was asked %d times", n)
		}
	})
}

// TestC3ABootstrapAddressAndTheBrokerAtItAreOneEntry has metadata name the
// address in another spelling, and the lanes of the one serve the other.
func TestC3ABootstrapAddressAndTheBrokerAtItAreOneEntry(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes[0].Host = "B1" })
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		mustDo(t, c.refresh(t.Context(), nil, needNow))
		mustDo(t, describe(1, c, r))
		if n := r.sim.Broker(1).Accepted(); n != 1 {
			t.Errorf("%d sockets for one address", n)
		}
		addrs := map[string]bool{}
		for _, s := range c.Stats().Connections {
			addrs[s.Addr] = true
		}
		if len(addrs) != 1 || !addrs["b1:9092"] {
			t.Errorf("entries %v", addrs)
		}
	})
}

// TestK8TheAddressOfACoordinatorIsUsedAndKept has a coordinator that metadata
// never names: refreshes do not retire its sockets.
func TestK8TheAddressOfACoordinatorIsUsedAndKept(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[:2] })
		r.everywhere(10, func(q *sim.Request) sim.Answer {
			resp := r.sim.FindCoordinator(q)
			for i := range resp.Coordinators {
				rc := &resp.Coordinators[i]
				rc.ErrorCode, rc.NodeID, rc.Host, rc.Port = 0, 3, "b3", 9092
			}
			return sim.Reply(resp)
		})
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092", "b2:9092"} })
		beat := &kmsg.HeartbeatRequest{Group: "g"}
		mustDo(t, second(c.Request(r.within(time.Minute), beat)))
		r.sim.Update(func(tp *sim.Topology) { // the map changes
			tp.Nodes = append(tp.Nodes, sim.Node{ID: 9, Host: "b9", Port: 9092})
		})
		mustDo(t, c.refresh(t.Context(), nil, needNow))
		time.Sleep(time.Second)
		mustDo(t, second(c.Request(r.within(time.Minute), beat)))
		if a, n := r.sim.Broker(3).Accepted(), r.sim.Broker(3).Count(12); a != 1 || n != 2 {
			t.Errorf("%d sockets, %d heartbeats at the coordinator", a, n)
		}
	})
}

// TestB050ACoordinatorThatMovedIsLookedUpAtOnce has the coordinator's node turn
// up at another address while the old one swallows every packet: without the
// new look-up the next request waits for a dial that cannot end.
func TestB050ACoordinatorThatMovedIsLookedUpAtOnce(t *testing.T) {
	inBubble(t, 4, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[:3] })
		r.coordinates("g", 3)
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		beat := &kmsg.HeartbeatRequest{Group: "g"}
		mustDo(t, second(c.Request(r.within(time.Minute), beat)))
		r.sim.Broker(3).EndAll(sim.Close)
		r.net.BlackHole("b3:9092", true)
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes[2].Host = "b4" })
		mustDo(t, c.refresh(t.Context(), nil, needNow))
		start := time.Now()
		mustDo(t, second(c.Request(r.within(time.Minute), beat)))
		if took := time.Since(start); took > time.Second || r.sim.Broker(4).Count(12) != 1 {
			t.Errorf("after %v", took)
		}
	})
}

// TestB050ACoordinatorThatIsGoneForGoodIsReplaced has the coordinator die, and
// the cluster elect another only later and drop it from its list.
func TestB050ACoordinatorThatIsGoneForGoodIsReplaced(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.coordinates("g", 3)
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092", "b2:9092"} })
		commit := func() error {
			req := kmsg.NewPtrOffsetCommitRequest()
			req.Group = "g"
			return second(c.Request(r.within(time.Minute), req))
		}
		mustDo(t, commit())
		r.sim.Broker(3).Close()
		start := time.Now()
		time.AfterFunc(4*time.Second, func() {
			r.coordinates("g", 2)
			r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[:2] })
		})
		mustDo(t, commit())
		if took := time.Since(start); took < 4*time.Second || took > 6*time.Second {
			t.Errorf("resumed after %v", took)
		}
		if b, err := c.Coordinator(r.within(time.Second), GroupCoordinator, "g"); err != nil || b.ID != kafka.NodeID(2) {
			t.Errorf("%v, %v", b, err)
		}
	})
}

// TestK7RequestCoordinatorForgetsACoordinatorThatItCannotReach makes one
// attempt for each call: the call after the failed one finds the new broker.
func TestK7RequestCoordinatorForgetsACoordinatorThatItCannotReach(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.coordinates("g", 3)
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092", "b2:9092"} })
		beat := &kmsg.HeartbeatRequest{Group: "g", Version: 2} // both sides know 4
		mustDo(t, second(c.RequestCoordinator(r.within(time.Minute), "g", beat)))
		if v := r.sim.Broker(3).FramesOf(12)[0].Version; v != 2 {
			t.Errorf("C24: sent at version %d, not at the caller's", v)
		}
		r.sim.Broker(3).Close()
		r.coordinates("g", 2)
		if err := second(c.RequestCoordinator(r.within(time.Minute), "g", beat)); err == nil {
			t.Error("a dead coordinator answered")
		}
		mustDo(t, second(c.RequestCoordinator(r.within(time.Minute), "g", beat)))
		if r.sim.Broker(2).Count(12) != 1 {
			t.Error("the new coordinator was not asked")
		}
	})
}

// TestC54TheBootstrapSocketServesOn has a bootstrap address that metadata does
// not name, such as that of a load balancer: its open socket stays the first
// choice.
func TestC54TheBootstrapSocketServesOn(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[1:] })
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		time.Sleep(time.Second)
		for range 3 {
			mustDo(t, second(c.Request(r.within(time.Minute), kmsg.NewPtrDescribeClusterRequest())))
		}
		if a, n := r.sim.Broker(1).Accepted(), r.sim.Broker(1).Count(60); a != 1 || n != 3 || r.sim.Broker(2).Accepted() != 0 {
			t.Errorf("%d sockets and %d requests at the bootstrap address", a, n)
		}
	})
}

// TestC2ABarredAddressIsTakenBackWhenItsClusterNamesItAnew is the way back from
// point 5: once the right cluster has dropped the address, its own word for it
// counts again at once.
func TestC2ABarredAddressIsTakenBackWhenItsClusterNamesItAnew(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		c.pool.bar("b2:9092", &MismatchError{Addr: "b2:9092", Want: "sim", Found: "other"})
		mustDo(t, c.refresh(t.Context(), nil, needNow))
		var me *MismatchError
		if err := describe(2, c, r); !errors.As(err, &me) {
			t.Fatalf("the address is named all along: %v", err)
		}
		var gone []sim.Node
		r.sim.Update(func(tp *sim.Topology) { gone, tp.Nodes = tp.Nodes[1:], tp.Nodes[:1] })
		mustDo(t, c.refresh(t.Context(), nil, needNow))
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = append(tp.Nodes[:1:1], gone...) })
		mustDo(t, c.refresh(t.Context(), nil, needNow))
		mustDo(t, describe(2, c, r))
	})
}

// TestJournalShowsFrames also holds that a zero Journal keeps nothing.
func TestJournalShowsFrames(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		j := NewJournal(4)
		c := r.connect(func(cfg *Config) { cfg.Journal = j })
		mustDo(t, describe(1, c, r))
		fs := j.Frames()
		if len(fs) != 4 || !fs[3].Answer || fs[1].Answer || fs[3].API != 60 || fs[3].ID != fs[1].ID || fs[3].Purpose != "general" || fs[3].Addr != "b1:9092" {
			t.Errorf("frames %+v", fs)
		}
		if strings.Count(j.String(), "\n") != 4 || len(new(Journal).Frames()) != 0 {
			t.Errorf("%s", j)
		}
	})
}

// TestC56ABrokerThatIsLateWithMetadataIsNotChosen has the refresh, not a
// request of the caller, find out that a broker is stuck.
func TestC56ABrokerThatIsLateWithMetadataIsNotChosen(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		r.sim.Broker(1).Handle(3, func(q *sim.Request) sim.Answer { return sim.Answer{Until: q.Done(), OutOfOrder: true} })
		mustDo(t, c.refresh(t.Context(), nil, needNow))
		for range 10 {
			mustDo(t, second(c.Request(r.within(time.Minute), kmsg.NewPtrDescribeClusterRequest())))
		}
		if a, b := r.sim.Broker(1).Count(60), r.sim.Broker(2).Count(60); a != 0 || b != 10 {
			t.Errorf("%d requests to the stuck broker, %d to the other", a, b)
		}
	})
}
