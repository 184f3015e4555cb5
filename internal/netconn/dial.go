package netconn

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// errDialTimeout is the cause of a dial's context that ran out of its time.
var errDialTimeout error = dialTimeout{}

type dialTimeout struct{}

func (dialTimeout) Error() string   { return "the connect timeout passed" }
func (dialTimeout) Timeout() bool   { return true }
func (dialTimeout) Temporary() bool { return true }
func (dialTimeout) Unwrap() error   { return context.DeadlineExceeded }

// dialer opens the sockets of a lane. It runs on the writer goroutine.
type dialer struct{ lane *Lane }

// dial opens the lane's socket, handshake included, or ends the calls that
// wait for it. It runs on the writer goroutine.
func (d dialer) dial(ctx context.Context) {
	l := d.lane
	dctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	l.mu.Lock()
	if l.closed != nil || l.queue.len() == 0 {
		l.mu.Unlock()
		return
	}
	l.cancelDial, l.phase = cancel, kafka.PhaseDial
	l.mu.Unlock()

	s, err := (*socket)(nil), d.pace(dctx)
	if err == nil {
		s, err = d.open(dctx)
	}
	d.dialled(s, err)
}

// dialled publishes a ready socket, or gives a failed dial to the calls that
// waited for it.
func (d dialer) dialled(s *socket, err error) {
	l := d.lane
	l.mu.Lock()
	l.cancelDial = nil
	var over []ending
	ready := false
	switch {
	case err == nil && s.dead:
		l.barren.add() // lost since; the next round dials again
	case err == nil:
		s.ready, ready = true, true
	case errors.Is(err, errNobodyWaits):
		// Calls that came meanwhile want a dial of their own.
	default:
		l.draining = false
		for l.queue.len() > 0 {
			over = append(over, ending{l.queue.pop(), nil, err})
			over[len(over)-1].takeLocked()
		}
	}
	l.mu.Unlock()
	for i := range over {
		over[i].finish()
	}
	if cluster, node := l.peer.Expected(); ready && cluster != "" && (cluster != s.greeted.id.ClusterID || node != s.greeted.id.Node) {
		l.checkIdentity(cluster, node) // expected since the socket asked
	}
}

// pace waits until the address may be dialled again.
func (d dialer) pace(ctx context.Context) error {
	l := d.lane
	until, _ := l.peer.Failing()
	l.mu.Lock()
	lost := l.barren
	l.mu.Unlock()
	wait := time.Until(until)
	if lost.n > 1 {
		wait = max(wait, time.Until(lost.last.Add(l.peer.cfg.backoff().Delay(lost.n-1, nil))))
	}
	if wait <= 0 {
		return nil
	}
	return task.Sleep(ctx, wait)
}

// open makes one dial round: as many sockets as the ApiVersions and SASL
// scripts ask for, under one deadline.
func (d dialer) open(ctx context.Context) (*socket, error) {
	l := d.lane
	began := time.Now()
	tctx, cancel := context.WithTimeoutCause(ctx, l.peer.cfg.dialTimeout(), errDialTimeout)
	defer cancel()
	l.mu.Lock()
	l.stats.Dials++
	l.mu.Unlock()
	s, err := d.openOnce(tctx)
	most := maxHellos + len(l.peer.cfg.SASL) // a broker may contradict itself
	for n := 1; n < most && errors.Is(err, errAgain) && tctx.Err() == nil; n++ {
		s, err = d.openOnce(tctx)
	}
	if errors.Is(err, errNobodyWaits) || err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	l.peer.dialled(time.Now(), err)
	if l.peer.cfg.Hooks.Dialled != nil {
		l.peer.cfg.Hooks.Dialled(l.peer.addr, l.kind, time.Since(began), err)
	}
	return s, err
}

// maxHellos is how many sockets the ApiVersions script takes at most.
const maxHellos = 4

// errAgain asks for another socket in the same round; it stands beside the
// reason.
var errAgain = errors.New("another socket is worth a try")

// again is a failure after which the scripts want a new socket.
type again struct{ err error }

func (e *again) Error() string   { return e.err.Error() }
func (e *again) Unwrap() []error { return []error{e.err, errAgain} }

// openOnce opens one socket and does the handshake on it.
func (d dialer) openOnce(ctx context.Context) (*socket, error) {
	l := d.lane
	raw, tried, err := d.reach(ctx)
	if err != nil {
		return nil, &kafka.DialError{Addr: l.peer.addr, Tried: tried, Err: err}
	}
	setNoDelay(raw)
	s := &socket{lane: l, conn: raw, raw: raw}
	s.tcp, _ = raw.(*net.TCPConn)
	if l.peer.tls != nil {
		s.tcp, s.counted = nil, &countConn{Conn: raw}
		t := tls.Client(s.counted, l.peer.tls)
		if err := t.HandshakeContext(ctx); err != nil {
			raw.Close()
			return nil, d.dialError(tried, l.peer.explainTLS(ctx, err))
		}
		s.conn = t
	}
	if err := d.adopt(s); err != nil {
		raw.Close()
		return nil, d.dialError(tried, err)
	}
	if err := s.handshake(ctx); err != nil {
		s.fail(err)
		return nil, d.dialError(tried, err)
	}
	return s, nil
}

// adopt makes s the socket of the lane and starts its reader.
func (d dialer) adopt(s *socket) error {
	l := d.lane
	idle := l.peer.cfg.idleTimeout()
	cfg := conn.FlightConfig{WriteTimeout: l.peer.cfg.requestTimeout(), Idle: idle}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed != nil {
		return l.closed
	}
	s.flight = conn.NewFlight[pending](cfg, time.Now())
	if !l.peer.tasks.Go(s.read) {
		return groupOver(l.peer.tasks.Context())
	}
	s.ctx, s.cancel = context.WithCancelCause(l.peer.tasks.Context())
	l.sock, l.phase = s, kafka.PhaseHandshake
	return nil
}

// dialError frames why a socket could not be opened. Refused authentication
// and missing versions are kinds of their own.
func (d dialer) dialError(tried []string, err error) error {
	var auth *kafka.AuthError
	var version *kafka.VersionError
	if errors.As(err, &auth) || errors.As(err, &version) {
		return err
	}
	if e := (*again)(nil); errors.As(err, &e) {
		return &again{&kafka.DialError{Addr: d.lane.peer.addr, Tried: tried, Err: e.err}}
	}
	return &kafka.DialError{Addr: d.lane.peer.addr, Tried: tried, Err: err}
}

// reach connects to the first address that takes the connection. Each gets an
// equal share of the time that is left, so that a silent one costs no more.
func (d dialer) reach(ctx context.Context) (net.Conn, []string, error) {
	addrs, err := d.resolve(ctx)
	if err != nil {
		return nil, nil, err
	}
	var failed reasons
	d.silentLast(addrs)
	for i, addr := range addrs {
		actx, cancel := ctx, context.CancelFunc(func() {})
		if end, ok := ctx.Deadline(); ok {
			share := time.Until(end) / time.Duration(len(addrs)-i)
			actx, cancel = context.WithTimeoutCause(ctx, share, errDialTimeout)
		}
		c, err := d.connect(actx, addr)
		cancel()
		if err == nil {
			return c, addrs[:i+1], nil
		}
		failed = append(failed, reason{addr, err})
		if errors.Is(err, errDialTimeout) {
			d.note(addr)
		}
		if ctx.Err() != nil {
			return nil, addrs[:i+1], failed.join()
		}
	}
	return nil, addrs, failed.join()
}

// silentFor is how long an address that answered nothing is tried last.
const silentFor = time.Minute

// silentAddrs remembers which IP addresses of a name answered nothing, and
// until when they are tried last; the zero value remembers none.
type silentAddrs map[string]time.Time

// note remembers a silent address.
func (d dialer) note(addr string) {
	p := d.lane.peer
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent == nil || len(p.silent) >= 64 {
		p.silent = silentAddrs{}
	}
	p.silent[addr] = time.Now().Add(silentFor)
}

// silentLast puts the addresses that answered nothing of late behind the
// others, so that not every lane waits for them.
func (d dialer) silentLast(addrs []string) {
	p, now := d.lane.peer, time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	slices.SortStableFunc(addrs, func(a, b string) int {
		return cmp.Compare(btoi(now.Before(p.silent[a])), btoi(now.Before(p.silent[b])))
	})
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// resolve gives the addresses of the peer, port included, looked up anew.
func (d dialer) resolve(ctx context.Context) ([]string, error) {
	p := d.lane.peer
	_, port, err := net.SplitHostPort(p.addr)
	if err != nil {
		return nil, err
	}
	if isIP(p.host) || p.cfg.Resolve == nil && p.cfg.Dial != nil {
		return []string{p.addr}, nil
	}
	lookup := p.cfg.Resolve
	if lookup == nil {
		lookup = net.DefaultResolver.LookupHost
	}
	var hosts []string
	if oerr := outside(ctx, func() { hosts, err = lookup(ctx, p.host) }); oerr != nil {
		return nil, oerr
	}
	if err == nil && len(hosts) == 0 {
		err = &net.DNSError{Err: "no addresses", Name: p.host, IsNotFound: true}
	}
	if err != nil {
		return nil, err
	}
	addrs := make([]string, len(hosts))
	for i, h := range hosts {
		addrs[i] = net.JoinHostPort(h, port)
	}
	return addrs, nil
}

func isIP(host string) bool {
	host, _, _ = strings.Cut(host, "%")
	return net.ParseIP(host) != nil
}

// connect opens one TCP connection. A dialer of the user's that does not obey
// its context is left behind, and what it returns later is closed.
func (d dialer) connect(ctx context.Context, addr string) (net.Conn, error) {
	dial := d.lane.peer.cfg.Dial
	if dial == nil {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", addr)
		return c, causeOf(ctx, err)
	}
	type result struct {
		c   net.Conn
		err error
	}
	got := make(chan result, 1)
	g := task.New(ctx)
	g.Go(func(ctx context.Context) error {
		c, err := dial(ctx, "tcp", addr)
		if c == nil && err == nil {
			err = errNoConn
		}
		got <- result{c, err}
		return nil
	})
	select {
	case r := <-got:
		return r.c, causeOf(ctx, r.err)
	case <-ctx.Done():
		g.Go(func(context.Context) error {
			if r := <-got; r.c != nil {
				r.c.Close()
			}
			return nil
		})
		return nil, context.Cause(ctx)
	}
}

var errNoConn = errors.New("the dialer gave neither a connection nor an error")

// causeOf replaces the error of an ended context by its cause.
func causeOf(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// outside runs code of the user's, and leaves it behind when ctx ends: no
// Close waits for it.
func outside(ctx context.Context, f func()) error {
	done := make(chan struct{})
	task.New(ctx).Go(func(context.Context) error {
		f()
		close(done)
		return nil
	})
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func setNoDelay(c net.Conn) {
	if t, ok := c.(interface{ SetNoDelay(bool) error }); ok {
		_ = t.SetNoDelay(true)
	}
}

// reason is why one address failed.
type reason struct {
	addr string
	err  error
}

// reasons is why every address of a name failed.
type reasons []reason

// join is the error itself if there is only one.
func (r reasons) join() error {
	if len(r) == 1 {
		return r[0].err
	}
	return r
}

func (r reasons) Error() string {
	parts := make([]string, len(r))
	for i, f := range r {
		parts[i] = f.addr + ": " + strings.TrimPrefix(f.err.Error(), "dial tcp "+f.addr+": ")
	}
	return strings.Join(parts, "; ")
}

// Unwrap makes errors.Is find the reason of each address.
func (r reasons) Unwrap() []error {
	errs := make([]error, len(r))
	for i, f := range r {
		errs[i] = f.err
	}
	return errs
}
