package cluster

import (
	"context"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// Topic is what the client knows of a topic: its Name, ID and Partitions, whose
// index is the partition id (see [kafka.Topic]). It is immutable; a refresh
// makes a new one.
type Topic = kafka.Topic

// Partition is what the client knows of one partition: its Leader
// (kafka.NoNode while none is known), the leader's Epoch, and an Err that says
// why there is no leader (see [kafka.Partition]).
type Partition = kafka.Partition

// Growth is a topic's number of partitions Before and After a refresh (see
// [kafka.Growth]). Grew is set only on growth; fewer, as many, and a first
// sight leave it zero.
type Growth = kafka.Growth

// Cluster is a client of one Kafka cluster. Make it with [Connect]. It is safe
// for concurrent use, and a kmsg.Requestor.
type Cluster struct{ *client }

// client is what a Cluster is made of.
type client struct {
	cfg     Config // checked, with defaults
	tasks   *task.Group
	pool    *pool
	inbox   *inbox
	snap    atomic.Pointer[meta.Snapshot]
	tracer  *tracer
	counts  counts
	rand    randSource
	watches watches
	listing listing
}

// randSource is the client's source of randomness, from which machines get
// theirs.
type randSource struct {
	mu  sync.Mutex
	rng *rand.Rand // guarded by mu
}

func (r *randSource) derive() *rand.Rand {
	r.mu.Lock()
	defer r.mu.Unlock()
	return rand.New(rand.NewPCG(r.rng.Uint64(), r.rng.Uint64()))
}

// Connect makes a client. It asks one bootstrap broker for the cluster's
// brokers, and fails with the reasons of all if none answers until ctx ends or
// Config.RequestTimeout is over; what cannot get better (a refused password, a
// wrong certificate, an address that is no broker) fails at once. With
// Config.Lazy it contacts nobody.
func Connect(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{newClient(cfg)}
	if cfg.Lazy {
		return c, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cfg.RequestTimeout, errConnectTimeout)
	defer cancel()
	if err := c.bootstrap(ctx); err != nil {
		c.Close()
		return nil, &kafka.OpError{Op: "connect", Broker: kafka.NoNode, Partition: -1, Err: err}
	}
	return c, nil
}

var errConnectTimeout = unsent("RequestTimeout is over")

func newClient(cfg Config) *client {
	src := cfg.Rand
	if src == nil {
		src = rand.NewPCG(rand.Uint64(), rand.Uint64())
	}
	c := &client{cfg: cfg, tasks: task.New(context.Background()), inbox: newInbox()}
	c.rand.rng = rand.New(src)
	nc := cfg.connection()
	nc.NewRand = c.rand.derive
	c.tracer = newTracer(cfg.Trace)
	nc.Hooks = c.hooks()
	c.pool = newPool(c.tasks, nc)
	s := newState(c, time.Now())
	c.snap.Store(s.topics.Snapshot())
	c.tasks.Go(func(ctx context.Context) error { return s.run(ctx) })
	return c
}

// bootstrap loads the map of brokers. Rounds that may go better are repeated.
func (c *client) bootstrap(ctx context.Context) error {
	var last error
	for {
		err := c.refresh(ctx, nil, meta.Need{})
		switch {
		case err == nil || permanent(err):
			return err
		case ctx.Err() != nil && last != nil:
			return &gaveUp{cause: context.Cause(ctx), last: last}
		case ctx.Err() != nil:
			return c.silent(ctx, err)
		}
		last = err
	}
}

// silent names the addresses that have not answered when ctx ended.
func (c *client) silent(ctx context.Context, err error) error {
	e := &UnreachableError{}
	for _, peer := range c.pool.all() {
		_, err := peer.Failing()
		if err == nil {
			err = errNoAnswerYet
		}
		e.Addrs, e.Errs = append(e.Addrs, peer.Addr()), append(e.Errs, err)
	}
	if len(e.Addrs) == 0 {
		return err
	}
	return &gaveUp{cause: context.Cause(ctx), last: e}
}

var errNoAnswerYet error = unsent("no answer yet")

// NewRand makes a random source for a machine above, derived from Config.Rand.
// What it returns is not safe for concurrent use.
func (c *Cluster) NewRand() *rand.Rand { return c.rand.derive() }

// Close ends every socket, dial and waiting call with [ErrClosed] and waits
// for every goroutine of the client. Later calls do nothing; Close always
// returns nil.
func (c *Cluster) Close() error {
	c.tasks.Cancel(ErrClosed)
	c.pool.close(ErrClosed)
	_ = c.tasks.Wait()
	c.tracer.close()
	return nil
}

// Done is closed once the client is closed or closes.
func (c *Cluster) Done() <-chan struct{} { return c.done() }

func (c *client) done() <-chan struct{} { return c.tasks.Context().Done() }

// ID is the id of the cluster, empty while it is not known.
func (c *Cluster) ID() string { return c.snap.Load().ClusterID }

// Brokers are the brokers of the cluster as last told, in order of their ids; the
// controllers if the client is connected to those.
// It is the caller's own.
func (c *Cluster) Brokers() []kafka.Broker {
	return append([]kafka.Broker(nil), c.snap.Load().Brokers...)
}
