package admin

import (
	"errors"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// Result is what became of one item of a call. Value is zero where Err is set,
// unless the call says otherwise.
type Result[K, V any] struct {
	Item  K
	Value V
	Err   error
}

// Results are in the order of the items asked for; where those came in a map,
// in order of their keys. They belong to the caller.
type Results[K, V any] []Result[K, V]

// Err is the error of the first item that failed, nil if none did.
func (rs Results[K, V]) Err() error {
	for i := range rs {
		if rs[i].Err != nil {
			return rs[i].Err
		}
	}
	return nil
}

// Failed are the items that failed.
func (rs Results[K, V]) Failed() Results[K, V] {
	var out Results[K, V]
	for i := range rs {
		if rs[i].Err != nil {
			out = append(out, rs[i])
		}
	}
	return out
}

// Outcome is how a change ended.
type Outcome uint8

const (
	Done    Outcome = iota // the cluster confirmed it
	NotDone                // it has not happened and cannot happen any more
	Unknown                // it may or may not have happened
)

// String is the outcome in words.
func (o Outcome) String() string {
	return [...]string{"done", "not done", "unknown"}[o]
}

// OutcomeOf is how a change ended that returned err. A change that was made
// and only is not visible yet ([*NotVisibleError]) is Done.
func OutcomeOf(err error) Outcome {
	var nv *NotVisibleError
	switch {
	case err == nil || errors.As(err, &nv):
		return Done
	case kafka.MayHaveHappened(err):
		return Unknown
	}
	return NotDone
}

// Mode says when a change is over.
type Mode uint8

const (
	// Visible returns when every live broker shows the change. What is made
	// but not seen everywhere before the context ends is a [*NotVisibleError].
	// Through controllers no broker can be asked, so it is as Accepted there.
	Visible Mode = iota
	// Accepted returns once the change is made. For a moment some brokers may
	// still know nothing of it.
	Accepted
	// ValidateOnly changes nothing: the cluster says whether it would.
	ValidateOnly
)

// doubt is an error after which a change may have happened.
type doubt string

func (e doubt) Error() string       { return string(e) }
func (doubt) MayHaveHappened() bool { return true }

// unsent is an error of a change that was never sent.
type unsent string

func (e unsent) Error() string       { return string(e) }
func (unsent) MayHaveHappened() bool { return false }

var errLeftOut error = doubt("ottla: the broker's answer leaves this item out")

// lost tells what became of the items of a split request that got no answer.
type lost struct {
	whole error            // of all items
	items map[string]error // by the name of the item
}

// lostIn reads the error of a request. The answer is worth reading if nothing
// is lost as a whole.
func lostIn(err error) lost {
	var pe *cluster.PartialError
	if !errors.As(err, &pe) {
		return lost{whole: err}
	}
	l := lost{items: make(map[string]error, len(pe.Failed))}
	for _, f := range pe.Failed {
		e := f.Err
		if f.Broker >= 0 {
			e = &kafka.OpError{Op: pe.Op, Broker: f.Broker, Partition: -1, Err: e}
		}
		l.items[f.Item] = e
	}
	return l
}

// of is the error of one item: lost, or with the code and text that its answer
// has.
func (l lost) of(item string, code int16, text *string) error {
	if l.whole != nil {
		return l.whole
	}
	if err := l.items[item]; err != nil {
		return err
	}
	return kafka.CodeError(code, text)
}
