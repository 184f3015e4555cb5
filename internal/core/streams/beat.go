package streams

import (
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// beatKind is what a heartbeat is for.
type beatKind uint8

const (
	joinBeat    beatKind = iota // epoch 0
	releaseBeat                 // -2 before a join: frees the instance id
	steadyBeat
	leaveBeat // -1 or -2
)

// String is the kind in one word.
func (k beatKind) String() string { return [...]string{"join", "release", "heartbeat", "leave"}[k] }

// Epochs of a leave.
const (
	epochLeave     = -1
	epochTemporary = -2
)

// fallbackInterval is the time between heartbeats to a broker that names none.
const fallbackInterval = 5 * time.Second

// beat is the schedule of heartbeats.
type beat struct {
	interval time.Duration // 0 before the first answer
	last     time.Time     // when one was sent, of any kind
	urgent   bool          // the next one does not wait for the interval
	earliest time.Time     // throttling or backoff
	out      *sent         // in flight
	looking  uint64        // the look-up that is on its way; 0 = none
	version  int16         // of the connection, for the next heartbeat; -1 = look it up
	forget   bool          // the look-up starts anew
	failures int           // in a row
	unknown  int           // answers with -1 in a row
	lastID   uint64
}

// sent is a heartbeat in flight.
type sent struct {
	id      uint64
	kind    beatKind
	at      time.Time
	lists   bool   // it carries task lists
	gen     uint64 // of the book
	offsets carried
	call    uint64 // the Heartbeat that it serves; 0 = none
}

// wanted is the kind of heartbeat that the state asks for.
func (m *member) wanted() (beatKind, bool) {
	switch {
	case m.state == Joining && m.join.release:
		return releaseBeat, true
	case m.state == Joining:
		return joinBeat, true
	case m.state.InGroup():
		return steadyBeat, true
	case m.state == Leaving, m.state == Failed && !m.exit.deadline.IsZero():
		return leaveBeat, true
	}
	return 0, false
}

// beatAt is when the next heartbeat goes out.
func (m *member) beatAt() time.Time {
	b := &m.beat
	at := b.earliest
	if m.hurries() {
		return at
	}
	if due := b.last.Add(m.interval()); due.After(at) {
		at = due
	}
	return at
}

// hurries reports whether the next heartbeat does not wait for the interval.
func (m *member) hurries() bool {
	return m.beat.urgent || m.book.due || len(m.calls) > 0 && !m.calls[0].started
}

func (m *member) interval() time.Duration {
	if m.beat.interval > 0 {
		return m.beat.interval
	}
	return fallbackInterval
}

// sender makes the requests of a member.
type sender struct{ *member }

// nextBeat is the next heartbeat, or the look-up before it.
func (m sender) nextBeat(now time.Time) (Action, bool) {
	kind, ok := m.wanted()
	b := &m.beat
	if !ok || b.out != nil || b.looking != 0 || now.Before(m.beatAt()) {
		return nil, false
	}
	b.lastID++
	if b.version < 0 {
		b.looking = b.lastID
		m.counts.Lookups++
		a := &LookupAction{ID: b.looking, Forget: b.forget}
		b.forget = false
		return a, true
	}
	s := &sent{id: b.lastID, kind: kind, at: now, gen: m.book.gen}
	req := m.request(s)
	b.out, b.last, b.version, b.urgent = s, now, -1, false
	if kind == joinBeat || kind == steadyBeat {
		m.startCall(s)
	}
	if kind == steadyBeat {
		m.book.due = false
		if m.state == Acknowledging {
			m.state = Stable
		}
	}
	m.counts.Heartbeats++
	return &SendAction{ID: s.id, Req: req, Timeout: m.cfg.SessionTimeout / 3}, true
}

func (m sender) startCall(s *sent) {
	if len(m.calls) > 0 {
		m.calls[0].started = true
		s.call = m.calls[0].id
	}
}

// request builds a heartbeat and notes in s what it carries.
func (m sender) request(s *sent) *kmsg.StreamsGroupHeartbeatRequest {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version = m.beat.version
	req.Group, req.MemberID, req.MemberEpoch = m.cfg.Group, m.id.member, m.id.epoch
	req.EndpointInformationEpoch = m.id.endpoint
	req.InstanceID = optional(m.cfg.InstanceID)
	req.ShutdownApplication = m.id.shutdown
	switch s.kind {
	case joinBeat:
		m.fillJoin(req)
	case releaseBeat:
		req.MemberEpoch = epochTemporary
	case leaveBeat:
		req.MemberEpoch = epochLeave
		if m.exit.mode == LeaveTemporarily {
			req.MemberEpoch = epochTemporary
		}
	case steadyBeat:
		if lists, ok := m.book.lists(); ok {
			s.lists = true
			setLists(req, lists)
		}
	}
	due := s.kind == steadyBeat && m.offsets.due(s.at, &m.snap)
	s.offsets = m.offsets.attach(req, s.kind, due)
	return req
}

// setLists puts the owned set into a heartbeat. Brokers of version 0 refuse
// warm-ups.
func setLists(req *kmsg.StreamsGroupHeartbeatRequest, t Tasks) {
	if req.Version < 1 {
		t.Warmup = nil
	}
	req.ActiveTasks, req.StandbyTasks, req.WarmupTasks = appendTasks(t.Active), appendTasks(t.Standby), appendTasks(t.Warmup)
}

// fillJoin adds what only a join carries.
func (m sender) fillJoin(req *kmsg.StreamsGroupHeartbeatRequest) {
	req.MemberEpoch = 0
	req.RackID, req.ProcessID = optional(m.cfg.RackID), optional(m.cfg.ProcessID)
	req.RebalanceTimeoutMillis = int32(m.cfg.RebalanceTimeout / time.Millisecond)
	req.Topology = m.cfg.Topology.Wire()
	setLists(req, Tasks{})
	if e := m.cfg.Endpoint; e != nil {
		u := kmsg.NewStreamsGroupHeartbeatRequestUserEndpoint()
		u.Host, u.Port = e.Host, e.Port
		req.UserEndpoint = &u
	}
	req.ClientTags = []kmsg.StreamsGroupHeartbeatRequestClientTag{}
	for _, k := range slices.Sorted(maps.Keys(m.cfg.Tags)) {
		t := kmsg.NewStreamsGroupHeartbeatRequestClientTag()
		t.Key, t.Value = k, m.cfg.Tags[k]
		req.ClientTags = append(req.ClientTags, t)
	}
}

func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// OnVersion is the answer to a look-up: the version to use.
func (m *Machine) OnVersion(now time.Time, id uint64, version int16) {
	if id != m.beat.looking {
		return
	}
	m.beat.looking = 0
	if version < 1 && m.cfg.InstanceID != "" {
		mender{&m.member}.unsupported(now, &UnsupportedError{
			Missing: "static membership (StreamsGroupHeartbeat version 1)",
			Hint:    "InstanceID needs Kafka 4.4 or newer on every broker",
		})
		return
	}
	m.beat.version = version
}

// OnLookupFailed is the failure of a look-up. code is the broker's, 0 if it
// gave none; an [*UnsupportedError] ends the member.
func (m *Machine) OnLookupFailed(now time.Time, id uint64, code int16, err error) {
	if id != m.beat.looking {
		return
	}
	m.beat.looking = 0
	kind, ok := m.wanted()
	if !ok {
		return
	}
	if code != 0 {
		text := err.Error()
		err = NewBrokerError(m.cfg.Group, code, &text)
	}
	mender{&m.member}.onTrouble(now, trouble{kind: kind, code: code, err: err, unsent: true, lookup: true})
}

// OnFailure is a heartbeat without an answer. unsent says that no byte of it was
// written.
func (m *Machine) OnFailure(now time.Time, id uint64, err error, unsent bool) {
	s := m.beat.out
	if s == nil || s.id != id {
		return
	}
	m.beat.out = nil
	mender{&m.member}.onTrouble(now, trouble{kind: s.kind, err: err, unsent: unsent, call: s.call})
}

// OnAnswer is the answer to a heartbeat.
func (m *Machine) OnAnswer(now time.Time, id uint64, resp *kmsg.StreamsGroupHeartbeatResponse) {
	s := m.beat.out
	if s == nil || s.id != id {
		return
	}
	m.beat.out = nil
	if t := now.Add(time.Duration(resp.ThrottleMillis) * time.Millisecond); resp.ThrottleMillis > 0 && t.After(m.beat.earliest) {
		m.beat.earliest = t
	}
	if resp.ErrorCode != 0 {
		err := NewBrokerError(m.cfg.Group, resp.ErrorCode, resp.ErrorMessage)
		mender{&m.member}.onTrouble(now, trouble{kind: s.kind, code: resp.ErrorCode, err: err, call: s.call})
		return
	}
	reader{&m.member}.onSuccess(now, s, resp)
}
