package conn

import (
	"math/rand/v2"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
)

// Session is the lifetime of one authentication (KIP-368): when it is to be
// renewed on its socket. The zero value never is.
//
// It is due at 80 to 90 % of the lifetime, or once a broker refused a request
// that it may have refused only because it ended the session early. A login lets at least one request
// through, however short its lifetime. A session that nobody used, or one of
// less than a second, is renewed only when somebody wants to use it, so that
// short lifetimes do not spin.
type Session struct {
	at    time.Time // zero = never
	half  time.Time // of the lifetime is over; zero = never
	used  bool      // a request was written since the login
	fresh bool      // the request that waited for the login may go
	brief bool      // too short to be renewed ahead
}

// OnLogin takes note of a completed authentication whose lifetime began at
// now; 0 or less is without end.
func (s *Session) OnLogin(now time.Time, lifetime time.Duration, rng *rand.Rand) {
	*s = Session{}
	if lifetime <= 0 {
		return
	}
	part := 0.85
	if rng != nil {
		part = 0.8 + 0.1*rng.Float64()
	}
	s.at, s.fresh, s.brief = now.Add(time.Duration(part*float64(lifetime))), true, lifetime < time.Second
	s.half = now.Add(lifetime / 2)
}

// Late reports whether the session is in the second half of its lifetime. An
// authorization error may then mean that the broker ended it already.
func (s *Session) Late(now time.Time) bool { return !s.half.IsZero() && !now.Before(s.half) }

// OnRefused takes note of an authorization error late in the session: it is
// due once the request that waited for the last login went out.
func (s *Session) OnRefused(now time.Time) {
	if !s.at.IsZero() {
		s.at = retry.Earlier(s.at, now)
	}
}

// OnWrite takes note of a request written under the session.
func (s *Session) OnWrite() { s.used, s.fresh = true, false }

// OnIdle takes note that no request waits to be written.
func (s *Session) OnIdle() { s.fresh = false }

// Due reports whether to authenticate again before anything else is written;
// waiting says that there is a request to write.
func (s *Session) Due(now time.Time, waiting bool) bool {
	return !s.at.IsZero() && !now.Before(s.at) && !s.fresh && (s.used && !s.brief || waiting)
}

// Deadline is when an idle socket is to authenticate again; zero is never.
func (s *Session) Deadline() time.Time {
	if !s.used || s.brief {
		return time.Time{}
	}
	return s.at
}
