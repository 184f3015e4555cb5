package consumer

import (
	"time"

	"github.com/ottla/ottla/internal/core/group"
	"github.com/ottla/ottla/kafka"
)

// lockBook is called, before the consumer's mutex is taken, by who hands batches out
// or moves positions, so that the book has no work of before a seek.
func lockBook(m *member) (unlock func()) {
	if m == nil {
		return func() {}
	}
	m.mu.Lock()
	return m.mu.Unlock
}

// handedLocked notes that a batch reaches the user of a group.
func (m *member) handedLocked(b *Batch) {
	if m == nil {
		return
	}
	m.busy.Store(time.Now().UnixNano())
	if m.running || m.cfg.Commits == CommitMarked {
		b.work = workOf(*b)
		m.book.HandOut(b.work)
	}
}

// workOf is a batch as the book knows it.
func workOf(b Batch) *group.Work {
	w := &group.Work{TopicPartition: b.TopicPartition(), First: b.First(), Next: b.Next(), Epoch: b.LeaderEpoch(), Since: time.Now()}
	if b.from <= b.batch.BaseOffset() {
		w.Count = b.Count()
	}
	return w
}

// stallAtLocked is when to look again how old the work is that is out.
func (m *member) stallAtLocked() time.Time {
	limit := m.cfg.ProcessingTimeout
	since, _ := m.oldestLocked()
	switch {
	case len(m.holdings) == 0:
		return time.Time{}
	case since.IsZero():
		return m.clock.seen.Add(limit / 4)
	case m.clock.told:
		return since.Add(limit)
	}
	return since.Add(limit / 2)
}

// oldestLocked is since when the oldest work is out, zero if there is none.
func (m *member) oldestLocked() (since time.Time, tp kafka.TopicPartition) {
	if m.running {
		if w := m.book.Oldest(); w != nil {
			return w.Since, w.TopicPartition
		}
		return since, tp
	}
	if at := m.busy.Load(); at != 0 {
		since = time.Unix(0, at)
		if m.clock.stepped.After(since) {
			since = m.clock.stepped
		}
	}
	return since, tp
}

// watchWork looks how old the work is that is out (G4).
func (m *member) watchWork(now time.Time) {
	m.mu.Lock()
	if n := m.steps.Load(); n != m.clock.steps {
		m.clock.steps, m.clock.stepped = n, now
	}
	m.clock.seen = now
	limit := m.cfg.ProcessingTimeout
	since, tp := m.oldestLocked()
	age := now.Sub(since)
	stalled := false
	switch {
	case since.IsZero() || age < limit/2 || len(m.holdings) == 0:
		m.clock.told = false
	case age >= limit:
		m.clock.told = false
		m.machine.Suspend(stallError(limit))
	case !m.clock.told:
		m.clock.told, stalled = true, true
		m.counts.stalls++
	}
	m.mu.Unlock()
	if stalled {
		m.c.cfg.Logger.Warn("work is unfinished for long", "group", m.cfg.ID, "topic", tp.Topic, "partition", tp.Partition, "age", age)
		m.tell(GroupEvent{Kind: GroupStalled, TopicPartition: tp, Age: age})
	}
}
