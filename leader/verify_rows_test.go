package leader

import (
	"context"
	"testing"
	"time"

	"github.com/ottla/ottla/internal/model"
)

// Mutation: one look only.
func TestI9ATransactionUnderWayIsLookedAtAgain(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		ta, b := win(t, s.member("a"), "controller"), s.member("b")
		token := ta.Token()
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if v, err := b.Verify(within(t, time.Minute), "controller", token); v != Superseded || err != nil {
			t.Fatalf("after the resignation: %v, %v", v, err)
		}
		end := s.hidden() // another role of the partition has a transaction open
		time.AfterFunc(10*time.Millisecond, end)
		if v, err := b.Verify(within(t, time.Minute), "controller", token); v != Superseded || err != nil {
			t.Errorf("after a transaction that was short: %v, %v", v, err)
		}
	})
}

// A watch is silent while a leader renews, and tells of every change. Mutations:
// same without one of its comparisons, or false.
func TestP5WatchYieldsWhatChangedAndNothingElse(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a, b, w := s.member("a"), s.member("b"), s.member("w")
		ta := win(t, a, "r")
		states := make(chan State, 1000)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(states)
			for st, err := range w.Watch(ctx, "r") {
				if err == nil {
					states <- st
				}
			}
		}()
		newest := func() (st State, n int) {
			for {
				select {
				case st = <-states:
					n++
				default:
					return st, n
				}
			}
		}
		time.Sleep(time.Second)
		if st, n := newest(); n == 0 || st.Leader != "a" || st.Term != ta.Number() {
			t.Fatalf("%d states, %+v", n, st)
		}
		time.Sleep(10 * brief.Lease)
		if st, n := newest(); n > 0 {
			t.Errorf("%d states of a leader that renews, the last %+v", n, st)
		}
		next := s.candidate(b, "r")
		time.Sleep(time.Second)
		if st, n := newest(); n == 0 || len(st.Roster) != 2 {
			t.Errorf("%d states after another registered: %+v", n, st)
		}
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		tb, _ := s.after(next, time.Minute)
		time.Sleep(time.Second)
		if st, n := newest(); n == 0 || st.Leader != "b" || st.Term != tb.Number() || st.Token != tb.Token() {
			t.Errorf("%d states after a hand-over: %+v", n, st)
		}
		if err := tb.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		again := win(t, b, "r")
		time.Sleep(time.Second)
		if st, n := newest(); n == 0 || st.Leader != "b" || st.Term != again.Number() || st.Term == tb.Number() {
			t.Errorf("%d states after the same member won again: %+v", n, st)
		}
		cancel()
		for range states {
		}
	})
}
