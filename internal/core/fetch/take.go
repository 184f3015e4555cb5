package fetch

import (
	"errors"
	"slices"
	"time"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// Loan is a batch that was taken to be decoded. Of one partition at most one is
// out at a time.
type Loan struct {
	kafka.TopicPartition
	Batch record.Batch
	From  kafka.Offset // records below are not to be handed out
	p     *part
	cut   uint64
	next  kafka.Offset
	epoch kafka.LeaderEpoch
	frame *frame
}

// Ready reports whether Take may have a batch, or News something for the user.
func (m *Machine) Ready() bool { return len(m.shelf.ring) > 0 || !m.news.empty() }

// Take is the next batch to hand out: partitions take turns (F43). Deliver or
// Unreadable gives it back.
func (m *Machine) Take(now time.Time) (Loan, bool) {
	for len(m.shelf.ring) > 0 {
		p := m.shelf.ring[0]
		m.shelf.ring = m.shelf.ring[1:]
		p.inRing = false
		p.settle()
		if !p.ready() {
			continue
		}
		c := p.queue[0]
		if c.err != nil {
			m.decide(now, p, c)
			continue
		}
		p.pop()
		p.lent = true
		return Loan{
			TopicPartition: p.tp, Batch: c.batch, From: c.from,
			p: p, cut: p.cut, next: c.next, epoch: c.epoch, frame: c.frame,
		}, true
	}
	return Loan{}, false
}

// Deliver hands a decoded batch out: the position moves behind it. It is false
// if a seek or a revoke came between; then the batch must be dropped. Until
// Release or GiveBack the batch may not have reached the user.
func (m *Machine) Deliver(l Loan) bool {
	p := l.p
	m.shelf.release(l.frame)
	if p.cut != l.cut {
		return false
	}
	p.lent = false
	p.held++
	if at := p.behind(l.From); at > 0 { // another came back meanwhile: the position is there
		p.queue = slices.Insert(p.queue, at, chunk{from: l.From, next: l.next, epoch: l.epoch})
	} else {
		p.position, p.last = l.next, l.epoch
	}
	p.settle()
	m.shelf.enlist(p)
	return true
}

// Release tells that a delivered batch has reached the user, and reports whether
// the partition waited for that. It does nothing after a seek or a revoke.
func (l Loan) Release() (waited bool) {
	p := l.p
	if p.cut != l.cut {
		return false
	}
	p.held--
	return p.wantsList()
}

// behind is the place in the queue of what begins at offset o.
func (p *part) behind(o kafka.Offset) int {
	i := slices.IndexFunc(p.queue, func(c chunk) bool { return c.from >= o })
	if i < 0 {
		return len(p.queue)
	}
	return i
}

// Current reports whether a batch that was delivered may still be given to the
// user (F47).
func (l Loan) Current() bool { return l.p.cut == l.cut }

// GiveBack takes a delivered batch back, in place of Release, of which only the
// records below offset from were used; it is handed out again from there.
func (m *Machine) GiveBack(l Loan, from kafka.Offset) {
	p := l.p
	if p.cut != l.cut {
		return
	}
	p.held--
	if from >= l.next {
		return
	}
	if p.state == stateFailed { // only the position can tell of it
		p.position = min(p.position, from)
		return
	}
	f := &frame{bytes: int64(l.Batch.Size()), refs: 1}
	m.shelf.used += f.bytes
	p.buffered += f.bytes
	c := chunk{batch: l.Batch, from: from, next: l.next, epoch: l.epoch, frame: f}
	if p.position > l.next { // what follows without data was passed already
		p.queue = append([]chunk{{from: l.next, next: p.position, epoch: p.last}}, p.queue...)
	}
	p.queue = append([]chunk{c}, p.queue...)
	p.position = from
	m.shelf.enlist(p)
}

// Unreadable reports that a taken batch cannot be decoded. A wrong checksum is
// fetched once more; anything else stops the partition.
func (m *Machine) Unreadable(now time.Time, l Loan, err error) {
	m.shelf.release(l.frame)
	if l.p.cut != l.cut {
		return
	}
	p := l.p
	p.lent = false
	c := chunk{from: l.From, next: l.next, err: err}
	if at := p.behind(l.From); at > 0 { // another came back meanwhile: it goes first
		p.queue = slices.Insert(p.queue, at, c)
		m.shelf.enlist(p)
		return
	}
	m.decide(now, p, c)
}

// decide is for what stops a partition, when all before it was handed out.
func (m *Machine) decide(now time.Time, p *part, c chunk) {
	if c.op != "" {
		m.fail(p, c.op, c.err)
		return
	}
	if errors.Is(c.err, record.ErrChecksum) && p.corrupt != c.from { // damaged on the way, perhaps: once more (F21)
		p.corrupt = c.from
		p.invalidate()
		m.shelf.drop(p)
		p.next = c.from
		m.backOff(now, p)
		return
	}
	m.fail(p, "fetch", &kafka.UnreadableError{TopicPartition: p.tp, Offset: c.from, Next: c.next, Err: c.err})
}
