package leader

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// acquire takes the role: mint, re-init, fence set, grant. read is when the log
// was last known to its end; it said that it is this candidate's turn.
func (c *campaign) acquire(read time.Duration) (*Term, error) {
	e := c.e
	pair, err := e.take(c.ctx, c.role, read+e.cfg.Renew)
	if !pair.Valid() {
		return nil, err
	}
	l := &leaseWriter{e: e, role: c.role, partition: c.p.id, turn: make(chan struct{}, 1), term: -1,
		w: lead.NewWriter(pair, e.cfg.Lease, e.cfg.now().Local)}
	var fences map[string]lead.Token
	if err == nil {
		fences, err = e.fenceAll(c.ctx)
	}
	if err == nil {
		var t *Term
		if t, err = c.grant(l, fences); err == nil {
			return t, nil
		}
	}
	if !IsFence(err) && !errors.Is(err, errTooLate) {
		c.giveBack(l)
	}
	return nil, err
}

// take mints an epoch of a transactional id, not after limit, and re-inits once
// with it: the second answer is the token. That puts the coordinator two epochs
// above any former holder, so that none of its requests is taken for a retry.
// errTooLate asks to begin anew: the limit is past, or the re-init would come
// more than a stagger after the mint. With another error the pair that was
// minted is returned, if one was.
func (e *Elector) take(ctx context.Context, id string, limit time.Duration) (lead.Token, error) {
	e.counts.add(func(s *Stats) { s.Mints++ })
	stale := e.cfg.now().Local + e.cfg.Stagger
	minted, err := e.initUntil(ctx, id, lead.NoToken, min(limit, stale))
	if err != nil {
		return lead.NoToken, err
	}
	pair, err := e.initUntil(ctx, id, minted, stale)
	if err != nil {
		return minted, err
	}
	return pair, nil
}

var errTooLate = errors.New("the epoch was asked for too long ago")

// initUntil repeats InitProducerId until it is answered. A repeated mint takes
// another epoch, which harms nobody but this process's own earlier one.
func (e *Elector) initUntil(ctx context.Context, id string, pair lead.Token, limit time.Duration) (lead.Token, error) {
	var last error
	for tries := 1; ; tries++ {
		now := e.cfg.now().Local
		if now >= limit {
			return lead.NoToken, errors.Join(errTooLate, last)
		}
		rctx, cancel := context.WithTimeout(ctx, min(e.cfg.RequestTimeout, limit-now))
		got, code, err := e.coords.init(rctx, id, pair, e.cfg.transactionTimeout())
		cancel()
		switch {
		case hopeless(err):
			return lead.NoToken, err
		case err != nil:
		case code == 0 && got.Valid():
			return got, nil
		case code == kerr.TransactionalIDAuthorizationFailed.Code:
			return lead.NoToken, failed(ErrProducer, id, "", unauthorized(code, "taking the epoch", fmt.Sprintf("WRITE on transactional id %q", id)))
		default:
			err = kafka.CodeError(code, nil)
			if r := lead.React(code); r != lead.Again && r != lead.Elsewhere && r != lead.Unsure {
				return lead.NoToken, &Error{Kind: kindOf(code), Role: id, Op: "take the epoch", Err: err}
			}
		}
		if lead.React(kafka.CodeOf(err)) != lead.Again || kafka.CodeOf(err) == 0 {
			e.coords.forget(id)
		}
		last = failed(ErrProducer, id, "take the epoch", err)
		if serr := task.Sleep(ctx, pause(code, tries)); serr != nil {
			return lead.NoToken, failed(ErrProducer, id, "take the epoch", errors.Join(serr, err))
		}
	}
}

// kindOf is the kind of an error for a code of the lease writer's requests.
func kindOf(code int16) error {
	switch {
	case lead.Fenced(code):
		return ErrFenced
	case code == kerr.InvalidTransactionTimeout.Code:
		return ErrInvalidConfig
	case lead.React(code) == lead.Configured:
		return ErrAuthorization
	}
	return ErrProducer
}

// fenceAll takes the epochs of the fence set.
func (e *Elector) fenceAll(ctx context.Context) (map[string]lead.Token, error) {
	fences := make(map[string]lead.Token, len(e.cfg.FenceSet))
	for _, id := range e.cfg.FenceSet {
		pair, err := e.take(ctx, id, math.MaxInt64)
		for errors.Is(err, errTooLate) && ctx.Err() == nil {
			pair, err = e.take(ctx, id, math.MaxInt64)
		}
		if err != nil {
			return nil, &Error{Kind: ErrProducer, Op: fmt.Sprintf("take the epoch of %q of the fence set", id), Err: err}
		}
		fences[id] = pair
	}
	return fences, nil
}

// grant writes the first lease. The local deadline counts from before it was
// sent; once that is past, the role was not won.
func (c *campaign) grant(l *leaseWriter, fences map[string]lead.Token) (*Term, error) {
	e := c.e
	from := e.cfg.now()
	h := lead.NewHolder(e.cfg.timing(), from.Local)
	inTime := func() error {
		if h.Over(e.cfg.now().Local) {
			return &Error{Kind: ErrExpired, Role: c.role, Op: "grant"}
		}
		return nil
	}
	ctx, cancel := context.WithTimeout(c.ctx, h.StepDownAt()-from.Local)
	defer cancel()
	err := l.write(ctx, leaseRecord{from: from}, inTime)
	if err == nil {
		err = inTime()
	}
	if err != nil {
		return nil, c.e.writeFailed(c.role, "grant", err)
	}
	l.term = l.w.Offset()
	return e.begin(l, h, c.p, fences), nil
}

// writeFailed is the error of a lease that was not written.
func (e *Elector) writeFailed(role, op string, err error) error {
	var we *writeError
	var known *Error
	switch {
	case errors.As(err, &known):
		return err
	case errors.As(err, &we) && we.outcome == lead.Over:
		return &Error{Kind: ErrFenced, Role: role, Op: op, Err: err}
	case errors.As(err, &we) && we.outcome == lead.Refused:
		return &Error{Kind: kindOf(kafka.CodeOf(err)), Role: role, Op: op, Err: err}
	}
	return &Error{Kind: ErrProducer, Role: role, Op: op, Err: err}
}

// giveBack clears a role that was taken and not led: the lease, if it may have
// been written, and the epoch.
func (c *campaign) giveBack(l *leaseWriter) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), min(c.e.cfg.RequestTimeout, c.e.cfg.Lease))
	defer cancel()
	if err := l.write(ctx, leaseRecord{from: c.e.cfg.now(), clear: true}, func() error { return nil }); err == nil || !IsFence(err) {
		_ = l.burn(ctx, 0)
	}
}
