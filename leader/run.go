package leader

import (
	"context"
	"errors"
	"sync"
)

// Run leads a role again and again: it campaigns, and calls work for each
// leadership, with a context that ends when the leadership does or ctx ends.
// It goes on after a loss until ctx ends, and then returns the cause; it ends
// with what work returns otherwise, and with errors of Campaign.
//
// Work must return soon after its context ended: only then is the role resigned
// and the next candidate's turn. Renewals stop when ctx ends, so that work that
// does not return holds the role until the lease runs out, and no longer. The
// role is resigned on every way out of work, a panic among them.
func (e *Elector) Run(ctx context.Context, role string, work func(ctx context.Context, t *Term) error) error {
	for {
		t, err := e.Campaign(ctx, role)
		if err != nil {
			if ctx.Err() != nil && !errors.Is(err, ErrAcquireTimeout) {
				return context.Cause(ctx)
			}
			return err
		}
		lost, err := e.serve(ctx, t, work)
		switch {
		case ctx.Err() != nil && (err == nil || errors.Is(err, context.Cause(ctx))):
			return context.Cause(ctx)
		case !lost || err != nil && !endedBy(err, t):
			return err
		}
	}
}

// endedBy reports whether an error of the user's work is the end of its term.
func endedBy(err error, t *Term) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, t.Err())
}

// serve runs work in a leadership and resigns it after work has returned. It
// reports whether the leadership had been lost before.
func (e *Elector) serve(ctx context.Context, t *Term, work func(ctx context.Context, t *Term) error) (lost bool, err error) {
	wctx, cancel := context.WithCancelCause(t.Context())
	stop := context.AfterFunc(ctx, func() {
		t.mu.Lock()
		t.holder.Stop() // the lease runs out by itself if work does not return
		t.mu.Unlock()
		cancel(context.Cause(ctx))
	})
	var once sync.Once
	release := func() {
		once.Do(func() {
			stop()
			lost = t.Err() != nil
			cancel(nil)
			rctx, done := context.WithTimeout(context.WithoutCancel(ctx), min(e.cfg.RequestTimeout, e.cfg.Lease))
			defer done()
			if rerr := t.Resign(rctx); rerr != nil {
				e.cfg.Logger.Warn("ottla: the role is not handed over: others wait for the lease to run out", "role", t.role, "err", rerr)
			}
		})
	}
	defer release()
	err = work(wctx, t)
	release()
	return lost, err
}
