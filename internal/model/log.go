package model

import (
	"encoding/binary"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// remembered is how many batches of a producer a partition knows again.
const remembered = 5

// partition is one log and what its leader remembers of producers.
type partition struct {
	tp          kafka.TopicPartition
	leader      kafka.NodeID
	leaderEpoch kafka.LeaderEpoch
	start, end  kafka.Offset
	entries     []entry
	aborted     []abortedTxn
	producers   map[kafka.ProducerID]*producerState
}

// entry is one batch of the log.
type entry struct {
	record.Batch
	commit bool // of a control batch: the kind of its marker
	at     time.Time
}

type abortedTxn struct {
	id          kafka.ProducerID
	first, last kafka.Offset
}

// producerState is what Kafka's ProducerStateManager keeps.
type producerState struct {
	epoch   kafka.ProducerEpoch
	last    []sequences  // newest last, of this epoch
	open    kafka.Offset // first offset of its open transaction, -1 if there is none
	updated time.Time
}

type sequences struct {
	first, last int32
	base        kafka.Offset
}

func newPartition(tp kafka.TopicPartition, leader kafka.NodeID) *partition {
	return &partition{tp: tp, leader: leader, producers: map[kafka.ProducerID]*producerState{}}
}

// stable is the last stable offset: everything before it is decided.
func (p *partition) stable() kafka.Offset {
	at := p.end
	for _, s := range p.producers {
		if s.open >= 0 {
			at = min(at, s.open)
		}
	}
	return at
}

// inTransaction reports whether a producer has an open transaction here under
// this epoch: then its leader asks the coordinator no more.
func (p *partition) inTransaction(id kafka.ProducerID, epoch kafka.ProducerEpoch) bool {
	s := p.producers[id]
	return s != nil && s.open >= 0 && s.epoch == epoch
}

func (p *partition) expire(now time.Time, after time.Duration) {
	for id, s := range p.producers {
		if s.open < 0 && now.Sub(s.updated) >= after {
			delete(p.producers, id)
		}
	}
}

// append adds a data batch as its leader does, and is the code and base offset
// of the answer.
func (p *partition) append(now time.Time, b record.Batch) (int16, kafka.Offset) {
	if b.ProducerID() < 0 {
		return 0, p.write(now, b, false)
	}
	s := p.producers[b.ProducerID()]
	if s != nil && s.epoch == b.ProducerEpoch() {
		for _, known := range s.last {
			if known.first == b.BaseSequence() && known.last == b.LastSequence() {
				return 0, known.base
			}
		}
	}
	if s != nil {
		if code := s.accepts(b); code != 0 {
			return code, -1
		}
	}
	base := p.write(now, b, false)
	p.note(now, b, base)
	return 0, base
}

// accepts checks epoch and sequence of a batch that is not a copy. A partition
// that does not know the producer asks for neither.
func (s *producerState) accepts(b record.Batch) int16 {
	switch {
	case b.ProducerEpoch() < s.epoch:
		return kerr.InvalidProducerEpoch.Code
	case b.ProducerEpoch() > s.epoch || len(s.last) == 0:
		if b.BaseSequence() != 0 {
			return kerr.OutOfOrderSequenceNumber.Code
		}
	case b.BaseSequence() != record.AddSequence(s.last[len(s.last)-1].last, 1):
		return kerr.OutOfOrderSequenceNumber.Code
	}
	return 0
}

// note remembers a data batch.
func (p *partition) note(now time.Time, b record.Batch, base kafka.Offset) {
	s := p.state(b.ProducerID(), b.ProducerEpoch())
	s.updated = now
	s.last = append(s.last, sequences{b.BaseSequence(), b.LastSequence(), base})
	s.last = s.last[max(0, len(s.last)-remembered):]
	if b.Transactional() && s.open < 0 {
		s.open = base
	}
}

// state is that of a producer from this epoch on.
func (p *partition) state(id kafka.ProducerID, epoch kafka.ProducerEpoch) *producerState {
	s := p.producers[id]
	if s == nil {
		s = &producerState{epoch: epoch, open: -1}
		p.producers[id] = s
	}
	if s.epoch != epoch {
		s.epoch, s.last = epoch, nil
	}
	return s
}

// write puts a batch at the end of the log.
func (p *partition) write(now time.Time, b record.Batch, commit bool) kafka.Offset {
	base := p.end
	raw := slices.Clone(b.Bytes())
	binary.BigEndian.PutUint64(raw, uint64(base))
	binary.BigEndian.PutUint32(raw[12:], uint32(p.leaderEpoch))
	placed, _, _ := record.Next(raw)
	p.entries = append(p.entries, entry{placed, commit, now})
	p.end = placed.NextOffset()
	return base
}

// mark ends a producer's transaction here. A marker of an older epoch comes too
// late to end anything.
func (p *partition) mark(now time.Time, m marker) {
	s := p.producers[m.id]
	if s != nil && m.epoch < s.epoch {
		return
	}
	at := p.write(now, markerBatch(m, kafka.TimestampOf(now)), m.commit)
	s = p.state(m.id, m.epoch)
	if s.open >= 0 && !m.commit {
		p.aborted = append(p.aborted, abortedTxn{m.id, s.open, at})
	}
	s.open, s.updated = -1, now
}

// rebuild remembers what the log shows, as a broker does that lost its
// snapshots of producers.
func (p *partition) rebuild() {
	p.producers, p.aborted = map[kafka.ProducerID]*producerState{}, nil
	for _, e := range p.entries {
		switch {
		case e.ProducerID() < 0:
		case !e.Control():
			p.note(e.at, e.Batch, e.BaseOffset())
		default:
			s := p.state(e.ProducerID(), e.ProducerEpoch())
			if s.open >= 0 && !e.commit {
				p.aborted = append(p.aborted, abortedTxn{e.ProducerID(), s.open, e.BaseOffset()})
			}
			s.open, s.updated = -1, e.at
		}
	}
}

// Truncate drops what stands at an offset and after it, as an unclean leader
// election does.
func (c *Cluster) Truncate(tp kafka.TopicPartition, at kafka.Offset) {
	p := c.partition(tp)
	p.entries = slices.DeleteFunc(p.entries, func(e entry) bool { return e.BaseOffset() >= at })
	p.end = max(p.start, 0)
	if n := len(p.entries); n > 0 {
		p.end = p.entries[n-1].NextOffset()
	}
	p.leaderEpoch++
	p.rebuild()
}

// DeleteBefore drops what stands before an offset, as retention does.
func (c *Cluster) DeleteBefore(tp kafka.TopicPartition, at kafka.Offset) {
	p := c.partition(tp)
	p.start = min(at, p.stable())
	p.entries = slices.DeleteFunc(p.entries, func(e entry) bool { return e.NextOffset() <= p.start })
}

// ForgetProducers drops what a partition remembers of producers without an
// open transaction, as brokers do after producer.id.expiration.ms, and older
// ones with the last batch that they delete.
func (c *Cluster) ForgetProducers(tp kafka.TopicPartition) {
	c.partition(tp).expire(c.now, 0)
}
