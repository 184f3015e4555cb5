package netconn

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/kafka"
)

// handshake does ApiVersions, then SASL if there are mechanisms.
func (s *socket) handshake(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { s.fail(context.Cause(ctx)) })
	defer stop()
	if err := s.greet(ctx); err != nil {
		return err
	}
	if len(s.lane.peer.cfg.SASL) == 0 {
		return nil
	}
	return s.login(ctx)
}

// greet runs the ApiVersions script.
func (s *socket) greet(ctx context.Context) error {
	p := s.lane.peer
	id, began := p.identity(), time.Now()
	p.mu.Lock()
	version := p.hello.Version(began)
	p.mu.Unlock()
	h := conn.NewHello(id, version)
	for req, ok := h.Request(); ok; req, ok = h.Request() {
		if err := s.exchange(ctx, req, h.OnAnswer); err != nil {
			return s.greetError(ctx, greeting{id, began, h.Version()}, err)
		}
		s.throttle(h.Throttle())
	}
	p.mu.Lock()
	p.hello.OnSuccess(time.Now(), h.Version())
	p.versions = h.Versions()
	p.mu.Unlock()
	l := s.lane
	l.mu.Lock()
	s.versions, s.greeted = h.Versions(), greeting{id, began, h.Version()}
	l.mu.Unlock()
	return nil
}

// greeting is the ApiVersions exchange of a socket.
type greeting struct {
	id      conn.Identity // whom it asked for
	began   time.Time
	version int16 // asked last
}

// greetError takes note of what a failed ApiVersions says about the broker.
func (s *socket) greetError(ctx context.Context, g greeting, err error) error {
	p := s.lane.peer
	var be *kafka.BrokerError
	if errors.As(err, &be) && be.Code == rebootstrapRequired {
		p.mismatch(g.id.ClusterID, g.id.Node)
	}
	var ce *kafka.ConnError
	if ctx.Err() != nil || !errors.As(err, &ce) || ce.Read > 0 || !isReset(err) {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.hello.OnReset(time.Now(), g.began, g.version) {
		return &again{err}
	}
	return err
}

// isReset reports whether the broker closed the socket.
func isReset(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}

// exchange writes an internal request once no throttle forbids it, and waits
// for its answer, which answer takes on the reader goroutine. It runs on the
// writer goroutine.
func (s *socket) exchange(ctx context.Context, req kmsg.Request, answer func(body []byte) error) error {
	l := s.lane
	s.awaitThrottle()
	wt := l.pool.Get().(*waiter)
	c := NewCall(ctx, req)
	c.answer, c.w, c.gen = answer, wt, 1
	c.Timeout = l.peer.cfg.dialTimeout()
	w := writer{lane: l}
	l.mu.Lock()
	if s.dead {
		err := s.err
		l.mu.Unlock()
		return s.late(ctx, req, err)
	}
	f, err := w.encodeLocked(time.Now(), s, c)
	l.mu.Unlock()
	if err != nil {
		l.pool.Put(wt)
		return err
	}
	n, err := w.send(s)
	w.wrote(f, n, err)
	<-wt.ch
	err = wt.err
	wt.resp, wt.err = nil, nil
	l.pool.Put(wt)
	if err != nil {
		return s.late(ctx, req, err)
	}
	return nil
}

// awaitThrottle waits until the broker lets this socket speak, or it is lost.
func (s *socket) awaitThrottle() {
	l := s.lane
	l.mu.Lock()
	until, blocked := s.flight.Blocked(time.Now())
	l.mu.Unlock()
	if !blocked {
		return
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.ctx.Done():
	}
}

// late replaces the error of an exchange by a timeout if its context ended.
func (s *socket) late(ctx context.Context, req kmsg.Request, err error) error {
	if ctx.Err() == nil {
		return err
	}
	return &kafka.TimeoutError{
		Name: conn.APIName(req.Key()), Addr: s.lane.peer.addr, Phase: kafka.PhaseHandshake, Err: context.Cause(ctx),
	}
}

// call is exchange for a request whose answer is decoded as usual, within
// bounds of its version.
func (s *socket) call(ctx context.Context, req kmsg.Request, bounds conn.Bounds) (kmsg.Response, error) {
	version, err := s.versions.Pick(req, bounds)
	if err != nil {
		return nil, s.lane.peer.versionError(err)
	}
	req.SetVersion(version)
	resp := req.ResponseKind()
	err = s.exchange(ctx, req, func(body []byte) error {
		if err := resp.ReadFrom(body); err != nil {
			return s.lane.peer.protocolError(&kafka.ProtocolError{
				What: "the " + conn.APIName(req.Key()) + " answer cannot be decoded", Err: err,
				First: append([]byte(nil), body[:min(len(body), 16)]...),
			})
		}
		return nil
	})
	return resp, err
}

func (p *Peer) versionError(err error) error {
	var ve *kafka.VersionError
	if errors.As(err, &ve) {
		ve.Addr = p.addr
	}
	return err
}

// login authenticates the socket, for the first time or again.
func (s *socket) login(ctx context.Context) error {
	p := s.lane.peer
	p.mu.Lock()
	start := p.mechanism
	p.mu.Unlock()
	login := conn.NewLogin(p.cfg.mechanisms(), start)
	x := exchangeSASL{sock: s, login: login}
	for {
		step, ok := login.Next()
		if !ok {
			return errors.New("ottla: the SASL script stopped") // not reached
		}
		done, err := x.do(ctx, step)
		if err != nil {
			if e := login.Refused(err); e != nil && ctx.Err() == nil {
				e.Addr = p.addr
				return e
			}
			return err
		}
		if done {
			return nil
		}
	}
}

// exchangeSASL carries out the steps of a login on a socket.
type exchangeSASL struct {
	sock    *socket
	login   *conn.Login
	session sasl.Session
	sent    time.Time // of the last message; the session's lifetime is counted from there
}

// do carries out one step and feeds its outcome back.
func (x *exchangeSASL) do(ctx context.Context, step conn.LoginStep) (done bool, err error) {
	s, p := x.sock, x.sock.lane.peer
	mech := p.cfg.SASL[step.Mechanism]
	switch step.Action {
	case conn.LoginHandshake:
		resp, err := s.call(ctx, conn.NewSASLHandshake(mech.Name()), conn.Bounds{Min: 1, Max: 1, Cap: p.cfg.cap(17)})
		if err != nil {
			return false, err
		}
		x.login.OnHandshake(resp.(*kmsg.SASLHandshakeResponse))
	case conn.LoginBegin:
		p.warnPlain(mech.Name())
		first, err := x.begin(mech)
		if s.ctx.Err() != nil {
			return false, err
		}
		x.login.OnBegin(first, err)
	case conn.LoginSend:
		x.sent = time.Now()
		resp, err := s.call(ctx, conn.NewSASLAuthenticate(step.Bytes), conn.Bounds{Min: NoBound, Max: NoBound, Cap: p.cfg.cap(36)})
		if err != nil {
			return false, err
		}
		x.login.OnAuthenticate(resp.(*kmsg.SASLAuthenticateResponse))
	case conn.LoginChallenge:
		fin, send, err := x.challenge(step.Bytes)
		if s.ctx.Err() != nil {
			return false, err
		}
		x.login.OnChallenge(fin, send, err)
	case conn.LoginSwitch:
		p.mu.Lock()
		p.mechanism = step.Mechanism
		p.mu.Unlock()
		return false, &again{errors.New("the broker offers another mechanism than the last one: " + mech.Name())}
	case conn.LoginFail:
		step.Err.Addr = p.addr
		return false, step.Err
	case conn.LoginDone:
		s.loggedIn(x.sent, step.Lifetime)
		return true, nil
	}
	return false, nil
}

// bounded is a context for one call of a mechanism: it ends with the connect
// timeout, with the dial and with the socket.
func (x *exchangeSASL) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(x.sock.ctx, x.sock.lane.peer.cfg.dialTimeout(), errDialTimeout)
}

func (x *exchangeSASL) begin(mech sasl.Mechanism) (first []byte, err error) {
	addr := x.sock.lane.peer.addr
	var session sasl.Session
	var out []byte
	var merr error
	ctx, cancel := x.bounded()
	defer cancel()
	if err := outside(ctx, func() { session, out, merr = mech.Authenticate(ctx, addr) }); err != nil {
		return nil, err
	}
	x.session = session
	return out, merr
}

func (x *exchangeSASL) challenge(msg []byte) (done bool, send []byte, err error) {
	session, msg := x.session, append([]byte(nil), msg...)
	var fin bool
	var out []byte
	var merr error
	ctx, cancel := x.bounded()
	defer cancel()
	if err := outside(ctx, func() { fin, out, merr = session.Challenge(msg) }); err != nil {
		return false, nil, err
	}
	return fin, out, merr
}

// loggedIn starts the lifetime of an authentication.
func (s *socket) loggedIn(at time.Time, lifetime time.Duration) {
	l := s.lane
	var session conn.Session
	l.peer.jitter(func(rng *rand.Rand) { session.OnLogin(at, lifetime, rng) })
	l.mu.Lock()
	s.session = session
	l.mu.Unlock()
}

// renew authenticates an open socket again, behind what is outstanding on it,
// however long that takes to be answered: every message has the clock of a
// request, and the mechanism has the connect timeout. If it fails the socket
// is given up, and the next one logs in afresh.
func (s *socket) renew(ctx context.Context) {
	if err := s.login(ctx); err != nil {
		s.fail(&lossError{err})
	}
}

// warnPlain logs once per address that a password crosses the network as it
// is.
func (p *Peer) warnPlain(mechanism string) {
	if mechanism != "PLAIN" || p.tls != nil || p.cfg.Logger == nil {
		return
	}
	p.mu.Lock()
	first := !p.warned
	p.warned = true
	p.mu.Unlock()
	if first {
		p.cfg.Logger.Warn("ottla: PLAIN without TLS: the password crosses the network unencrypted", slog.String("addr", p.addr))
	}
}
