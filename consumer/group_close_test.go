package consumer

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// closing is a state in which a member is closed (G44). It returns the member and
// what lets the bubble end.
type closing struct {
	name string
	make func(ctx context.Context, w *world, protocol kafka.GroupKind) (c *Consumer, release func())
}

var nothing = func() {}

// blocked polls once and keeps the batch until released.
func blocked(ctx context.Context, w *world, c *Consumer) {
	w.t.Helper()
	w.produce("t", 0, "a")
	if _, err := c.Poll(ctx); err != nil {
		w.t.Fatal(err)
	}
}

var closings = []closing{
	{"before the first join", func(_ context.Context, w *world, p kafka.GroupKind) (*Consumer, func()) {
		return w.member(GroupConfig{Protocol: p}), nothing
	}},
	{"without a subscription", func(_ context.Context, w *world, p kafka.GroupKind) (*Consumer, func()) {
		c := w.member(GroupConfig{Protocol: p})
		_ = c.Group().Subscribe()
		return c, nothing
	}},
	{"a coordinator that hangs before the join", func(_ context.Context, w *world, p kafka.GroupKind) (*Consumer, func()) {
		w.k.Hang(w.k.Coordinator("g"))
		c := w.member(GroupConfig{Protocol: p})
		settle(time.Second)
		return c, nothing
	}},
	{"a dead coordinator", func(ctx context.Context, w *world, p kafka.GroupKind) (*Consumer, func()) {
		c := w.member(GroupConfig{Protocol: p})
		blocked(ctx, w, c)
		if err := w.k.StopBroker(w.k.Coordinator("g")); err != nil {
			w.t.Fatal(err)
		}
		settle(time.Second)
		return c, nothing
	}},
	{"a coordinator that hangs while stable", func(ctx context.Context, w *world, p kafka.GroupKind) (*Consumer, func()) {
		c := w.member(GroupConfig{Protocol: p})
		blocked(ctx, w, c)
		c.finish()
		w.k.Hang(w.k.Coordinator("g"))
		settle(10 * time.Second)
		return c, nothing
	}},
	{"JoinGroup held back", func(ctx context.Context, w *world, p kafka.GroupKind) (*Consumer, func()) {
		other := w.member(GroupConfig{Protocol: p})
		blocked(ctx, w, other) // never comes back, so its revocation takes its time
		c := w.member(GroupConfig{Protocol: p})
		settle(time.Second)
		return c, nothing
	}},
	{"a group that rebalances without end", func(ctx context.Context, w *world, p kafka.GroupKind) (*Consumer, func()) {
		c := w.member(GroupConfig{Protocol: p})
		blocked(ctx, w, c)
		w.k.Fail(12, 27, -1, 0)
		w.k.Fail(14, 27, -1, 0)
		settle(10 * time.Second)
		return c, nothing
	}},
	{"unfinished work", func(ctx context.Context, w *world, p kafka.GroupKind) (*Consumer, func()) {
		c := w.member(GroupConfig{Protocol: p})
		blocked(ctx, w, c)
		return c, nothing
	}},
	{"a blocked OnAssigned", func(_ context.Context, w *world, p kafka.GroupKind) (*Consumer, func()) {
		stuck := make(chan struct{})
		c := w.member(GroupConfig{Protocol: p, OnAssigned: func(*Consumer, map[kafka.TopicPartition]kafka.Commit) { <-stuck }})
		settle(10 * time.Second)
		return c, func() { close(stuck) }
	}},
	{"a blocked OnRevoked", func(ctx context.Context, w *world, p kafka.GroupKind) (*Consumer, func()) {
		stuck := make(chan struct{})
		c := w.member(GroupConfig{Protocol: p, OnRevoked: func(*Consumer, []kafka.TopicPartition) { <-stuck }})
		stop := drainAll(ctx, c)
		settle(5 * time.Second)
		other := w.member(GroupConfig{Protocol: p})
		rest := drainAll(ctx, other)
		settle(10 * time.Second)
		return c, func() {
			close(stuck)
			stop()
			rest()
		}
	}},
	{"a blocked handler", func(ctx context.Context, w *world, p kafka.GroupKind) (*Consumer, func()) {
		stuck, done := make(chan struct{}), make(chan error, 1)
		c := w.member(GroupConfig{Protocol: p})
		go func() {
			done <- c.Run(ctx, func(context.Context, Batch) error { <-stuck; return nil })
		}()
		w.produce("t", 0, "a")
		settle(10 * time.Second)
		return c, func() {
			close(stuck)
			<-done
		}
	}},
}

// slack is what virtual time may take beyond a bound.
const slack = 100 * time.Millisecond

func TestT9_G44_R38CloseReturnsAtOnceFromEveryState(t *testing.T) {
	for _, state := range closings {
		t.Run(state.name, func(t *testing.T) {
			inGroups(t, map[string]int{"t": 2}, func(ctx context.Context, w *world, p kafka.GroupKind) {
				c, release := state.make(ctx, w, p)
				began := time.Now()
				if err := c.Close(); err != nil {
					w.t.Error(err)
				}
				if took := time.Since(began); took > slack {
					w.t.Errorf("Close took %v", took)
				}
				if _, err := c.Poll(ctx); !errors.Is(err, cluster.ErrClosed) {
					w.t.Errorf("Poll after Close: %v", err)
				}
				release()
			})
		})
	}
}

func TestT9_G44_R38ShutdownReturnsWithItsContextFromEveryState(t *testing.T) {
	for _, state := range closings {
		t.Run(state.name, func(t *testing.T) {
			inGroups(t, map[string]int{"t": 2}, func(ctx context.Context, w *world, p kafka.GroupKind) {
				c, release := state.make(ctx, w, p)
				began := time.Now()
				short, cancel := context.WithTimeout(ctx, 5*time.Second)
				defer cancel()
				two := make(chan error, 1)
				go func() { two <- c.Shutdown(short) }() // twice, at the same time
				_ = c.Shutdown(short)
				<-two
				if took := time.Since(began); took > 5*time.Second+slack {
					w.t.Errorf("Shutdown took %v", took)
				}
				if err := c.Close(); err != nil {
					w.t.Error(err)
				}
				release()
			})
		})
	}
}

func TestT9_G37_G44CloseAndShutdownFromInsideACallback(t *testing.T) {
	for _, name := range []string{"Close", "Shutdown"} {
		t.Run(name, func(t *testing.T) {
			inGroups(t, map[string]int{"t": 2}, func(ctx context.Context, w *world, p kafka.GroupKind) {
				took := make(chan time.Duration, 1)
				end := func(c *Consumer) {
					began := time.Now()
					if name == "Close" {
						_ = c.Close()
					} else {
						short, cancel := context.WithTimeout(ctx, 5*time.Second)
						defer cancel()
						_ = c.Shutdown(short)
					}
					took <- time.Since(began)
				}
				c := w.member(GroupConfig{Protocol: p, OnAssigned: func(c *Consumer, _ map[kafka.TopicPartition]kafka.Commit) { end(c) }})
				if _, err := c.Poll(ctx); !errors.Is(err, cluster.ErrClosed) {
					w.t.Errorf("Poll: %v", err)
				}
				if d := <-took; d > 5*time.Second+slack || name == "Close" && d > slack {
					w.t.Errorf("%s took %v", name, d)
				}
			})
		})
	}
}

// A member that closes while its JoinGroup is held back says so on the other
// connection: the group does not wait for it.
func TestG44_B182_B208LeavingDoesNotWaitForARoundOrAHeartbeat(t *testing.T) {
	inGroups(t, map[string]int{"t": 2}, func(ctx context.Context, w *world, p kafka.GroupKind) {
		other := w.member(GroupConfig{Protocol: p})
		blocked(ctx, w, other)
		c := w.member(GroupConfig{Protocol: p})
		settle(time.Second)
		id := c.Group().Stats().MemberID
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
		settle(time.Second)
		left := 0
		for _, r := range w.k.Journal(13, 68) {
			switch q := r.Body.(type) {
			case *kmsg.LeaveGroupRequest:
				if q.Members[0].MemberID == id && id != "" {
					left++
				}
			case *kmsg.ConsumerGroupHeartbeatRequest:
				if q.MemberID == id && q.MemberEpoch == -1 {
					left++
				}
			}
		}
		if left != 1 {
			w.t.Errorf("%d requests to leave by %q", left, id)
		}
	})
}

// A client that is closed right after its consumer does not take the goodbye
// along: the next member gets the partitions at once. Mutations: a Shutdown, or
// a Close, that does not wait for it.
func TestG44TheGoodbyeReachesTheCoordinatorBeforeTheClientCloses(t *testing.T) {
	inGroups(t, map[string]int{"t": 2}, func(ctx context.Context, w *world, p kafka.GroupKind) {
		for _, end := range []func(c *Consumer) error{
			(*Consumer).Close, func(c *Consumer) error { return c.Shutdown(ctx) }, (*Consumer).Close,
		} {
			own, err := cluster.Connect(ctx, w.client())
			if err != nil {
				w.t.Fatal(err)
			}
			c, err := New(own, Config{Group: GroupConfig{ID: "g", Topics: []string{"t"}, Protocol: p}})
			if err != nil {
				w.t.Fatal(err)
			}
			stop := drainAll(ctx, c)
			settle(5 * time.Second)
			if n := c.Group().Stats().Partitions; n != 2 {
				w.t.Errorf("%d partitions after 5 s: %+v", n, c.Group().Stats())
			}
			_ = end(c)
			own.Close()
			stop()
		}
	})
}

func TestG44ShutdownCommitsWhatIsFinishedAndLeaves(t *testing.T) {
	inGroups(t, map[string]int{"t": 1}, func(ctx context.Context, w *world, p kafka.GroupKind) {
		w.produce("t", 0, numbers(0, 10)...)
		c := w.member(GroupConfig{Protocol: p})
		end, cancel := context.WithCancel(ctx)
		defer cancel()
		n := 0
		for _, err := range c.Records(end) {
			if err != nil {
				break
			}
			if n++; n == 7 {
				cancel() // as a signal would: the record in work is still done
			}
		}
		began := time.Now()
		if err := c.Shutdown(ctx); err != nil {
			w.t.Error(err)
		}
		if took := time.Since(began); took > time.Second {
			w.t.Errorf("Shutdown took %v with nothing to wait for", took)
		}
		probe := w.member(GroupConfig{Protocol: p})
		if o := w.committed(probe, tp("t", 0)); o != 7 {
			w.t.Errorf("committed %d, want what was done", o)
		}
	})
}

// Contexts are obeyed by every call that waits, in every phase (T12).
func TestT12GroupCallsEndWithTheirContexts(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		for phase, prepare := range map[string]func(){"joining": nothing, "stable": func() { settle(10 * time.Second) }} {
			c := w.member(GroupConfig{ID: phase})
			prepare()
			w.k.Hang(w.k.Coordinator(phase))
			for name, call := range map[string]func(context.Context) error{
				"Poll": func(ctx context.Context) error { _, err := c.Poll(ctx); return err },
				"CommitOffsets": func(ctx context.Context) error {
					return c.Group().CommitOffsets(ctx, map[kafka.TopicPartition]kafka.Commit{tp("t", 0): {Offset: 0}})
				},
				"Committed": func(ctx context.Context) error { _, err := c.Group().Committed(ctx, tp("t", 0)); return err },
			} {
				short, cancel := context.WithTimeout(ctx, 3*time.Second)
				began := time.Now()
				err := call(short)
				if took := time.Since(began); took > 3*time.Second+10*time.Millisecond || err == nil && name != "CommitOffsets" {
					t.Errorf("%s while %s took %v: %v", name, phase, took, err)
				}
				cancel()
			}
			w.k.Resume(w.k.Coordinator(phase))
			c.Close()
		}
	})
}

func TestT16_G40MembersLeaveNothingBehind(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 2}}, func(ctx context.Context, w *world) {
		for i := range 30 {
			c, err := New(w.c, Config{Group: GroupConfig{ID: fmt.Sprint("g", i%3), Topics: []string{"t"}}})
			if err != nil {
				t.Fatal(err)
			}
			settle(time.Duration(i*37) * time.Millisecond)
			if i%2 == 0 {
				_ = c.Shutdown(ctx)
			}
			c.Close()
		}
		// The bubble fails if a goroutine is left.
	})
}
