package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// TestC43AnEarlierAttemptLeavesTheRequestInDoubt has a broker read EndTxn and
// close, and then be gone, so that the last attempt wrote nothing. The mutation
// that it finds: an outcome that only the last attempt decides.
func TestC43AnEarlierAttemptLeavesTheRequestInDoubt(t *testing.T) {
	for name, end := range map[string]func(r *rig, c *Cluster){
		"context": func(*rig, *Cluster) {},
		"close": func(_ *rig, c *Cluster) {
			time.AfterFunc(3*time.Second, func() { c.Close() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *rig) {
				b := r.sim.Broker(1)
				b.Handle(26, func(*sim.Request) sim.Answer {
					go b.Close() // nobody listens from here on
					return sim.Answer{End: sim.Close}
				})
				c := r.connect()
				end(r, c)
				req := kmsg.NewPtrEndTxnRequest()
				req.TransactionalID, req.ProducerID = "tx", 1
				_, err := c.Request(r.within(10*time.Second), req)
				if err == nil || b.Count(26) == 0 {
					t.Fatalf("%v after %d requests", err, b.Count(26))
				}
				if !kafka.MayHaveHappened(err) {
					t.Errorf("said not to have happened: %v", err)
				}
				if name == "close" && !errors.Is(err, ErrClosed) {
					t.Errorf("%v is not ErrClosed", err)
				}
			})
		})
	}
}
