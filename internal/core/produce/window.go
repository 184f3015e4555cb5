package produce

import (
	"slices"
	"time"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// room reports whether one more batch may be outstanding. With sequences it is
// the only one until the leader has shown that it knows the producer, and while
// something that failed waits: a broker that does not know the producer takes
// any sequence, and a gap would stay. Nothing goes to a leader while something
// is outstanding at another.
func (p *partition) room() bool {
	switch {
	case p.flying == 0:
		return true
	case p.m.cfg.Plain:
		return p.flying < p.m.cfg.Window && p.at.id == p.leader
	default:
		return p.flying < p.m.cfg.Window && p.proven
	}
}

// sendable is the batch to send at this time, or nil: the first that the broker
// does not have. All before it are within what a broker remembers.
func (p *partition) sendable(now time.Time) *batch {
	if p.leader == kafka.NoNode || now.Before(p.retryAt) || !p.room() {
		return nil
	}
	for i, b := range p.queue {
		switch {
		case b.away():
			continue
		case b.state != ready, !b.stamped && (i >= p.m.cfg.Window || i == 0 && !p.mayBegin()):
			return nil
		}
		return b
	}
	return nil
}

// mayBegin reports whether a new batch may get sequences with none before it
// that has some. A partition follows a new identity when nothing of it is
// outstanding or unsettled under the old one.
func (p *partition) mayBegin() bool {
	return p.m.identified() && (p.m.cfg.Plain || !p.burnt || !p.current())
}

// current reports whether new batches get the identity that p has.
func (p *partition) current() bool {
	id := &p.m.ident
	return id.state == identKnown && p.ident.ProducerID == id.id && p.ident.ProducerEpoch == id.epoch
}

// next is the stamp of a new batch with none before it that has sequences.
func (p *partition) next() record.Stamp {
	switch {
	case p.m.cfg.Plain:
		return record.NoProducer
	case p.begun && !p.burnt && p.current():
		return p.ident
	}
	return p.m.ident.stamp()
}

// follow is the stamp of a new batch behind b.
func (p *partition) follow(b *batch) record.Stamp {
	switch {
	case p.m.cfg.Plain:
		return record.NoProducer
	case b.stamped && p.burnt:
		return p.m.ident.stamp()
	}
	return b.after()
}

// expect is the stamp that the batch at position i of the queue will get if
// nothing fails.
func (p *partition) expect(i int) record.Stamp {
	if i == 0 {
		return p.next()
	}
	return p.follow(p.queue[i-1])
}

// number gives b its sequences; its bytes change no more.
func (b *batch) number() {
	p := b.part
	i := slices.Index(p.queue, b)
	expected := b.stamp
	b.stamp, b.stamped = p.expect(i), true
	if p.m.cfg.Plain {
		return
	}
	if !p.begun || !sameProducer(p.ident, b.stamp) {
		p.ident, p.begun, p.burnt, p.proven = b.stamp, true, false, false
	}
	if b.stamp != expected {
		p.foresee(i + 1)
	}
}

func sameProducer(a, b record.Stamp) bool {
	return a.ProducerID == b.ProducerID && a.ProducerEpoch == b.ProducerEpoch
}

// foresee tells the batches without sequences, from position i on, which they
// will get if nothing fails.
func (p *partition) foresee(i int) {
	for ; i < len(p.queue); i++ {
		if b := p.queue[i]; !b.stamped {
			b.stamp = p.expect(i)
		}
	}
}

// renumber takes back the sequences that batches cannot use any more, because
// one before them has lost its own. A batch that may be appended keeps them and
// is given up: the broker takes it no more.
func (p *partition) renumber() {
	if !p.torn || p.flying > 0 {
		return
	}
	want, broken := p.ident, false
	for _, b := range slices.Clone(p.queue) {
		switch settled := b.state == acked || b.state == gone; {
		case settled && broken: // the broker has gone on past a range that is free
			p.leave()
			if !b.told {
				p.m.finish(b, b.result)
			}
			b.drop()
		case settled || b.stamped && b.stamp == want && !broken:
			want = b.after()
		case b.stamped && b.maybe:
			broken = true
			b.giveUp(b.cause)
			b.drop()
		default:
			b.stamped, broken = false, true
		}
	}
	p.torn = false
	p.foresee(0)
}

// retire takes what is settled out of the queue: successes are told in order,
// each when everything before it is settled.
func (p *partition) retire() {
	for len(p.queue) > 0 {
		b := p.queue[0]
		if b.state != acked && b.state != gone {
			break
		}
		if b.state == acked {
			p.count(b)
		}
		if !b.told {
			p.m.finish(b, b.result)
		}
		if sameProducer(p.ident, b.stamp) {
			p.ident = b.after()
		}
		p.queue[0] = nil
		p.queue = p.queue[1:]
	}
	for _, b := range p.queue { // behind one whose caller was told, and whose answer is not here
		if b.state == acked && !b.told {
			p.m.finish(b, b.result)
		}
		if !b.told {
			break
		}
	}
	p.calm()
}

// calm forgets failures when nothing is left: who comes next has not failed.
func (p *partition) calm() {
	if len(p.queue) == 0 {
		p.tries, p.retryAt = 0, time.Time{}
	}
}

// count takes note of where a batch is in the log. Offsets grow from batch to
// batch; one that does not is how a sequence that was used twice looks.
func (p *partition) count(b *batch) {
	at := b.result.Offset
	if at < 0 || b.doomed != nil {
		return
	}
	if at <= p.base {
		p.m.emit(Report{p.tp, &DuplicateError{TopicPartition: p.tp, Offset: at, Acknowledged: p.base}})
	}
	p.base = max(p.base, at)
	p.acked = max(p.acked, at+kafka.Offset(b.Count)-1)
}
