package netconn

// callQueue holds the calls that are not yet written, oldest first. The zero
// value is empty.
type callQueue struct {
	calls []*Call
	head  int // calls[:head] is gone
}

func (q *callQueue) len() int { return len(q.calls) - q.head }

func (q *callQueue) push(c *Call) { q.calls = append(q.calls, c) }

// pop takes the oldest call out.
func (q *callQueue) pop() *Call {
	c := q.calls[q.head]
	q.calls[q.head] = nil
	q.head++
	switch {
	case q.head == len(q.calls):
		q.calls, q.head = q.calls[:0], 0
	case q.head >= 64 && q.head > len(q.calls)/2: // a queue that is never empty must not grow for ever
		n := copy(q.calls, q.calls[q.head:])
		clear(q.calls[n:])
		q.calls, q.head = q.calls[:n], 0
	}
	return c
}

// remove takes c out, wherever it stands.
func (q *callQueue) remove(c *Call) {
	for i := q.head; i < len(q.calls); i++ {
		if q.calls[i] != c {
			continue
		}
		copy(q.calls[i:], q.calls[i+1:])
		q.calls[len(q.calls)-1] = nil
		q.calls = q.calls[:len(q.calls)-1]
		return
	}
}

// waiting is the calls of a kind, oldest first; nil if there is none.
func (q *callQueue) waiting(which func(*Call) bool) (out []*Call) {
	for _, c := range q.calls[q.head:] {
		if which(c) {
			out = append(out, c)
		}
	}
	return out
}

// putBack puts calls before everything that waits, in their order.
func (q *callQueue) putBack(calls []*Call) {
	if len(calls) == 0 {
		return
	}
	for _, c := range calls {
		c.state = callQueued
	}
	q.calls = append(append(make([]*Call, 0, len(calls)+q.len()), calls...), q.calls[q.head:]...)
	q.head = 0
}
