package leader

import (
	"fmt"
	"sync"
	"time"

	"github.com/anishathalye/porcupine"
)

// history is what leaders were told, and when: acquisitions, writes under a term
// and resignations, as operations of one register. A judge that knows nothing
// of Kafka says whether they can have happened one after the other.
type history struct {
	mu  sync.Mutex
	ops []porcupine.Operation
}

type deed uint8

const (
	acquired deed = iota
	wrote
	resigned
)

type act struct {
	deed deed
	term int64
}

// office is the state of the register: the newest term, and whether it resigned.
type office struct {
	term   int64
	vacant bool
}

// add takes an operation that succeeded, which began at call. What failed may
// have happened or not, and binds nobody.
func (h *history) add(client int, call time.Duration, d deed, term int64, now time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = append(h.ops, porcupine.Operation{ClientId: client, Input: act{d, term}, Call: int64(call), Return: int64(now)})
}

// check reports what is wrong with the history, nothing if it is linearizable.
func (h *history) check() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	ok := porcupine.CheckOperations(porcupine.Model{
		Init: func() any { return office{term: -1, vacant: true} },
		Step: func(state, input, _ any) (bool, any) {
			o, a := state.(office), input.(act)
			switch a.deed {
			case acquired:
				return a.term > o.term, office{term: a.term}
			case wrote:
				return a.term == o.term && !o.vacant, o
			default: // too late it is no error, and changes nothing
				return a.term <= o.term, office{o.term, o.vacant || a.term == o.term}
			}
		},
	}, h.ops)
	if ok {
		return ""
	}
	out := "the history is not linearizable:"
	for _, op := range h.ops {
		a := op.Input.(act)
		out += fmt.Sprintf("\n  %v to %v: member %d %s in term %d", time.Duration(op.Call), time.Duration(op.Return), op.ClientId,
			[...]string{"acquired", "wrote", "resigned"}[a.deed], a.term)
	}
	return out
}
