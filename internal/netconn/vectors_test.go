package netconn

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/ottla/ottla/kafka"
)

// exchange is one captured login: what Java, or a raw client, and a broker
// said to each other.
type exchange struct {
	Name   string
	Code   int16 `json:"last_error_code"`
	Closed bool
	Steps  []exchangeStep
}

type exchangeStep struct {
	Key       int16 `json:"api_key"`
	Version   int16
	Request   string
	Response  string
	Mechanism string
	Client    string `json:"client_bytes"`
	Text      string `json:"error_message"`
	Life      int64  `json:"session_lifetime_ms"`
}

func (s exchangeStep) request() []byte  { return fromHex(s.Request) }
func (s exchangeStep) response() []byte { return fromHex(s.Response) }

func fromHex(s string) []byte {
	b, err := hex.DecodeString(s)
	if err != nil {
		panic(err)
	}
	return b
}

// clientOf is the client id in a request frame.
func clientOf(frame []byte) string {
	n := binary.BigEndian.Uint16(frame[12:])
	return string(frame[14 : 14+n])
}

func exchanges(t *testing.T) []exchange {
	t.Helper()
	data, err := os.ReadFile("testdata/sasl.json")
	if err != nil {
		t.Fatal(err)
	}
	var es []exchange
	if err := json.Unmarshal(data, &es); err != nil {
		t.Fatal(err)
	}
	return es
}

// TestTheCapturedLoginsOfJava replays all 26 captured exchanges (C14 to C21):
// our frames are those of the capture, byte for byte, and the broker's answers
// have the outcome that they had there. K19 for the frames of SASL.
func TestTheCapturedLoginsOfJava(t *testing.T) {
	es := exchanges(t)
	if len(es) != 26 {
		t.Fatalf("%d exchanges", len(es))
	}
	for _, e := range es {
		t.Run(e.Name, func(t *testing.T) {
			switch e.Name {
			case "raw-metadata-first", "raw-authenticate-first", "raw-metadata-in-between", "raw-second-handshake":
				neverSent(t, e)
			default:
				replay(t, e)
			}
		})
	}
}

// neverSent holds that a login of this client has no such step: its broker
// closes where the captured one did, or answers the mechanism as refused.
func neverSent(t *testing.T, e exchange) {
	b := &guarded{offers: []string{"PLAIN"}}
	mechs := []sasl.Mechanism{plainOf("u", "p")}
	if e.Name == "raw-second-handshake" {
		mechs = append([]sasl.Mechanism{&replayed{name: "GSSAPI"}}, mechs...)
	}
	inWorld(t, &Config{SASL: mechs}, b.serve, func(t *testing.T, w *world) {
		ask(t, w.lane(General), "m")
		bad := e.Steps[len(e.Steps)-1].Key
		for _, c := range w.b.conns {
			handshakes, logins := 0, 0
			for i, g := range c.got {
				switch {
				case g.Key == 17:
					handshakes++
				case g.Key == 36:
					logins++
				case g.Key == bad && logins == 0:
					t.Errorf("API %d was sent as number %d, before a login", g.Key, i)
				}
			}
			if handshakes != 1 || logins > handshakes {
				t.Errorf("%d handshakes on one socket", handshakes)
			}
		}
	})
}

// replay plays the broker's side of an exchange against our client.
func replay(t *testing.T, e exchange) {
	steps := e.Steps
	mech := &replayed{name: steps[0].Mechanism}
	for _, s := range steps[1:] {
		mech.send = append(mech.send, fromHex(s.Client))
	}
	var m sasl.Mechanism = mech
	if user, pass, ok := scramUser(e); ok {
		m = &javaScram{name: mech.name, user: user, pass: pass, first: string(mech.send[0])}
	}
	cfg := &Config{SASL: []sasl.Mechanism{m}, ClientID: clientOf(steps[0].request())}
	version := steps[len(steps)-1].Version
	inWorld(t, cfg, func(c *brokerConn) { playBroker(t, c, e, version) }, func(t *testing.T, w *world) {
		_, err := w.lane(General).Do(context.Background(), metadata("m"))
		var ae *kafka.AuthError
		isAuth := errors.As(err, &ae)
		switch {
		case e.Closed:
			if err == nil || isAuth {
				t.Errorf("the broker closed without an answer: %v", err)
			}
		case e.Code != 0:
			var be *kafka.BrokerError
			if !isAuth || !errors.As(err, &be) || be.Code != e.Code {
				t.Fatalf("%v, want code %d", err, e.Code)
			}
			if text := steps[len(steps)-1].Text; text != "" && ae.Message != text {
				t.Errorf("text %q, want %q", ae.Message, text)
			}
			if e.Code == 33 && len(ae.Offered) != 4 {
				t.Errorf("offered %v", ae.Offered)
			}
		case err != nil:
			t.Error(err)
		}
	})
}

// playBroker answers each step of the exchange as the captured broker did, and
// Metadata after it.
func playBroker(t *testing.T, c *brokerConn, e exchange, version int16) {
	g, ok := c.next()
	if !ok {
		return
	}
	resp := table()
	for i := range resp.ApiKeys {
		if resp.ApiKeys[i].ApiKey == 36 && e.Steps[len(e.Steps)-1].Key == 36 {
			resp.ApiKeys[i].MaxVersion = version
		}
	}
	c.answer(g, resp)
	for i, s := range e.Steps {
		g, ok := c.next()
		if !ok {
			t.Errorf("step %d was not sent", i)
			return
		}
		if want := bodyOf(s); g.Key != s.Key || g.Version != s.Version || !bytes.Equal(g.Body, want) || g.Client != clientOf(s.request()) {
			t.Errorf("step %d: API %d version %d body %x\nwant API %d version %d body %x", i, g.Key, g.Version, g.Body, s.Key, s.Version, want)
			return
		}
		if s.Response == "" {
			return
		}
		out := s.response()
		binary.BigEndian.PutUint32(out[4:], uint32(g.ID))
		c.Write(out)
	}
	if e.Code != 0 {
		return
	}
	if g, ok := c.next(); ok {
		c.answer(g, reply(g))
	}
}

// bodyOf is the body of a captured request.
func bodyOf(s exchangeStep) []byte {
	frame := s.request()
	at := 14 + len(clientOf(frame))
	req := kmsg.RequestForKey(s.Key)
	req.SetVersion(s.Version)
	if req.IsFlexible() {
		at++
	}
	return frame[at:]
}

// replayed is a mechanism that says what was captured.
type replayed struct {
	name string
	send [][]byte
}

func (r *replayed) Name() string { return r.name }

func (r *replayed) Authenticate(context.Context, string) (sasl.Session, []byte, error) {
	if len(r.send) == 0 {
		return nil, nil, nil
	}
	return &replayedSession{r.send[1:]}, r.send[0], nil
}

type replayedSession struct{ send [][]byte }

func (s *replayedSession) Challenge([]byte) (bool, []byte, error) {
	if len(s.send) == 0 {
		return true, nil, nil
	}
	next := s.send[0]
	s.send = s.send[1:]
	return false, next, nil
}

// scramUser is the user of a captured SCRAM login whose password is known.
func scramUser(e exchange) (user, pass string, ok bool) {
	switch {
	case !strings.HasPrefix(e.Name, "scram-sha-"):
		return "", "", false
	case strings.HasSuffix(e.Name, "-ok"):
		return "alice", "alice-secret", true
	case strings.HasSuffix(e.Name, "-bad"):
		return "alice", "wrong", true
	}
	return "", "", false
}

// javaScram is SCRAM with the client's nonce of the capture, as the mechanism
// that users get makes its own.
type javaScram struct{ name, user, pass, first string }

func (s *javaScram) Name() string { return s.name }

func (s *javaScram) Authenticate(context.Context, string) (sasl.Session, []byte, error) {
	return &javaScramSession{javaScram: s}, []byte(s.first), nil
}

type javaScramSession struct {
	*javaScram
	signature []byte
}

func (s *javaScramSession) Challenge(msg []byte) (bool, []byte, error) {
	if s.signature != nil {
		sent, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(string(msg), "v="))
		if err != nil || !hmac.Equal(sent, s.signature) {
			return false, nil, errors.New("the server's signature is wrong")
		}
		return true, nil, nil
	}
	newHash := sha256.New
	if strings.HasSuffix(s.name, "512") {
		newHash = sha512.New
	}
	parts := map[byte]string{}
	for p := range strings.SplitSeq(string(msg), ",") {
		parts[p[0]] = p[2:]
	}
	salt, _ := base64.StdEncoding.DecodeString(parts['s'])
	iterations, _ := strconv.Atoi(parts['i'])
	salted, err := pbkdf2.Key(newHash, s.pass, salt, iterations, newHash().Size())
	if err != nil {
		return false, nil, err
	}
	final := "c=biws,r=" + parts['r']
	auth := strings.TrimPrefix(s.first, "n,,") + "," + string(msg) + "," + final
	client := mac(newHash, salted, "Client Key")
	stored := newHash()
	stored.Write(client)
	proof := mac(newHash, stored.Sum(nil), auth)
	for i := range proof {
		proof[i] ^= client[i]
	}
	s.signature = mac(newHash, mac(newHash, salted, "Server Key"), auth)
	return false, []byte(fmt.Sprintf("%s,p=%s", final, base64.StdEncoding.EncodeToString(proof))), nil
}

func mac(h func() hash.Hash, key []byte, msg string) []byte {
	m := hmac.New(h, key)
	m.Write([]byte(msg))
	return m.Sum(nil)
}
