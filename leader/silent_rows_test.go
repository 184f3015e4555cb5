package leader

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/model/serve"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// A machine that sleeps between two requests of a renewal: no timer has run,
// and the clock alone tells.
func TestG10ARenewalThatWakesAfterTheDeadlineCommitsNothing(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		all, l := s.journal(), s.links["a"]
		l.set(func(l *link) {
			l.before = func(req kmsg.Request) {
				if p, ok := req.(*kmsg.ProduceRequest); ok && p.TransactionID != nil {
					l.set(func(l *link) { l.slept = brief.Lease })
				}
			}
		})
		if err := ta.Renew(t.Context()); err == nil {
			t.Error("a renewal that woke after the deadline succeeds")
		}
		if !errors.Is(ta.Err(), ErrExpired) {
			t.Errorf("the leadership: %v", ta.Err())
		}
		time.Sleep(brief.Lease)
		if got := steps(all(), "a"); slices.Contains(got, "end true") {
			t.Errorf("it sent %q: a lease is committed after Done is closed", got)
		}
	})
}

func TestF1AGrantThatIsAnsweredAfterItsDeadlineIsNoLeadership(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		e, slept := s.member("a"), false
		l := s.links["a"]
		l.set(func(l *link) {
			l.before = func(req kmsg.Request) {
				if q, ok := req.(*kmsg.EndTxnRequest); ok && q.Commit && !slept {
					slept = true
					l.set(func(l *link) { l.slept = brief.Lease })
				}
			}
		})
		all := s.journal()
		ta := win(t, e, "r")
		if got := steps(all(), "a"); !slices.Contains(got, "tombstone") {
			t.Errorf("it sent %q: the lease that came too late was not given back", got)
		}
		if ta.Err() != nil || !slept {
			t.Errorf("%v", ta.Err())
		}
	})
}

// The newest lease may stand behind another role's open transaction.
func TestI9NothingIsConcludedPastAnOpenTransaction(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		const role, other = "controller", "role-b" // of one partition
		ta, b := win(t, s.member("a"), role), s.member("b")
		token := ta.Token()
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if v, err := b.Verify(within(t, time.Minute), role, token); v != Superseded || err != nil {
			t.Errorf("after the resignation: %v, %v", v, err)
		}
		x := newForeign(s.link("x"), other)
		if code := x.mint(); code != 0 {
			t.Fatal(code)
		}
		if code := x.produce(placeOf(other), []byte("k"), []byte("v")); code != 0 {
			t.Fatal(code)
		}
		if v, err := b.Verify(within(t, time.Minute), role, token); v != Indeterminate || err != nil {
			t.Errorf("behind an open transaction: %v, %v", v, err)
		}
	})
}

// The loser of a race waits for the winner's lease, or one stagger.
func TestF8ALoserDoesNotMintAgainAtOnce(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		e := s.member("a")
		raced := false
		s.links["a"].set(func(l *link) {
			l.answer = func(req kmsg.Request) int16 {
				if q, ok := req.(*kmsg.InitProducerIDRequest); ok && q.ProducerID >= 0 && !raced {
					raced = true
					return 90 // another has minted meanwhile
				}
				return 0
			}
		})
		all := s.journal()
		win(t, e, "r")
		var mints []time.Time
		for _, r := range all() {
			if wordOf(r) == "mint" {
				mints = append(mints, r.at)
			}
		}
		if len(mints) != 2 || mints[1].Sub(mints[0]) < brief.Stagger {
			t.Errorf("%d mints, at %v: nobody granted itself the lease, and one stagger is %v", len(mints), mints, brief.Stagger)
		}
	})
}

func TestI5ABurnIsRepeatedUntilItIsAnswered(t *testing.T) {
	for name, codes := range map[string][]int16{"what passes": {51, 16, 14, -1}, "refused": {53}} {
		t.Run(name, func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				ta, b := win(t, s.member("a"), "r"), s.member("b")
				token, left := ta.Token(), codes
				s.links["a"].set(func(l *link) {
					l.answer = func(req kmsg.Request) int16 {
						if req.Key() != 22 || len(left) == 0 || req.(*kmsg.InitProducerIDRequest).TransactionalID == nil {
							return 0
						}
						code := left[0]
						left = left[1:]
						return code
					}
				})
				err := ta.Resign(within(t, time.Minute))
				if name == "refused" {
					if err == nil {
						t.Error("a pair that is not burned is said to be")
					}
					err = ta.Resign(within(t, time.Minute))
				}
				if err != nil {
					t.Fatal(err)
				}
				d, err := b.Describe(within(t, time.Minute), "r")
				if want := (Token{ID: token.ID, Epoch: token.Epoch + 2}); err != nil || d.Epoch != want {
					t.Errorf("the coordinator's pair is %v, want %v; %v", d.Epoch, want, err)
				}
			})
		})
	}
}

// A lease in a user's transaction counts once that is committed, and only then.
func TestP7C9OnlyACommittedTransactionRenews(t *testing.T) {
	grantLasts := brief.Lease - brief.StopMargin
	isLease := func(r *sim.Request) bool {
		p, ok := r.Req.(*kmsg.ProduceRequest)
		return ok && p.TransactionID != nil && len(p.Topics) > 0 && !toOut(r)
	}
	for name, fault := range map[string]func(r *sim.Request) serve.Fault{
		"the commit is not answered": func(r *sim.Request) serve.Fault { return serve.Fault{Mute: r.Key == 26} },
		"the lease is not written":   func(r *sim.Request) serve.Fault { return serve.Fault{Lost: isLease(r)} },
	} {
		t.Run(name, func(t *testing.T) {
			overModel(t, 3, func(t *testing.T, e *Elector, s *serve.Server) {
				began := time.Now()
				tm := win(t, e, "r")
				time.Sleep(brief.Renew - 500*time.Millisecond) // a renewal is due soon
				s.SetFaults(fault)
				if err := write(within(t, time.Minute), tm, "x"); err == nil {
					t.Error("it is said to be committed")
				}
				if left, elapsed := tm.Left(), time.Since(began); left+elapsed > grantLasts+100*time.Millisecond {
					t.Errorf("%v after the grant %v are left: the lease counts as renewed", elapsed, left)
				}
				if name == "the lease is not written" && len(inOut(s)) > 0 {
					t.Error("the user's records are committed without the lease that was due")
				}
				s.SetFaults(nil)
			})
		})
	}
}

func TestH1AFenceOnTheBoundProducerEndsTheLeadershipAtOnce(t *testing.T) {
	overModel(t, 4, func(t *testing.T, e *Elector, s *serve.Server) {
		tm := win(t, e, "r")
		id := "r"
		mint := kmsg.NewPtrInitProducerIDRequest()
		mint.Version, mint.TransactionalID, mint.TransactionTimeoutMillis = 4, &id, 10_000
		began := time.Now()
		err := tm.Transact(t.Context(), func(ctx context.Context, tx *producer.Tx) error {
			s.Model(func(m *model.Cluster) { m.Handle(time.Now(), model.AnyBroker, mint) })
			_, err := tx.Send(ctx, kafka.Record{Topic: "out", Value: []byte("zombie")})
			return err
		})
		<-tm.Done()
		if !IsFence(err) || !errors.Is(tm.Err(), ErrFenced) {
			t.Errorf("%v, the leadership: %v", err, tm.Err())
		}
		if took := time.Since(began); took > time.Second { // the next renewal is not waited for
			t.Errorf("the leadership ended after %v", took)
		}
		if got := inOut(s); len(got) > 0 {
			t.Errorf("committed: %q", got)
		}
	})
}

// One that is started anew under its name finds its own lease, waits, and is not
// taken for a duplicate of itself.
func TestF4ARestartedMemberWaitsForItsOwnLeaseToRunOut(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		win(t, s.member("a"), "r")
		s.links["a"].setCut(true, nil) // it is gone
		began := time.Now()
		ta := win(t, s.member("a"), "r")
		if waited := time.Since(began); waited < brief.Lease-brief.StopMargin {
			t.Errorf("it took its live lease over after %v", waited)
		}
		if ta.Err() != nil {
			t.Error(ta.Err())
		}
	})
}

// Work inside a transaction is told of the end at once.
func TestP7G6ATransactionsWorkEndsWithTheLeadership(t *testing.T) {
	overModel(t, 8, func(t *testing.T, e *Elector, _ *serve.Server) {
		tm := win(t, e, "r")
		began := time.Now()
		time.AfterFunc(time.Second, func() { tm.end(&Error{Kind: ErrExpired, Role: "r"}) })
		err := tm.Transact(t.Context(), func(ctx context.Context, _ *producer.Tx) error {
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(began); err == nil || took > 1100*time.Millisecond {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// A process that is suspended inside a transaction past its deadline commits
// nothing, although nobody has taken the role and brokers would let it.
func TestG10P7ATransactionThatWakesAfterTheDeadlineIsNotCommitted(t *testing.T) {
	overModel(t, 9, func(t *testing.T, e *Elector, s *serve.Server) {
		var slept atomic.Int64
		awake := e.cfg.now
		e.cfg.now = func() lead.Now {
			n := awake()
			n.Local += time.Duration(slept.Load())
			return n
		}
		tm := win(t, e, "r")
		err := tm.Transact(t.Context(), func(ctx context.Context, tx *producer.Tx) error {
			if _, err := tx.Append(ctx, kafka.Record{Topic: "out", Value: []byte("late")}); err != nil {
				return err
			}
			slept.Store(int64(brief.Lease)) // nothing has run since
			return nil
		})
		time.Sleep(brief.Lease)
		if got := inOut(s); err == nil || len(got) != 0 || !errors.Is(tm.Err(), ErrExpired) {
			t.Errorf("%v; committed %q; %v", err, got, tm.Err())
		}
	})
}

// The machine slept, and timers stood still meanwhile: Done closes at once all the
// same, though no renewal is due and nobody asks for Err. Mutation: nobody
// looks.
func TestG10DoneClosesSoonAfterTheMachineSlept(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		all := s.journal()
		ta := win(t, s.member("a"), "r")
		time.Sleep(brief.Renew + 100*time.Millisecond)
		before := len(steps(all(), "a"))
		s.links["a"].set(func(l *link) { l.slept += time.Hour })
		select {
		case <-ta.Done():
		case <-time.After(brief.StopMargin / 4):
			t.Errorf("it leads on after an hour of sleep")
		}
		if got := steps(all(), "a"); len(got) != before {
			t.Errorf("before that it wrote %v", got[before:])
		}
	})
}
