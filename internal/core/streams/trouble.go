package streams

import (
	"errors"
	"slices"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
)

// Codes that mean something of their own to a member.
const (
	codeUnknown        = -1
	codeTopicDenied    = 29
	codeGroupNotFound  = 69
	codeGroupFull      = 81
	codeInstanceFenced = 82
	codeFenced         = 110
	codeInstanceInUse  = 111
	codeStale          = 113
)

// maxUnknown is how many answers with -1 in a row a member bears.
const maxUnknown = 5

// reportEvery is the time between reports of a right that is missing.
const reportEvery = 30 * time.Second

// trouble is a heartbeat that failed.
type trouble struct {
	kind   beatKind
	code   int16 // 0 = no answer
	err    error
	unsent bool
	lookup bool   // of the look-up before it
	call   uint64 // the Heartbeat that it served; 0 = none
}

// mender reacts to failures of a member's heartbeats.
type mender struct{ *member }

// onTrouble reacts to a failure, by the table of retry and what the moment asks
// for.
func (m mender) onTrouble(now time.Time, t trouble) {
	m.counts.Failures++
	m.beat.failures++
	if t.code != codeUnknown {
		m.beat.unknown = 0
	}
	m.book.forget()
	m.offsets.forget()
	m.describe.onFailure()
	if d := retry.ForStreams(t.code); d == retry.FindCoordinator || d == retry.OK { // refused, or not reached
		m.beat.forget = true
	}
	var unsupported *UnsupportedError
	switch {
	case errors.As(t.err, &unsupported):
		m.unsupported(now, t.err)
	case t.kind == leaveBeat:
		m.onLeaveTrouble(now, t)
	case t.kind == releaseBeat && nothingHeld(t.code):
		m.onReleased(now)
	case t.kind == joinBeat || t.kind == releaseBeat:
		m.onJoinTrouble(now, t)
	default:
		m.onSteadyTrouble(now, t)
	}
}

func (m mender) unsupported(now time.Time, err error) {
	if m.state == Leaving || m.state == Failed {
		m.left(now, err)
		return
	}
	m.fatal(now, err, mustNotLeave)
}

// nothingHeld are the answers to a leave that say that the broker holds nothing
// of this member any more.
func nothingHeld(code int16) bool {
	return retry.ForStreams(code) == retry.Rejoin || code == codeInstanceFenced
}

// onSteadyTrouble is a failure of a member of the group.
func (m mender) onSteadyTrouble(now time.Time, t trouble) {
	switch {
	case retry.ForStreams(t.code) == retry.Rejoin, t.code == codeInstanceInUse:
		m.release(t.code)
		m.lose(now, t.err, Fenced)
	case retry.ForStreams(t.code) == retry.Fatal:
		m.onOddCode(now, t)
	default:
		m.again(now, t)
	}
}

// onOddCode is a code that is fatal unless the moment forgives it.
func (m mender) onOddCode(now time.Time, t trouble) {
	switch {
	case t.code == codeUnknown && m.unknownAgain():
		m.again(now, t)
	case t.code == codeTopicDenied && m.join.joined:
		m.logEvery(now, "topics", "the group's topics may not be described; the member goes on", "err", t.err)
		m.beat.earliest = now.Add(m.interval())
		m.beat.urgent = true
		m.failCall(t)
	default:
		m.fatal(now, t.err, leaveAfter(t.code))
	}
}

func (m mender) unknownAgain() bool {
	m.beat.unknown++
	return m.beat.unknown < maxUnknown || !m.join.joined
}

// onJoinTrouble is a failure of a join, or of the release before it.
func (m mender) onJoinTrouble(now time.Time, t trouble) {
	if t.code == 0 && !t.unsent && t.kind == joinBeat {
		m.join.unanswered = true
		m.join.release = m.join.release || m.cfg.InstanceID != ""
	}
	switch {
	case t.code == codeGroupNotFound:
		e := &GroupTypeError{Group: m.cfg.Group}
		var be *BrokerError
		if errors.As(t.err, &be) {
			e.Message = be.Message
		}
		m.fatal(now, e, mustNotLeave)
	case t.code == codeInstanceInUse:
		m.onInstanceInUse(now, t)
	case t.code == codeGroupFull && m.join.joined:
		m.within(now, &m.join.full, t)
	case retry.ForStreams(t.code) == retry.Fatal:
		m.onOddCode(now, t)
	default:
		m.release(t.code)
		m.again(now, t)
	}
}

// release has a static member free its instance id before it joins again, where
// the coordinator may still hold it for the epoch that is gone.
func (m mender) release(code int16) {
	if m.cfg.InstanceID != "" && (code == codeFenced || code == codeStale || code == codeInstanceInUse) {
		m.join.release = true
	}
}

// onInstanceInUse is a join whose instance id is held: perhaps by this very
// member, so it is released once, and then by another, which is waited for.
func (m mender) onInstanceInUse(now time.Time, t trouble) {
	m.join.release = !m.join.released
	m.within(now, &m.join.inUse, t)
}

// within repeats a join for a session's time since the code came first.
func (m mender) within(now time.Time, since *time.Time, t trouble) {
	if since.IsZero() {
		*since = now
	}
	if now.Sub(*since) >= m.cfg.SessionTimeout {
		m.fatal(now, t.err, mustNotLeave)
		return
	}
	m.backoff(now, t)
}

// onReleased is the end of a release: the join follows at once.
func (m mender) onReleased(time.Time) {
	m.join.release, m.join.unanswered = false, false
	m.join.released = !m.join.inUse.IsZero()
	m.beat.urgent = true
}

// again repeats a heartbeat after a backoff, unless it is the first join and its
// budget is spent.
func (m mender) again(now time.Time, t trouble) {
	if !m.join.joined {
		if m.join.tries++; m.join.tries > m.cfg.MaxRetries {
			m.fatal(now, m.spent(t.err, m.join.tries), mayLeave)
			return
		}
	}
	m.failCall(t)
	m.backoff(now, t)
}

// spent is the error of a call that was tried so often.
func (m mender) spent(err error, tries int) error {
	var be *BrokerError
	if errors.As(err, &be) {
		e := *be
		e.Tries = tries
		return &e
	}
	return &FailedError{Group: m.cfg.Group, Tries: tries, Err: err}
}

// backoff puts the next heartbeat off.
func (m *member) backoff(now time.Time, t trouble) {
	d := m.cfg.Backoff.Delay(m.beat.failures, m.rng)
	if at := now.Add(d); at.After(m.beat.earliest) {
		m.beat.earliest = at
	}
	m.beat.urgent = true
	m.counts.Retries++
	m.queue(&RetryAction{What: t.kind.String(), Attempt: m.beat.failures, After: d, Err: t.err})
}

// OnHeartbeat asks for a heartbeat at once, for the [DoneAction] with this id.
// While no heartbeats go out it is done at once, with the reason.
func (m *Machine) OnHeartbeat(id uint64) {
	if _, ok := m.wanted(); !ok || m.state == Leaving || m.state == Failed {
		m.queue(&DoneAction{Call: id, Err: m.reason()})
		return
	}
	m.calls = append(m.calls, &call{id: id})
}

// reason is why no heartbeats go out.
func (m *member) reason() error {
	if m.err != nil {
		return m.err
	}
	return ErrLeft
}

// ErrLeft ends calls that a leave overtook.
var ErrLeft = errors.New("ottla: streams: the member left the group")

// failCall counts a failure against the Heartbeat that waits.
func (m *member) failCall(t trouble) {
	if len(m.calls) == 0 || t.call == 0 && !t.lookup {
		return
	}
	c := m.calls[0]
	c.started = false
	if c.retries++; c.retries > m.cfg.MaxRetries || retry.ForStreams(t.code) == retry.Fatal && t.code != codeUnknown {
		m.finishCall(c.id, mender{m}.spent(t.err, c.retries))
	}
}

// finishCall ends the Heartbeat with this id, if it still waits.
func (m *member) finishCall(id uint64, err error) {
	if id == 0 || len(m.calls) == 0 || m.calls[0].id != id {
		return
	}
	m.calls = m.calls[1:]
	m.queue(&DoneAction{Call: id, Err: err})
}

// endCalls ends every Heartbeat.
func (m *member) endCalls(err error) {
	for _, c := range m.calls {
		m.queue(&DoneAction{Call: c.id, Err: err})
	}
	m.calls = nil
}

// OnCallAbandoned is a caller of Heartbeat that gave up.
func (m *Machine) OnCallAbandoned(id uint64) {
	m.calls = slices.DeleteFunc(m.calls, func(c *call) bool { return c.id == id })
}

// OnClosed is a client that was closed below the member.
func (m *Machine) OnClosed(now time.Time, err error) {
	if !m.over() {
		m.exit = exit{}
		m.fatal(now, err, mustNotLeave)
	}
}

// OnShutdown has every member of the group told to stop, with the next heartbeat,
// which goes out at once, and all later ones.
func (m *Machine) OnShutdown() {
	if m.id.shutdown {
		return
	}
	m.id.shutdown, m.beat.urgent = true, true
	m.log(LevelInfo, "the whole application is asked to stop")
}

// OnTouch says that the owner was alive at an instant, perhaps before the join.
func (m *Machine) OnTouch(at time.Time) {
	if at.After(m.watch.touched) {
		m.watch.touched = at
	}
	if m.state == Stale && m.watch.lost {
		m.rejoin()
	}
}
