package streams

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// State is where a member stands.
type State uint8

const (
	Joining       State = iota // the join is on its way
	Reconciling                // the owner has to take a target over
	Acknowledging              // it did; the heartbeat that says so is due
	Stable                     // nothing is to be done
	Fenced                     // the tasks are lost; the owner has to acknowledge it
	Leaving                    // the leave is on its way
	Stale                      // left by itself, until the owner calls Touch
	Left                       // over
	Failed                     // over by an error
)

// String is the state in one word.
func (s State) String() string {
	names := [...]string{
		"joining", "reconciling", "acknowledging", "stable", "fenced", "leaving", "stale", "left", "failed",
	}
	if int(s) < len(names) {
		return names[s]
	}
	return "unknown"
}

// InGroup reports whether the member has an epoch to work and commit with.
func (s State) InGroup() bool { return s == Reconciling || s == Acknowledging || s == Stable }

// Machine is one member of a Streams group. Make it with [New], start it with
// [Machine.OnStart]. It is not safe for concurrent use.
type Machine struct{ member }

// member is what a Machine knows. Those who act on it stand apart: sender makes
// requests, reader takes answers, mender reacts to failures.
type member struct {
	counts   Counters
	cfg      Config
	rng      *rand.Rand
	state    State
	err      error // why the state is Failed, or what ended a leave
	id       identity
	beat     beat
	book     book
	offsets  offsets
	snap     Snapshot
	join     join
	exit     exit
	calls    []*call
	describe describe
	push     push
	watch    watch
	notes    notes
	queued   []Action
}

// Counters count what a Machine did.
type Counters struct {
	Heartbeats  uint64 // sent, joins and leaves included
	Failures    uint64 // of those, and of look-ups
	Retries     uint64
	Rejoins     uint64
	Lookups     uint64 // of the coordinator
	Describes   uint64 // to find lists that were lost with an answer
	LastSuccess time.Time
}

// identity is what the coordinator knows the member by.
type identity struct {
	member   string
	epoch    int32
	endpoint int32 // endpoint information epoch
	shutdown bool  // RequestShutdown was called
}

// join is what is known of a join that is on its way.
type join struct {
	joined     bool      // the first join succeeded
	tries      int       // failed attempts of the first join
	unanswered bool      // a join was sent whose outcome is not known
	release    bool      // static members: -2 before the next join
	released   bool      // a release was answered since the first 111
	inUse      time.Time // first 111
	full       time.Time // first 81 of a rejoin
}

// exit is a leave that is on its way, or due.
type exit struct {
	deadline time.Time
	then     State     // what follows: Left, Stale or Failed
	mode     LeaveMode // LeaveGroup or LeaveTemporarily
	waits    time.Time // Failed: the leave waits so long for the owner's acknowledgement
}

// call is a Heartbeat that a caller waits for.
type call struct {
	id      uint64
	retries int
	started bool // a heartbeat was handed out for it
}

// watch is what ends a membership by itself.
type watch struct {
	touched time.Time // by the owner, or joined
	missing time.Time // since when source topics are missing
	lost    bool      // Stale: the owner acknowledged the loss
}

// Action is something for the driver to do.
type Action interface{ action() }

// LookupAction asks for the version of StreamsGroupHeartbeat to use with the
// group's coordinator, for [Machine.OnVersion] or [Machine.OnLookupFailed].
type LookupAction struct {
	ID     uint64
	Forget bool // the coordinator that is known was refused or not reached
}

// SendAction is a heartbeat to send at its version, for [Machine.OnAnswer] or
// [Machine.OnFailure].
type SendAction struct {
	ID      uint64
	Req     *kmsg.StreamsGroupHeartbeatRequest
	Timeout time.Duration
}

// DescribeAction asks for the member's assignment as StreamsGroupDescribe has
// it, for [Machine.OnDescribed]. The answer must be no older than the action.
type DescribeAction struct {
	ID     uint64
	Member string
}

// PushAction sends the description of the topology; its outcome goes to
// [Machine.OnPushed].
type PushAction struct {
	Member string
	Epoch  int32 // of the topology
}

// PublishAction is a new snapshot.
type PublishAction struct{ Snapshot Snapshot }

// JoinedAction is the success of the first join.
type JoinedAction struct{}

// DoneAction is the end of a Heartbeat that was asked for.
type DoneAction struct {
	Call uint64
	Err  error
}

// RetryAction tells that something failed and will be tried again.
type RetryAction struct {
	What    string
	Attempt int // failures in a row
	After   time.Duration
	Err     error
}

// Level is how much a line of the log matters.
type Level uint8

// The levels.
const (
	LevelDebug Level = iota
	LevelInfo
	LevelWarn
	LevelError
)

// LogAction is a line for the log; Attrs are keys and values in turn.
type LogAction struct {
	Level Level
	Text  string
	Attrs []any
}

// FailedAction is a fatal error. The owner is told of the loss, and a leave may
// follow before the [EndAction].
type FailedAction struct{ Err error }

// EndAction is the end of the machine; Err is nil after a clean leave.
type EndAction struct{ Err error }

func (*LookupAction) action()   {}
func (*SendAction) action()     {}
func (*DescribeAction) action() {}
func (*PushAction) action()     {}
func (*PublishAction) action()  {}
func (*JoinedAction) action()   {}
func (*DoneAction) action()     {}
func (*RetryAction) action()    {}
func (*LogAction) action()      {}
func (*FailedAction) action()   {}
func (*EndAction) action()      {}

// New makes a machine that has not begun. cfg has been checked; rng gives
// jitter, the machine owns it.
func New(cfg Config, rng *rand.Rand) *Machine {
	cfg = cfg.clone()
	m := &Machine{member{cfg: cfg, rng: rng}}
	m.id = identity{member: cfg.MemberID, endpoint: -1}
	m.snap.AcceptableRecoveryLag = -1
	m.beat.version = -1
	m.offsets.values.set = cfg.Offsets
	m.book.reset()
	return m
}

// OnStart begins the join.
func (m *Machine) OnStart(time.Time) { m.beat.urgent = true }

// State is where the member stands.
func (m *Machine) State() State { return m.state }

// Snapshot is the newest one; its Version is 0 before the first.
func (m *Machine) Snapshot() Snapshot { return m.snap }

// Owned is what the owner acknowledged last.
func (m *Machine) Owned() Tasks { return m.book.owned.Clone() }

// Err is why the state is Failed.
func (m *Machine) Err() error { return m.err }

// Interval is the heartbeat interval that the broker asked for last, 0 before
// the first answer.
func (m *Machine) Interval() time.Duration { return m.beat.interval }

// Metadata is what a commit needs; ok is false while there is no epoch.
func (m *Machine) Metadata() (g kafka.GroupMetadata, ok bool) {
	if m.id.epoch <= 0 {
		return kafka.GroupMetadata{Group: m.cfg.Group, Kind: kafka.StreamsGroup, Generation: kafka.NoGeneration}, false
	}
	return kafka.GroupMetadata{
		Group: m.cfg.Group, Kind: kafka.StreamsGroup, MemberID: m.id.member, InstanceID: m.cfg.InstanceID, Generation: m.id.epoch,
	}, true
}

// MemberID is the id that the member goes by.
func (m *Machine) MemberID() string { return m.id.member }

// Counters are the counts so far.
func (m *Machine) Counters() Counters { return m.counts }

// Next is the next thing to do. It is called until it says false.
func (m *Machine) Next(now time.Time) (Action, bool) {
	if len(m.queued) == 0 {
		m.expire(now)
	}
	if len(m.queued) > 0 {
		a := m.queued[0]
		m.queued = m.queued[1:]
		return a, true
	}
	if m.over() {
		return nil, false
	}
	s := sender{&m.member}
	if a := s.nextPush(); a != nil {
		return a, true
	}
	if a := s.nextDescribe(now); a != nil {
		return a, true
	}
	return s.nextBeat(now)
}

// over reports whether the machine has ended: nothing comes out of it any more.
func (m *member) over() bool {
	return m.state == Left || m.state == Failed && m.exit.deadline.IsZero() && m.exit.waits.IsZero()
}

func (m *member) queue(a Action) { m.queued = append(m.queued, a) }

// Deadline is when Next may have something to do although nothing happens
// before; zero is never.
func (m *Machine) Deadline() time.Time {
	var first time.Time
	at := func(t time.Time) {
		if !t.IsZero() && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	if m.over() {
		return first
	}
	if _, ok := m.wanted(); ok && m.beat.out == nil && m.beat.looking == 0 {
		at(m.beatAt())
	}
	if m.describe.wanted && m.state.InGroup() {
		at(m.describe.due)
	}
	if m.state == Leaving || m.state == Failed {
		at(m.exit.deadline)
		at(m.exit.waits)
	}
	at(m.watch.pollEnd(m.state, &m.cfg))
	at(m.watch.patienceEnd(m.state, &m.cfg))
	return first
}

// expire carries out what is due by time alone.
func (m *Machine) expire(now time.Time) {
	past := func(t time.Time) bool { return !t.IsZero() && !now.Before(t) }
	switch {
	case m.over():
	case m.state == Failed && past(m.exit.waits):
		m.leaveFailed(now)
	case (m.state == Leaving || m.state == Failed) && past(m.exit.deadline):
		m.left(now, errLeaveTimeout)
	case past(m.watch.patienceEnd(m.state, &m.cfg)):
		text, _ := detail(m.snap.Statuses, MissingSourceTopics)
		m.fatal(now, &MissingSourceTopicsError{Detail: text, After: now.Sub(m.watch.missing)}, mayLeave)
	case past(m.watch.pollEnd(m.state, &m.cfg)):
		m.leaveByItself(now)
	}
}

// pollEnd is when the owner counts as dead.
func (w *watch) pollEnd(s State, cfg *Config) time.Time {
	if cfg.PollInterval <= 0 || !s.InGroup() {
		return time.Time{}
	}
	return w.touched.Add(cfg.PollInterval)
}

// patienceEnd is when missing source topics end the member.
func (w *watch) patienceEnd(s State, cfg *Config) time.Time {
	if cfg.MissingSources < 0 || !s.InGroup() || w.missing.IsZero() {
		return time.Time{}
	}
	return w.missing.Add(cfg.MissingSources)
}
