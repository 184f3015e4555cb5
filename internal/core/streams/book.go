package streams

import (
	"slices"
	"time"
)

// book is what the member should hold and what it does hold.
type book struct {
	target  Tasks
	since   uint64          // version of the snapshot that brought the target
	pending bool            // the owner has not taken the target over yet
	owned   Tasks           // as the owner acknowledged last
	seen    map[TaskID]bool // tasks of any target of this incarnation
	acked   uint64          // highest snapshot that was acknowledged

	gen, sent uint64 // of the owned set, and of what the broker has of it
	full      bool   // a heartbeat failed: the next one carries everything
	due       bool   // an acknowledgement has not been handed out
}

// reset begins an incarnation: nothing is held, and the broker has been told.
func (b *book) reset() {
	*b = book{seen: map[TaskID]bool{}, acked: b.acked}
}

func (b *book) onTarget(t Tasks, version uint64) {
	b.target, b.since, b.pending = t, version, true
	for _, l := range t.lists() {
		for _, id := range l {
			b.seen[id] = true
		}
	}
}

// lists are the lists of the next heartbeat; ok is false if the broker has them.
//
// After a failure tasks of the target that the owner has not taken over go
// along: the lost answer may have asked for one of them, and a list without it
// would give it away before the owner knows.
func (b *book) lists() (t Tasks, ok bool) {
	switch {
	case b.gen == b.sent:
		return Tasks{}, false
	case b.full && b.pending:
		return b.owned.union(b.target), true
	}
	return b.owned, true
}

// onSent takes over what a heartbeat that succeeded carried.
func (b *book) onSent(s *sent) {
	if s.lists {
		b.sent, b.full = s.gen, false
	}
}

// forget is a failure: the broker may have nothing of what was sent.
func (b *book) forget() {
	b.gen++
	b.full = true
}

// finished reports whether a set holds nothing outside the target.
func (b *book) finished(owned Tasks) bool {
	for r, l := range owned.lists() {
		for _, id := range l {
			if !slices.Contains(b.target.lists()[r], id) {
				return false
			}
		}
	}
	return true
}

// OnAcknowledge says that the owner took the target of a snapshot over and holds
// owned now. It is refused with [ErrStaleAssignment] if a loss or a later
// acknowledgement overtook the snapshot, and with a [*TaskError] or
// [*ConflictError] for tasks that cannot be meant; then nothing changes.
func (m *Machine) OnAcknowledge(now time.Time, s Snapshot, owned Tasks) error {
	b := &m.book
	if s.Incarnation != m.snap.Incarnation || s.Version > m.snap.Version || s.Version < b.acked {
		return ErrStaleAssignment
	}
	if err := owned.check(); err != nil {
		return err
	}
	for _, l := range owned.lists() {
		for _, id := range l {
			if !b.seen[id] {
				return &TaskError{id.Subtopology, id.Partition, "was not assigned to this member since its last join"}
			}
		}
	}
	b.acked = s.Version
	if s.Lost {
		m.onLossAcknowledged(now)
		return nil
	}
	changed := !owned.Equal(b.owned)
	b.owned = owned.Clone()
	if changed {
		b.gen++
		m.offsets.moves++
	}
	if !m.state.InGroup() {
		return nil
	}
	done := s.Version >= b.since && b.finished(b.owned)
	switch {
	case !done:
		b.pending, m.state = true, Reconciling
	case b.pending || changed:
		b.pending, b.due, m.state = false, true, Acknowledging
		b.gen++
	}
	return nil
}
