package produce

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/kafka"
)

// onSequence handles the codes that are about sequence numbers.
func (b *batch) onSequence(now time.Time, a *Answer, err error) {
	p := b.part
	p.proven, p.torn = false, true
	b.cause = err
	switch {
	case p.m.tx != nil:
		p.m.tx.onSequence(now, b, a, err)
	case p.m.cfg.Plain:
		b.giveUp(err)
	case a.Code == kerr.InvalidProducerEpoch.Code:
		b.restart(now, err)
	case a.Code == kerr.InvalidProducerIDMapping.Code:
		if p.current() {
			p.m.renew()
		}
		b.restart(now, err)
	case a.Code == kerr.UnknownProducerID.Code && a.LogStart < 0:
		b.onFailed(now, err)
	case p.queue.first() != b: // it follows from what happened to those before it
	default:
		b.onGap(now, a, err)
	}
}

// onGap handles a broker that says that b does not follow what it has, though
// nothing before b is unsettled.
func (b *batch) onGap(now time.Time, a *Answer, err error) {
	p := b.part
	switch {
	case p.queue.proved(b): // the broker has gone on without it, or forgotten it since
		b.giveUp(err)
		return
	case p.burnt, b.stamp != p.ident: // what was before it was not written
		b.renew(err)
		return
	case p.acked >= 0 && a.LogStart > p.acked: // the broker forgot the producer with its last records
	default:
		loss := &kafka.DataLossError{TopicPartition: p.tp, Position: p.acked + 1, Remaining: -1}
		p.m.emit(Report{p.tp, loss})
		if p.m.cfg.StopOnDataLoss {
			p.leave()
			p.stop(loss)
			return
		}
	}
	b.restart(now, err)
}

// restart has b sent under the next identity.
func (b *batch) restart(now time.Time, err error) {
	b.part.leave()
	b.renew(err)
	b.part.backOff(now)
}

// renew takes the sequences of b back, unless it may be there under them: then
// it might be there twice.
func (b *batch) renew(err error) {
	if b.maybe {
		b.giveUp(err)
		return
	}
	b.stamped = false
}

// stop refuses all further batches of p and ends those that it has.
func (p *partition) stop(err error) {
	p.over = err
	p.queue.giveUpAll(err)
}
