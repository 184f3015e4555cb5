package ottlatest

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ottla/ottla/internal/sim/frame"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// conn is a client's connection as kfake sees it: its reads are whole,
// checked requests, its writes pass through the cluster's changes of answers.
// kfake reads and writes on one goroutine each at a time.
type conn struct {
	net.Conn // the meter, or TLS above it
	n        *node
	m        *meter
	num      int    // nth connection of the node
	buf      []byte // re-used for frames
	prefix   [4]byte
	in       []byte // rest of prefix or frame that kfake has not read
	rest     []byte // frame behind the prefix

	mu    sync.Mutex
	asked []asked // requests without an answer, oldest first
	known bool    // the client has logged in
	steps int     // good answers that are missing to a login

	joined chan struct{} // closed by the answer that outlive waits for; nil = it does not
}

// asked is what must be known of a request to read its answer.
type asked struct {
	key, version int16
	correlation  int32
	req          kmsg.Request // of the keys whose answers are completed by it, else nil
}

// maxAsked bounds asked: a client that wants no answers (acks=0) leaves
// entries behind.
const maxAsked = 64

// Read gives kfake the bytes of checked requests.
func (c *conn) Read(p []byte) (int, error) {
	if len(c.in) == 0 && len(c.rest) > 0 {
		c.in, c.rest = c.rest, nil
	}
	if len(c.in) == 0 {
		if err := c.next(); err != nil {
			c.m.Close()
			c.outlive()
			return 0, err
		}
	}
	k := copy(p, c.in)
	c.in = c.in[k:]
	return k, nil
}

// outlive waits until the JoinGroup of a client that is gone is answered: kfake
// begins a member's session with that answer, and a member whose connection
// has ended by then would stay in its group for ever.
func (c *conn) outlive() {
	joins := func(a asked) bool { return a.key == int16(kmsg.JoinGroup) }
	c.mu.Lock()
	if !slices.ContainsFunc(c.asked, joins) {
		c.mu.Unlock()
		return
	}
	joined := make(chan struct{})
	c.joined = joined
	c.mu.Unlock()
	select {
	case <-joined:
	case <-c.n.gone:
	}
}

// releaseLocked ends outlive.
func (c *conn) releaseLocked() {
	if c.joined != nil {
		close(c.joined)
		c.joined = nil
	}
}

// next reads and checks one request.
func (c *conn) next() error {
	raw, err := frame.Read(c.Conn, c.n.c.cfg.MaxRequestBytes, c.buf)
	if err != nil {
		return err
	}
	if c.n.c.cfg.Journal <= 0 {
		c.buf = raw // else the journal keeps what aliases it
	}
	r, err := frame.Parse(raw)
	if err != nil {
		return err
	}
	req, err := r.Decode()
	if err != nil {
		return err
	}
	if needsLogin(r.Key) && !c.trusted() {
		return errNoLogin // kfake would close too, but let its hooks answer first
	}
	c.n.c.onRequest(c, r, req)
	c.mu.Lock()
	if hs, ok := req.(*kmsg.SASLHandshakeRequest); ok {
		c.steps = 1
		if strings.HasPrefix(hs.Mechanism, "SCRAM") {
			c.steps = 2
		}
	}
	if len(c.asked) == maxAsked {
		c.asked = slices.Delete(c.asked, 0, 1)
	}
	var kept kmsg.Request
	switch req.(type) {
	case *kmsg.OffsetForLeaderEpochRequest, *kmsg.DescribeConfigsRequest, *kmsg.InitProducerIDRequest, *kmsg.EndTxnRequest:
		kept = req
	}
	c.asked = append(c.asked, asked{r.Key, r.Version, r.Correlation, kept})
	c.mu.Unlock()
	binary.BigEndian.PutUint32(c.prefix[:], uint32(len(raw)))
	c.in, c.rest = c.prefix[:], raw
	return nil
}

var errNoLogin = errors.New("ottlatest: a request before the login")

func needsLogin(key int16) bool {
	switch kmsg.Key(key) {
	case kmsg.SASLHandshake, kmsg.SASLAuthenticate, kmsg.ApiVersions:
		return false
	}
	return true
}

// trusted reports whether nobody has to log in, or the client has.
func (c *conn) trusted() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.known || len(c.n.c.cfg.Users) == 0
}

// loggedIn notes an answer of kfake that is a step of a login.
func (c *conn) loggedIn(a asked, wire []byte) {
	if a.key != int16(kmsg.SASLAuthenticate) {
		return
	}
	resp, ok := decodeAnswer(a, wire)
	if !ok || resp.(*kmsg.SASLAuthenticateResponse).ErrorCode != 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.steps--
	c.known = c.known || c.steps == 0
}

// answered takes the request with that correlation id, and all before it,
// off the list.
func (c *conn) answered(correlation int32) (asked, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.asked, func(a asked) bool { return a.correlation == correlation })
	if i < 0 {
		return asked{}, false
	}
	a := c.asked[i]
	c.asked = slices.Delete(c.asked, 0, i+1)
	c.releaseLocked()
	return a, true
}

// Write sends one answer of kfake, which writes whole frames.
func (c *conn) Write(p []byte) (int, error) {
	out := p
	if len(p) >= 8 {
		if a, ok := c.answered(int32(binary.BigEndian.Uint32(p[4:]))); ok {
			c.loggedIn(a, p)
			out = c.n.c.onAnswer(c.n, a, p)
		}
	}
	if _, err := c.Conn.Write(out); err != nil {
		return 0, err
	}
	return len(p), nil
}

// Close closes the connection for kfake. kfake has no answer for a failed
// login but to close, a broker says so first.
func (c *conn) Close() error {
	c.mu.Lock()
	pending := c.asked
	c.asked = nil
	c.releaseLocked()
	c.mu.Unlock()
	if len(pending) == 1 && pending[0].key == int16(kmsg.SASLAuthenticate) {
		resp := kmsg.NewPtrSASLAuthenticateResponse()
		resp.Version = pending[0].version
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		resp.ErrorMessage = kmsg.StringPtr("Authentication failed: invalid credentials")
		c.Conn.SetWriteDeadline(time.Now().Add(time.Second))
		c.Conn.Write(frame.AppendResponse(nil, pending[0].correlation, resp))
	}
	c.n.mu.Lock()
	delete(c.n.conns, c)
	c.n.mu.Unlock()
	return c.m.Close()
}
