//go:build kafka

package realkafka

import (
	"context"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestBrokersOfThreeComeAndGo walks one of three brokers through everything
// that can be done to it, and looks at the cluster from outside each time.
func TestBrokersOfThreeComeAndGo(t *testing.T) {
	c := Start(t, Options{Brokers: 3})
	if got := len(strings.Split(c.Bootstrap(), ",")); got != 3 {
		t.Fatalf("bootstrap names %d brokers: %s", got, c.Bootstrap())
	}
	controller, err := c.Controller()
	if err != nil || controller < 1 || controller > 3 {
		t.Fatalf("controller is %d (%v)", controller, err)
	}
	victim, other := controller%3+1, (controller+1)%3+1

	t.Run("kill", func(t *testing.T) {
		must(t, c.Kill(victim))
		if conn, err := net.Dial("tcp4", c.Addr(victim)); err == nil {
			_ = conn.Close()
			t.Error("the killed broker's port still listens")
		}
		if err := c.Kill(victim); err == nil || !strings.Contains(err.Error(), "is not running") {
			t.Errorf("killing it twice gives %v", err)
		}
		waitKnown(t, c, other, victim, false)
		must(t, c.Restart(victim))
		waitKnown(t, c, other, victim, true)
		if err := c.Restart(victim); err == nil || !strings.Contains(err.Error(), "runs already") {
			t.Errorf("restarting a running broker gives %v", err)
		}
	})
	t.Run("pause", func(t *testing.T) {
		must(t, c.Pause(victim))
		w, err := dialWire(t.Context(), c.Addr(victim))
		if err != nil {
			t.Fatalf("the paused broker does not accept: %v", err)
		}
		defer w.close()
		waitKnown(t, c, other, victim, false)
		must(t, c.Resume(victim))
		waitKnown(t, c, other, victim, true)
	})
	t.Run("stop", func(t *testing.T) {
		must(t, c.Stop(victim))
		waitKnown(t, c, other, victim, false)
		must(t, c.Restart(victim))
	})
	if _, err := c.state.node(4); err == nil {
		t.Error("there is no broker 4")
	}
}

// waitKnown waits until broker from names broker id in its metadata, or not.
func waitKnown(t *testing.T, c *Cluster, from, id int, want bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), readyWithin)
	defer cancel()
	err := poll(ctx, 20*time.Millisecond, func() error {
		known, err := brokersOf(ctx, c.Addr(from))
		if err == nil && slices.Contains(known, id) != want {
			err = context.DeadlineExceeded
		}
		return err
	})
	if err != nil {
		t.Fatalf("broker %d in the metadata of %d: still not %v: %v", id, from, want, err)
	}
}
