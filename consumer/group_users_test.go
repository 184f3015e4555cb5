package consumer

import (
	"context"
	"errors"
	"runtime"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// heartbeatOf is the key of heartbeats.
var heartbeatOf = map[kafka.GroupKind]int16{kafka.ClassicGroup: 12, kafka.ConsumerGroup: 68}

// A member that ends itself in a callback, or in a handler, is over in time and
// leaves its partitions to the next one.
func TestT9_G37_G44AMemberEndsItselfInAnyCallback(t *testing.T) {
	for _, where := range []string{"revoked", "lost", "event", "handler", "dead letter"} {
		for _, how := range []string{"Close", "Shutdown"} {
			t.Run(where+"/"+how, func(t *testing.T) {
				inGroups(t, map[string]int{"t": 2}, func(ctx context.Context, w *world, p kafka.GroupKind) {
					took := make(chan time.Duration, 1)
					end := func(c *Consumer, at string) {
						if at != where || len(took) > 0 {
							return
						}
						began := time.Now()
						if how == "Close" {
							_ = c.Close()
						} else {
							short, cancel := context.WithTimeout(ctx, 5*time.Second)
							defer cancel()
							_ = c.Shutdown(short)
						}
						took <- time.Since(began)
					}
					var c *Consumer
					c = w.member(GroupConfig{
						Protocol:  p,
						OnRevoked: func(c *Consumer, _ []kafka.TopicPartition) { end(c, "revoked") },
						OnLost:    func(c *Consumer, _ []kafka.TopicPartition, _ error) { end(c, "lost") },
						OnEvent: func(c *Consumer, e GroupEvent) {
							if e.Kind == GroupJoined {
								end(c, "event")
							}
						},
						Run: RunConfig{OnFailure: DeadLetterOnFailure, DeadLetter: func(context.Context, Failure) error {
							end(c, "dead letter")
							return nil
						}},
					})
					done := make(chan error, 1)
					go func() {
						done <- c.Run(ctx, func(context.Context, Batch) error {
							end(c, "handler")
							return errHandler
						})
					}()
					settle(3 * time.Second)
					switch where {
					case "lost":
						w.k.Fail(12, 22, 1, 0)
						w.k.Fail(68, 110, 1, 0)
						settle(10 * time.Second)
					case "handler", "dead letter":
						w.produce("t", 0, "a")
						settle(time.Second)
					}
					other := w.member(GroupConfig{Protocol: p})
					stop := drainAll(ctx, other)
					settle(20 * time.Second)
					limit := slack
					if how == "Shutdown" {
						limit += 5 * time.Second
					}
					if len(took) == 0 {
						w.t.Fatal("it did not end itself")
					}
					if d := <-took; d > limit {
						w.t.Errorf("it took %v", d)
					}
					if err := <-done; !errors.Is(err, cluster.ErrClosed) && err != nil {
						w.t.Errorf("Run: %v", err)
					}
					if n := other.Group().Stats().Partitions; n != 2 {
						w.t.Errorf("the next one has %d partitions", n)
					}
					stop()
				})
			})
		}
	}
}

// A handler that ends its goroutine, as FailNow of a test does, ends Run, and its
// work is not done. Mutation: a worker that is not missed.
func TestG39_G40AHandlerThatEndsItsGoroutineEndsRun(t *testing.T) {
	for _, keys := range []int{0, 3} {
		inRun(t, func(ctx context.Context, w *world) {
			w.produce("t", 0, numbers(0, 5)...)
			c := w.member(GroupConfig{Run: RunConfig{KeyWorkers: keys}})
			began := time.Now()
			err := c.RunRecords(ctx, func(_ context.Context, r kafka.Record) error {
				if r.Offset == 2 {
					runtime.Goexit()
				}
				return nil
			})
			if took := time.Since(began); !errors.Is(err, errExited) || took > 5*time.Second {
				t.Errorf("Run ended after %v with %v", took, err)
			}
			if o := w.committed(w.member(GroupConfig{}), tp("t", 0)); o != 2 {
				t.Errorf("committed %d", o)
			}
		})
	}
}

// What cannot be put away is not done: Run ends, with both errors. Mutations: the
// error of the work that is dropped; work that counts as finished.
func TestG39ADeadLetterThatFailsEndsRun(t *testing.T) {
	inRun(t, func(ctx context.Context, w *world) {
		w.produce("t", 0, "a")
		noRoom := errors.New("no room")
		c := w.member(GroupConfig{Run: RunConfig{OnFailure: DeadLetterOnFailure, DeadLetter: func(context.Context, Failure) error { return noRoom }}})
		err := c.Run(ctx, func(context.Context, Batch) error { return errHandler })
		if !errors.Is(err, errHandler) || !errors.Is(err, noRoom) {
			t.Errorf("Run: %v", err)
		}
		if o := w.committed(w.member(GroupConfig{}), tp("t", 0)); o > 0 {
			t.Errorf("committed %d", o)
		}
	})
}

// A commit whose caller gave up may have happened, and the next one settles it. One
// for a partition that is lost has not happened, and says so at once.
func TestT12_G34_B188CommitsThatAreGivenUpOrTooLate(t *testing.T) {
	inGroups(t, map[string]int{"t": 1}, func(ctx context.Context, w *world, p kafka.GroupKind) {
		w.produce("t", 0, numbers(0, 4)...)
		c := w.member(GroupConfig{Protocol: p})
		newReader(w.t, c).until(ctx, 4)
		w.k.Hang(w.k.Coordinator("g"))
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if err := c.Commit(short); !errors.Is(err, context.DeadlineExceeded) || !kafka.MayHaveHappened(err) {
			w.t.Errorf("given up: %v", err)
		}
		w.k.Resume(w.k.Coordinator("g"))
		if err := c.Commit(ctx); err != nil || w.committed(c, tp("t", 0)) != 4 {
			w.t.Errorf("the next: %v, committed %d", err, w.committed(c, tp("t", 0)))
		}
		w.k.Fail(heartbeatOf[p], 25, 1, 0)
		w.k.Fail(map[kafka.GroupKind]int16{kafka.ClassicGroup: 11, kafka.ConsumerGroup: 68}[p], 15, -1, 0)
		settle(10 * time.Second)
		began := time.Now()
		err := c.Group().CommitOffsets(ctx, map[kafka.TopicPartition]kafka.Commit{tp("t", 0): {Offset: 3}})
		if err == nil || kafka.MayHaveHappened(err) || time.Since(began) > 0 || c.Group().Stats().Lost != 1 {
			w.t.Errorf("lost: %v after %v, %+v", err, time.Since(began), c.Group().Stats())
		}
	})
}
