package meta

import (
	"math/rand/v2"
	"slices"

	"github.com/ottla/ottla/kafka"
)

// Candidates are the addresses that a request for any broker can go to.
type Candidates struct {
	Open      []string // with an open, healthy general lane
	Known     []string // of the brokers of the map
	Bootstrap []string
	Avoid     []string // asked last within their kind, in this order
	Spread    bool     // take open and known addresses as one kind
}

// Walk goes over addresses, each once: those that are open, then known
// brokers, then bootstrap addresses, each kind from a random start.
type Walk struct {
	addrs []string
	next  int
	fails kafka.UnreachableError
}

// NewWalk plans a walk.
func NewWalk(c Candidates, rng *rand.Rand) *Walk {
	w := &Walk{}
	kinds := [][]string{c.Open, c.Known, c.Bootstrap}
	if c.Spread {
		kinds = [][]string{slices.Concat(c.Open, c.Known), c.Bootstrap}
	}
	for _, kind := range kinds {
		w.add(kind, c.Avoid, rng)
	}
	return w
}

func (w *Walk) add(kind, avoid []string, rng *rand.Rand) {
	if len(kind) == 0 {
		return
	}
	start := rng.IntN(len(kind))
	at := len(w.addrs)
	for i := range kind {
		a := kind[(start+i)%len(kind)]
		if !slices.Contains(w.addrs, a) {
			w.addrs = append(w.addrs, a)
		}
	}
	slices.SortStableFunc(w.addrs[at:], func(a, b string) int {
		return slices.Index(avoid, a) - slices.Index(avoid, b)
	})
}

// Next is the next address to ask, false after the last.
func (w *Walk) Next() (string, bool) {
	if w.next == len(w.addrs) {
		return "", false
	}
	w.next++
	return w.addrs[w.next-1], true
}

// Failed notes why an address gave no answer.
func (w *Walk) Failed(addr string, err error) {
	w.fails.Addrs = append(w.fails.Addrs, addr)
	w.fails.Errs = append(w.fails.Errs, err)
}

// Err names every address that failed and why, nil if none did.
func (w *Walk) Err() error {
	if len(w.fails.Errs) == 0 {
		return nil
	}
	return &w.fails
}
