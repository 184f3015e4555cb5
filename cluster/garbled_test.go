package cluster

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// TestB008ARequestWhoseAnswersWereMixedUpIsAskedAgain has a broker answer with
// a correlation id that nobody used. What may be repeated is, on a new socket;
// what changes the cluster is in doubt.
func TestB008ARequestWhoseAnswersWereMixedUpIsAskedAgain(t *testing.T) {
	garble := func(r *sim.Request) sim.Answer {
		a := r.Broker.Default(r)
		if r.Nth == 1 {
			wrong := int32(999)
			a.Correlation = &wrong
		}
		return a
	}
	inBubble(t, 1, func(t *testing.T, r *rig) {
		b := r.sim.Broker(1)
		b.Handle(60, garble)
		b.Handle(19, garble)
		c := r.connect()
		if _, err := c.Request(r.within(10*time.Second), kmsg.NewPtrDescribeClusterRequest()); err != nil || b.Count(60) != 2 {
			t.Errorf("DescribeCluster: %v after %d requests", err, b.Count(60))
		}
		b.Handle(10, garble)
		if _, err := c.Coordinator(r.within(10*time.Second), GroupCoordinator, "g"); err != nil || b.Count(10) != 2 {
			t.Errorf("Coordinator: %v after %d requests", err, b.Count(10))
		}
		b.Forget()
		b.Handle(3, garble)
		r.topic("t", 1)
		if _, err := c.Topic(r.within(10*time.Second), "t"); err != nil || b.Count(3) != 2 {
			t.Errorf("Topic: %v after %d requests", err, b.Count(3))
		}
		_, err := c.Request(r.within(10*time.Second), kmsg.NewPtrCreateTopicsRequest())
		if err == nil || !kafka.MayHaveHappened(err) || b.Count(19) != 1 {
			t.Errorf("CreateTopics: %v after %d requests", err, b.Count(19))
		}
	})
}
