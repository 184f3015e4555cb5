package cluster

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
)

// TestC2TheConnectionsOfAMemberExpectWhatTheClientExpects has the coordinator
// say that it is another node of the same cluster: a member that went on to ask
// for the node it was first told could never join again.
func TestC2TheConnectionsOfAMemberExpectWhatTheClientExpects(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.coordinates("g", 2)
		b := r.sim.Broker(2)
		b.Handle(11, func(q *sim.Request) sim.Answer { return sim.Reply(q.Response()) })
		b.Handle(18, checkIdentity(b, "sim", 7))
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		j := NewJoins(c)
		defer j.Close()
		join := func() error {
			_, err := j.Request(r.within(time.Minute), "g", kmsg.NewPtrJoinGroupRequest())
			return err
		}
		if join() == nil {
			t.Fatal("the first dial did not ask for node 2")
		}
		time.Sleep(time.Second)
		if err := join(); err != nil {
			t.Errorf("after the probe: %v", err)
		}
	})
}
