package fetch

import (
	"errors"
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

	// Payload is what Decode makes of the batch, if that was done ahead. Whoever
	// does it later may set it before Return.
	Payload []byte
	Room    int // bytes that Payload will have, by the last one of the partition; 0 = not known

	p     *part
	cut   uint64
	next  kafka.Offset
	epoch kafka.LeaderEpoch
	frame *frame
	ahead *decoding
}

// Ready reports whether Take may have a batch, or News something for the user.
func (m *Machine) Ready() bool {
	return len(m.shelf.ring) > 0 && !m.Shut && !m.shelf.busy() || !m.news.empty()
}

// Take is the next batch to hand out: partitions take turns (F43). Deliver,
// Return or Unreadable ends the loan. It is false, too, while the batch whose
// turn it is is being decoded ahead.
func (m *Machine) Take(now time.Time) (Loan, bool) {
	for len(m.shelf.ring) > 0 && !m.Shut {
		p := m.shelf.ring[0]
		p.settle()
		if m.shelf.busy() {
			break
		}
		m.shelf.ring = m.shelf.ring[1:]
		if m.shelf.rest(p, m.cfg.TurnRecords) {
			continue
		}
		p.inRing = false
		if !p.ready() {
			continue
		}
		c := p.queue[0]
		if c.err != nil {
			m.decide(now, p, c)
			continue
		}
		p.pop()
		p.lent, p.loan = true, c.epoch
		c.frame.lend()
		p.given += c.batch.Count()
		l := Loan{
			TopicPartition: p.tp, Batch: c.batch, From: c.from,
			p: p, cut: p.cut, next: c.next, epoch: c.epoch, frame: c.frame, ahead: c.ahead,
			Room: p.room(c.batch),
		}
		if c.ahead != nil {
			l.Payload = c.ahead.payload
		}
		return l, true
	}
	return Loan{}, false
}

// Deliver hands a decoded batch out: the position moves behind it, and the
// next one may be taken. It is false if a seek or a revoke came between; then
// the batch must be dropped. Until Release the batch may not have reached the
// user.
func (m *Machine) Deliver(l Loan) bool {
	p := l.p
	m.shelf.give(l)
	if p.cut != l.cut {
		return false
	}
	p.held++
	p.became(l.Batch, l.Payload)
	p.lastTime = l.Batch.MaxTimestamp()
	m.owe(p, Progress{p.position, p.last})
	m.shelf.passTo(p, Progress{l.next, l.epoch})
	return true
}

// give ends the hold of a loan on the budget.
func (s *shelf) give(l Loan) {
	s.release(l.frame)
	s.discard(l.ahead)
}

// passTo ends a loan: the position moves on.
func (s *shelf) passTo(p *part, at Progress) {
	p.lent = false
	p.position, p.last = at.Offset, at.Epoch
	p.settle()
	s.enlist(p)
}

// progress is having come to offset o in the batch.
func (l Loan) progress(o kafka.Offset) Progress {
	if o > l.From {
		return Progress{o, l.epoch}
	}
	return Progress{l.From, l.p.last}
}

// Release tells that a delivered batch has reached the user, and reports whether
// the partition waited for that. It does nothing after a seek or a revoke.
func (l Loan) Release() (waited bool) {
	p := l.p
	if p.cut != l.cut {
		return false
	}
	p.held--
	return p.wantsList() || p.wantsVet()
}

// Current reports whether a batch that was taken may be given to the user, and
// go on being given record by record (F47).
func (l Loan) Current() bool { return l.p.cut == l.cut }

// Stopped reports whether nothing more of the partition is to be handed out for
// now, as it was paused or is withheld since the batch was taken.
func (l Loan) Stopped() bool { return l.p.paused || l.p.withheld }

// Return ends a loan whose records went to the user one by one, in place of
// Deliver and Release: those below offset from did, and those below done are
// finished. The rest is handed out again, from offset from on. Nothing else of
// the partition is handed out before Return, so that offsets rise whoever takes
// the rest (F47).
func (m *Machine) Return(l Loan, from, done kafka.Offset) {
	p := l.p
	if p.cut != l.cut {
		m.shelf.give(l)
		return
	}
	if done < from {
		m.owe(p, l.progress(done))
	}
	at := l.progress(from)
	if from > l.From {
		p.lastTime = l.Batch.MaxTimestamp()
	}
	if from >= l.next || p.state == stateFailed { // of the rest only the position can tell
		m.shelf.give(l)
		m.shelf.passTo(p, at)
		return
	}
	p.lent, p.position, p.last = false, at.Offset, at.Epoch
	p.buffered += int64(l.Batch.Size())
	m.shelf.discard(l.ahead)
	c := chunk{batch: l.Batch, from: from, next: l.next, epoch: l.epoch, frame: l.frame}
	if l.Payload != nil {
		m.shelf.keep(&c, l.Payload)
	}
	p.queue = append([]chunk{c}, p.queue...)
	m.shelf.enlist(p)
}

// Unreadable reports that a taken batch cannot be decoded. A wrong checksum is
// fetched once more; anything else stops the partition.
func (m *Machine) Unreadable(now time.Time, l Loan, err error) {
	m.shelf.give(l)
	if l.p.cut != l.cut {
		return
	}
	l.p.lent = false
	m.decide(now, l.p, chunk{from: l.From, next: l.next, err: err})
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
		p.next, p.tail = c.from, p.last
		m.backOff(now, p)
		return
	}
	m.fail(p, "fetch", &kafka.UnreadableError{TopicPartition: p.tp, Offset: c.from, Next: c.next, Err: c.err})
}
