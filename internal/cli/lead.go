package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/leader"
)

// Exit status of `ottla lead` beside those of its child.
const (
	statusNotWon = 69
	statusLost   = 75
)

// leadOptions are the flags of `lead`.
type leadOptions struct {
	cfg    leader.Config
	grace  time.Duration
	wait   time.Duration
	once   bool
	events string
}

func leadCommand(a *app) *cobra.Command {
	var o leadOptions
	cmd := &cobra.Command{
		Use:   "lead ROLE -- CMD [ARG…]",
		Short: "Run a command only while this process leads a role",
		Long: "Run a command only while this process leads a role.\n\n" +
			"CMD starts when the role is won, with OTTLA_ROLE, OTTLA_MEMBER, OTTLA_TERM and OTTLA_TOKEN in its environment, in a\n" +
			"process group of its own. When the leadership is lost the group gets SIGTERM, and SIGKILL after --grace: before the\n" +
			"lease ends, also where ottla itself is killed or stopped, because a second process of it watches. Then it campaigns\n" +
			"again. When CMD ends by itself, what it left in its group is killed after a second, the role is resigned and its exit\n" +
			"status passed on.",
		Example: "  ottla lead nightly --wait 10s -- echo I lead\n  ottla lead nightly --once --events - -- sh -c 'echo term $OTTLA_TERM'",
		Args:    leadArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withCluster(func(ctx context.Context, c *client) error { return lead(ctx, a, c, &o, args) })
		},
	}
	f := cmd.Flags()
	f.DurationVar(&o.cfg.Lease, "lease", 0, "how long a lease lasts without renewal (default 30s)")
	f.DurationVar(&o.cfg.Renew, "renew", 0, "from one renewal to the next (default a third of the lease)")
	f.DurationVar(&o.cfg.Stagger, "stagger", 0, "between the challenges of two standbys (default a sixth of the lease)")
	f.DurationVar(&o.cfg.StopMargin, "stop-margin", 0, "leading stops so long before the lease ends (default a sixth of the lease)")
	f.DurationVar(&o.grace, "grace", 0, "from SIGTERM to SIGKILL; at most the stop margin, which is the default")
	f.DurationVar(&o.wait, "wait", 0, "give up if the role is not won within this time, with status 69 (default: never)")
	f.BoolVar(&o.once, "once", false, "end with status 75 when the leadership is lost, instead of campaigning again")
	f.Int16Var(&o.cfg.Replication, "replicas", 0, "of the coordination topic, where this makes it (default 3)")
	f.StringVar(&o.cfg.Member, "member", "", "`ID` of this candidate (default: a new one)")
	f.StringVar(&o.events, "events", "", "write what happens as JSON lines to `FILE`; - is stderr")
	return cmd
}

func leadArgs(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case len(args) == 0 || dash == 0:
		return usagef("%s: ROLE is missing; see `%s --help`", nameOf(cmd), cmd.CommandPath())
	case dash != 1 || len(args) < 2:
		return usagef("%s: after ROLE comes -- and the command to run, as in `ottla lead nightly -- ./job`", nameOf(cmd))
	}
	return nil
}

// lead campaigns, runs the command for each leadership, and ends with its
// status.
func lead(ctx context.Context, a *app, c *client, o *leadOptions, args []string) error {
	if o.grace < 0 || o.wait < 0 {
		return usagef("--grace %s, --wait %s: must not be negative", o.grace, o.wait)
	}
	ev, err := newLeadEvents(a, o.events)
	if err != nil {
		return err
	}
	defer ev.close()
	cfg := o.cfg
	cfg.OnEvent = ev.fromElector
	e, err := leader.Open(c.Cluster, cfg)
	if err != nil {
		return asUsage(err)
	}
	defer e.Close()
	r := &leadRunner{a: a, o: o, e: e, ev: ev, role: args[0], argv: args[1:], signals: make(chan os.Signal, 4)}
	if r.grace, err = o.graceWithin(); err != nil {
		return err
	}
	signal.Notify(r.signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(r.signals)
	for {
		again, err := r.once(ctx)
		if !again {
			return err
		}
	}
}

// graceWithin is the grace, which has to fit between the end of the leadership
// and that of the lease.
func (o *leadOptions) graceWithin() (time.Duration, error) {
	lease := o.cfg.Lease
	if lease == 0 {
		lease = 30 * time.Second
	}
	margin := o.cfg.StopMargin
	if margin == 0 {
		margin = lease / 6
	}
	margin = max(margin, 0)
	if o.grace > margin {
		return 0, usagef("--grace %s: longer than the stop margin of %s: the command could outlive the lease", o.grace, margin)
	}
	if o.grace == 0 {
		return margin, nil
	}
	return o.grace, nil
}

// leadRunner runs the command while its process leads.
type leadRunner struct {
	a       *app
	o       *leadOptions
	e       *leader.Elector
	ev      *leadEvents
	role    string
	argv    []string
	grace   time.Duration
	signals chan os.Signal
}

// once is one leadership. It reports whether to campaign again.
func (r *leadRunner) once(ctx context.Context) (again bool, err error) {
	t, err := r.campaign(ctx)
	if err != nil {
		return false, err
	}
	r.ev.term("acquired", t, nil)
	now := bootClock()
	child, err := startWatched(r.a.tasks, r.argv, leadEnv(t), now+t.Left())
	switch {
	case err != nil && t.Err() != nil:
		return r.lost(ctx, t)
	case err != nil:
		r.resign(t)
		return false, err
	}
	r.ev.child("child_started", t, 0)
	end, lost := r.watch(ctx, t, child)
	r.ev.child("child_exited", t, end.status())
	if lost {
		return r.lost(ctx, t)
	}
	r.resign(t)
	if end.err != nil {
		return false, end.err
	}
	return false, &toldError{end.status()}
}

// lost tells of a leadership that was lost. It reports whether to campaign again.
func (r *leadRunner) lost(ctx context.Context, t *leader.Term) (again bool, err error) {
	loss, _ := t.Loss(r.a.work)
	r.ev.term("lost", t, loss)
	r.a.notes.printf("ottla: role %q was lost: %v (%v)", r.role, t.Err(), loss)
	if r.o.once {
		return false, &toldError{statusLost}
	}
	return ctx.Err() == nil, errStoppedInOrder
}

func (r *leadRunner) campaign(ctx context.Context) (*leader.Term, error) {
	if r.o.wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.o.wait)
		defer cancel()
	}
	t, err := r.e.Campaign(ctx, r.role)
	switch {
	case errors.Is(err, leader.ErrAcquireTimeout):
		r.a.notes.printf("ottla: role %q was not won within %s%s", r.role, r.o.wait, r.holder())
		return nil, &toldError{statusNotWon}
	case err != nil && r.a.interrupted():
		return nil, errStoppedInOrder
	}
	return t, err
}

// holder says who leads instead, where that can be told.
func (r *leadRunner) holder() string {
	ctx, cancel := context.WithTimeout(r.a.work, 2*time.Second)
	defer cancel()
	s, err := r.e.Describe(ctx, r.role)
	if err != nil || s.Leader == "" {
		return ""
	}
	return fmt.Sprintf(": %s leads in term %d", s.Leader, s.Term)
}

func leadEnv(t *leader.Term) []string {
	return append(os.Environ(),
		"OTTLA_ROLE="+t.Role(), "OTTLA_MEMBER="+t.Member(), fmt.Sprintf("OTTLA_TERM=%d", t.Number()), "OTTLA_TOKEN="+t.Token().String())
}

// watch waits until the command has ended, and sees to it that it does when it
// must. It reports whether the leadership was lost first.
func (r *leadRunner) watch(ctx context.Context, t *leader.Term, child *watched) (end childEnd, lost bool) {
	tick := time.NewTicker(min(r.grace/4+time.Millisecond, 250*time.Millisecond))
	defer tick.Stop()
	var kill <-chan time.Time
	done := t.Done()
	r.extend(t, child)
	for {
		select {
		case end = <-child.ended:
			return end, lost || t.Err() != nil // after a suspension both are seen at once
		case <-tick.C:
			if t.Err() == nil && kill == nil {
				r.extend(t, child)
			}
		case sig := <-r.signals:
			child.signal(sig.(syscall.Signal))
			if kill == nil {
				kill = time.After(r.grace)
			}
		case <-done:
			lost, done = true, nil
			child.signal(syscall.SIGTERM)
			if kill == nil {
				kill = time.After(r.grace)
			}
		case <-kill:
			child.signal(syscall.SIGKILL)
		}
	}
}

// extend tells the watchdog when the command must be gone: before others may
// lead. A leadership that is over by now moves nothing on.
func (r *leadRunner) extend(t *leader.Term, child *watched) {
	now := bootClock() // first: a suspension in between makes the deadline early
	if left := t.Left(); left > 0 {
		child.extend(now + left + r.grace)
	}
}

func (r *leadRunner) resign(t *leader.Term) {
	ctx, cancel := context.WithTimeout(r.a.work, 10*time.Second)
	defer cancel()
	if err := t.Resign(ctx); err != nil {
		r.a.notes.printf("ottla: the role is not handed over, others wait for the lease to run out: %s", oneLine(err.Error()))
	}
	r.ev.term("resigned", t, nil)
}
