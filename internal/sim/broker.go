// Package sim holds what whole-client tests run against: scripted brokers
// that answer each request as a test says and keep a journal of what they
// saw, and scenarios in virtual time.
//
// A Cluster of Brokers takes any net.Listener: of internal/memnet (also in a
// testing/synctest bubble), TCP on loopback, or either of them wrapped in
// TLS. Without a script a broker answers ApiVersions, Metadata,
// FindCoordinator and SASL from its settings and everything else with the
// empty success of its API.
package sim

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ottla/ottla/internal/sim/frame"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Frame is one request that a broker read.
type Frame struct {
	frame.Request              // header, body and raw bytes
	At            time.Time    // when it had been read
	Conn          int          // number of its connection at this broker, from 1
	Req           kmsg.Request // decoded; nil if it could not be
	Err           error        // why it could not be decoded
}

// Request is a Frame as its Handler sees it.
type Request struct {
	Frame
	Broker  *Broker
	NetConn net.Conn // as accepted
	Nth     int      // nth request of its key at this broker, from 1
	NthConn int      // nth request of its key on this connection, from 1
	done    chan struct{}
}

// Done is closed when the broker closes or the connection is ended by it.
func (r *Request) Done() <-chan struct{} { return r.done }

// Response is the empty response of the request's key at its version.
func (r *Request) Response() kmsg.Response { return r.Req.ResponseKind() }

// Broker is one scripted broker. Its methods may be called at any time, also
// from handlers.
type Broker struct {
	ID      int32
	cluster *Cluster
	l       net.Listener
	done    chan struct{} // closed by close
	wg      sync.WaitGroup

	mu         sync.Mutex
	closed     bool
	handlers   map[int16]Handler
	scripts    map[int16][]Answer
	versions   map[int16]Versions
	sasl       SASL
	onAccept   func(n int, c net.Conn) End
	journal    []Frame
	counts     map[int16]int
	conns      map[int]*conn // open ones by number
	accepted   int
	outOfRange int
	stray      []string      // which they were, the first few
	strayOK    bool          // they do not fail the test
	changed    chan struct{} // closed at the next change; nil = nobody waits
}

func newBroker(c *Cluster, id int32, l net.Listener) *Broker {
	b := &Broker{
		ID: id, cluster: c, l: l, done: make(chan struct{}),
		handlers: map[int16]Handler{}, scripts: map[int16][]Answer{}, versions: DefaultVersions(),
		counts: map[int16]int{}, conns: map[int]*conn{},
	}
	b.wg.Go(b.accept)
	return b
}

// Addr is where the broker listens, as clients dial it.
func (b *Broker) Addr() string { return hostPort(b.l) }

// Handle sets the handler of an API key; nil restores the default.
func (b *Broker) Handle(key int16, h Handler) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if h == nil {
		delete(b.handlers, key)
		return
	}
	b.handlers[key] = h
}

// Script queues answers for an API key: each is given once, in order, before
// the handler is asked again. An answer whose Response, Body and Raw are nil,
// and that keeps the connection, answers nothing.
func (b *Broker) Script(key int16, answers ...Answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.scripts[key] = append(b.scripts[key], answers...)
}

// OnAccept runs f for every accepted connection before anything is read: the
// nth from 1. Its End is carried out at once; StopReading leaves the
// connection open and silent. nil removes it.
func (b *Broker) OnAccept(f func(n int, c net.Conn) End) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.onAccept = f
}

// Frames is a copy of the journal, oldest first. Frame slices are shared with
// it and must not be changed.
func (b *Broker) Frames() []Frame {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.journal)
}

// FramesOf is the journal of one API key.
func (b *Broker) FramesOf(key int16) []Frame {
	return slices.DeleteFunc(b.Frames(), func(f Frame) bool { return f.Key != key })
}

// Count is how many requests of a key came.
func (b *Broker) Count(key int16) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.counts[key]
}

// Accepted is how many connections were ever accepted.
func (b *Broker) Accepted() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.accepted
}

// Open is the numbers of the connections that are open, sorted. A connection
// counts as open until the broker has read its end.
func (b *Broker) Open() []int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.conns))
}

// OutOfRange is how many requests had a version outside the broker's table,
// ApiVersions excepted: the broker closes the connection on each.
func (b *Broker) OutOfRange() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.outOfRange
}

// AllowOutOfRange says that requests at versions that the broker does not have
// are part of the test. Without it they fail the test at its end.
func (b *Broker) AllowOutOfRange() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.strayOK = true
}

func (b *Broker) mayStray() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.strayOK
}

func (b *Broker) strays() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.stray)
}

func (b *Broker) strayLocked(f Frame) {
	b.outOfRange++
	if len(b.stray) < 5 {
		b.stray = append(b.stray, fmt.Sprintf("%s v%d", kmsg.NameForKey(f.Key), f.Version))
	}
}

// Forget empties journal and counts, but not the number of connections.
func (b *Broker) Forget() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.journal, b.counts, b.outOfRange = nil, map[int16]int{}, 0
}

// End closes or resets one open connection by its number, and reports whether
// it was open.
func (b *Broker) End(n int, how End) bool {
	b.mu.Lock()
	c := b.conns[n]
	b.mu.Unlock()
	if c == nil {
		return false
	}
	c.end(how)
	return true
}

// EndAll closes or resets every open connection.
func (b *Broker) EndAll(how End) {
	for _, n := range b.Open() {
		b.End(n, how)
	}
}

// Push writes raw bytes, which nobody asked for, to an open connection.
func (b *Broker) Push(n int, raw []byte) error {
	b.mu.Lock()
	c := b.conns[n]
	b.mu.Unlock()
	if c == nil {
		return net.ErrClosed
	}
	return c.write(raw)
}

// Await waits until the broker has read n requests of a key, ctx ends or the
// test's patience of half a minute does.
func (b *Broker) Await(ctx context.Context, key int16, n int) error {
	return b.AwaitThat(ctx, func() bool { return b.Count(key) >= n })
}

// AwaitThat waits until cond holds, which is asked again after every frame
// and every change of the connections.
func (b *Broker) AwaitThat(ctx context.Context, cond func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	for {
		b.mu.Lock()
		if b.changed == nil {
			b.changed = make(chan struct{})
		}
		ch := b.changed
		b.mu.Unlock()
		if cond() {
			return nil
		}
		select {
		case <-ch:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *Broker) changedLocked() {
	if b.changed != nil {
		close(b.changed)
		b.changed = nil
	}
}

// Close stops listening, ends every connection and waits for the broker's
// goroutines.
func (b *Broker) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.done)
	}
	b.mu.Unlock()
	b.l.Close()
	b.EndAll(Close)
	b.wg.Wait()
}

func (b *Broker) accept() {
	for {
		nc, err := b.l.Accept()
		if err != nil {
			return
		}
		b.mu.Lock()
		b.accepted++
		c := newConn(b, b.accepted, nc)
		hook := b.onAccept
		if b.closed {
			hook = func(int, net.Conn) End { return Close }
		}
		b.conns[c.n] = c
		b.changedLocked()
		b.wg.Go(func() { c.serve(hook) })
		b.mu.Unlock()
	}
}

// Raw serves every connection of l with fn, the nth from 1 with its number,
// and closes it when fn returns. The test's end closes listener and
// connections and waits for every fn.
func Raw(tb testing.TB, l net.Listener, fn func(n int, c net.Conn)) {
	tb.Helper()
	r := &rawServer{l: l, fn: fn}
	r.wg.Go(r.accept)
	tb.Cleanup(r.close)
}

type rawServer struct {
	l  net.Listener
	fn func(int, net.Conn)
	wg sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  []net.Conn
}

func (r *rawServer) accept() {
	for n := 1; ; n++ {
		c, err := r.l.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		closed := r.closed
		r.conns = append(r.conns, c)
		r.mu.Unlock()
		if closed {
			c.Close()
			return
		}
		r.wg.Go(func() { defer c.Close(); r.fn(n, c) })
	}
}

func (r *rawServer) close() {
	r.l.Close()
	r.mu.Lock()
	r.closed = true
	for _, c := range r.conns {
		c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}
