package leader

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// Campaign waits until this process leads a role, and returns the leadership.
// It registers as a candidate, waits for its turn, takes the next epoch of the
// role and writes the lease; the Term is returned only once the lease is
// committed. Lost races and passing troubles of brokers are no errors: the
// campaign goes on until ctx ends. Then, and on every other error, nothing is
// left behind: the candidate leaves the roster, and a half-taken role is given
// back.
//
// One goroutine of a process at a time campaigns for or leads a role; further
// ones wait for their turn. Errors: ErrAcquireTimeout when ctx had a deadline,
// else the cause of its end; ErrInvalidConfig, ErrAuthorization, ErrAdmin,
// ErrDuplicateMember, ErrClosed.
func (e *Elector) Campaign(ctx context.Context, role string) (*Term, error) {
	if !e.enlist() {
		return nil, ErrClosed
	}
	defer e.calls.Done()
	ctx, cancel, err := e.use(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	if err := lead.CheckRole(role); err != nil {
		return nil, invalid("%v", err)
	}
	single := e.single(role)
	select {
	case single <- struct{}{}:
	case <-ctx.Done():
		return nil, e.ended(ctx, role, nil)
	}
	c := &campaign{e: e, role: role, ctx: ctx}
	asking, stop := context.WithCancel(ctx)
	e.tasks.Go(func(context.Context) error { return c.reach(asking) })
	t, err := c.run()
	stop()
	c.meets(nil)
	c.reaches(nil)
	if err != nil {
		c.leave()
		<-single
		if ctx.Err() != nil {
			err = e.ended(ctx, role, err)
		}
		return nil, err
	}
	if errors.Is(t.Err(), ErrClosed) { // Close may have missed it
		c.handBack(t)
		return nil, ErrClosed
	}
	return t, nil
}

// ended is the error of a campaign whose context is over. last says what stood
// in its way, if anything did.
func (e *Elector) ended(ctx context.Context, role string, last error) error {
	cause := context.Cause(ctx)
	switch {
	case errors.Is(cause, ErrClosed):
		return ErrClosed
	case errors.Is(cause, context.DeadlineExceeded):
		return &Error{Kind: ErrAcquireTimeout, Role: role, Err: errors.Join(cause, last)}
	default:
		return &Error{Kind: ErrClient, Role: role, Op: "campaign", Err: errors.Join(cause, last)}
	}
}

// campaign is one candidate's way to a role.
type campaign struct {
	e          *Elector
	role       string
	ctx        context.Context
	p          *partition
	me         lead.Candidate
	offset     kafka.Offset  // of the registration
	registered bool          // it may be in the roster
	renewAt    time.Duration // local: when to register anew; 0 = never
	notBefore  time.Duration // local: no mint before, unless the winner's lease was seen
	lostAt     kafka.Offset  // the newest lease when a race was lost, -1 if none was
	namesake   sighting
	told       int // rank of the last waiting event
}

// sighting counts the leases in this member's name that are not its own.
type sighting struct {
	last kafka.Offset
	n    int
}

func (c *campaign) run() (*Term, error) {
	var won *Term
	for _, stage := range []func() error{c.locate, c.enter, func() (err error) { won, err = c.attempt(); return err }} {
		if err := c.persist(stage); err != nil {
			return nil, err
		}
	}
	return won, nil
}

// persist repeats a stage of the campaign through what passes by itself. When
// the context ends a try half-way, the error tells of the try before it too.
func (c *campaign) persist(stage func() error) error {
	var last error
	for tries := 1; ; tries++ {
		err := stage()
		switch {
		case err == nil || !c.retries(err):
			return err
		case c.ctx.Err() != nil:
			return errors.Join(err, last)
		case IsFence(err):
			c.meets(nil)
			c.lost(err)
			tries = 0
			continue
		}
		last = err
		c.meets(err)
		if errors.Is(err, errTooLate) {
			tries = 0
			continue
		}
		if serr := task.Sleep(c.ctx, backoff(tries)); serr != nil {
			return errors.Join(serr, err)
		}
	}
}

func (c *campaign) locate() (err error) {
	if _, err := c.e.topic.ensure(c.ctx); err != nil {
		return err
	}
	c.p, err = c.e.place(c.ctx, c.role)
	return err
}

// attempt waits for the turn, and takes the role.
func (c *campaign) attempt() (*Term, error) {
	read, err := c.turn()
	if err != nil {
		return nil, err
	}
	return c.acquire(read)
}

// retries reports whether what failed may go better next time.
func (c *campaign) retries(err error) bool {
	refused := errors.Is(err, ErrAdmin) && kafka.CodeOf(err) > 0 && retry.Of(kafka.CodeOf(err)) == retry.Fatal // such as too many replicas
	return !hopeless(err) && !refused && !errors.Is(err, ErrDuplicateMember)
}

// lost takes note of a race that another won: no mint before its lease was
// seen, or one stagger has passed.
func (c *campaign) lost(err error) {
	f, _, _ := c.p.fold(c.role)
	c.lostAt = newest(f)
	c.notBefore = c.e.cfg.now().Local + c.e.cfg.Stagger
	c.e.counts.add(func(s *Stats) { s.LostRaces++ })
	c.emit(EventLostRace, -1, err)
}

// newest is the offset of the newest lease, -1 if there is none.
func newest(f *lead.Fold) kafka.Offset {
	if h, ok := f.Lease(); ok {
		return h.Offset
	}
	return -1
}

// meets takes note of what keeps the campaign from going on; nil is nothing.
func (c *campaign) meets(err error) {
	c.e.hitches.met(trouble{c.role, stuck}, c.e.cfg.now().Local, err)
}

// reach asks the role's coordinator once a lease, for Health: the campaign needs
// it only when its turn comes.
func (c *campaign) reach(ctx context.Context) error {
	defer c.reaches(nil)
	for task.Sleep(ctx, c.e.cfg.Lease) == nil {
		if _, err := c.e.coords.describe(ctx, c.role); ctx.Err() == nil {
			c.reaches(err)
		}
	}
	return nil
}

func (c *campaign) reaches(err error) {
	c.e.hitches.met(trouble{c.role, unreachable}, c.e.cfg.now().Local, err)
}

func (c *campaign) emit(kind EventKind, rank int, err error) {
	c.e.emit(Event{Kind: kind, Role: c.role, Term: -1, Rank: rank, Err: err})
}

// enter reads the log and takes a place at the roster's tail.
func (c *campaign) enter() error {
	if _, err := c.e.log.sync(c.ctx, c.p); err != nil {
		return err
	}
	if err := c.e.verifier.check(c.ctx, answerHolds); err != nil {
		return err
	}
	if err := c.checkHistory(); err != nil {
		return err
	}
	c.lostAt, c.told = -1, -2
	c.me = lead.Candidate{Member: c.e.cfg.Member, Token: lead.NoToken, Delay: c.e.cfg.Delay, RosterTTL: c.e.cfg.RosterTTL}
	if err := c.register(); err != nil {
		return err
	}
	c.emit(EventRegistered, -1, nil)
	return nil
}

var errUnregistered = errors.New("the registration is not written")

func (c *campaign) register() error {
	now := c.e.cfg.now().Local
	c.registered = true
	c.meets(errUnregistered) // until it is written
	off, err := c.e.registrar.register(c.ctx, c.role)
	if err != nil {
		return err
	}
	c.me.Registered, c.offset = now, off
	if d := c.e.cfg.Reregister; d > 0 {
		c.renewAt = now + d - time.Duration(jitter(int64(d/5)))
	}
	return nil
}

// checkHistory refuses a topic that was never written for a role that was led
// before: it was made anew, and terms would go back.
func (c *campaign) checkHistory() error {
	if c.e.cfg.AllowNewTopic || c.p.view().next > 0 {
		return nil
	}
	d, err := c.e.coords.describe(c.ctx, c.role)
	if err != nil || !d.Known() {
		return err
	}
	return failed(ErrInvalidConfig, c.role, "", invalid("partition %d of %s was never written, and the coordinator knows an epoch of the role (%v): the topic was made anew, or something else uses the role as its transactional id; terms would go back; set AllowNewTopic to lead all the same", c.p.id, Topic, d.Pair))
}

// turn waits until it is this candidate's turn by a log that was just read to
// its end. It returns the local time of that reading.
func (c *campaign) turn() (time.Duration, error) {
	for {
		fold, changed, ok := c.p.fold(c.role)
		if !ok {
			if _, err := c.e.log.sync(c.ctx, c.p); err != nil {
				return 0, err
			}
			continue
		}
		if err := c.watchNamesake(fold); err != nil {
			return 0, err
		}
		at, err := c.at(fold)
		if err != nil {
			return 0, err
		}
		if at > c.e.cfg.now().Local {
			if err := c.wait(at, changed); err != nil {
				return 0, err
			}
			continue
		}
		if read, ok, err := c.prove(); ok || err != nil {
			return read, err
		}
	}
}

// at is when this candidate may challenge if nothing changes.
func (c *campaign) at(fold *lead.Fold) (time.Duration, error) {
	now := c.e.cfg.now()
	d := fold.Evaluate(c.me, c.e.cfg.timing(), now)
	if d.Turn == lead.NotRegistered {
		return c.appear()
	}
	if d.Rank != c.told && d.Turn == lead.Wait {
		c.told = d.Rank
		c.emit(EventWaiting, d.Rank, nil)
	}
	if c.e.cfg.TakeOver {
		if h, ok := fold.Lease(); ok && h.Member == c.me.Member && h.Incarnation != string(c.e.incarnation) {
			d.At = now.Local
		}
	}
	if back := c.p.view().back; back > 0 && d.Rank > 0 {
		// After an outage of everybody all waits are over at once: ranks decide anew.
		d.At = max(d.At, back+min(time.Duration(d.Rank)*c.e.cfg.Stagger, c.e.cfg.Lease))
	}
	if c.lostAt == newest(fold) {
		return max(d.At, c.notBefore), nil
	}
	return d.At, nil
}

// appear reads until the own registration is there. One that was written and
// has gone is written again: somebody took this member out of the roster.
func (c *campaign) appear() (time.Duration, error) {
	at, err := c.e.log.sync(c.ctx, c.p)
	if err != nil {
		return 0, err
	}
	f, _, _ := c.p.fold(c.role)
	if f.Rank(c.me.Member) >= 0 {
		return at, nil
	}
	if v := c.p.view(); c.offset >= v.next || c.offset < 0 && v.high > v.next {
		// Behind an open transaction it is not visible, and need not be written again.
		return c.e.cfg.now().Local + c.e.cfg.FetchWait, nil
	}
	return at, c.register()
}

// prove reads the log to its end once more, now that the turn has come, and
// reports whether it still has. The mint has to follow within one renew
// interval of when that reading began.
func (c *campaign) prove() (read time.Duration, ok bool, err error) {
	if err := c.e.topic.changed(); err != nil {
		return 0, false, invalid("%v", err)
	}
	if err := c.e.verifier.check(c.ctx, answerHolds); err != nil {
		return 0, false, err
	}
	read, err = c.e.log.sync(c.ctx, c.p)
	if err != nil {
		return 0, false, err
	}
	fold, _, ok := c.p.fold(c.role)
	if !ok || fold.Rank(c.me.Member) < 0 { // to become visible is no turn
		return 0, false, nil
	}
	at, err := c.at(fold)
	return read, err == nil && at <= c.e.cfg.now().Local, err
}

// wait returns at a change of the role, or at the instant at the latest.
func (c *campaign) wait(at time.Duration, changed <-chan struct{}) error {
	c.meets(nil)
	c.e.verifier.keep(c.e.tasks)
	at = min(at, c.e.cfg.now().Local+answerHolds/2)
	if c.renewAt > 0 {
		at = min(at, c.renewAt)
	}
	timer := time.NewTimer(at - c.e.cfg.now().Local)
	defer timer.Stop()
	select {
	case <-changed:
	case <-timer.C:
	case <-c.ctx.Done():
		return context.Cause(c.ctx)
	}
	if c.renewAt > 0 && c.e.cfg.now().Local >= c.renewAt {
		return c.register()
	}
	return nil
}

// watchNamesake gives up where another process leads under this member's name
// and goes on renewing.
func (c *campaign) watchNamesake(fold *lead.Fold) error {
	h, ok := fold.Lease()
	if !ok || h.Member != c.me.Member || h.Incarnation == string(c.e.incarnation) || h.Offset <= c.namesake.last {
		return nil
	}
	c.namesake.last = h.Offset
	if c.namesake.n++; c.namesake.n < 3 || c.e.cfg.TakeOver {
		return nil
	}
	c.e.counts.add(func(s *Stats) { s.Duplicates++ })
	return &Error{Kind: ErrDuplicateMember, Role: c.role, Err: fmt.Errorf("member %q renews its lease, last at offset %d", h.Member, h.Offset)}
}

// handBack hands a role that was just won over for good, as far as that can be
// done while a user waits for it.
func (c *campaign) handBack(t *Term) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), min(c.e.cfg.RequestTimeout, c.e.cfg.Lease))
	defer cancel()
	_ = t.release(ctx, leave)
}

// leave takes a candidate that did not win out of the roster.
func (c *campaign) leave() {
	if !c.registered {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(c.ctx), min(c.e.cfg.RequestTimeout, c.e.cfg.Lease))
	defer cancel()
	if err := c.e.registrar.remove(ctx, c.role); err != nil {
		c.e.cfg.Logger.Warn("ottla: the candidate stays in the roster", "role", c.role, "err", err)
	}
}
