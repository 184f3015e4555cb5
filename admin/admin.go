package admin

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// Admin asks about a cluster and changes it. Make it with [New]. It is safe for
// concurrent use, and needs no Close.
type Admin struct{ *client }

// New makes an Admin on c. Once c is closed its calls fail with
// [cluster.ErrClosed].
func New(c *cluster.Cluster) *Admin { return &Admin{&client{c: c, rng: c.NewRand()}} }

// Groups is the part about groups.
func (a *Admin) Groups() *Groups { return &Groups{a.client} }

// client is what an Admin and its parts send their requests with.
type client struct {
	c *cluster.Cluster

	mu  sync.Mutex
	rng *rand.Rand // of the backoffs; guarded by mu
}

// Request sends any request of the protocol to the broker or brokers that it is
// for, as [cluster.Cluster.Request] does, and returns the answer as it came.
func (a *Admin) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return a.c.Request(ctx, req)
}

// RequestAt is Request at one version of the request and no other. A broker
// that does not speak it is a [*kafka.VersionError], and nothing is sent.
func (a *Admin) RequestAt(ctx context.Context, version int16, req kmsg.Request) (kmsg.Response, error) {
	return cluster.Within(a.c, version, version).Request(ctx, req)
}

// apiTimeout is the end of a call whose context has no deadline
// (default.api.timeout.ms).
const apiTimeout = time.Minute

var errTimeout = errors.New("the call took a minute, and its context has no deadline of its own")

// bounded gives a call its end.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return ctx, func() {}
	}
	return context.WithTimeoutCause(ctx, apiTimeout, errTimeout)
}

// longestChange is the longest time that a broker is given for a change.
const longestChange = 30 * time.Second

// brokerTimeout is how long a broker may take over a change, in milliseconds:
// what is left of the call, but not more than longestChange.
func brokerTimeout(ctx context.Context) int32 {
	left := longestChange
	if d, ok := ctx.Deadline(); ok {
		left = min(left, time.Until(d))
	}
	return int32(max(left.Milliseconds(), 1))
}

// pause waits before attempt n of something, or returns why there is none.
func (a *client) pause(ctx context.Context, b retry.Backoff, n int) error {
	a.mu.Lock()
	d := b.Delay(n, a.rng)
	a.mu.Unlock()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-a.c.Done():
		return cluster.ErrClosed
	}
}

// opError says which operation failed, and on which topic if any.
func opError(op, topic string, err error) error {
	if err == nil {
		return nil
	}
	return &kafka.OpError{Op: op, Broker: kafka.NoNode, Topic: topic, Partition: -1, Err: err}
}

// partitionError is opError about one partition.
func partitionError(op string, tp kafka.TopicPartition, err error) error {
	if err == nil {
		return nil
	}
	return &kafka.OpError{Op: op, Broker: kafka.NoNode, Topic: tp.Topic, Partition: tp.Partition, Err: err}
}

// unsupported reports whether err says that brokers are too old for a request.
func unsupported(err error) bool {
	var ve *kafka.VersionError
	return errors.As(err, &ve)
}
