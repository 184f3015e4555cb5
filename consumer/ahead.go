package consumer

import (
	"context"

	"github.com/ottla/ottla/internal/core/fetch"
)

// ahead decodes what will be asked for next, on workers that live while there is
// work and room for it.
type ahead struct {
	c       *actor
	working int              // guarded by actor.mu: workers
	idle    []*fetch.Decoder // guarded by actor.mu: of workers that ended
}

// start begins as many workers as are worth it.
func (a *ahead) start() {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	for a.working < a.c.cfg.Workers {
		w, ok := a.c.machine.Ahead()
		if !ok || !a.c.tasks.Go(func(context.Context) error { a.work(w); return nil }) {
			return
		}
		a.working++
	}
}

// work is a worker: it decodes until there is nothing to do.
func (a *ahead) work(w fetch.Work) {
	c := a.c
	d := a.decoder()
	for ok := true; ok; {
		d.Limit = min(w.Limit, c.cfg.MaxBatchBytes)
		payload, err := d.Decode(w.Batch, c.buffers.spare(w.Room))
		c.mu.Lock()
		c.machine.OnAhead(w, payload, err)
		c.signalLocked()
		if w, ok = c.machine.Ahead(); !ok {
			a.working--
			a.idle = append(a.idle, d)
		}
		c.mu.Unlock()
	}
}

// decoder is one that no other worker has.
func (a *ahead) decoder() *fetch.Decoder {
	a.c.mu.Lock()
	defer a.c.mu.Unlock()
	if n := len(a.idle); n > 0 {
		d := a.idle[n-1]
		a.idle = a.idle[:n-1]
		return d
	}
	return &fetch.Decoder{NoCRC: a.c.cfg.NoCRC}
}
