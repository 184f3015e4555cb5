package producer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/model/serve"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// The mutation: a result of EndTxn that nobody reads.
func TestB103AFailedCommitReachesTheCaller(t *testing.T) {
	for _, code := range []int16{47, 90} {
		for name, lost := range map[string]bool{"at once": false, "in answer to a repetition": true} {
			t.Run(name, func(t *testing.T) {
				atBothLevels(t, func(r *txRig, level int16) {
					r.intercept(keyEnd, func(q *sim.Request, nth int) (sim.Answer, bool) {
						if lost && nth == 1 {
							return sim.Answer{End: sim.Reset}, true
						}
						return sim.Answer{Response: refusal(q, code), Delay: 2 * time.Second}, true
					})
					p := r.producer()
					tx := r.begin(p)
					r.must("send", r.send(tx, 0, "v"))
					err := tx.Commit(r.ctx)
					if !errors.Is(err, kafka.ErrFenced) || kafka.MayHaveHappened(err) != lost {
						t.Errorf("commit: %v (may have happened: %v)", err, kafka.MayHaveHappened(err))
					}
					r.refusedAfterAFence(p, tx)
				})
			})
		}
	}
}

// refusedAfterAFence holds P20: everything is refused, and nothing is sent.
func (r *txRig) refusedAfterAFence(p *Producer, tx *Tx) {
	r.t.Helper()
	sent := len(r.s.Frames())
	for name, f := range map[string]func() error{
		"begin":   func() error { return second(p.Begin(r.ctx)) },
		"append":  func() error { return r.send(tx, 0, "late") },
		"commit":  func() error { return tx.Commit(r.ctx) },
		"abort":   func() error { return tx.Abort(r.ctx) },
		"offsets": func() error { return tx.SendOffsets(r.ctx, member(1), inputs) },
	} {
		err := f()
		if err == nil || kafka.MayHaveHappened(err) || name != "append" && !errors.Is(err, kafka.ErrFenced) {
			r.t.Errorf("%s after a fence: %v", name, err)
		}
	}
	time.Sleep(time.Minute)
	for _, f := range r.s.Frames()[sent:] {
		if f.Key == keyProduce || f.Key >= keyInit && f.Key <= keyOffsets {
			r.t.Errorf("%s was sent after a fence", kmsg.NameForKey(f.Key))
		}
	}
}

// The mutations: 47 on Produce that only fails the record; a zombie whose end is
// sent under the identity of its successor.
func TestP19_P20_R23AZombieIsFencedAndSendsNothingMore(t *testing.T) {
	for _, first := range []string{"send", "commit", "abort"} {
		t.Run(first, func(t *testing.T) {
			atBothLevels(t, func(r *txRig, level int16) {
				old, next := r.producer(), r.producer()
				tx := r.begin(old)
				r.must("send", r.send(tx, 0, "zombie"))
				r.must("send", r.send(r.begin(next), 0, "rival")) // aborts the old one's
				var err error
				switch first {
				case "send":
					_ = r.send(tx, 1, "late")
					err = tx.Commit(r.ctx)
				case "commit":
					err = tx.Commit(r.ctx)
				case "abort":
					err = tx.Abort(r.ctx)
				}
				if !errors.Is(err, kafka.ErrFenced) || kafka.MayHaveHappened(err) {
					t.Errorf("%s: %v", first, err)
				}
				r.must("the rival's commit", next.last.Load().Commit(r.ctx))
				r.refusedAfterAFence(old, tx)
				r.want(map[string]model.Fate{"zombie": model.Aborted, "rival": model.Committed})
			})
		})
	}
}

// The mutation: 51 taken for a failure.
func TestB106ConcurrentTransactionsIsWaitedOut(t *testing.T) {
	for level, key := range map[int16]int16{1: keyEnrol, 2: keyProduce} {
		inTxBubble(t, level, func(r *txRig) {
			p := r.producer()
			tx := r.begin(p)
			r.must("send", r.send(tx, 0, "a"))
			r.must("commit", tx.Commit(r.ctx))
			until := time.Now().Add(3 * time.Second)
			n := 0
			r.intercept(key, func(q *sim.Request, _ int) (sim.Answer, bool) {
				n++
				return sim.Reply(refusal(q, 51)), time.Now().Before(until)
			})
			tx = r.begin(p)
			r.must("send", r.send(tx, 0, "b"))
			if d := time.Since(until); d > 1500*time.Millisecond || n > 40 || n < 5 {
				t.Errorf("went on %v late, after %d attempts", d, n)
			}
			r.must("commit", tx.Commit(r.ctx))
		})
	}
	inTxBubble(t, 1, func(r *txRig) {
		r.intercept(keyEnrol, func(q *sim.Request, nth int) (sim.Answer, bool) {
			return sim.Reply(refusal(q, map[bool]int16{true: 51, false: 53}[nth <= 2])), true
		})
		tx := r.begin(r.producer())
		if err := r.send(tx, 0, "a"); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
			t.Errorf("the record: %v", err)
		}
		if err := tx.Commit(r.ctx); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
			t.Errorf("commit: %v", err)
		}
	})
}

// The old producer is not closed: it is gone.
func TestB107ATakeoverWaitsForTheOldTransaction(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		r.s.Model(func(m *model.Cluster) { m.HoldMarkers(kafka.TopicPartition{Topic: "t"}) })
		r.must("send", r.send(r.begin(r.producer()), 0, "old"))
		time.AfterFunc(5*time.Second, func() {
			r.s.Model(func(m *model.Cluster) { m.ReleaseMarkers(kafka.TopicPartition{Topic: "t"}) })
		})
		at := time.Now()
		next := r.producer()
		tx := r.begin(next)
		if d := time.Since(at); d < 5*time.Second || d > 7*time.Second {
			t.Errorf("the new one began after %v", d)
		}
		r.must("send", r.send(tx, 0, "new"))
		r.must("commit", tx.Commit(r.ctx))
		r.want(map[string]model.Fate{"old": model.Aborted, "new": model.Committed})
	})
}

func TestB115OffsetsFindAGroupCoordinatorThatMoved(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		r.s.Model(func(m *model.Cluster) {
			m.MoveCoordinator("g", 3)
			m.MoveCoordinator("id", 2)
		})
		p := r.producer()
		tx := r.begin(p)
		r.must("offsets", tx.SendOffsets(r.ctx, member(1), inputs)) // it is known now
		r.s.Kill(3)
		time.AfterFunc(2*time.Second, func() { r.s.Model(func(m *model.Cluster) { m.MoveCoordinator("g", 1) }) })
		at := time.Now()
		r.must("offsets", tx.SendOffsets(r.within(30*time.Second), member(1), inputs))
		if d := time.Since(at); d > 4*time.Second {
			t.Errorf("it took %v", d)
		}
		r.must("commit", tx.Commit(r.ctx))
		if r.s.Broker(1).Count(keyOffsets) == 0 {
			t.Error("the new coordinator was not asked")
		}
	})
	inTxBubble(t, 2, func(r *txRig) { // or the call ends at its deadline
		r.s.Model(func(m *model.Cluster) { m.MoveCoordinator("g", 3) })
		tx := r.begin(r.producer())
		r.must("offsets", tx.SendOffsets(r.ctx, member(1), inputs))
		r.s.Kill(3)
		at := time.Now()
		if err := tx.SendOffsets(r.within(5*time.Second), member(1), inputs); err == nil || time.Since(at) > 5100*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(at), err)
		}
	})
}

func TestB116ARoundWithoutOffsetsCommits(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		p := r.producer()
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "v"))
		r.must("offsets", tx.SendOffsets(r.within(5*time.Second), kafka.GroupMetadata{Group: "g"}, nil))
		r.must("commit", tx.Commit(r.within(5*time.Second)))
		if n := len(r.frames(keyOffsets)) + len(r.frames(keyAddOffsets)); n > 0 {
			t.Errorf("%d requests for no offsets", n)
		}
	})
}

// The first identity is refused for good: nothing hangs.
func TestB121EverythingReturnsAfterAFatalError(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		p := r.producer()
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "v"))
		r.refuse(keyInit, -1, 53)
		r.intercept(keyProduce, func(q *sim.Request, _ int) (sim.Answer, bool) { return sim.Reply(refusal(q, 47)), true })
		if err := r.send(tx, 1, "w"); !errors.Is(err, kerr.InvalidProducerEpoch) {
			t.Errorf("the record: %v", err)
		}
		for name, f := range map[string]func() error{
			"commit": func() error { return tx.Commit(r.within(5 * time.Second)) },
			"append": func() error { return r.send(tx, 1, "x") },
		} {
			if err := f(); err == nil || errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
		}
		_ = tx.Abort(r.within(5 * time.Second))
		if _, err := p.Begin(r.within(5 * time.Second)); err == nil || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("begin: %v", err)
		}
	})
}

// The mutation: a cancelled commit that is forgotten, and whose records ride on
// the next one.
func TestB125ACommitGoesOnWithoutItsCaller(t *testing.T) {
	for name, next := range map[string]func(p *Producer, tx *Tx, ctx context.Context) error{
		"commit joins it": func(_ *Producer, tx *Tx, ctx context.Context) error { return tx.Commit(ctx) },
		"abort tells": func(_ *Producer, tx *Tx, ctx context.Context) error {
			if err := tx.Abort(ctx); !errors.Is(err, ErrCommitted) {
				return errors.Join(errors.New("abort does not say that it is committed"), err)
			}
			return nil
		},
		"begin waits for it": func(p *Producer, _ *Tx, ctx context.Context) error {
			tx, err := p.Begin(ctx)
			if err != nil {
				return err
			}
			return tx.Commit(ctx)
		},
	} {
		t.Run(name, func(t *testing.T) {
			atBothLevels(t, func(r *txRig, level int16) {
				p := r.producer()
				tx := r.begin(p)
				r.must("send", r.send(tx, 0, "v"))
				r.intercept(keyEnd, func(q *sim.Request, _ int) (sim.Answer, bool) {
					a := r.s.Answer(q)
					a.Delay = 5 * time.Second
					return a, true
				})
				at := time.Now()
				err := tx.Commit(r.within(time.Second))
				if d := time.Since(at); !errors.Is(err, context.DeadlineExceeded) || !kafka.MayHaveHappened(err) || d > 1010*time.Millisecond {
					t.Fatalf("the cancelled commit, after %v: %v", d, err)
				}
				r.must(name, next(p, tx, r.ctx))
				if n := len(r.frames(keyEnd)); n != 1 {
					t.Errorf("%d EndTxn", n)
				}
				r.want(map[string]model.Fate{"v": model.Committed})
			})
		})
	}
}

// A commit whose context ends before anything was sent has not happened, and may
// be tried again.
func TestP42ACommitThatIsCancelledBeforeItIsSentChangesNothing(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		p := r.producer()
		tx := r.begin(p)
		r.s.SetFaults(func(q *sim.Request) serve.Fault {
			return serve.Fault{Delay: map[bool]time.Duration{true: 3 * time.Second}[q.Key == keyProduce]}
		})
		r.add(tx, 0, "v")
		if err := tx.Commit(r.within(time.Second)); !errors.Is(err, context.DeadlineExceeded) || kafka.MayHaveHappened(err) {
			t.Errorf("the cancelled commit: %v", err)
		}
		r.must("commit", tx.Commit(r.ctx))
		r.want(map[string]model.Fate{"v": model.Committed})
	})
}

// An out-of-order answer with nothing before it is real. The mutation: it is
// taken for a consequence, as behind a failure, and hangs.
func TestP17_R22ASequenceErrorDoomsTheTransaction(t *testing.T) {
	for _, code := range []int16{45, 59} {
		atBothLevels(t, func(r *txRig, level int16) {
			r.refuse(keyProduce, 1, code)
			p := r.producer()
			tx := r.begin(p)
			if err := r.send(tx, 0, "v"); !errors.Is(err, kerr.ErrorForCode(code)) || kafka.MayHaveHappened(err) {
				t.Errorf("code %d: %v", code, err)
			}
			if err := tx.Commit(r.ctx); !errors.Is(err, kafka.ErrAbortable) {
				t.Errorf("commit: %v", err)
			}
			r.must("abort", tx.Abort(r.ctx))
			tx = r.begin(p)
			r.must("send", r.send(tx, 0, "w"))
			r.must("commit", tx.Commit(r.ctx))
			r.want(map[string]model.Fate{"w": model.Committed})
		})
	}
}

// A record in doubt is given up and its transaction aborted. Its late copy must
// not come into the next one, nor its sequence be taken for that of another.
func TestR1_P14ALateCopyOfARecordInDoubtJoinsNoOtherTransaction(t *testing.T) {
	for _, lost := range []bool{true, false} {
		atBothLevels(t, func(r *txRig, level int16) {
			p := r.producer(func(c *Config) { c.DeliveryTimeout = 2 * time.Second })
			r.s.SetFaults(func(q *sim.Request) serve.Fault {
				if q.Key != keyProduce {
					return serve.Fault{}
				}
				return serve.Fault{Lost: lost, Mute: !lost, Again: 4 * time.Second}
			})
			tx := r.begin(p)
			if err := r.send(tx, 0, "in doubt"); err == nil || !kafka.MayHaveHappened(err) {
				t.Errorf("the record: %v", err)
			}
			r.s.SetFaults(nil)
			if err := tx.Commit(r.ctx); !errors.Is(err, kafka.ErrAbortable) {
				t.Errorf("commit: %v", err)
			}
			r.must("abort", tx.Abort(r.ctx))
			tx = r.begin(p)
			r.must("send", r.send(tx, 0, "next"))
			time.Sleep(5 * time.Second) // the late copies come
			r.must("send", r.send(tx, 0, "and on"))
			r.must("commit", tx.Commit(r.ctx))
			fates := r.fates()
			if fates["next"] != model.Committed || fates["and on"] != model.Committed || fates["in doubt"] == model.Committed {
				t.Errorf("%v", fates)
			}
			if _, there := fates["next"]; !there {
				t.Error("an acknowledged record is not in the log")
			}
		})
	}
}
