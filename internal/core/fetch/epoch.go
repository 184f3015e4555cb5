package fetch

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// vetting is whether the log may have been truncated below the position
// (KIP-320).
type vetting struct {
	wanted  bool         // nothing is fetched before it is known
	drained bool         // it is asked when all that was fetched has reached the user
	passed  kafka.Offset // what was fetched to when it was known last, -1 = never
	asked   uint64       // the OffsetForLeaderEpoch that is out, 0 if none
}

// vet has the position compared with the leader's log, if the epoch of what was
// read before it is known.
func (p *part) vet() {
	p.vetting.passed = -1
	p.vetting.wanted = p.tail != kafka.NoEpoch && p.tail < p.epoch
}

// wantsVet reports whether an OffsetForLeaderEpoch should name the partition.
func (p *part) wantsVet() bool {
	return p.vetting.wanted && p.state == stateReading && !p.stale && p.leader != kafka.NoNode && p.vetting.asked == 0 &&
		(!p.vetting.drained || p.drained())
}

// vet asks a leader for the ends of the epochs that its partitions were read
// in.
func (pl plan) vet() *EpochAction {
	m, b := pl.m, pl.b
	if b.vet != nil {
		return nil
	}
	var parts []*part
	m.each(func(p *part) {
		if p.leader == b.id && p.wantsVet() && !p.waits(pl.now) {
			parts = append(parts, p)
		}
	})
	if len(parts) == 0 {
		return nil
	}
	m.lastID++
	b.vet = &request{id: m.lastID, parts: parts, sent: pl.now}
	req := kmsg.NewPtrOffsetForLeaderEpochRequest()
	req.ReplicaID = -1
	for i, p := range parts {
		p.vetting.asked = m.lastID
		if i == 0 || parts[i-1].topic != p.topic {
			t := kmsg.NewOffsetForLeaderEpochRequestTopic()
			t.Topic = p.topic.name
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		rp := kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		rp.Partition, rp.CurrentLeaderEpoch, rp.LeaderEpoch = p.tp.Partition, int32(p.epoch), int32(p.tail)
		t.Partitions = append(t.Partitions, rp)
	}
	return &EpochAction{ID: m.lastID, Broker: b.id, Req: req}
}

// OnEpochs takes in the answer to an EpochAction, or the error that came
// instead.
func (m *Machine) OnEpochs(now time.Time, id uint64, resp *kmsg.OffsetForLeaderEpochResponse, err error) {
	b := m.asker(id, func(b *broker) *request { return b.vet })
	if b == nil {
		return
	}
	a := epochAnswer{m: m, now: now, r: b.vet}
	b.vet = nil
	var version *kafka.VersionError
	switch {
	case errors.As(err, &version): // the broker cannot tell
		for _, p := range a.r.parts {
			a.known(p)
		}
	case err != nil:
		m.brokerFailed(now, b, a.r, err)
	default:
		b.answered()
		a.take(resp)
	}
	for _, p := range a.r.parts {
		if p.vetting.asked == id { // the answer left it out
			p.vetting.asked = 0
			m.backOff(now, p)
		}
	}
	m.tidy()
}

// epochAnswer is one OffsetForLeaderEpoch answer while it is taken in.
type epochAnswer struct {
	m   *Machine
	now time.Time
	r   *request
}

func (a *epochAnswer) take(resp *kmsg.OffsetForLeaderEpochResponse) {
	for i := range resp.Topics {
		t := a.m.topics[resp.Topics[i].Topic]
		for j := range resp.Topics[i].Partitions {
			rp := &resp.Topics[i].Partitions[j]
			var p *part
			if t != nil {
				p = t.part(rp.Partition)
			}
			if p == nil || p.vetting.asked != a.r.id {
				a.m.Counters.Unasked++
				continue
			}
			a.partition(p, rp)
		}
	}
}

func (a *epochAnswer) partition(p *part, rp *kmsg.OffsetForLeaderEpochResponseTopicPartition) {
	switch d := retry.Of(rp.ErrorCode); d {
	case retry.Retry, retry.RefreshMetadata:
		p.vetting.asked = 0
		a.m.onCode(a.now, p, "offset for leader epoch", rp.ErrorCode)
		return
	case retry.OK:
		p.patience = patience{}
		if end := kafka.Offset(rp.EndOffset); end >= 0 && end < p.next {
			p.vetting.asked = 0
			a.m.truncated(p, end, kafka.LeaderEpoch(rp.LeaderEpoch))
			return
		}
	}
	a.known(p) // undefined, or not to be told: no information is no loss
}

// known lets the partition be read on.
func (a *epochAnswer) known(p *part) {
	if p.vetting.asked == a.r.id {
		p.vetting = vetting{passed: p.next}
	}
}

// truncated goes on where the log parted from what was read. What the user has
// not seen of the lost part is dropped without a word. If the user has seen some,
// the question is asked again when it has all of what is before, and then the
// loss is told. The epoch is that of what is left before end, kafka.NoEpoch if it
// is not known.
func (m *Machine) truncated(p *part, end kafka.Offset, epoch kafka.LeaderEpoch) {
	m.shelf.trim(p, end)
	if p.position <= end && !p.lent && p.held == 0 {
		p.vetting = vetting{passed: p.next}
		return
	}
	p.vetting = vetting{passed: -1}
	if !p.drained() {
		p.vetting = vetting{wanted: true, drained: true, passed: -1}
		return
	}
	loss := &kafka.DataLossError{TopicPartition: p.tp, Position: p.position, Remaining: end}
	if m.cfg.Reset == ResetFail {
		m.fail(p, "fetch", loss)
		return
	}
	m.news.Resets = append(m.news.Resets, Position{TopicPartition: p.tp, Old: p.position, New: end, Reason: loss})
	m.news.report(p, "fetch", loss)
	p.invalidate()
	p.last = epoch
	p.moveTo(end)
}

// trim drops what was fetched from offset end on.
func (s *shelf) trim(p *part, end kafka.Offset) {
	n := len(p.queue)
	for n > 0 && p.queue[n-1].next > end {
		n--
		c := &p.queue[n]
		s.release(c.frame)
		s.discard(c.ahead)
		p.buffered -= int64(c.batch.Size())
		p.next, p.tail = c.from, kafka.NoEpoch
		*c = chunk{}
	}
	p.queue = p.queue[:n]
	switch {
	case n > 0:
		p.tail = p.queue[n-1].epoch
	case p.lent:
		p.tail = p.loan
	default:
		p.tail = p.last
	}
	p.invalidate()
}
