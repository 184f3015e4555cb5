package transact

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// slowly is a handler that copies to "out" and sleeps behind its second batch.
func slowly(nap time.Duration) (h Handler, calls *atomic.Int64) {
	calls = new(atomic.Int64)
	inner := copying("out")
	return func(ctx context.Context, b consumer.Batch, tx *producer.Tx) error {
		if err := inner(ctx, b, tx); err != nil {
			return err
		}
		if calls.Add(1) == 2 {
			time.Sleep(nap)
		}
		return nil
	}, calls
}

var bothProtocols = []kafka.GroupKind{kafka.ClassicGroup, kafka.ConsumerGroup}

// A handler may take what its transaction and its membership last. Mutation: one
// bound of two minutes around the handler, the commit and the way back, by which
// the commit failed, the way back too, and the run read on behind the loss.
func TestG42AHandlerMayTakeMinutes(t *testing.T) {
	for _, protocol := range bothProtocols {
		t.Run(protocol.String(), func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				feed(ctx, t, w.c, "in", 0, 100)
				cfg := configured("g", "tx", "in", protocol)
				cfg.MaxRecords, cfg.Producer.TransactionTimeout = 1, 14*time.Minute
				h, _ := slowly(3 * time.Minute)
				s := start(ctx, t, w.connect(ctx), cfg, h)
				verify(ctx, t, w.c, "out", 100)
				if st := s.r.Stats(); st.Aborted != 0 || st.Records != 100 {
					t.Errorf("stats %+v", st)
				}
				s.stop(t)
			})
		})
	}
}

// A handler that outlasts Group.ProcessingTimeout loses its partitions; the runner
// joins again and reads from what is committed. Mutation: a runner that waits for
// its membership without a poll, which is what brings it back.
func TestG42AHandlerThatOutlastsItsMembershipLosesNothing(t *testing.T) {
	for _, protocol := range bothProtocols {
		t.Run(protocol.String(), func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				feed(ctx, t, w.c, "in", 0, 100)
				cfg := configured("g", "tx", "in", protocol)
				cfg.MaxRecords, cfg.Producer.TransactionTimeout = 1, 14*time.Minute
				cfg.Consumer.Group.ProcessingTimeout = time.Minute
				h, _ := slowly(2 * time.Minute)
				s := start(ctx, t, w.connect(ctx), cfg, h)
				verify(ctx, t, w.c, "out", 100)
				if st := s.r.Stats(); st.Aborted != 1 || st.Records != 100 {
					t.Errorf("stats %+v", st)
				}
				s.stop(t)
			})
		})
	}
}

// The coordinator ends a transaction at its timeout: the run is over, and the next
// one makes the records once. Mutation: a commit that is refused as fenced and
// counts as done.
func TestG42AHandlerThatOutlastsItsTransactionEndsTheRun(t *testing.T) {
	for _, protocol := range bothProtocols {
		t.Run(protocol.String(), func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				feed(ctx, t, w.c, "in", 0, 100)
				cfg := configured("g", "tx", "in", protocol)
				cfg.MaxRecords = 1
				h, calls := slowly(time.Minute)
				s := start(ctx, t, w.connect(ctx), cfg, h)
				if err := <-s.done; !errors.Is(err, kafka.ErrFenced) {
					t.Errorf("the run ended with %v", err)
				}
				s.client.Close()
				if st := s.r.Stats(); calls.Load() != 2 || st.Committed > 1 {
					t.Errorf("%d calls of the handler, %+v", calls.Load(), st)
				}
				s = start(ctx, t, w.connect(ctx), cfg, h)
				verify(ctx, t, w.c, "out", 100)
				s.stop(t)
			})
		})
	}
}

// Nothing is read before the way back from a transaction that failed, however
// often the coordinator refuses to tell what is committed, and whether or not that
// takes longer than work may. Mutations: an error of the way back that is passed
// over; a wait that counts as work on the records.
func TestG42NothingIsReadBeforeTheWayBack(t *testing.T) {
	const (
		txnOffsetCommit, illegalGeneration = 28, 22
		offsetFetch, unauthorized, loading = 9, 30, 14
	)
	for _, protocol := range bothProtocols {
		for name, refusal := range map[string]struct {
			code  int16
			times int
			late  time.Duration
		}{
			"refused":     {unauthorized, 5, 0},
			"for a while": {loading, -1, 2 * time.Minute},
		} {
			t.Run(protocol.String()+" "+name, func(t *testing.T) {
				inWorld(t, func(ctx context.Context, w *world) {
					feed(ctx, t, w.c, "in", 0, 100)
					cfg := configured("g", "tx", "in", protocol)
					cfg.MaxRecords = 1
					cfg.Consumer.Group.ProcessingTimeout = time.Minute
					inner, calls := copying("out"), 0
					s := start(ctx, t, w.connect(ctx), cfg, func(ctx context.Context, b consumer.Batch, tx *producer.Tx) error {
						if calls++; calls == 2 {
							w.k.Fail(txnOffsetCommit, illegalGeneration, 2, 0) // a stale token is taken anew once
							f := w.k.Fail(offsetFetch, refusal.code, refusal.times, 0)
							if refusal.late > 0 {
								time.AfterFunc(refusal.late, f.Remove)
							}
						}
						return inner(ctx, b, tx)
					})
					verify(ctx, t, w.c, "out", 100)
					if st := s.r.Stats(); st.Aborted == 0 || st.Records != 100 {
						t.Errorf("stats %+v", st)
					}
					s.stop(t)
				})
			})
		}
	}
}
