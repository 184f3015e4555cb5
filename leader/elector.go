package leader

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// Elector takes part in elections: any number of roles of one process, over
// the connections of one client. Make it with Open. It is safe for concurrent
// use.
type Elector struct {
	kafka       Kafka
	cfg         Config
	incarnation []byte
	tasks       *task.Group
	topic       *topic
	verifier    *verifier
	coords      *coordinators
	log         *follower
	registrar   *registrar
	events      *eventQueue
	counts      counts
	hitches     hitches
	calls       sync.WaitGroup  // of campaigns
	open        context.Context // of every call; ends with ErrClosed
	end         context.CancelCauseFunc

	mu     sync.Mutex
	roles  map[string]chan struct{} // by role: capacity 1, taken by whoever campaigns or leads
	terms  map[string]*Term
	closed bool

	looking bool // at the clock, for all leaderships
}

// Open makes an Elector over a client, which it does not close. It contacts
// nobody: the topic is looked for on first use, and created by the first
// campaign; who only observes creates nothing. The error is
// ErrInvalidConfig.
func Open(c Kafka, cfg Config) (*Elector, error) {
	if c == nil {
		return nil, invalid("there is no client")
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	e := &Elector{
		kafka: c, cfg: cfg, incarnation: random(16), tasks: task.New(context.Background()),
		coords: &coordinators{kafka: c, timeout: cfg.RequestTimeout, nodes: map[string]kafka.NodeID{}},
		roles:  map[string]chan struct{}{}, terms: map[string]*Term{}, hitches: hitches{by: map[trouble]*hitch{}},
	}
	e.open, e.end = context.WithCancelCause(context.Background())
	e.events = newEventQueue(e.open, cfg.OnEvent)
	e.topic = newTopic(c, &e.cfg)
	e.verifier = &verifier{kafka: c, cfg: &e.cfg, topic: e.topic, event: e.emit}
	e.registrar = newRegistrar(c, &e.cfg, e.topic)
	e.log = newFollower(c, &e.cfg, e.topic, e.tasks, e.emit)
	if !cfg.timing().Comfortable() {
		cfg.Logger.Warn("ottla: renewals are further apart than a third of the lease: one that fails may cost the leadership",
			"renew", cfg.Renew, "lease", cfg.Lease)
	}
	return e, nil
}

// Member is the id of this process among the candidates.
func (e *Elector) Member() string { return e.cfg.Member }

// Close ends every campaign and leadership with ErrClosed and waits for the
// Elector's goroutines. Leaderships are resigned if that is possible within
// Config.RequestTimeout or the lease, whichever is shorter; so are places in
// rosters. It does not wait for the user's work or event function. Later calls
// do nothing.
func (e *Elector) Close() error {
	e.mu.Lock()
	if e.closed {
		e.mu.Unlock()
		_ = e.tasks.Wait()
		return nil
	}
	e.closed = true
	terms := make([]*Term, 0, len(e.terms))
	for _, t := range e.terms {
		terms = append(terms, t)
	}
	e.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), min(e.cfg.RequestTimeout, e.cfg.Lease))
	defer cancel()
	leaving := task.New(ctx)
	for _, t := range terms {
		leaving.Go(func(ctx context.Context) error {
			t.end(ErrClosed)
			_ = t.release(ctx, leave)
			return nil
		})
	}
	_ = leaving.Wait()
	e.end(ErrClosed)
	e.calls.Wait()
	if err := e.registrar.leave(ctx); err != nil { // where it led, and leads no more
		e.cfg.Logger.Warn("ottla: the candidate stays in a roster", "err", err)
	}
	e.tasks.Cancel(ErrClosed)
	_ = e.tasks.Wait()
	return nil
}

// enlist counts a call that Close waits for, unless Close has begun.
func (e *Elector) enlist() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.calls.Add(1)
	}
	return !e.closed
}

// use is a context that ends with ctx or with the Elector.
func (e *Elector) use(ctx context.Context) (context.Context, context.CancelFunc, error) {
	e.mu.Lock()
	closed := e.closed
	e.mu.Unlock()
	if closed {
		return nil, nil, ErrClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(e.open, func() { cancel(ErrClosed) })
	return ctx, func() { stop(); cancel(nil) }, nil
}

// place is the partition of a role, followed from now on.
func (e *Elector) place(ctx context.Context, role string) (*partition, error) {
	if err := lead.CheckRole(role); err != nil {
		return nil, invalid("%v", err)
	}
	if _, err := e.topic.load(ctx); err != nil {
		return nil, err
	}
	id, err := e.topic.partitionOf(role)
	if err != nil {
		return nil, failed(ErrInvalidConfig, role, "", err)
	}
	return e.log.partition(id), nil
}

// single is the lock by which one goroutine of the process at a time campaigns
// for or leads a role.
func (e *Elector) single(role string) chan struct{} {
	e.mu.Lock()
	defer e.mu.Unlock()
	ch := e.roles[role]
	if ch == nil {
		ch = make(chan struct{}, 1)
		e.roles[role] = ch
	}
	return ch
}

// Held is the leadership of a role that this process holds, nil if none.
func (e *Elector) Held(role string) *Term {
	e.mu.Lock()
	t := e.terms[role]
	e.mu.Unlock()
	if t == nil || t.Err() != nil {
		return nil
	}
	return t
}

// Probe asks for everything that a candidate of a role needs, and names each
// right that is missing: at the coordinator, the topic, the brokers. It takes
// no epoch and writes nothing but the topic, if that does not exist. It blocks
// until it is answered or ctx ends; several errors are joined.
func (e *Elector) Probe(ctx context.Context, role string) error {
	ctx, cancel, err := e.use(ctx)
	if err != nil {
		return err
	}
	defer cancel()
	var errs []error
	if _, err := e.coords.describe(ctx, role); err != nil {
		errs = append(errs, err)
	}
	for _, id := range e.cfg.FenceSet {
		if _, err := e.coords.describe(ctx, id); err != nil {
			errs = append(errs, err)
		}
	}
	if _, err := e.topic.ensure(ctx); err != nil {
		return errors.Join(append(errs, err)...)
	}
	p, err := e.place(ctx, role)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	if _, err := e.log.sync(ctx, p); err != nil {
		errs = append(errs, err)
	}
	if err := e.registrar.probe(ctx); err != nil {
		errs = append(errs, err)
	}
	if err := e.verifier.check(ctx, answerHolds); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Roles are the roles that have a record in the topic, led or not, sorted. It
// reads every partition to its end, and blocks until it has or ctx ends. Where
// nobody ever campaigned there is no topic: errors.Is finds
// kerr.UnknownTopicOrPartition.
func (e *Elector) Roles(ctx context.Context) ([]string, error) {
	ctx, cancel, err := e.use(ctx)
	if err != nil {
		return nil, err
	}
	defer cancel()
	l, err := e.topic.load(ctx)
	if err != nil {
		return nil, err
	}
	var out []string
	for id := range l.leaders {
		p := e.log.partition(int32(id))
		if _, err := e.log.sync(ctx, p); err != nil {
			return nil, err
		}
		out = append(out, p.known()...)
	}
	slices.Sort(out)
	return out, nil
}

// hitches are what campaigns meet now.
type hitches struct {
	mu sync.Mutex
	by map[trouble]*hitch
}

// trouble is what can be wrong with a campaign.
type trouble struct{ role, what string }

const (
	stuck       = "the campaign has not come on"
	unreachable = "the coordinator could not be asked"
)

// hitch is what keeps a campaign from going on.
type hitch struct {
	since time.Duration // local
	err   error         // the newest
}

// met takes note of what a campaign met; nil is that it is over.
func (h *hitches) met(t trouble, now time.Duration, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch had := h.by[t]; {
	case err == nil:
		delete(h.by, t)
	case had == nil:
		h.by[t] = &hitch{now, err}
	default:
		had.err = err
	}
}

// longer lists the campaigns that something has kept up for longer than most.
func (h *hitches) longer(now, most time.Duration) (errs []error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for t, had := range h.by {
		if age := now - had.since; age > most {
			errs = append(errs, fmt.Errorf("role %q: %s for %v: %w", t.role, t.what, age, had.err))
		}
	}
	return errs
}

// counts are what happened so far, for metrics.
type counts struct {
	mu    sync.Mutex
	stats Stats
}

// Stats are counts since Open, and gauges.
type Stats struct {
	Mints      int64 // epochs taken: acquisitions tried
	LostRaces  int64 // of those, lost to another
	Acquired   int64 // leaderships
	Lost       int64 // leaderships that ended without a resignation
	Renewals   int64
	Failures   int64 // renewals that failed and were tried again
	Reinits    int64 // pairs moved on after an answer was lost
	Foreign    int64 // mints by somebody without a lease
	Duplicates int64 // leases in this member's name that are not its own
	LastRenew  time.Duration
}

func (c *counts) add(f func(*Stats)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f(&c.stats)
}

// Stats reads the counts. It blocks nobody.
func (e *Elector) Stats() Stats {
	e.counts.mu.Lock()
	defer e.counts.mu.Unlock()
	return e.counts.stats
}

// Health is nil as long as what this process does works: leaderships are
// renewed in time, the partitions that it follows can be read, and nothing has
// kept a campaign from going on, or from asking the coordinator that it needs when
// its turn comes, for a lease.
func (e *Elector) Health() error {
	var errs []error
	e.mu.Lock()
	terms := make([]*Term, 0, len(e.terms))
	for _, t := range e.terms {
		terms = append(terms, t)
	}
	e.mu.Unlock()
	for _, t := range terms {
		if err := t.Err(); err != nil {
			errs = append(errs, fmt.Errorf("role %q: %w", t.role, err))
		}
	}
	now := e.cfg.now().Local
	e.log.mu.Lock()
	parts := make([]*partition, 0, len(e.log.parts))
	for _, p := range e.log.parts {
		parts = append(parts, p)
	}
	e.log.mu.Unlock()
	for _, p := range parts {
		v := p.view()
		wanted := v.read || v.before || len(p.turn) > 0
		if age := now - v.fresh; wanted && age > e.cfg.Lease {
			err := fmt.Errorf("%s-%d was not read to its end for %v", Topic, p.id, age)
			if v.failure != nil {
				err = fmt.Errorf("%w: %w", err, v.failure)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(append(errs, e.hitches.longer(now, e.cfg.Lease)...)...)
}
