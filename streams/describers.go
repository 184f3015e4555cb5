package streams

import (
	"context"
	"sync"
)

// describers has one describe of a group in flight for all members of this
// process that lost task lists at once, as after a coordinator's fall: each
// describe costs the broker as much as the group is large. It holds nothing
// between describes.
var describers = &registry{flights: map[flightKey]*flight{}}

type flightKey struct {
	kafka Kafka
	group string
}

// flight is the describe of a group that is on its way, and the one after it.
type flight struct {
	next *round
}

// round is one describe and those who wait for it.
type round struct {
	start chan struct{} // closed when its turn has come
	done  chan struct{}
	group *GroupDescription
	err   error
}

type registry struct {
	mu      sync.Mutex
	flights map[flightKey]*flight // guarded by mu
}

// describe gives a description that was asked for after the call began: those
// that come while one is on its way share the next.
func (r *registry) describe(ctx context.Context, k Kafka, group string) (*GroupDescription, error) {
	key := flightKey{k, group}
	d, leads := r.enlist(key)
	if leads {
		r.lead(ctx, key, d)
	}
	select {
	case <-d.done:
		return d.group, d.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// enlist gives the round to wait for, and whether the caller carries it out.
func (r *registry) enlist(key flightKey) (d *round, leads bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.flights[key]
	d = &round{start: make(chan struct{}), done: make(chan struct{})}
	switch {
	case f == nil:
		r.flights[key] = &flight{}
		close(d.start)
		return d, true
	case f.next == nil:
		f.next = d
		return d, true
	}
	return f.next, false
}

// withdraw takes back a round whose turn has not come; false: it has.
func (r *registry) withdraw(key flightKey, d *round) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.flights[key]
	if f.next != d {
		return false
	}
	f.next = nil
	return true
}

// lead waits for the turn of a round and carries it out.
func (r *registry) lead(ctx context.Context, key flightKey, d *round) {
	select {
	case <-d.start:
		d.group, d.err = Describe(ctx, key.kafka, key.group, DescribeOptions{})
	case <-ctx.Done():
		d.err = context.Cause(ctx) // those who wait for this round ask again
		if r.withdraw(key, d) {
			close(d.done)
			return
		}
	}
	close(d.done)
	r.mu.Lock()
	defer r.mu.Unlock()
	f := r.flights[key]
	if f.next == nil {
		delete(r.flights, key)
		return
	}
	close(f.next.start)
	f.next = nil
}
