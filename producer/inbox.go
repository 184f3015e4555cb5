package producer

import (
	"sync"
	"time"
)

// inbox holds what the actor has to look at, in order. Posting never blocks; it
// happens a few times per batch, not per record.
type inbox struct {
	wake chan struct{} // capacity 1

	mu   sync.Mutex
	msgs []message // guarded by mu
	over bool      // guarded by mu: nobody takes any more
}

// message is a step of the actor.
type message func(a *actor, now time.Time)

// post reports whether the message will be looked at.
func (i *inbox) post(m message) bool {
	i.mu.Lock()
	if i.over {
		i.mu.Unlock()
		return false
	}
	i.msgs = append(i.msgs, m)
	i.mu.Unlock()
	select {
	case i.wake <- struct{}{}:
	default:
	}
	return true
}

// take hands out what was posted; empty is used for what comes next.
func (i *inbox) take(empty []message) []message {
	i.mu.Lock()
	defer i.mu.Unlock()
	msgs := i.msgs
	i.msgs = empty
	return msgs
}

// takeLast hands out the rest and refuses further messages.
func (i *inbox) takeLast() []message {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.over = true
	return i.msgs
}

func (p *Producer) post(m message) bool { return p.inbox.post(m) }
