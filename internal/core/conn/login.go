package conn

import (
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// maxExchanges bounds the messages of one authentication.
const maxExchanges = 16

// maxLifetime is the longest session lifetime in milliseconds, 292 years: what a
// duration can hold.
const maxLifetime = int64(math.MaxInt64 / time.Millisecond)

// NewSASLHandshake makes a SaslHandshake for a mechanism.
func NewSASLHandshake(mechanism string) *kmsg.SASLHandshakeRequest {
	req := kmsg.NewPtrSASLHandshakeRequest()
	req.Mechanism = mechanism
	return req
}

// NewSASLAuthenticate makes a SaslAuthenticate with one message of a mechanism.
func NewSASLAuthenticate(msg []byte) *kmsg.SASLAuthenticateRequest {
	req := kmsg.NewPtrSASLAuthenticateRequest()
	req.SASLAuthBytes = msg
	return req
}

// noReason stands where a broker refuses without a word.
const noReason = "the broker gave no reason"

// LoginAction is what a [Login] wants done next.
type LoginAction uint8

const (
	LoginHandshake LoginAction = iota + 1 // send SaslHandshake for the mechanism, feed OnHandshake
	LoginBegin                            // ask the mechanism for its first message, feed OnBegin
	LoginSend                             // send Bytes in SaslAuthenticate, feed OnAuthenticate
	LoginChallenge                        // give Bytes to the mechanism's session, feed OnChallenge
	LoginSwitch                           // begin again on a new socket with the mechanism
	LoginDone                             // authenticated, for Lifetime
	LoginFail                             // failed with Err
)

// LoginStep is one action of a [Login] with what it needs.
type LoginStep struct {
	Action    LoginAction
	Mechanism int // index in the list of NewLogin
	Bytes     []byte
	Lifetime  time.Duration // 0 = without end
	Err       *kafka.AuthError
}

// Login is one SASL authentication as steps over bytes: SaslHandshake 1 and
// SaslAuthenticate, never raw tokens. It guards SCRAM against hostile servers
// before the mechanism sees a message, and knows OAUTHBEARER's way of telling
// why a token was refused.
type Login struct {
	names []string
	at    int // mechanism in use
	next  []LoginStep

	guard   scramGuard
	begins  int
	rounds  int
	last    bool // the mechanism is done once the message under way is answered
	refusal string
	life    time.Duration
}

// NewLogin begins an authentication with the mechanism at index start; names
// are those configured, in order of preference.
func NewLogin(names []string, start int) *Login {
	l := &Login{names: names, at: start}
	l.then(LoginStep{Action: LoginHandshake})
	return l
}

// Next is the step to carry out; false means that an input is awaited or that
// the login is over.
func (l *Login) Next() (LoginStep, bool) {
	if len(l.next) == 0 {
		return LoginStep{}, false
	}
	s := l.next[0]
	l.next = l.next[1:]
	return s, true
}

func (l *Login) then(s LoginStep) {
	if s.Action != LoginSwitch {
		s.Mechanism = l.at
	}
	l.next = append(l.next, s)
}

func (l *Login) name() string { return l.names[l.at] }

func (l *Login) fail(e kafka.AuthError) {
	if e.Mechanism == "" {
		e.Mechanism = l.name()
	}
	l.next = []LoginStep{{Action: LoginFail, Mechanism: l.at, Err: &e}}
}

// OnHandshake takes the answer to SaslHandshake.
func (l *Login) OnHandshake(r *kmsg.SASLHandshakeResponse) {
	switch {
	case r.ErrorCode == 0:
		l.then(LoginStep{Action: LoginBegin})
	case r.ErrorCode != 33: // UNSUPPORTED_SASL_MECHANISM
		e := kafka.AuthError{Err: kafka.CodeError(r.ErrorCode, nil)}
		if len(r.SupportedMechanisms) > 0 {
			e.Offered = r.SupportedMechanisms
		}
		l.fail(e)
	default:
		for n := 1; n < len(l.names); n++ {
			if i := (l.at + n) % len(l.names); slices.Contains(r.SupportedMechanisms, l.names[i]) {
				l.then(LoginStep{Action: LoginSwitch, Mechanism: i})
				return
			}
		}
		offered := r.SupportedMechanisms
		if offered == nil {
			offered = []string{}
		}
		l.fail(kafka.AuthError{
			Mechanism: strings.Join(l.names, ", "), Offered: offered,
			Message: "the broker does not offer it", Err: kafka.CodeError(r.ErrorCode, nil),
		})
	}
}

// OnBegin takes the mechanism's first message. A mechanism that fails, such as
// a token source, is asked a second time.
func (l *Login) OnBegin(first []byte, err error) {
	if l.begins++; err != nil && l.begins < 2 {
		l.then(LoginStep{Action: LoginBegin})
		return
	}
	if err != nil {
		l.fail(kafka.AuthError{Message: "the mechanism could not begin: " + err.Error(), Err: err})
		return
	}
	if strings.HasPrefix(l.name(), "SCRAM-") {
		l.guard = scramGuard{on: true, nonce: attribute(string(first), 'r')}
	}
	l.then(LoginStep{Action: LoginSend, Bytes: first})
}

// OnAuthenticate takes the answer to SaslAuthenticate.
func (l *Login) OnAuthenticate(r *kmsg.SASLAuthenticateResponse) {
	l.life = time.Duration(min(max(r.SessionLifetimeMillis, 0), maxLifetime)) * time.Millisecond
	l.rounds++
	switch {
	case r.ErrorCode != 0:
		text := ""
		if r.ErrorMessage != nil {
			text = printable([]byte(*r.ErrorMessage))
		}
		l.fail(kafka.AuthError{Message: l.reason(text), Err: kafka.CodeError(r.ErrorCode, &text)})
	case l.refusal != "":
		l.fail(kafka.AuthError{Message: l.refusal})
	case l.last:
		l.then(LoginStep{Action: LoginDone, Lifetime: l.life})
	case l.rounds > maxExchanges:
		l.fail(kafka.AuthError{Message: "no end after " + itoa(maxExchanges) + " exchanges"})
	case l.name() == "OAUTHBEARER" && len(r.SASLAuthBytes) > 0:
		// The server's way to refuse (RFC 7628): it wants one byte 0x01 before
		// it says so with an error code.
		l.refusal = printable(r.SASLAuthBytes)
		l.then(LoginStep{Action: LoginSend, Bytes: []byte{1}})
	default:
		if what := l.guard.check(r.SASLAuthBytes); what != "" {
			l.fail(kafka.AuthError{Message: what})
			return
		}
		l.then(LoginStep{Action: LoginChallenge, Bytes: r.SASLAuthBytes})
	}
}

// OnChallenge takes what the mechanism's session made of the server's bytes.
func (l *Login) OnChallenge(done bool, send []byte, err error) {
	switch {
	case err != nil:
		l.fail(kafka.AuthError{Err: err})
	case done && l.guard.on && l.guard.round < 2:
		l.fail(kafka.AuthError{Message: "the mechanism ended before the server proved that it knows the password"})
	case done && len(send) == 0:
		l.then(LoginStep{Action: LoginDone, Lifetime: l.life})
	default:
		l.last = done
		l.then(LoginStep{Action: LoginSend, Bytes: send})
	}
}

// Refused is the failure to report if the socket is lost now: the server's
// reason if it gave one before it closed, else nil.
func (l *Login) Refused(cause error) *kafka.AuthError {
	if l.refusal == "" {
		return nil
	}
	return &kafka.AuthError{Mechanism: l.name(), Message: l.refusal, Err: cause}
}

// reason joins the broker's text with what the server said before.
func (l *Login) reason(text string) string {
	switch {
	case text == "" && l.refusal == "":
		return noReason
	case text == "":
		return l.refusal
	case strings.Contains(text, l.refusal):
		return text
	}
	return text + " (" + l.refusal + ")"
}

// printable makes bytes of a server fit for an error text.
func printable(b []byte) string {
	const most = 512
	s := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return '.'
		}
		return r
	}, strings.ToValidUTF8(string(b[:min(len(b), most)]), "."))
	return s
}
