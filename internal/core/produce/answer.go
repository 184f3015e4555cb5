package produce

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// OnAnswer is the answer to a request. A partition that it leaves out may have
// been appended.
func (m *Machine) OnAnswer(now time.Time, id RequestID, answers []Answer) {
	req := m.landed(id)
	fenced := false
	seen := make([]bool, len(req.items))
	for i := range answers {
		a := &answers[i]
		k := req.find(a.Partition)
		if k < 0 || seen[k] {
			m.odd++
			continue
		}
		seen[k] = true
		fenced = fenced || retry.Of(a.Code) == retry.Fenced
		req.items[k].onResult(now, a, req.broker.id)
	}
	for k, b := range req.items {
		if !seen[k] {
			b.maybe = true
			b.onFailed(now, errNoResult)
		}
		b.part.evaluate(now)
	}
	if fenced { // last: what else the answer says still counts
		m.OnClose(kafka.ErrFenced)
	}
}

// find is the place of the batch for a partition, -1 if there is none.
func (r *request) find(tp kafka.TopicPartition) int {
	for i, b := range r.items {
		if b.Partition == tp {
			return i
		}
	}
	return -1
}

// OnWritten says that a request without an answer was written: that is all that
// will ever be known of it.
func (m *Machine) OnWritten(now time.Time, id RequestID) {
	for _, b := range m.landed(id).items {
		b.done(now, &Answer{Base: -1, AppendTime: kafka.NoTimestamp}, kafka.NoNode)
		b.part.evaluate(now)
	}
}

// OnFailure says that a request got no answer. Unless err proves that nothing
// was written, its batches may have been appended.
func (m *Machine) OnFailure(now time.Time, id RequestID, err error) {
	written := kafka.MayHaveHappened(err)
	req := m.landed(id)
	for _, b := range req.items {
		b.lost = true
		b.maybe = b.maybe || written
		switch {
		case req.behind && !written && !b.told && !final(err): // its connection is gone: what was before it says why
			b.part.proven = false
			b.cause = err
		case !b.told && !written && b.fallBack(err):
		case !b.told && final(err):
			b.part.proven = false
			b.cause = err
			b.giveUp(err)
		default:
			b.onFailed(now, err)
			b.part.moved(req.broker.id)
		}
		b.part.evaluate(now)
	}
}

// onResult handles the answer of broker at for one batch.
func (b *batch) onResult(now time.Time, a *Answer, at kafka.NodeID) {
	p := b.part
	switch {
	case a.Code == 0:
		b.done(now, a, at)
		return
	case a.Code == kerr.DuplicateSequenceNumber.Code && !p.m.cfg.Plain: // the broker has it, and does not know where
		b.done(now, &Answer{Base: -1, AppendTime: kafka.NoTimestamp}, at)
		return
	}
	err := kafka.CodeError(a.Code, &a.Message)
	b.maybe = b.maybe || kafka.MayHaveHappened(err)
	if b.told { // rejected after its caller was told that it is unknown
		p.proven = false
		b.burn()
		return
	}
	switch retry.Of(a.Code) {
	case retry.Retry:
		b.onFailed(now, err)
	case retry.RefreshMetadata:
		b.onMoved(now, a, at, err)
	case retry.Sequence:
		b.onSequence(now, a, err)
	case retry.Fenced:
		b.giveUp(kafka.ErrFenced)
	default:
		b.onRefused(now, a, err)
	}
}

// onRefused handles a rejection that the same bytes would meet again.
func (b *batch) onRefused(now time.Time, a *Answer, err error) {
	p := b.part
	p.proven = false
	b.cause = err
	switch {
	case a.Code == kerr.CorruptMessage.Code && !b.damaged: // the bytes may have been damaged on the way
		b.damaged = true
		b.onFailed(now, err)
	case b.fallBack(err):
	case a.Code == kerr.MessageTooLarge.Code && b.Count > 1 && !b.maybe:
		b.split()
	default:
		b.reasons = a.Reasons
		b.giveUp(err)
	}
}

// fallBack has b sealed with the next codec of the list if err says that the
// broker cannot take this one.
func (b *batch) fallBack(err error) bool {
	m := b.part.m
	var version *kafka.VersionError
	unknown := errors.Is(err, kerr.UnsupportedCompressionType) || errors.As(err, &version)
	if !unknown || b.maybe || b.codec+1 >= m.cfg.Codecs {
		return false
	}
	b.codec++
	m.codec = max(m.codec, b.codec)
	b.state = sealing
	m.emit(Seal{b.ID, b.stamp, b.codec})
	return true
}

// done takes note that the broker has b.
func (b *batch) done(now time.Time, a *Answer, at kafka.NodeID) {
	p := b.part
	p.unknown = time.Time{}
	b.result = Outcome{Offset: a.Base, AppendTime: a.AppendTime, Free: !b.lost}
	if p.m.cfg.Plain {
		p.tries, p.retryAt = 0, time.Time{}
		if !b.told {
			p.m.finish(b, b.result)
		}
		b.drop()
		return
	}
	if p.queue.first() == b {
		p.tries, p.retryAt = 0, time.Time{}
	}
	b.state = acked
	if at == p.leader && sameProducer(b.stamp, p.ident) && !p.burnt && !p.queue.failing() {
		p.proven = true
	}
	p.retire()
}

// onFailed leaves b where it is, to be sent again as it is. Without sequences it
// is sent again only if it cannot be there, or may be there twice.
func (b *batch) onFailed(now time.Time, err error) {
	p := b.part
	p.proven = false
	b.cause = err
	switch {
	case b.told:
		b.burn()
	case p.m.cfg.Plain && b.maybe && !p.m.cfg.Duplicates:
		b.giveUp(err)
	case p.m.refused != nil:
		b.giveUp(p.m.refused)
	default:
		p.backOff(now)
	}
}

// onMoved handles an answer of broker at that says that the partition is not
// there.
func (b *batch) onMoved(now time.Time, a *Answer, at kafka.NodeID, err error) {
	p := b.part
	switch {
	case vanished(err) && p.outOfPatience(now, p.m.cfg.TopicPatience):
		p.proven = false
		b.giveUp(err)
	case a.Leader != kafka.NoNode:
		b.cause = err
		p.proven = false
		p.lead(a.Leader) // only ever newer than what was known: no need to wait
	default:
		b.onFailed(now, err)
		p.moved(at)
	}
}

// moved asks for the leader anew, at once, if it still is the broker at: only
// the sending waits.
func (p *partition) moved(at kafka.NodeID) {
	if p.leader != at {
		return
	}
	p.lead(kafka.NoNode)
	p.invalid = true
	if !p.asking {
		p.resolve()
	}
}
