package meta

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/ottla/ottla/kafka"
)

type kafkaEpoch = kafka.LeaderEpoch

func drain(w *Walk) []string {
	var as []string
	for a, ok := w.Next(); ok; a, ok = w.Next() {
		as = append(as, a)
	}
	return as
}

func TestC54AWalkAsksOpenThenKnownThenBootstrapEachOnce(t *testing.T) {
	c := Candidates{
		Open: []string{"o1:1", "o2:1"}, Known: []string{"k1:1", "o1:1", "k2:1", "k3:1"},
		Bootstrap: []string{"k1:1", "s1:1", "s2:1"},
	}
	for seed := range uint64(50) {
		got := drain(NewWalk(c, rand.New(rand.NewPCG(seed, 0))))
		if len(got) != 7 {
			t.Fatalf("seed %d: %v does not name each address once", seed, got)
		}
		for i, kind := range [][]string{c.Open, c.Open, c.Known, c.Known, c.Known, c.Bootstrap, c.Bootstrap} {
			if !slices.Contains(kind, got[i]) {
				t.Errorf("seed %d: %s is asked out of its turn in %v", seed, got[i], got)
			}
		}
	}
}

func TestB013C54ClientsSpreadOverTheBootstrapAddresses(t *testing.T) {
	first := map[string]int{}
	for seed := range uint64(300) {
		w := NewWalk(Candidates{Bootstrap: []string{"a:1", "b:1", "c:1"}}, rand.New(rand.NewPCG(seed, seed)))
		a, _ := w.Next()
		first[a]++
	}
	for a, n := range first {
		if n < 70 || n > 130 {
			t.Errorf("%s is the first of %d of 300 clients", a, n)
		}
	}
	if len(first) != 3 {
		t.Errorf("first addresses: %v", first)
	}
}

func TestK12AddressesInDoubtAreAskedLast(t *testing.T) {
	for seed := range uint64(20) {
		w := NewWalk(Candidates{Known: []string{"a:1", "b:1", "c:1"}, Avoid: []string{"b:1", "a:1"}}, rand.New(rand.NewPCG(seed, 1)))
		if got := drain(w); !slices.Equal(got, []string{"c:1", "b:1", "a:1"}) {
			t.Errorf("seed %d: %v", seed, got)
		}
		c := Candidates{Open: []string{"a:1", "b:1"}, Known: []string{"a:1", "b:1", "c:1"}, Avoid: []string{"b:1", "a:1"}}
		if got := drain(NewWalk(c, rand.New(rand.NewPCG(seed, 1)))); got[0] != "b:1" || len(got) != 3 {
			t.Errorf("seed %d: a new connection without need: %v", seed, got)
		}
		c.Spread = true
		if got := drain(NewWalk(c, rand.New(rand.NewPCG(seed, 1)))); !slices.Equal(got, []string{"c:1", "b:1", "a:1"}) {
			t.Errorf("seed %d: in doubt: %v", seed, got)
		}
	}
}

func TestC55B014TheErrorNamesEveryAddressAndItsReason(t *testing.T) {
	w := NewWalk(Candidates{Bootstrap: []string{"a:1"}}, rand.New(rand.NewPCG(1, 1)))
	if w.Err() != nil {
		t.Error("an error before any failure")
	}
	refused := &kafka.DialError{Addr: "a:1", Err: syscall.ECONNREFUSED}
	denied := &kafka.AuthError{Addr: "b:2", Mechanism: "PLAIN", Message: "no"}
	w.Failed("a:1", refused)
	w.Failed("b:2", denied)
	w.Failed("c:3", errors.New("odd"))
	err := w.Err()
	for _, want := range []string{"a:1: connection refused", "b:2 with PLAIN failed: no", "c:3: odd"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
	var auth *kafka.AuthError
	if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &auth) {
		t.Error("a cause is lost")
	}
	if !kafka.MayHaveHappened(err) {
		t.Error("an odd error may have happened")
	}
}
