package cluster

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// A dial for it, or a second try on another connection, makes this fail: the
// request would overtake those before it.
func TestP8StartOpenKeepsToTheOpenConnection(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		start := func(id kafka.NodeID) error {
			done := make(chan error, 1)
			c.Broker(id).StartOpen(t.Context(), kmsg.NewPtrDescribeClusterRequest(), func(_ kmsg.Response, err error) { done <- err })
			return <-done
		}
		if err := start(2); err == nil || kafka.MayHaveHappened(err) || r.sim.Broker(2).Accepted() != 0 {
			t.Errorf("%v, %d connections", err, r.sim.Broker(2).Accepted())
		}
		mustDo(t, describe(2, c, r))
		if err := start(2); err != nil {
			t.Error(err)
		}
		asked := r.sim.Broker(2).Count(60)
		r.sim.Broker(2).Script(60, sim.Answer{End: sim.Close})
		if err := start(2); err == nil || !kafka.MayHaveHappened(err) || r.sim.Broker(2).Count(60) != asked+1 {
			t.Errorf("%v, asked %d times", err, r.sim.Broker(2).Count(60)-asked)
		}
	})
}

type demanding struct{ *kmsg.DescribeClusterRequest }

func (demanding) MinVersion() int16 { return 90 }

func TestP33ARequestMayNeedAVersion(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		c := r.connect()
		done := make(chan error, 1)
		c.Broker(1).Start(t.Context(), demanding{kmsg.NewPtrDescribeClusterRequest()}, func(_ kmsg.Response, err error) { done <- err })
		var version *kafka.VersionError
		if err := <-done; !errors.As(err, &version) || version.ClientMin != 90 || r.sim.Broker(1).Count(60) != 0 {
			t.Errorf("%v, asked %d times", err, r.sim.Broker(1).Count(60))
		}
	})
}
