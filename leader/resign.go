package leader

import (
	"context"
	"errors"
	"time"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/task"
)

// after is what a resigner does with its place in the roster.
type after uint8

const (
	tail  after = iota // it stays a candidate, behind all others
	leave              // it leaves
)

// headStart is how long the pair is left to a candidate to burn, whose mint would
// wait for the re-inits.
const headStart = 100 * time.Millisecond

// Resign gives the role up: Done closes first, then what is being written is
// waited for, this process goes to the roster's tail, the lease is cleared, and
// the pair is made useless, so that late writes under it are refused. The next
// candidate is woken by the cleared lease.
//
// The leadership is over from the start of the call, whatever it returns. An
// error says that something of it is not done: standbys may then wait for the
// lease to run out. A further call does what is left. After a leadership that
// ended otherwise there is nothing to do, and no error.
func (t *Term) Resign(ctx context.Context) error {
	_ = t.Err() // notices that its time has passed
	t.end(&Error{Kind: ErrResigned, Role: t.role})
	return t.release(ctx, tail)
}

// release hands the role over, as far as that was not done yet.
func (t *Term) release(ctx context.Context, then after) error {
	t.mu.Lock()
	reason := t.err
	t.mu.Unlock()
	if !errors.Is(reason, ErrResigned) && !errors.Is(reason, ErrClosed) {
		return nil
	}
	if err := t.lease.lock(ctx); err != nil {
		return &Error{Kind: ErrProducer, Role: t.role, Op: "resign", Err: err}
	}
	defer t.lease.unlock()
	if t.left.released {
		return nil
	}
	if !t.left.moved {
		if err := t.move(ctx, then); err != nil {
			return err
		}
		t.left.moved = true
	}
	if !t.left.cleared {
		err := t.lease.write(ctx, leaseRecord{from: t.e.cfg.now(), clear: true}, func() error { return nil })
		if err != nil && !IsFence(t.e.writeFailed(t.role, "resign", err)) {
			return t.e.writeFailed(t.role, "resign", err)
		}
		t.left.cleared, t.left.burned = true, err != nil // a successor has burned it already
	}
	if !t.left.burned {
		until := time.Duration(0)
		if t.p.contested(t.role, t.Member()) {
			until = t.e.cfg.now().Local + headStart
		}
		if err := t.lease.burn(ctx, until); err != nil {
			return &Error{Kind: ErrProducer, Role: t.role, Op: "make the pair useless", Err: err}
		}
	}
	t.left.released = true
	return nil
}

func (t *Term) move(ctx context.Context, then after) error {
	if then == leave {
		return t.e.registrar.remove(ctx, t.role)
	}
	_, err := t.e.registrar.register(ctx, t.role)
	return err
}

// afterLoss ends what the leadership may have left open, so that others can
// read on, and finds out why it ended.
func (t *Term) afterLoss(ctx context.Context) error {
	t.mu.Lock()
	reason := t.err
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, min(t.e.cfg.RequestTimeout, t.e.cfg.Lease))
	defer cancel()
	if !IsFence(reason) && t.lease.lock(ctx) == nil {
		t.lease.abort(ctx)
		t.lease.unlock()
	}
	t.explain(t.findOut(ctx))
	return nil
}

// abort ends an open transaction without effect. A fence is as good.
func (l *leaseWriter) abort(ctx context.Context) {
	for tries := 1; l.w.Abandon(); tries++ {
		act, ok := l.w.Next()
		if !ok {
			return
		}
		a, err := l.send(ctx, act, leaseRecord{})
		if err != nil {
			a = lead.Answer{Code: lead.NoAnswer}
		}
		l.w.OnAnswer(l.e.cfg.now().Local, a)
		if task.Sleep(ctx, backoff(tries)) != nil {
			return
		}
	}
}
