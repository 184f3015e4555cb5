package leader

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/ottlatest"
)

// fake is three brokers in memory, in virtual time, and a client of them.
type fake struct {
	*ottlatest.Cluster
	t  *testing.T
	cl *cluster.Cluster
}

func inBubble(t *testing.T, f func(t *testing.T, k *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k := &fake{Cluster: ottlatest.New(t, ottlatest.Config{InMemory: true}), t: t}
		cl, err := cluster.Connect(t.Context(), k.ClientConfig())
		if err != nil {
			t.Fatal(err)
		}
		k.cl = cl
		defer cl.Close()
		f(t, k)
	})
}

// open makes an Elector that ends before the client does.
func (k *fake) open(cfg Config) *Elector {
	k.t.Helper()
	e, err := Open(k.cl, cfg)
	if err != nil {
		k.t.Fatal(err)
	}
	return e
}

func within(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func win(t *testing.T, e *Elector, role string) *Term {
	t.Helper()
	term, err := e.Campaign(within(t, 10*time.Minute), role)
	if err != nil {
		t.Fatal(err)
	}
	return term
}

func TestF1AnEmptyRoleIsAcquiredAndARoleHandedOver(t *testing.T) {
	inBubble(t, func(t *testing.T, k *fake) {
		a, b := k.open(Config{Member: "a"}), k.open(Config{Member: "b"})
		defer a.Close()
		defer b.Close()
		ta := win(t, a, "r")
		if ta.Err() != nil || ta.Role() != "r" || ta.Member() != "a" || !ta.Token().Valid() || a.Held("r") != ta {
			t.Fatalf("%+v", ta)
		}
		won := make(chan *Term, 1)
		go func() { won <- win(t, b, "r") }()
		time.Sleep(95 * time.Second)
		s, err := b.Describe(t.Context(), "r")
		if err != nil || s.Leader != "a" || s.Term != ta.Number() || s.Token != ta.Token() || s.Verdict != Authoritative || len(s.Roster) != 2 {
			t.Fatalf("after 95 s the state is %+v, %v", s, err)
		}
		if v, err := b.Verify(t.Context(), "r", ta.Token()); v != Authoritative || err != nil {
			t.Errorf("%v, %v", v, err)
		}
		resigned := time.Now()
		if err := ta.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		tb := <-won
		if took := time.Since(resigned); took > time.Second {
			t.Errorf("the hand-over took %v of virtual time", took)
		}
		if tb.Number() <= ta.Number() || !errors.Is(ta.Err(), ErrResigned) || !errors.Is(context.Cause(ta.Context()), ErrResigned) {
			t.Errorf("terms %d, %d; the first ended with %v", ta.Number(), tb.Number(), ta.Err())
		}
		if v, err := a.Verify(t.Context(), "r", ta.Token()); v != Superseded || err != nil {
			t.Errorf("the old token is %v, %v", v, err)
		}
		if err := tb.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s, err := a.Describe(t.Context(), "r"); err != nil || !s.Vacant() || s.Leader != "" {
			t.Errorf("after all resigned: %+v, %v", s, err)
		}
	})
}

// Close waits for a campaign that has begun, and one that begins later ends at
// once. The mutation needs the race detector to be seen: count the call after the
// look at closed, without the lock.
func TestS15ACampaignBesideCloseIsWaitedForOrRefused(t *testing.T) {
	for seed := range uint64(200) {
		e, err := newWorld(seed, model.Config{TransactionVersion: 2}).link("a").open(brief)
		if err != nil {
			t.Fatal(err)
		}
		begin := make(chan struct{})
		ended := make(chan error, 4)
		for range cap(ended) {
			go func() {
				<-begin
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				defer cancel()
				_, err := e.Campaign(ctx, "r")
				ended <- err
			}()
		}
		closed := make(chan error)
		go func() {
			<-begin
			closed <- e.Close()
		}()
		close(begin)
		<-closed
		for range cap(ended) {
			if err := <-ended; !errors.Is(err, ErrClosed) && !errors.Is(err, ErrAcquireTimeout) {
				t.Errorf("%v", err)
			}
		}
	}
}
