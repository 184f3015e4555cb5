package leader

import (
	"context"
	"sync"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/task"
)

// mostEvents is how many events wait for a slow OnEvent; the oldest go first.
const mostEvents = 4096

// eventQueue hands events to the user on a goroutine of its own.
type eventQueue struct {
	f    func(Event)
	wake chan struct{} // capacity 1

	mu   sync.Mutex
	wait []Event
}

// newEventQueue makes the queue of an Elector that is open until ctx ends.
// Nobody waits for its goroutine: it is in the user's function.
func newEventQueue(ctx context.Context, f func(Event)) *eventQueue {
	q := &eventQueue{f: f, wake: make(chan struct{}, 1)}
	if f != nil {
		task.New(ctx).Go(q.run)
	}
	return q
}

func (q *eventQueue) add(e Event) {
	if q.f == nil {
		return
	}
	q.mu.Lock()
	if len(q.wait) >= mostEvents {
		q.wait = q.wait[1:]
	}
	q.wait = append(q.wait, e)
	q.mu.Unlock()
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

// run delivers what is there, once more after the end.
func (q *eventQueue) run(ctx context.Context) error {
	for ended := false; !ended; {
		select {
		case <-q.wake:
		case <-ctx.Done():
			ended = true
		}
		q.mu.Lock()
		events := q.wait
		q.wait = nil
		q.mu.Unlock()
		for _, e := range events {
			q.f(e)
		}
	}
	return nil
}

func (e *Elector) emit(ev Event) {
	if ev.Term < 0 {
		ev.Token = lead.NoToken
	}
	ev.At, ev.Member = e.cfg.now().Wall.Time(), e.cfg.Member
	e.events.add(ev)
}
