package cluster

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
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

// TestG44DropAndCloseEndWhatIsHeldBack has a coordinator that holds a JoinGroup
// back. Other requests to it go on: the member's connections are its own.
func TestG44DropAndCloseEndWhatIsHeldBack(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		b := r.sim.Broker(1)
		r.coordinates("g", 1)
		b.Handle(11, func(q *sim.Request) sim.Answer { return sim.Answer{Until: q.Done()} })
		c := r.connect()
		j, other := NewJoins(c), NewJoins(c)
		defer other.Close()
		join := func(j *Joins) <-chan error {
			got := make(chan error, 1)
			go func() {
				_, err := j.Request(r.within(time.Minute), "g", kmsg.NewPtrJoinGroupRequest())
				got <- err
			}()
			time.Sleep(time.Second)
			return got
		}
		others := join(other)
		for _, end := range []func(){j.Drop, j.Close} {
			mine := join(j)
			if len(mine) > 0 {
				t.Fatalf("the coordinator does not hold it back: %v", <-mine)
			}
			end()
			synctest.Wait()
			if len(mine) == 0 {
				t.Error("what is held back did not end")
			} else if err := <-mine; !kafka.MayHaveHappened(err) {
				t.Errorf("a lost JoinGroup: %v", err)
			}
		}
		if err := <-join(j); !errors.Is(err, ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
		if len(others) > 0 {
			t.Errorf("another member's JoinGroup ended: %v", <-others)
		}
		if n := b.Count(11); n != 3 {
			t.Errorf("three calls sent %d requests", n)
		}
	})
}
