package meta

import (
	"slices"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
)

// Refresh is one Metadata request to make. Topics is never all topics: with no
// names it is a cluster refresh, which asks for brokers and the controller.
type Refresh struct {
	Topics []string // sorted
	Create bool     // let the broker create those that do not exist
	Forced bool     // something known turned out wrong
	Avoid  []string // addresses that answered lately: others are to be asked first
	Doubt  bool     // answers contradict what is known: ask a broker that has not answered, even if that takes a new connection
}

// Need says how a topic is wanted.
type Need struct {
	Force  bool // an answer that is already under way does not do
	Create bool // let the broker create it (where Config.Create allows it)
	Track  bool // keep it fresh until it is forgotten
}

// Want asks for a topic to be refreshed. A refresh of it in flight serves,
// unless forced.
func (m *Map) Want(name string, n Need) {
	t := m.topic(name)
	if n.Track {
		m.Track(name)
	}
	if !n.Force && m.InFlight(name) {
		return
	}
	if t.want == nil {
		t.want = &want{}
	}
	t.want.user = true
	t.want.forced = t.want.forced || n.Force
	t.want.create = t.want.create || n.Create && m.cfg.Create
}

// again wants a topic of a refresh that failed, if it is tracked.
func (t *topicState) again(forced bool) {
	if t == nil || !t.tracked {
		return
	}
	if t.want == nil {
		t.want = &want{}
	}
	t.want.forced = t.want.forced || forced
}

// schedule is when refreshes go out.
type schedule struct {
	clusterWant bool      // a cluster refresh is wanted
	lastSent    time.Time // when a refresh of any kind last went out
	lastForced  time.Time // when a forced refresh last went out
	lastAnswer  time.Time // when a broker last answered
	failures    int       // refreshes in a row that no broker answered
	retryAt     time.Time // nothing goes out before, after a failure
	quietUntil  time.Time // nothing that no caller waits for goes out before, after a refused login
	flight      *Refresh  // the refresh in flight
	sources     []string  // addresses that recent answers came from, newest last
}

// WantCluster asks for a refresh of brokers and controller.
func (m *Map) WantCluster() {
	if m.pace.flight == nil {
		m.pace.clusterWant = true
	}
}

// Track keeps a topic fresh until it is forgotten.
func (m *Map) Track(name string) {
	if t := m.topic(name); !t.tracked {
		t.tracked = true
		m.snap = nil
	}
}

// InFlight reports whether the refresh under way names the topic; for an empty
// name, whether there is one at all.
func (m *Map) InFlight(name string) bool {
	return m.pace.flight != nil && (name == "" || slices.Contains(m.pace.flight.Topics, name))
}

// force wants a known topic again, without creating it.
func (t *topicState) force() {
	if t.want == nil {
		t.want = &want{}
	}
	t.want.forced = true
}

// due is when a topic is to be refreshed, zero for never.
func (s *schedule) due(t *topicState, maxAge time.Duration) time.Time {
	var at time.Time
	switch {
	case t.want != nil && t.want.forced:
		d := max(t.delay, paceMin)
		if !t.want.user && t.failed {
			d = paceQuiet
		}
		at = retry.Later(t.last.Add(d), s.lastForced.Add(paceMin))
	case t.want != nil:
		at = s.lastAnswer
	case t.tracked && t.topic != nil:
		at = retry.Later(t.topic.Updated, t.last).Add(maxAge / 10 * 9)
	default:
		return at
	}
	if t.want == nil || !t.want.user {
		at = retry.Later(at, s.quietUntil)
	}
	return retry.Later(at, s.retryAt)
}

// clusterDue is when brokers and controller are to be refreshed.
func (s *schedule) clusterDue(maxAge time.Duration) time.Time {
	at := s.lastSent.Add(paceMin)
	if !s.clusterWant {
		at = retry.Later(s.lastAnswer.Add(maxAge/10*9), s.quietUntil)
	}
	return retry.Later(at, s.retryAt)
}

// Deadline is when Next has something to do, zero while a refresh is in
// flight.
func (m *Map) Deadline() time.Time {
	if m.pace.flight != nil {
		return time.Time{}
	}
	at := m.pace.clusterDue(m.cfg.MaxAge)
	for _, t := range m.topics {
		if d := m.pace.due(t, m.cfg.MaxAge); !d.IsZero() && d.Before(at) {
			at = d
		}
	}
	return at
}

// Next returns the refresh to send at now, if one is due. Topics that are due
// together go together; those that may be created go in a request of their own.
func (m *Map) Next(now time.Time) (Refresh, bool) {
	if m.pace.flight != nil {
		return Refresh{}, false
	}
	due, ahead, create := m.dueTopics(now)
	if len(due) == 0 && m.pace.clusterDue(m.cfg.MaxAge).After(now) {
		return Refresh{}, false
	}
	r := Refresh{Create: create}
	if !create && len(due) > 0 {
		due = append(due, ahead...)
		slices.Sort(due)
	}
	for _, name := range due {
		t := m.topics[name]
		if t.want != nil && t.want.forced {
			r.Forced = true
		}
		r.Doubt = r.Doubt || t.inDoubt()
		t.sent(now)
	}
	r.Topics = due
	if r.Forced {
		m.pace.lastForced = now
		r.Avoid = slices.Clone(m.pace.sources)
	}
	m.pace.clusterWant = false
	m.pace.lastSent = now
	m.pace.flight = &r
	return r, true
}

// dueTopics are the sorted names of topics to ask for in one request, and
// those that are nearly due and can go along.
func (m *Map) dueTopics(now time.Time) (due, ahead []string, create bool) {
	var creating []string
	for _, name := range m.sortedTopics() {
		t := m.topics[name]
		at := m.pace.due(t, m.cfg.MaxAge)
		switch {
		case at.IsZero():
		case at.After(now):
			if t.want == nil && at.Sub(now) <= m.cfg.MaxAge/10 {
				ahead = append(ahead, name)
			}
		case t.want != nil && t.want.create:
			creating = append(creating, name)
		default:
			due = append(due, name)
		}
	}
	if len(creating) > 0 {
		return creating, nil, true
	}
	return due, ahead, false
}

// sent marks a topic as asked for at now.
func (t *topicState) sent(now time.Time) {
	switch {
	case t.want == nil || !t.want.forced:
	case now.Sub(t.last) >= paceReset:
		t.delay = paceMin
	default:
		t.delay = min(max(2*t.delay, paceMin), paceMax)
	}
	t.last = now
	t.want = nil
}

// OnFailure ends the refresh in flight without an answer. Its tracked topics
// stay wanted; the next refresh waits for the backoff. It reports whether the
// time without an answer is up, which calls for a rebootstrap. If the brokers
// refused the client's credentials, only a caller who waits makes it log in
// again before the metadata age: repeated refusals can lock an account.
func (m *Map) OnFailure(now time.Time, refused bool) bool {
	s := &m.pace
	s.failures++
	if refused {
		s.quietUntil = now.Add(m.cfg.MaxAge / 10 * 9)
	}
	s.retryAt = now.Add(m.cfg.Retry.Delay(s.failures, m.rng))
	if f := s.flight; f != nil {
		s.flight = nil
		s.clusterWant = s.clusterWant || len(f.Topics) == 0 && !refused
		for _, name := range f.Topics {
			m.topics[name].again(f.Forced)
		}
	}
	return now.Sub(s.lastAnswer) >= m.cfg.Rebootstrap
}

// answered ends the refresh in flight with an answer from addr.
func (s *schedule) answered(now time.Time, addr string) *Refresh {
	f := s.flight
	s.flight = nil
	s.failures = 0
	s.retryAt, s.quietUntil = time.Time{}, time.Time{}
	s.lastAnswer = now
	s.sources = slices.DeleteFunc(s.sources, func(a string) bool { return a == addr })
	s.sources = append(s.sources, addr)
	if len(s.sources) > maxSources {
		s.sources = s.sources[1:]
	}
	return f
}

const maxSources = 8
