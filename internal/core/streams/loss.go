package streams

import (
	"errors"
	"time"
)

// departure says whether a member that fails tells the coordinator.
type departure uint8

const (
	mustNotLeave departure = iota // it cannot, or is not there
	mayLeave
)

// leaveAfter is the departure after a code: none where the leave would be
// refused alike, or would remove another member.
func leaveAfter(code int16) departure {
	switch code {
	case 30, 31, 35, codeInstanceFenced:
		return mustNotLeave
	}
	return mayLeave
}

// Times of the end.
const (
	leaveTimeout  = 10 * time.Second // of a leave: longer than a coordinator's fail-over
	failedTimeout = 5 * time.Second  // of the leave of a member that failed, and of the wait before it
)

var errLeaveTimeout = errors.New("ottla: streams: no answer to the leave in time; the member stays in the group until its session ends")

// lose ends an incarnation: nothing may be committed any more, and the owner has
// to drop everything.
func (m *member) lose(now time.Time, reason error, next State) {
	had := len(m.book.seen) > 0
	m.forgetTasks(next)
	m.err = reason
	m.endCalls(reason)
	m.log(LevelWarn, "the member lost its tasks", "state", next.String(), "err", reason)
	if !had {
		m.onLossAcknowledged(now)
	}
}

// forgetTasks publishes a loss. What is in flight is given up: its answer is to
// a member that is no more.
func (m *member) forgetTasks(next State) {
	m.state, m.beat.out = next, nil
	m.id.epoch = 0
	m.book.reset()
	m.describe = describe{}
	m.watch.missing, m.watch.lost = time.Time{}, false
	s := m.snap
	s.Incarnation++
	s.Epoch, s.Target, s.Update, s.HasTarget = 0, Tasks{}, Update{}, false
	s.Ready, s.Lost, s.Shutdown, s.Statuses = false, true, false, nil
	m.publish(s)
}

// onLossAcknowledged is an owner that dropped everything.
func (m *member) onLossAcknowledged(now time.Time) {
	switch m.state {
	case Fenced:
		m.rejoin()
	case Stale:
		m.watch.lost = true
	case Failed:
		if !m.exit.waits.IsZero() {
			m.leaveFailed(now)
		}
	}
}

// rejoin begins a join with the same member id.
func (m *member) rejoin() {
	m.state, m.err = Joining, nil
	m.counts.Rejoins++
	m.beat.urgent, m.beat.failures = true, 0
}

// fatal ends the member with an error: the tasks are lost, and if the
// coordinator holds them a leave moves them at once, as soon as the owner has
// dropped them.
func (m *member) fatal(now time.Time, err error, d departure) {
	had := len(m.book.seen) > 0
	leave := d == mayLeave && (m.id.epoch > 0 || m.join.unanswered)
	mode := LeaveGroup
	if !m.join.joined {
		err = m.tried(err)
		mode = m.ghostMode()
	}
	m.err = err
	m.forgetTasks(Failed)
	m.endCalls(err)
	m.queue(&FailedAction{Err: err})
	switch {
	case !leave:
		m.queue(&EndAction{Err: err})
	default:
		m.exit = exit{then: Failed, mode: mode, waits: now.Add(failedTimeout)}
		if !had {
			m.leaveFailed(now)
		}
	}
}

// tried adds to the error of a first join how often it was sent.
func (m *member) tried(err error) error {
	var be *BrokerError
	if errors.As(err, &be) && be.Tries == 0 {
		e := *be
		e.Tries = m.join.tries + 1
		return &e
	}
	return err
}

// ghostMode is how a member leaves that may have joined without knowing: so that
// the next one with the instance id is let in.
func (m *member) ghostMode() LeaveMode {
	if m.cfg.InstanceID != "" && m.cfg.OnLeave != LeaveGroup {
		return LeaveTemporarily
	}
	return LeaveGroup
}

// leaveFailed sends the leave of a member that failed.
func (m *member) leaveFailed(now time.Time) {
	m.exit.waits = time.Time{}
	m.beginLeave(now, failedTimeout)
}

// beginLeave sends a leave at once: what is in flight is given up.
func (m *member) beginLeave(now time.Time, patience time.Duration) {
	m.exit.deadline = now.Add(patience)
	b := &m.beat
	b.out, b.urgent, b.earliest, b.failures, b.unknown = nil, true, time.Time{}, 0, 0
}

// OnAbandon is a caller of the first join that gave up, for a reason.
func (m *Machine) OnAbandon(now time.Time, cause error) {
	if m.join.joined || m.state == Failed {
		return
	}
	if s := m.beat.out; s != nil && s.kind == joinBeat {
		m.join.unanswered = true
	}
	m.fatal(now, cause, mayLeave)
}

// OnLeave ends the membership as Config.OnLeave says. The tasks have been
// committed and closed.
func (m *Machine) OnLeave(now time.Time) {
	switch m.state {
	case Left, Failed:
		return
	case Leaving:
		m.exit.then = Left
		return
	case Stale:
		m.end(Left, nil)
		return
	}
	m.endCalls(ErrLeft)
	mode := m.leaveMode()
	if mode == Remain {
		m.end(Left, nil)
		return
	}
	m.state, m.id.epoch = Leaving, 0
	m.exit = exit{then: Left, mode: mode}
	m.beginLeave(now, leaveTimeout)
}

// leaveMode is Config.OnLeave with its default.
func (m *member) leaveMode() LeaveMode {
	if m.cfg.OnLeave != LeaveAuto {
		return m.cfg.OnLeave
	}
	if m.cfg.InstanceID != "" {
		return LeaveTemporarily
	}
	return LeaveGroup
}

// leaveByItself leaves for an owner that does not call Touch any more.
func (m *member) leaveByItself(now time.Time) {
	m.endCalls(ErrNotTouched)
	mode := LeaveGroup
	if m.cfg.InstanceID != "" {
		mode = LeaveTemporarily
	}
	m.state = Leaving
	m.exit = exit{then: Stale, mode: mode}
	m.beginLeave(now, leaveTimeout)
}

// OnLeaveAbandoned is a caller of Leave that gave up, for a reason. It may have
// waited for the leave of a member that failed.
func (m *Machine) OnLeaveAbandoned(now time.Time, cause error) {
	if m.state == Leaving && m.exit.then == Left || m.state == Failed && !m.over() {
		m.left(now, cause)
	}
}

// onLeaveTrouble is a failure of a leave.
func (m mender) onLeaveTrouble(now time.Time, t trouble) {
	switch {
	case nothingHeld(t.code):
		m.left(now, nil)
	case m.leaveGoesOn(t.code):
		m.backoff(now, t)
	default:
		m.left(now, t.err)
	}
}

// leaveGoesOn reports whether a leave is sent again after a code.
func (m mender) leaveGoesOn(code int16) bool {
	if code == codeUnknown {
		m.beat.unknown++
		return m.beat.unknown <= m.cfg.MaxRetries
	}
	switch code {
	case 0, 14, 15, 16, 27:
		return true
	}
	return false
}

// left is the end of a leave, with an error if the coordinator did not confirm
// it.
func (m *member) left(now time.Time, err error) {
	m.beat.out = nil
	switch m.exit.then {
	case Stale:
		m.exit = exit{}
		m.lose(now, ErrNotTouched, Stale)
	case Failed:
		m.exit = exit{}
		m.queue(&EndAction{Err: m.err})
	default:
		m.end(Left, err)
	}
}

func (m *member) end(s State, err error) {
	m.state, m.err, m.beat.out = s, err, nil
	m.id.epoch = 0
	m.exit = exit{}
	m.endCalls(ErrLeft)
	m.queue(&EndAction{Err: err})
}
