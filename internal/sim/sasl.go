package sim

import (
	"bytes"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"fmt"
	"hash"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SASL is the server side of authentication. The zero value asks for none.
type SASL struct {
	Mechanisms []string          // offered: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, or others with a handler for key 36
	Users      map[string]string // name → password
	Lifetime   time.Duration     // of a session (KIP-368), in whole milliseconds, after which its next request ends the connection; 0 = unlimited
	Iterations int               // of SCRAM; 0 = 4096
	Refusal    string            // the text of a refusal; "" = none is sent
}

// SetSASL makes the broker ask every connection, from here on, to
// authenticate before any other request: a connection that does not is closed.
// A handler or script for keys 17 and 36 takes precedence; an answer to key 36
// that has no error code ends the authentication.
func (b *Broker) SetSASL(s SASL) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sasl = s
}

// authState is how far a connection's authentication has come.
type authState struct {
	mechanism string
	user      string    // "" = not authenticated
	until     time.Time // of the session; zero = for ever
	scram     *scramServer
}

// authenticate answers what belongs to SASL, and ends connections that skip
// it. mine is false for requests that may pass.
func (c *conn) authenticate(r *Request, h Handler) (a Answer, mine bool) {
	c.b.mu.Lock()
	s := c.b.sasl
	c.b.mu.Unlock()
	if len(s.Mechanisms) == 0 {
		return Answer{}, false
	}
	switch req := r.Req.(type) {
	case *kmsg.ApiVersionsRequest:
		return Answer{}, false
	case *kmsg.SASLHandshakeRequest:
		if h != nil {
			c.auth.mechanism = req.Mechanism
			return Answer{}, false
		}
		return c.handshake(s, req), true
	case *kmsg.SASLAuthenticateRequest:
		if h != nil {
			return c.handled(r, h), true
		}
		return c.step(s, req), true
	}
	if c.auth.user == "" || !c.auth.until.IsZero() && time.Now().After(c.auth.until) {
		return Answer{End: Close}, true
	}
	return Answer{}, false
}

func (c *conn) handled(r *Request, h Handler) Answer {
	a := fillVersion(h(r), r)
	if resp, ok := a.Response.(*kmsg.SASLAuthenticateResponse); ok && resp.ErrorCode == 0 {
		c.auth.user = "handled"
	}
	return a
}

func (c *conn) handshake(s SASL, req *kmsg.SASLHandshakeRequest) Answer {
	resp := req.ResponseKind().(*kmsg.SASLHandshakeResponse)
	resp.SupportedMechanisms = s.Mechanisms
	if !slices.Contains(s.Mechanisms, req.Mechanism) {
		resp.ErrorCode = kerr.UnsupportedSaslMechanism.Code
		return Reply(resp)
	}
	c.auth = authState{mechanism: req.Mechanism, user: c.auth.user, until: c.auth.until}
	return Reply(resp)
}

func (c *conn) step(s SASL, req *kmsg.SASLAuthenticateRequest) Answer {
	resp := req.ResponseKind().(*kmsg.SASLAuthenticateResponse)
	out, user, err := c.exchange(s, req.SASLAuthBytes)
	if err != nil {
		resp.ErrorCode = kerr.SaslAuthenticationFailed.Code
		if s.Refusal != "" {
			resp.ErrorMessage = &s.Refusal
		}
		return Answer{Response: resp, End: Close}
	}
	resp.SASLAuthBytes = out
	if user != "" {
		c.auth.user, c.auth.until = user, time.Time{}
		if s.Lifetime > 0 {
			c.auth.until = time.Now().Add(s.Lifetime)
		}
		resp.SessionLifetimeMillis = s.Lifetime.Milliseconds()
	}
	return Reply(resp)
}

// exchange is one message of the mechanism; user is set by the last one.
func (c *conn) exchange(s SASL, in []byte) (out []byte, user string, err error) {
	switch c.auth.mechanism {
	case "PLAIN":
		part := strings.Split(string(in), "\x00")
		if len(part) != 3 || part[1] == "" || s.Users[part[1]] != part[2] {
			return nil, "", fmt.Errorf("refused")
		}
		return nil, part[1], nil
	case "SCRAM-SHA-256", "SCRAM-SHA-512":
		if c.auth.scram == nil {
			c.auth.scram, out, err = newScram(c.auth.mechanism, s, in)
			return out, "", err
		}
		sc := c.auth.scram
		out, err = sc.final(in)
		return out, sc.user, err
	}
	return nil, "", fmt.Errorf("no exchange for mechanism %q", c.auth.mechanism)
}

// scramServer is the server of RFC 5802 without channel binding.
type scramServer struct {
	user, password string
	hash           func() hash.Hash
	salt           []byte
	iterations     int
	nonce          string
	clientFirst    string // bare
	serverFirst    string
}

func newScram(mechanism string, s SASL, first []byte) (*scramServer, []byte, error) {
	bare, ok := strings.CutPrefix(string(first), "n,,")
	if !ok {
		return nil, nil, fmt.Errorf("no gs2 header in %q", first)
	}
	sc := &scramServer{hash: sha256.New, salt: []byte("salt of the sim!"), iterations: s.Iterations, clientFirst: bare}
	if mechanism == "SCRAM-SHA-512" {
		sc.hash = sha512.New
	}
	if sc.iterations == 0 {
		sc.iterations = 4096
	}
	for _, attr := range strings.Split(bare, ",") {
		if v, ok := strings.CutPrefix(attr, "n="); ok {
			sc.user = strings.NewReplacer("=2C", ",", "=3D", "=").Replace(v)
		}
		if v, ok := strings.CutPrefix(attr, "r="); ok {
			sc.nonce = v + "sim"
		}
	}
	var known bool
	if sc.password, known = s.Users[sc.user]; !known || sc.nonce == "" {
		return nil, nil, fmt.Errorf("unknown user %q", sc.user)
	}
	sc.serverFirst = fmt.Sprintf("r=%s,s=%s,i=%d", sc.nonce, base64.StdEncoding.EncodeToString(sc.salt), sc.iterations)
	return sc, []byte(sc.serverFirst), nil
}

func (s *scramServer) final(in []byte) ([]byte, error) {
	without, proof64, ok := strings.Cut(string(in), ",p=")
	if !ok || without != "c=biws,r="+s.nonce {
		return nil, fmt.Errorf("bad final message %q", in)
	}
	proof, err := base64.StdEncoding.DecodeString(proof64)
	if err != nil {
		return nil, err
	}
	salted, err := pbkdf2.Key(s.hash, s.password, s.salt, s.iterations, s.hash().Size())
	if err != nil {
		return nil, err
	}
	message := s.clientFirst + "," + s.serverFirst + "," + without
	clientKey := s.mac(salted, "Client Key")
	h := s.hash()
	h.Write(clientKey)
	want := s.mac(h.Sum(nil), message)
	for i := range want {
		want[i] ^= clientKey[i]
	}
	if !bytes.Equal(want, proof) {
		return nil, fmt.Errorf("wrong proof")
	}
	signature := s.mac(s.mac(salted, "Server Key"), message)
	return []byte("v=" + base64.StdEncoding.EncodeToString(signature)), nil
}

func (s *scramServer) mac(key []byte, message string) []byte {
	m := hmac.New(s.hash, key)
	m.Write([]byte(message))
	return m.Sum(nil)
}
