package streams

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/ottla/ottla/cluster"
	core "github.com/ottla/ottla/internal/core/streams"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// inboxSize is how many commands may wait for the actor.
const inboxSize = 16

// actor drives the machine: one goroutine owns it, carries out what it asks for
// and feeds back what came of it.
type actor struct {
	kafka  Kafka
	cfg    Config // checked, with defaults
	tasks  *task.Group
	tracer *tracer
	inbox  chan command
	events chan func(now time.Time) // outcomes of requests
	wake   chan struct{}            // capacity 1: Touch in state Stale
	joined chan struct{}            // closed when the first join succeeded
	done   chan struct{}            // closed at the end of the loop
	calls  map[uint64]chan error    // of Heartbeat; owned by run
	last   flown                    // the heartbeat that was sent last; owned by run
	owed   []func()                 // answers to callers, given once what they are about is shown; owned by run
	began  time.Time

	touched atomic.Int64 // time of the last Touch since began
	view    atomic.Pointer[view]

	machine *core.Machine // owned by run
}

// command is something for the machine to record.
type command struct {
	do  func(m *core.Machine, now time.Time) error
	err chan error // capacity 1
}

// flown is a heartbeat on its way.
type flown struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// await gives a heartbeat up and returns when it cannot be written any more, or
// is ahead on the connection: a leave must not come before the join that it
// undoes.
func (f flown) await() {
	if f.done != nil {
		f.cancel()
		<-f.done
	}
}

// view is what callers see of the machine: immutable, replaced after each step.
type view struct {
	snap     Snapshot
	meta     kafka.GroupMetadata
	hasMeta  bool
	state    State
	member   string
	owned    Tasks
	interval time.Duration
	counters core.Counters
	over     bool  // subscriptions end
	err      error // why, nil after a clean leave
	changed  chan struct{}
}

// run is the goroutine of a member.
func (a *actor) run(ctx context.Context) error {
	defer close(a.done)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	a.machine.OnStart(time.Now())
	for {
		ended := a.step()
		if ended {
			a.tasks.Cancel(a.view.Load().err)
			return nil
		}
		timer.Reset(untilNext(a.machine.Deadline()))
		select {
		case <-ctx.Done():
			a.close()
			return nil
		case c := <-a.inbox:
			err := c.do(a.machine, time.Now())
			a.owed = append(a.owed, func() { c.err <- err })
		case f := <-a.events:
			f(time.Now())
		case <-a.wake:
		case <-timer.C:
		}
	}
}

func untilNext(deadline time.Time) time.Duration {
	if deadline.IsZero() {
		return time.Hour
	}
	return time.Until(deadline)
}

// close is the end by Close.
func (a *actor) close() {
	v := *a.view.Load()
	if !v.over {
		v.over, v.err = true, ErrClosed
	}
	v.hasMeta, v.state, v.meta.Generation = false, Left, kafka.NoGeneration
	a.show(&v, true)
}

// step carries out what the machine asks for, and reports whether that was the
// end.
func (a *actor) step() (ended bool) {
	now := time.Now()
	if t := a.touched.Load(); t > 0 {
		a.touched.CompareAndSwap(t, 0)
		a.machine.OnTouch(a.began.Add(time.Duration(t)))
	}
	v := *a.view.Load()
	before := v.state
	news, first := false, false
	for act, ok := a.machine.Next(now); ok; act, ok = a.machine.Next(now) {
		switch act := act.(type) {
		case *core.PublishAction:
			news = true
		case *core.FailedAction:
			v.err = act.Err
		case *core.EndAction:
			news, ended, v.over, v.err = true, true, true, act.Err
		case *core.JoinedAction:
			first = true
		default:
			a.perform(act)
		}
	}
	m := a.machine
	v.snap, v.state, v.member, v.interval, v.counters = m.Snapshot(), m.State(), m.MemberID(), m.Interval(), m.Counters()
	v.meta, v.hasMeta = m.Metadata()
	v.owned = m.Owned()
	a.show(&v, news)
	for _, answer := range a.owed {
		answer()
	}
	a.owed = a.owed[:0]
	a.tracer.changed(before, v.state)
	if first {
		close(a.joined)
	}
	return ended
}

// show makes a view the present one, and wakes subscribers if it has news.
func (a *actor) show(v *view, news bool) {
	old := a.view.Load()
	if news {
		v.changed = make(chan struct{})
	}
	a.view.Store(v)
	if news {
		close(old.changed)
	}
}

// post hands the actor an outcome.
func (a *actor) post(ctx context.Context, f func(now time.Time)) {
	select {
	case a.events <- f:
	case <-ctx.Done():
	}
}

// do has the machine record something.
func (a *actor) do(ctx context.Context, f func(m *core.Machine, now time.Time) error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	c := command{do: f, err: make(chan error, 1)}
	select {
	case <-a.done:
		return a.closed()
	default:
	}
	select {
	case a.inbox <- c:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.done:
		return a.closed()
	}
	select {
	case err := <-c.err:
		return err
	case <-a.done:
	}
	select {
	case err := <-c.err:
		return err
	default:
		return a.closed()
	}
}

// closed is the error of calls after the end.
func (a *actor) closed() error {
	if err := a.view.Load().err; err != nil && !errors.Is(err, ErrClosed) {
		return &closedError{cause: err}
	}
	return ErrClosed
}

// perform carries out an action without waiting for its outcome.
func (a *actor) perform(act core.Action) {
	switch act := act.(type) {
	case *core.LookupAction:
		a.tasks.Go(func(ctx context.Context) error { a.lookup(ctx, act); return nil })
	case *core.SendAction:
		before := a.last
		ctx, cancel := context.WithCancel(a.tasks.Context())
		a.last = flown{cancel, make(chan struct{})}
		after := a.last.done
		a.tasks.Go(func(context.Context) error {
			defer close(after)
			defer cancel()
			before.await()
			a.send(ctx, act)
			return nil
		})
	case *core.DescribeAction:
		a.tasks.Go(func(ctx context.Context) error { a.describe(ctx, act); return nil })
	case *core.PushAction:
		a.tasks.Go(func(ctx context.Context) error { a.push(ctx, act); return nil })
	case *core.DoneAction:
		if done := a.calls[act.Call]; done != nil {
			delete(a.calls, act.Call)
			a.owed = append(a.owed, func() { done <- act.Err })
		}
	case *core.RetryAction:
		a.tracer.retried(act.What, act.Attempt, act.After, act.Err)
		a.cfg.Logger.Debug("streams: failed, will be sent again", "group", a.cfg.Group, "what", act.What, "attempt", act.Attempt, "after", act.After, "err", act.Err)
	case *core.LogAction:
		a.cfg.Logger.Log(context.Background(), logLevel(act.Level), "streams: "+act.Text, act.Attrs...)
	}
}

func logLevel(l core.Level) slog.Level {
	return [...]slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError}[l]
}

// isClosed reports whether the client below was closed.
func isClosed(err error) bool { return errors.Is(err, cluster.ErrClosed) }
