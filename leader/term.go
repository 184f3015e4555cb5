package leader

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// Term is one leadership of a role. It is safe for concurrent use. It ends
// once, and never begins again: by Resign, by Close of the Elector, by a fence
// that a broker reports, or by its own clock, a stop margin before the lease
// runs out, whatever requests are under way then.
type Term struct {
	e      *Elector
	role   string
	p      *partition
	lease  *leaseWriter
	fences map[string]Token
	number kafka.Offset
	topic  kafka.TopicID
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   chan struct{}

	mu       sync.Mutex
	holder   *lead.Holder
	token    Token
	err      error // why it ended, nil while it lasts
	why      Loss
	explains chan struct{} // closed once why is filled in
	left     leftover
	producer *producer.Producer // the bound one, nil until it is asked for
}

// leftover is what a resignation has not done yet.
type leftover struct {
	moved, cleared, burned, released bool
}

// begin makes the leadership of a committed grant.
func (e *Elector) begin(l *leaseWriter, h *lead.Holder, p *partition, fences map[string]Token) *Term {
	t := &Term{
		e: e, role: l.role, p: p, lease: l, fences: fences, number: l.term, topic: p.view().topic,
		done: make(chan struct{}), holder: h, token: l.w.Pair(), explains: make(chan struct{}),
	}
	t.ctx, t.cancel = context.WithCancelCause(context.Background())
	e.mu.Lock()
	closed := e.closed
	if !closed {
		e.terms[t.role] = t
		if !e.looking {
			e.looking = e.tasks.Go(func(ctx context.Context) error { return look(ctx, e) })
		}
	}
	e.mu.Unlock()
	e.counts.add(func(s *Stats) { s.Acquired++ })
	t.emit(EventAcquired, nil)
	if closed || !e.tasks.Go(t.run) {
		t.end(ErrClosed)
	}
	return t
}

func (t *Term) emit(kind EventKind, err error) {
	t.e.emit(Event{Kind: kind, Role: t.role, Term: int64(t.number), Token: t.Token(), Rank: -1, Err: err})
}

// Role is the role that is led.
func (t *Term) Role() string { return t.role }

// Member is the id of this process among the candidates.
func (t *Term) Member() string { return t.e.cfg.Member }

// Number is the term: it grows with every leadership of the role, whoever
// leads, and is the fencing number for other stores, which refuse a number
// below the highest they have seen. It is the offset of the grant, so it holds
// for one topic: see TopicID.
func (t *Term) Number() int64 { return int64(t.number) }

// TopicID is the id of the topic that the number counts in. Another one means
// that the topic was made anew, and numbers began again. It is zero on brokers
// without topic ids.
func (t *Term) TopicID() kafka.TopicID { return t.topic }

// Token is the pair of producer id and epoch that brokers check. It changes
// only where an answer was lost and the pair had to be moved on.
func (t *Term) Token() Token {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.token
}

// Fenced is the pair of a transactional id of Config.FenceSet: for a producer
// that this leadership alone may use. ok is false for other ids.
func (t *Term) Fenced(id string) (pair Token, ok bool) {
	pair, ok = t.fences[id]
	return pair, ok
}

// Context is cancelled when the leadership ends; context.Cause has the reason.
func (t *Term) Context() context.Context { return t.ctx }

// Done is closed when the leadership ends. Err has the reason by then.
func (t *Term) Done() <-chan struct{} { return t.done }

// Err is nil while the leadership lasts. It looks at the clock: a process that
// was suspended past the end learns so here, before anything else has run. The
// reasons, for errors.Is: ErrFenced, ErrExpired, ErrResigned, ErrClosed,
// ErrAuthorization.
func (t *Term) Err() error {
	now := t.e.cfg.now().Local
	t.mu.Lock()
	err, over := t.err, t.holder.Over(now)
	t.mu.Unlock()
	if err == nil && over {
		t.end(&Error{Kind: ErrExpired, Role: t.role})
		t.mu.Lock()
		err = t.err
		t.mu.Unlock()
	}
	return err
}

// Left is how long the leadership lasts if it is never renewed again: until
// then, and no longer, the holder may act on it without asking. It is not
// positive once it is over.
func (t *Term) Left() time.Duration {
	now := t.e.cfg.now().Local
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return 0
	}
	return t.holder.StepDownAt() - now
}

// end closes the leadership. The first reason stays.
func (t *Term) end(reason error) {
	t.mu.Lock()
	if t.err != nil {
		t.mu.Unlock()
		return
	}
	t.err = reason
	close(t.done)
	t.mu.Unlock()
	t.cancel(reason)
	t.replaceProducer()
	t.e.forget(t)
	kind := EventLost
	if errors.Is(reason, ErrResigned) || errors.Is(reason, ErrClosed) {
		kind = EventResigned
	}
	t.emit(kind, reason)
	if kind == EventResigned || !t.e.tasks.Go(t.afterLoss) {
		t.explain(Loss{Kind: LossNone})
	}
	if kind == EventLost {
		t.e.counts.add(func(s *Stats) { s.Lost++ })
	}
}

// look ends leaderships that are over by the clock, as long as there are any:
// timers stand still while the machine sleeps, and would go off late.
func look(ctx context.Context, e *Elector) error {
	for task.Sleep(ctx, e.cfg.look()) == nil {
		e.mu.Lock()
		terms := slices.Collect(maps.Values(e.terms))
		e.looking = len(terms) > 0
		e.mu.Unlock()
		if len(terms) == 0 {
			return nil
		}
		for _, t := range terms {
			_ = t.Err()
		}
	}
	return nil
}

// forget lets the next campaign of the process begin.
func (e *Elector) forget(t *Term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.terms[t.role] == t {
		delete(e.terms, t.role)
	}
	select {
	case <-e.roles[t.role]:
	default:
	}
}

// run renews until the leadership ends. Its timer runs beside every request.
func (t *Term) run(ctx context.Context) error {
	renewed := make(chan struct{}, 1)
	renewing := false
	timer := time.NewTimer(0)
	defer timer.Stop()
	for t.Err() == nil {
		now := t.e.cfg.now().Local
		t.mu.Lock()
		at, due := t.holder.StepDownAt(), t.holder.RenewAt()
		t.mu.Unlock()
		if !renewing && now >= due {
			renewing = t.e.tasks.Go(func(context.Context) error {
				t.renewOnce()
				renewed <- struct{}{}
				return nil
			})
		}
		if !renewing {
			at = min(at, due)
		}
		timer.Reset(at - now)
		select {
		case <-timer.C:
		case <-renewed:
			renewing = false
		case <-t.done:
		case <-ctx.Done():
			t.end(ErrClosed)
		}
	}
	return nil
}

// renewOnce makes one attempt that is due by the schedule.
func (t *Term) renewOnce() {
	if t.lease.lock(t.ctx) != nil {
		return
	}
	defer t.lease.unlock()
	t.mu.Lock()
	due := t.holder.RenewAt() <= t.e.cfg.now().Local
	t.mu.Unlock()
	if due { // nobody else has written it meanwhile
		_ = t.renewLocked()
	}
}

// Renew writes the lease now and waits until it is committed, the leadership
// ends, or ctx does; a renewal that has begun goes on. After the end it returns
// the reason and writes nothing. It is never needed: renewals happen by
// themselves.
func (t *Term) Renew(ctx context.Context) error {
	if err := t.Err(); err != nil {
		return err
	}
	if err := t.lease.lock(ctx); err != nil {
		return &Error{Kind: ErrProducer, Role: t.role, Op: "renew", Err: err}
	}
	result := make(chan error, 1)
	if !t.e.tasks.Go(func(context.Context) error {
		defer t.lease.unlock()
		result <- t.renewLocked()
		return nil
	}) {
		t.lease.unlock()
		return ErrClosed
	}
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
		return &Error{Kind: ErrProducer, Role: t.role, Op: "renew", Err: context.Cause(ctx)}
	}
}

// renewLocked makes one attempt with the turn of the lease writer. It may take
// half of the time that is left.
func (t *Term) renewLocked() error {
	if err := t.Err(); err != nil {
		return err
	}
	from := t.e.cfg.now()
	t.mu.Lock()
	limit := t.holder.AttemptFor(from.Local)
	t.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	err := t.lease.write(ctx, leaseRecord{from: from}, t.Err)
	if err == nil {
		err = t.inPlace()
	}
	return t.wrote(from, err)
}

// inPlace reports that the topic is the one that the role was granted in: a
// lease written by name into a topic made anew proves nothing.
func (t *Term) inPlace() error {
	if err := t.e.topic.changed(); err != nil {
		return err
	}
	if v := t.p.view(); v.topic != t.topic {
		return fmt.Errorf("%s was deleted and made anew", Topic)
	}
	return nil
}

// wrote takes what came of a lease that was begun at from.
func (t *Term) wrote(from lead.Now, err error) error {
	if err == nil {
		t.renewed(from)
		return nil
	}
	if t.Err() != nil {
		return t.Err()
	}
	err = t.e.writeFailed(t.role, "renew", err)
	t.e.counts.add(func(s *Stats) { s.Failures++ })
	switch {
	case IsFence(err), errors.Is(err, ErrAuthorization), errors.Is(err, ErrInvalidConfig):
		t.end(err)
	case t.confirmsLoss(err):
		t.end(&Error{Kind: ErrFenced, Role: t.role, Op: "renew", Err: err})
	default:
		t.mu.Lock()
		t.holder.OnFailed(t.e.cfg.now().Local, backoff(t.holder.Tries()+1))
		t.mu.Unlock()
		t.e.cfg.Logger.Warn("ottla: the lease was not renewed and is tried again", "role", t.role, "left", t.Left(), "err", err)
	}
	return err
}

// renewed takes note of a lease that is committed.
func (t *Term) renewed(from lead.Now) {
	pair := t.lease.w.Pair()
	took := t.e.cfg.now().Local - from.Local
	t.mu.Lock()
	moved := t.token != pair
	t.token = pair
	t.holder.OnWritten(from.Local)
	t.mu.Unlock()
	t.e.counts.add(func(s *Stats) {
		s.Renewals++
		s.LastRenew = took
		if moved {
			s.Reinits++
		}
	})
	if moved {
		t.emit(EventTokenChanged, nil)
	}
	t.emit(EventRenewed, nil)
}

// confirmsLoss asks the coordinator where a broker's answer says that the
// transaction is not what this leader thinks. Only another pair is a loss.
func (t *Term) confirmsLoss(err error) bool {
	var we *writeError
	if !errors.As(err, &we) || we.outcome != lead.Unresolved {
		return false
	}
	ctx, cancel := context.WithTimeout(context.Background(), max(t.Left()/2, time.Millisecond))
	defer cancel()
	d, derr := t.e.coords.describe(ctx, t.role)
	return derr == nil && d.Pair != t.lease.w.Pair()
}
