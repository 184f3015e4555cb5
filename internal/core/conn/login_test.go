package conn

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/transcript"
	"github.com/ottla/ottla/kafka"
)

// steps gives what the login wants now, as text.
func steps(l *Login) string {
	var out []string
	for s, ok := l.Next(); ok; s, ok = l.Next() {
		switch s.Action {
		case LoginHandshake:
			out = append(out, "handshake "+l.names[s.Mechanism])
		case LoginBegin:
			out = append(out, "begin")
		case LoginSend:
			out = append(out, fmt.Sprintf("send %q", s.Bytes))
		case LoginChallenge:
			out = append(out, fmt.Sprintf("challenge %q", s.Bytes))
		case LoginSwitch:
			out = append(out, "switch to "+l.names[s.Mechanism])
		case LoginDone:
			out = append(out, "done for "+s.Lifetime.String())
		case LoginFail:
			out = append(out, "fail: "+s.Err.Error())
		}
	}
	return strings.Join(out, "\n")
}

func handshakeAnswer(code int16, offered ...string) *kmsg.SASLHandshakeResponse {
	r := kmsg.NewPtrSASLHandshakeResponse()
	r.ErrorCode, r.SupportedMechanisms = code, offered
	return r
}

// answered is a SaslAuthenticate answer; "-" is a null text.
func answered(code int16, text, bytes string, life time.Duration) *kmsg.SASLAuthenticateResponse {
	r := kmsg.NewPtrSASLAuthenticateResponse()
	r.ErrorCode, r.SASLAuthBytes, r.SessionLifetimeMillis = code, []byte(bytes), life.Milliseconds()
	if text != "-" {
		r.ErrorMessage = &text
	}
	return r
}

// TestLoginTranscripts holds what the names of the files say.
func TestLoginTranscripts(t *testing.T) {
	transcript.Run(t, "login/*.txt", func(t *testing.T) func([]string) string {
		var l *Login
		return func(c []string) string { return loginStep(t, &l, c) }
	})
}

// loginStep is one command of a transcript.
func loginStep(t *testing.T, at **Login, c []string) string {
	l := *at
	arg := func(i int) string {
		if i >= len(c) {
			return ""
		}
		return strings.ReplaceAll(c[i], "_", " ")
	}
	switch c[0] {
	case "new":
		l = NewLogin(c[1:], 0)
		*at = l
	case "handshake":
		l.OnHandshake(handshakeAnswer(int16(number(t, c[1])), c[2:]...))
	case "first":
		l.OnBegin([]byte(arg(1)), nil)
	case "begin-fails":
		l.OnBegin(nil, errors.New(arg(1)))
	case "answer": // code text bytes lifetime
		life, _ := time.ParseDuration(arg(4))
		l.OnAuthenticate(answered(int16(number(t, c[1])), arg(2), arg(3), life))
	case "mechanism": // done bytes
		l.OnChallenge(c[1] == "done", []byte(arg(2)), nil)
	case "mechanism-fails":
		l.OnChallenge(false, nil, errors.New(arg(1)))
	case "lost":
		if e := l.Refused(errors.New("EOF")); e != nil {
			return "refused: " + e.Error()
		}
		return "no reason known"
	default:
		t.Fatalf("command %v", c)
	}
	return steps(l)
}

// scram brings a login to where the server's first message is due.
func scram() *Login {
	l := NewLogin([]string{"SCRAM-SHA-256"}, 0)
	l.Next()
	l.OnHandshake(handshakeAnswer(0))
	l.Next()
	l.OnBegin([]byte("n,,n=alice,r=NONCE"), nil)
	l.Next()
	return l
}

func TestB064IterationCountsAreBounded(t *testing.T) {
	salt := base64.StdEncoding.EncodeToString([]byte("salt"))
	for _, c := range []struct {
		i  string
		ok bool
	}{
		{"i=2147483647", false}, {"i=0", false}, {"i=-1", false}, {"i=abc", false}, {"i=", false}, {"i=1", false}, {"i=4095", false},
		{"i=4096", true}, {"i=1048576", true}, {"i=1048577", false}, {"i=99999999999999999999", false}, {"x=1", false}, {"", false},
	} {
		l := scram()
		msg := "r=NONCEx,s=" + salt
		if c.i != "" {
			msg += "," + c.i
		}
		l.OnAuthenticate(answered(0, "-", msg, 0))
		s, _ := l.Next()
		if ok := s.Action == LoginChallenge; ok != c.ok {
			t.Errorf("%q: %v %v", c.i, s.Action, s.Err)
		}
		if !c.ok && (s.Action != LoginFail || s.Err.Mechanism != "SCRAM-SHA-256") {
			t.Errorf("%q: not refused before the mechanism saw it", c.i)
		}
	}
}

func TestB065NonceAttributesAndSignature(t *testing.T) {
	salt := base64.StdEncoding.EncodeToString([]byte("salt"))
	good := "r=NONCEserver,s=" + salt + ",i=4096"
	for name, msg := range map[string]string{
		"a foreign nonce": "r=OTHERserver,s=" + salt + ",i=4096", "our nonce": "r=NONCE,s=" + salt + ",i=4096",
		"an m= attribute": "m=x," + good, "m= at the end": good + ",m=x", "two i=": good + ",i=4096", "two r=": good + ",r=NONCEserver",
		"a salt that is not base64": "r=NONCEserver,s=%%%,i=4096", "a salt that goes on behind its end": "r=NONCEserver,s=" + salt + "%%%%,i=4096", "no salt": "r=NONCEserver,s=,i=4096", "nothing": "", "another order": "s=" + salt + ",r=NONCEserver,i=4096",
		"no attribute": good + ",", "no equals sign": "r:NONCEserver,s=" + salt + ",i=4096", "an error": "e=other-error",
	} {
		l := scram()
		l.OnAuthenticate(answered(0, "-", msg, 0))
		if s, _ := l.Next(); s.Action != LoginFail {
			t.Errorf("server-first with %s: step %d", name, s.Action)
		}
	}
	for name, msg := range map[string]string{
		"no signature": "x=1", "an empty one": "v=", "nothing": "", "one that is not base64": "v=%%%", "an error": "e=invalid-proof",
	} {
		l := scram()
		l.OnAuthenticate(answered(0, "-", good, 0))
		l.Next()
		l.OnChallenge(false, []byte("c=biws"), nil)
		l.Next()
		l.OnAuthenticate(answered(0, "-", msg, 0))
		s, _ := l.Next()
		if s.Action != LoginFail {
			t.Errorf("server-final with %s: step %d", name, s.Action)
		}
		if name == "an error" && !strings.Contains(s.Err.Error(), "invalid-proof") {
			t.Errorf("the server's reason is lost: %v", s.Err)
		}
	}
	l := NewLogin([]string{"SCRAM-SHA-256"}, 0)
	l.Next()
	l.OnHandshake(handshakeAnswer(0))
	l.Next()
	l.OnBegin([]byte("n,,n=alice"), nil) // a mechanism that has no nonce
	l.Next()
	l.OnAuthenticate(answered(0, "-", good, 0))
	if s, _ := l.Next(); s.Action != LoginFail {
		t.Errorf("no nonce of the client: step %d", s.Action)
	}
	l = scram()
	l.OnAuthenticate(answered(0, "-", good, 0))
	l.Next()
	l.OnChallenge(true, nil, nil) // a mechanism that does not wait for the signature
	if s, _ := l.Next(); s.Action != LoginFail {
		t.Errorf("C18: done without the server's signature: step %d", s.Action)
	}
}

// TestC16NothingOfferedIsSaid has an empty list as it is decoded: nil.
func TestC16NothingOfferedIsSaid(t *testing.T) {
	l := NewLogin([]string{"PLAIN"}, 0)
	l.Next()
	l.OnHandshake(&kmsg.SASLHandshakeResponse{ErrorCode: 33})
	if s, _ := l.Next(); s.Action != LoginFail || s.Err.Offered == nil || !strings.Contains(s.Err.Error(), "the broker offers nothing") {
		t.Errorf("%v", s.Err)
	}
}

func TestC20ARefusalHasTheBrokersCodeAndText(t *testing.T) {
	for text, want := range map[string]string{"wrong password": "wrong password", "": noReason, "-": noReason} {
		l := scram()
		l.OnAuthenticate(answered(58, text, "", 0))
		s, _ := l.Next()
		if s.Action != LoginFail || s.Err.Message != want || !errors.Is(s.Err, kerr.SaslAuthenticationFailed) {
			t.Errorf("text %q: %v", text, s.Err)
		}
		if kafka.MayHaveHappened(s.Err) {
			t.Error("a refused login may have happened")
		}
	}
}

// TestC23ALifetimeIsNotWrappedAround has lifetimes beyond what a duration of
// Go's holds: the session lasts as long as that, not for an instant or for ever.
func TestC23ALifetimeIsNotWrappedAround(t *testing.T) {
	const most = math.MaxInt64 / int64(time.Millisecond)
	for ms, want := range map[int64]time.Duration{
		-1: 0, 0: 0, 1: time.Millisecond, most: time.Duration(most) * time.Millisecond,
		most + 1: time.Duration(most) * time.Millisecond, math.MaxInt64: time.Duration(most) * time.Millisecond, math.MaxInt64/1000 + 1: time.Duration(most) * time.Millisecond,
	} {
		l := NewLogin([]string{"PLAIN"}, 0)
		l.Next()
		l.OnHandshake(handshakeAnswer(0))
		l.Next()
		l.OnBegin([]byte("x"), nil)
		l.Next()
		r := answered(0, "-", "", 0)
		r.SessionLifetimeMillis = ms
		l.OnAuthenticate(r)
		l.Next()
		l.OnChallenge(true, nil, nil)
		if s, _ := l.Next(); s.Action != LoginDone || s.Lifetime != want {
			t.Errorf("%d ms: %v for %v, want %v", ms, s.Action, s.Lifetime, want)
		}
	}
}

// TestC20TheBrokersTextIsFitToBePrinted has a text with the escape codes of a
// terminal, and one without end.
func TestC20TheBrokersTextIsFitToBePrinted(t *testing.T) {
	for text, want := range map[string]string{
		"wrong\x1b[2J\nuser\x00\x7f": "wrong.[2J.user..", strings.Repeat("x", 1<<20): strings.Repeat("x", 512), "für alice": "für alice",
	} {
		l := scram()
		l.OnAuthenticate(answered(58, text, "", 0))
		if s, _ := l.Next(); s.Action != LoginFail || s.Err.Message != want || !errors.Is(s.Err, kerr.SaslAuthenticationFailed) {
			t.Errorf("%.40q: %.80q", text, s.Err.Message)
		}
	}
}

func TestALoginEnds(t *testing.T) {
	l := NewLogin([]string{"X"}, 0)
	l.Next()
	l.OnHandshake(handshakeAnswer(0))
	l.Next()
	l.OnBegin([]byte("a"), nil)
	for range 100 {
		s, ok := l.Next()
		switch {
		case !ok:
			t.Fatal("stuck")
		case s.Action == LoginSend:
			l.OnAuthenticate(answered(0, "-", "more", 0))
		case s.Action == LoginChallenge:
			l.OnChallenge(false, []byte("a"), nil)
		case s.Action == LoginFail:
			return
		}
	}
	t.Error("no end to the exchange")
}

// FuzzScramGuard gives any server messages: no panic, and what passes obeys
// the bounds.
func FuzzScramGuard(f *testing.F) {
	f.Add("r=NONCEx,s=c2FsdA==,i=4096", "v=c2ln")
	f.Add("m=x,r=NONCE,s=,i=2147483647", "e=other-error")
	f.Add("r=NONCEx,s=c2FsdA==,i=4096,i=1", "")
	f.Fuzz(func(t *testing.T, first, final string) {
		g := scramGuard{on: true, nonce: "NONCE"}
		if what := g.check([]byte(first)); what == "" {
			n := attribute(first, 'i')
			if len(n) > 8 || n == "" || !strings.HasPrefix(attribute(first, 'r'), "NONCE") {
				t.Fatalf("%q passed", first)
			}
		}
		if what := g.check([]byte(final)); what == "" && !strings.HasPrefix(final, "v=") {
			t.Fatalf("%q passed as a final message", final)
		}
	})
}
