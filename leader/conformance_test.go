package leader

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
)

// The operations of the transport that this package answers to, and their
// errors: what is not in another test of this package by its id.

func TestS1WhatCannotWorkIsInvalidConfig(t *testing.T) {
	for name, cfg := range map[string]Config{
		"no partitions": {Partitions: -1}, "no replicas": {Replication: -1}, "no lease": {Lease: -1}, "no timeout": {RequestTimeout: -1}, "no wait": {FetchWait: -1},
	} {
		if _, err := Open(refusing{t}, cfg); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	e, err := Open(refusing{t}, Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if _, err := e.Campaign(t.Context(), ""); !errors.Is(err, ErrInvalidConfig) || strings.Count(err.Error(), "ottla: ") != 1 {
		t.Errorf("no role: %v", err)
	}
	// Addresses are the client's.
	for _, bootstrap := range [][]string{nil, {""}, {"no port"}} {
		if cl, err := cluster.Connect(t.Context(), cluster.Config{Bootstrap: bootstrap}); err == nil {
			cl.Close()
			t.Errorf("bootstrap %q is accepted", bootstrap)
		}
	}
}

func TestS2OpenContactsNobodyAndStartsNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	e, err := Open(refusing{t}, Config{}) // which fails the test when asked
	if err != nil {
		t.Fatal(err)
	}
	if n := runtime.NumGoroutine(); n > before {
		t.Errorf("%d goroutines were started", n-before)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestS3TheLeaseIsTheTransactionTimeoutWithinBounds(t *testing.T) {
	for lease, want := range map[time.Duration]int32{time.Second: 2000, 2 * time.Second: 2000, 10 * time.Second: 10_000, 15 * time.Minute: 900_000, 3 * time.Hour: 900_000} {
		onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
			all := s.journal()
			e := s.member("a", func(c *Config) { *c = Config{Lease: lease, RequestTimeout: time.Second} })
			for _, role := range []string{"one", "two"} {
				win(t, e, role)
			}
			n := 0
			for _, r := range all() {
				if q, ok := r.req.(*kmsg.InitProducerIDRequest); ok && q.TransactionalID != nil {
					n++
					if q.TransactionTimeoutMillis != want {
						t.Errorf("a lease of %v gives a timeout of %d ms, want %d", lease, q.TransactionTimeoutMillis, want)
					}
				}
			}
			if n != 4 {
				t.Errorf("%d epochs were asked for", n)
			}
		})
	}
}

func TestS5OneElectorServesEveryRoleOverOneFollowerEach(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		e := s.member("a")
		terms := map[string]*Term{}
		for _, role := range []string{"controller", "role-b", "a", "dispatcher"} { // of two partitions
			terms[role] = win(t, e, role)
		}
		time.Sleep(2 * brief.Lease)
		for role, tm := range terms {
			if tm.Err() != nil || e.Held(role) != tm {
				t.Errorf("%s: %v", role, tm.Err())
			}
		}
		e.log.mu.Lock()
		defer e.log.mu.Unlock()
		if n := len(e.log.parts); n != 2 {
			t.Errorf("%d partitions are followed", n)
		}
	})
}

func TestS6AnAcquisitionMintsAndEndsWithItsErrors(t *testing.T) {
	refuse := func(key, code int16) func(l *link) {
		return func(l *link) {
			l.answer = func(req kmsg.Request) int16 {
				if q, ok := req.(*kmsg.InitProducerIDRequest); req.Key() == key && (!ok || q.TransactionalID != nil) {
					return code
				}
				return 0
			}
		}
	}
	for name, c := range map[string]struct {
		fault func(l *link)
		want  error
	}{
		"refused":       {refuse(22, 42), ErrProducer},
		"no identity":   {refuse(22, 53), ErrAuthorization},
		"timeout":       {refuse(22, 50), ErrInvalidConfig},
		"no connection": {func(l *link) { l.cut, l.only = true, func(key int16) bool { return key == 3 } }, ErrAcquireTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
				e := s.member("a")
				s.links["a"].set(c.fault)
				if _, err := e.Campaign(within(t, 20*time.Second), "r"); err == nil || !errors.Is(err, c.want) {
					t.Errorf("%v, want %v", err, c.want)
				}
			})
		})
	}
	t.Run("refused, and then the time is up half-way", func(t *testing.T) {
		onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
			e := s.member("a")
			s.links["a"].set(func(l *link) {
				refuse(22, 42)(l)
				code := l.answer
				l.answer = func(req kmsg.Request) int16 {
					c := code(req)
					if c != 0 {
						l.setCut(true, nil)
					}
					return c
				}
			})
			_, err := e.Campaign(within(t, 20*time.Second), "r")
			if !errors.Is(err, ErrAcquireTimeout) || !errors.Is(err, ErrProducer) {
				t.Errorf("%v does not say what stood in the way", err)
			}
		})
	})
	t.Run("the pair is that of the last answer", func(t *testing.T) {
		onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
			tm := win(t, s.member("a"), "r")
			s.with(func(m *model.Cluster) {
				if tx, _ := m.Transaction("r"); (lead.Token{ID: tx.ID, Epoch: tx.Epoch}) != tm.Token() || tx.Epoch != 1 {
					t.Errorf("the coordinator is at %d:%d, the token is %v", tx.ID, tx.Epoch, tm.Token())
				}
			})
		})
	})
	t.Run("fenced meanwhile is a race that is run again", func(t *testing.T) {
		onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
			e := s.member("a")
			var once atomic.Bool
			s.links["a"].set(func(l *link) {
				l.before = func(req kmsg.Request) {
					if req.Key() == 24 && !once.Swap(true) {
						if code := newForeign(s.link("x"), "r").mint(); code != 0 {
							s.problem("mint: %d", code)
						}
					}
				}
			})
			tm := win(t, e, "r")
			if n := e.Stats().LostRaces; n != 1 || tm.Err() != nil || len(s.problems) > 0 {
				t.Errorf("%d lost races, %v, %v", n, tm.Err(), s.problems)
			}
		})
	})
}

func TestS7AfterASecondAcquisitionTheOldTokenDoesNotWork(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		e := s.member("a")
		first := win(t, e, "r")
		old := first.Token()
		if err := first.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := win(t, e, "r")
		if v, err := e.Verify(within(t, time.Minute), "r", old); v != Superseded || err != nil || e.Held("r") != second {
			t.Errorf("the old token is %v, %v", v, err)
		}
		for _, step := range []lead.Step{lead.Add, lead.Produce, lead.Commit} {
			a, err := second.lease.send(t.Context(), lead.Action{Step: step, Pair: old, Sequence: 5}, leaseRecord{from: s.links["a"].now()})
			if err != nil || !lead.Fenced(a.Code) {
				t.Errorf("%v under the old token: %d, %v", step, a.Code, err)
			}
		}
		if err := first.Renew(t.Context()); !errors.Is(err, ErrResigned) {
			t.Errorf("the first term renews: %v", err)
		}
	})
}

func TestS8TheBoundProducerIsThereWhileTheRoleIsHeld(t *testing.T) {
	inBubble(t, func(t *testing.T, k *fake) {
		e := k.open(Config{Member: "a"})
		defer e.Close()
		tm := win(t, e, "r")
		p := tm.Producer()
		if p == nil || tm.Producer() != p {
			t.Errorf("the bound producer is %v, and then %v", p, tm.Producer())
		}
		if err := tm.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if tm.Producer() != nil {
			t.Error("there is one after the end")
		}
		if _, err := p.Begin(t.Context()); err == nil {
			t.Error("the old one begins a transaction")
		}
	})
}

func TestS9HeldIsWhatThisProcessBelieves(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		if a.Held("r") != nil {
			t.Error("before the campaign")
		}
		tm := win(t, a, "r")
		if a.Held("r") != tm || a.Held("other") != nil || b.Held("r") != nil {
			t.Error("in office")
		}
		s.links["a"].pause() // and it looks at its clock
		time.Sleep(brief.Lease)
		s.links["a"].resume()
		if a.Held("r") != nil {
			t.Error("past its deadline")
		}
	})
}

func TestS11ARegistrationHasTheWallClockAndTheRolesPartition(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		e := s.member("a")
		if _, err := e.topic.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := s.journal()
		s.links["a"].set(func(l *link) { l.skew = 37 * time.Minute })
		now := kafka.TimestampOf(time.Now().Add(37 * time.Minute))
		if _, err := e.registrar.register(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		r, err := lead.DecodeRegistration(entryOf(registrations(all(), "a")[0].plain()).Value)
		if err != nil || r.At != now || r.Member != "a" {
			t.Errorf("%+v, %v, want %v", r, err, now)
		}
		s.links["a"].set(func(l *link) { l.answer = func(req kmsg.Request) int16 { return map[int16]int16{0: 87}[req.Key()] } })
		if _, err := e.registrar.register(t.Context(), "r"); !errors.Is(err, ErrProducer) || IsFence(err) {
			t.Errorf("refused: %v", err)
		}
	})
}

func TestS12ALeaseIsWrittenUnderTheTokenOfItsRole(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		e := s.member("a")
		terms := map[string]*Term{}
		for _, role := range []string{"controller", "role-b", "a"} { // which share a partition
			terms[role] = win(t, e, role)
		}
		time.Sleep(2 * brief.Lease)
		s.with(func(m *model.Cluster) {
			for role, tm := range terms {
				for _, l := range leases(m, role) {
					if l.writer != tm.Token() || l.lease.Token != tm.Token() {
						t.Errorf("a lease of %s has token %v, written under %v; its own is %v", role, l.lease.Token, l.writer, tm.Token())
					}
				}
			}
		})
		if err := terms["a"].Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := s.journal()
		if err := terms["a"].Renew(t.Context()); err == nil || len(steps(all(), "a")) > 0 {
			t.Errorf("without a token a lease is written: %v, %q", err, steps(all(), "a"))
		}
	})
}

func TestS13ALeaseIsOneTransactionAndAFailedOneIsAborted(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		all := s.journal()
		if err := ta.Renew(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(steps(all(), "a")); got != "[lease end true]" {
			t.Errorf("a renewal is %s", got)
		}
		s.links["a"].set(func(l *link) { l.answer = once(0, 45) }) // the send fails
		all = s.journal()
		if err := ta.Renew(t.Context()); err != nil {
			t.Errorf("after a failed send: %v", err)
		}
		if got := fmt.Sprint(steps(all(), "a")); got != "[lease end false re-init lease end true]" {
			t.Errorf("after a failed send %s", got)
		}
		for key, codes := range map[int16][]int16{24: {90}, 0: {47}, 26: {90}} { // begin, send, commit
			for _, code := range codes {
				tm := win(t, s.member(fmt.Sprint("x", key)), fmt.Sprint("r", key))
				s.links[tm.Member()].set(func(l *link) { l.answer = once(key, code) })
				if err := tm.Renew(t.Context()); !errors.Is(err, ErrFenced) || !errors.Is(err, kerr.ErrorForCode(code)) {
					t.Errorf("%s answers %d: %v", kmsg.NameForKey(key), code, err)
				}
			}
		}
		tm := win(t, s.member("y"), "ry")
		s.links["y"].set(func(l *link) { l.answer = once(24, 59) })
		if err := tm.Renew(t.Context()); !errors.Is(err, ErrProducer) || IsFence(err) {
			t.Errorf("what is no fence: %v", err)
		}
	})
}

// S15: nothing is left after Close, and what is under way ends.
func TestS15CloseEndsEverything(t *testing.T) {
	inBubble(t, func(t *testing.T, k *fake) {
		if err := k.CreateTopic("out", 1); err != nil {
			t.Fatal(err)
		}
		e := k.open(Config{Member: "a"})
		tm := win(t, e, "r")
		p := tm.Producer()
		tx, err := p.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Append(t.Context(), kafka.Record{Topic: "out", Value: []byte("x")}); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 3 { // and concurrently
			wg.Add(1)
			go func() { defer wg.Done(); _ = e.Close() }()
		}
		wg.Wait()
		if err := tx.Commit(within(t, time.Minute)); err == nil {
			t.Error("a transaction is committed after Close")
		}
		for what, err := range map[string]error{
			"Term":     tm.Err(),
			"Renew":    tm.Renew(t.Context()),
			"Campaign": func() error { _, err := e.Campaign(t.Context(), "r"); return err }(),
			"Describe": func() error { _, err := e.Describe(t.Context(), "r"); return err }(),
			"Run":      e.Run(t.Context(), "r", func(context.Context, *Term) error { return nil }),
		} {
			if !errors.Is(err, ErrClosed) || !errors.Is(err, net.ErrClosed) {
				t.Errorf("%s after Close: %v", what, err)
			}
		}
		// The client is the user's, and stays open.
		if _, err := k.cl.Request(t.Context(), kmsg.NewPtrMetadataRequest()); err != nil {
			t.Error(err)
		}
	})
}

func TestS16WhatIsAFence(t *testing.T) {
	for code, want := range map[int16]bool{47: true, 90: true, 49: true, 48: false, 51: false, 53: false, 59: false, 105: false, 120: false} {
		for wrap, err := range map[string]error{
			"bare":    kafka.CodeError(code, nil),
			"wrapped": &Error{Kind: ErrProducer, Err: &kafka.OpError{Op: "x", Err: fmt.Errorf("y: %w", kafka.CodeError(code, nil))}},
			"kerr":    fmt.Errorf("by another client: %w", kerr.ErrorForCode(code)),
		} {
			if IsFence(err) != want {
				t.Errorf("code %d, %s: fence %v", code, wrap, !want)
			}
		}
	}
	if !IsFence(&Error{Kind: ErrFenced}) || IsFence(&Error{Kind: ErrExpired}) || IsFence(nil) {
		t.Error("the package's own errors")
	}
}

func TestS17AClockBefore1970IsZero(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		e := s.member("a")
		if _, err := e.topic.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		all := s.journal()
		s.links["a"].set(func(l *link) { l.skew = -100 * 365 * 24 * time.Hour })
		tm := win(t, e, "r")
		r, err := lead.DecodeRegistration(entryOf(registrations(all(), "a")[0].plain()).Value)
		if err != nil || r.At != 0 {
			t.Errorf("registered at %v, %v", r.At, err)
		}
		time.Sleep(5 * brief.Lease)
		if tm.Err() != nil {
			t.Errorf("the clock costs the leadership: %v", tm.Err())
		}
	})
}
