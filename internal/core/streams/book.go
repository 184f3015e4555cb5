package streams

import (
	"math"
	"time"
)

// book is what the member should hold and what it does hold.
type book struct {
	wanted  map[TaskID]Role // the target
	since   uint64          // version of the snapshot that brought it
	pending bool            // the owner has not taken the target over yet
	owned   Tasks           // as the owner acknowledged last
	seen    map[TaskID]bool // tasks of any target of this incarnation
	acked   uint64          // highest snapshot that was acknowledged
	offered map[TaskID]offer

	gen, sent uint64 // of the owned set, and of what the broker has of it
	due       bool   // an acknowledgement has not been handed out
}

// offer is a task that the owner may be taking over, from a snapshot that it has
// not acknowledged.
type offer struct {
	role Role
	upTo uint64 // the last snapshot that has the task
}

// reset begins an incarnation: nothing is held, and the broker has been told.
func (b *book) reset() {
	*b = book{seen: map[TaskID]bool{}, offered: map[TaskID]offer{}, acked: b.acked}
}

func (b *book) onTarget(t Tasks, version uint64) {
	b.wanted, b.since, b.pending = t.index(), version, true
	for id, o := range b.offered {
		if _, again := b.wanted[id]; !again && o.upTo == math.MaxUint64 {
			b.offered[id] = offer{o.role, version - 1}
		}
	}
	for id, role := range b.wanted {
		b.seen[id] = true
		o, had := b.offered[id]
		if !had {
			o.role = role
		}
		o.upTo = math.MaxUint64
		b.offered[id] = o
	}
}

// settle is the acknowledgement of a snapshot: the owner takes over nothing any
// more that only this one and earlier ones had. If it finished the newest target
// that is all.
func (b *book) settle(version uint64, finished bool) {
	for id, o := range b.offered {
		if o.upTo <= version || finished {
			delete(b.offered, id)
		}
	}
}

// lists are the lists of the next heartbeat; ok is false if the broker has them.
//
// Tasks that the owner has not taken over go along: as soon as a list lacks a task
// that the broker wants back it has another owner, and the lists that say so may
// be on their way, or lost, while this owner begins with it.
func (b *book) lists() (t Tasks, ok bool) {
	if b.gen == b.sent {
		return Tasks{}, false
	}
	var offered Tasks
	for id, o := range b.offered {
		l := offered.role(o.role)
		*l = append(*l, id)
	}
	return b.owned.union(offered), true
}

// onSent takes over what a heartbeat that succeeded carried.
func (b *book) onSent(s *sent) {
	if s.lists {
		b.sent = s.gen
	}
}

// forget is a failure: the broker may have nothing of what was sent.
func (b *book) forget() { b.gen++ }

// known refuses a task that no target of this incarnation had, and one that the
// broker may have given to another member since.
func (b *book) known(owned Tasks) error {
	held := b.owned.index()
	for _, l := range owned.lists() {
		for _, id := range l {
			if !b.seen[id] {
				return &TaskError{id.Subtopology, id.Partition, "was not assigned to this member since its last join"}
			}
			_, wanted := b.wanted[id]
			_, holds := held[id]
			if _, offered := b.offered[id]; !wanted && !holds && !offered {
				return ErrStaleAssignment
			}
		}
	}
	return nil
}

// finished reports whether a set holds nothing outside the target.
func (b *book) finished(owned Tasks) bool {
	for id, role := range owned.index() {
		if to, wanted := b.wanted[id]; !wanted || to != role {
			return false
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
	if err := b.known(owned); err != nil {
		return err
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
	b.settle(s.Version, done)
	switch {
	case !done:
		b.pending, m.state = true, Reconciling
	case b.pending || changed:
		b.pending, b.due, m.state = false, true, Acknowledging
		b.gen++
	}
	return nil
}
