package leader

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
)

func tokenOf(id int64, epoch int16) lead.Token {
	return lead.Token{ID: kafka.ProducerID(id), Epoch: kafka.ProducerEpoch(epoch)}
}

// Another mints between the re-init and the grant: what a describe would tell by
// then is the other's pair, under which the grant would succeed.
// Mutation: a grant under the pair that DescribeTransactions tells.
func TestF2TheGrantIsUnderThePairOfTheOwnReinit(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		e := s.member("a")
		var mu sync.Mutex
		var own lead.Token
		var raced bool
		s.links["a"].set(func(l *link) {
			l.edit = func(_ kmsg.Request, resp kmsg.Response) {
				if r, ok := resp.(*kmsg.InitProducerIDResponse); ok && r.ErrorCode == 0 {
					mu.Lock()
					defer mu.Unlock()
					own = tokenOf(r.ProducerID, r.ProducerEpoch)
				}
			}
			l.before = func(req kmsg.Request) {
				mu.Lock()
				defer mu.Unlock()
				var has lead.Token
				switch q := req.(type) {
				case *kmsg.AddPartitionsToTxnRequest:
					has = tokenOf(q.ProducerID, q.ProducerEpoch)
				case *kmsg.EndTxnRequest:
					has = tokenOf(q.ProducerID, q.ProducerEpoch)
				default:
					return
				}
				if has != own {
					t.Errorf("%T under %v, the coordinator gave out %v", req, has, own)
				}
				if !raced {
					raced = true
					if code := newForeign(s.link("other"), "r").mint(); code != 0 {
						t.Errorf("the other's mint: %d", code)
					}
				}
			}
		})
		term := win(t, e, "r")
		if n := s.mintsOf("a"); n != 2 {
			t.Errorf("%d mints: the first grant was not refused", n)
		}
		mu.Lock()
		defer mu.Unlock()
		if term.Token() != own {
			t.Errorf("it leads by %v, its own pair is %v", term.Token(), own)
		}
	})
}

// Mutation: an acquire that ends with the error of a fence.
func TestF3AFenceWhileARoleIsTakenIsNoErrorOfCampaign(t *testing.T) {
	fenced := func(key, code int16, of func(kmsg.Request) bool) func(kmsg.Request) int16 {
		var done atomic.Bool
		return func(req kmsg.Request) int16 {
			if req.Key() != key || !of(req) || done.Swap(true) {
				return 0
			}
			return code
		}
	}
	init := func(reinit bool) func(kmsg.Request) bool {
		return func(req kmsg.Request) bool {
			q := req.(*kmsg.InitProducerIDRequest)
			return q.TransactionalID != nil && (q.ProducerID >= 0) == reinit
		}
	}
	inTx := func(req kmsg.Request) bool {
		q, ok := req.(*kmsg.ProduceRequest)
		return !ok || q.TransactionID != nil
	}
	for name, answer := range map[string]func() func(kmsg.Request) int16{
		"mint":                    func() func(kmsg.Request) int16 { return fenced(22, 90, init(false)) },
		"re-init":                 func() func(kmsg.Request) int16 { return fenced(22, 90, init(true)) },
		"re-init, an old broker":  func() func(kmsg.Request) int16 { return fenced(22, 47, init(true)) },
		"grant, adds a partition": func() func(kmsg.Request) int16 { return fenced(24, 90, inTx) },
		"grant, appends":          func() func(kmsg.Request) int16 { return fenced(0, 47, inTx) },
		"grant, commits":          func() func(kmsg.Request) int16 { return fenced(26, 90, inTx) },
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, model.Config{}, func(t *testing.T, s *stage) {
				e := s.member("a")
				s.links["a"].set(func(l *link) { l.answer = answer() })
				all := s.journal()
				if term, err := e.Campaign(within(t, 10*time.Minute), "r"); err != nil || term.Err() != nil {
					t.Fatal(err)
				}
				var mints []time.Time
				for _, r := range all() {
					if wordOf(r) == "mint" {
						mints = append(mints, r.at)
					}
				}
				if len(mints) < 2 || mints[1].Sub(mints[0]) < brief.Stagger { // more: an open transaction is aborted first
					t.Errorf("mints at %v: one that is refused waits at least a stagger, %v", mints, brief.Stagger)
				}
			})
		})
	}
}

// Mutation: a Renew that does not take the lease writer's turn.
func TestG7RenewalsOfCallersAndOfTheLoopTakeTurns(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		term := win(t, s.member("a"), "r")
		all := s.journal()
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for range 20 {
					time.Sleep(time.Duration(i+1) * brief.Renew / 50)
					if err := term.Renew(t.Context()); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		time.Sleep(brief.Renew * 3)
		got := steps(all(), "a")
		if len(got) < 2*(8*20+2) {
			t.Errorf("%d steps of 160 renewals and the loop's", len(got))
		}
		for i, step := range got {
			if want := []string{"lease", "end true"}[i%2]; step != want {
				t.Fatalf("step %d is %q: two renewals at once: %q", i, step, got[max(0, i-3):min(len(got), i+3)])
			}
		}
		if term.Err() != nil {
			t.Error(term.Err())
		}
	})
}

// Mutation: a leadership below the context of Campaign.
func TestG9ALeadershipOutlivesTheContextOfItsCampaign(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ctx, cancel := context.WithCancel(t.Context())
		term, err := s.member("a").Campaign(ctx, "r")
		if err != nil {
			t.Fatal(err)
		}
		all := s.journal()
		cancel()
		time.Sleep(5 * brief.Lease)
		if term.Err() != nil || term.Context().Err() != nil {
			t.Errorf("it ended: %v, %v", term.Err(), term.Context().Err())
		}
		if got := steps(all(), "a"); len(got) < 2*4*int(brief.Lease/brief.Renew) {
			t.Errorf("renewals in five leases: %s", fmt.Sprint(got))
		}
	})
}
