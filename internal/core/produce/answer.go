package produce

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// OnAnswer is the answer to a request. A partition that it leaves out may have
// been appended.
func (m *Machine) OnAnswer(now time.Time, id RequestID, answers []Answer) {
	items := m.landed(id)
	byPart := make(map[kafka.TopicPartition]*batch, len(items))
	fenced := false
	for _, b := range items {
		byPart[b.Partition] = b
	}
	for i := range answers {
		a := &answers[i]
		b := byPart[a.Partition]
		if b == nil {
			m.odd++
			continue
		}
		delete(byPart, a.Partition)
		fenced = fenced || retry.Of(a.Code) == retry.Fenced
		b.onResult(now, a)
	}
	for _, b := range items {
		if byPart[b.Partition] == b {
			b.maybe = true
			b.cause = errNoResult
			b.again(now)
		}
		b.part.evaluate(now)
	}
	if fenced { // last: what else the answer says still counts
		m.OnClose(kafka.ErrFenced)
	}
}

// OnFailure says that a request got no answer. Unless err proves that nothing
// was written, its batches may have been appended.
func (m *Machine) OnFailure(now time.Time, id RequestID, err error) {
	written := kafka.MayHaveHappened(err)
	for _, b := range m.landed(id) {
		b.cause, b.lost = err, true
		b.maybe = b.maybe || written
		switch {
		case b.told:
			b.part.leave()
		case final(err):
			b.giveUp(err)
		default:
			b.again(now)
			b.part.moved()
		}
		b.part.evaluate(now)
	}
}

// onResult handles the answer for one batch.
func (b *batch) onResult(now time.Time, a *Answer) {
	p := b.part
	switch {
	case a.Code == 0:
		b.done(a)
		return
	case a.Code == kerr.DuplicateSequenceNumber.Code: // the broker has it, and does not know where
		b.done(&Answer{Base: -1, AppendTime: kafka.NoTimestamp})
		return
	case b.told: // rejected after its caller was told that it is unknown
		p.leave()
		return
	}
	err := kafka.CodeError(a.Code, &a.Message)
	b.cause = err
	b.maybe = b.maybe || kafka.MayHaveHappened(err)
	switch retry.Of(a.Code) {
	case retry.Retry:
		b.again(now)
	case retry.RefreshMetadata:
		b.onMoved(now, a, err)
	case retry.Sequence:
		b.onSequence(now, a, err)
	case retry.Fenced:
		b.giveUp(kafka.ErrFenced)
	default:
		if a.Code == kerr.CorruptMessage.Code && !b.damaged {
			b.damaged = true // the bytes may have been damaged on the way
			b.again(now)
			return
		}
		b.giveUp(err)
	}
}

func (b *batch) done(a *Answer) {
	p := b.part
	p.tries, p.retryAt, p.unknown = 0, time.Time{}, time.Time{}
	if a.Base >= 0 {
		p.acked = a.Base + kafka.Offset(b.Count) - 1
	}
	if b.told {
		return
	}
	b.drop()
	b.part.m.finish(b, Outcome{Offset: a.Base, AppendTime: a.AppendTime, Free: !b.lost})
}

// again leaves b at the head of its partition, to be sent again as it is.
func (b *batch) again(now time.Time) {
	if b.told {
		b.part.leave()
		return
	}
	b.part.backOff(now)
}

// onMoved handles an answer that says that the partition is not there.
func (b *batch) onMoved(now time.Time, a *Answer, err error) {
	p := b.part
	if vanished(err) && p.outOfPatience(now) {
		b.giveUp(err)
		return
	}
	if a.Leader != kafka.NoNode {
		p.lead(a.Leader) // only ever newer than what was known: no need to wait
		return
	}
	b.again(now)
	p.moved()
}

// moved asks for the leader anew, at once: only the sending waits.
func (p *partition) moved() {
	p.lead(kafka.NoNode)
	p.invalid = true
	if !p.asking {
		p.resolve()
	}
}

// onSequence handles the codes that are about sequence numbers. One batch is
// outstanding at a time, so none of them follows from a failure before it.
func (b *batch) onSequence(now time.Time, a *Answer, err error) {
	p := b.part
	forgotten := a.LogStart > p.acked && p.acked >= 0
	switch a.Code {
	case kerr.UnknownProducerID.Code:
		if a.LogStart < 0 {
			b.again(now)
			return
		}
	case kerr.OutOfOrderSequenceNumber.Code:
		if !forgotten {
			p.leave()
			b.giveUp(err)
			return
		}
	case kerr.InvalidProducerIDMapping.Code:
		b.part.m.renew()
	}
	p.leave()
	if b.maybe { // under another identity it might be there twice
		b.giveUp(err)
		return
	}
	b.release()
	b.again(now)
}
