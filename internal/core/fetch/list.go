package fetch

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// list asks for the offsets of all partitions of a broker that need one.
// Questions of a reset are asked without regard to open transactions, as the
// broker compares a position with the whole log; so they go on their own.
func (pl plan) list() *ListAction {
	m, b := pl.m, pl.b
	if b.list != nil {
		return nil
	}
	var parts []*part
	m.each(func(p *part) {
		if p.leader != b.id || !p.wantsList() || p.waits(pl.now) {
			return
		}
		if len(parts) == 0 || parts[0].list.reset == p.list.reset {
			parts = append(parts, p)
		}
	})
	if len(parts) == 0 {
		return nil
	}
	m.lastID++
	r := &request{id: m.lastID, parts: parts, sent: pl.now}
	b.list = r
	for _, p := range parts {
		p.listed = ask{id: r.id, gen: p.gen}
	}
	return &ListAction{ID: r.id, Broker: b.id, Req: m.cfg.listRequest(parts)}
}

func (c *Config) listRequest(parts []*part) *kmsg.ListOffsetsRequest {
	iso := c.Isolation
	if parts[0].list.reset {
		iso = ReadUncommitted
	}
	req := NewListOffsets(iso, c.RequestTimeout)
	for _, p := range parts {
		AddListOffsets(req, p.tp, p.epoch, p.list.ts)
	}
	return req
}

// NewListOffsets is a ListOffsets without partitions, as a consumer sends it.
func NewListOffsets(iso Isolation, timeout time.Duration) *kmsg.ListOffsetsRequest {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	req.IsolationLevel = iso.wire()
	req.TimeoutMillis = int32(timeout.Milliseconds())
	return req
}

// AddListOffsets adds a question to req. Partitions of one topic are to be
// added one after the other, and none twice.
func AddListOffsets(req *kmsg.ListOffsetsRequest, tp kafka.TopicPartition, epoch kafka.LeaderEpoch, ts kafka.Timestamp) {
	if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = tp.Topic
		req.Topics = append(req.Topics, t)
	}
	t := &req.Topics[len(req.Topics)-1]
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition = tp.Partition
	rp.CurrentLeaderEpoch = int32(epoch)
	rp.Timestamp = int64(ts)
	t.Partitions = append(t.Partitions, rp)
}

// OnList takes in the answer to a ListAction, or the error that came instead.
func (m *Machine) OnList(now time.Time, id uint64, resp *kmsg.ListOffsetsResponse, err error) {
	b := m.asker(id, func(b *broker) *request { return b.list })
	if b == nil {
		return
	}
	a := listAnswer{m: m, now: now, r: b.list}
	b.list = nil
	if err != nil {
		m.brokerFailed(now, b, a.r, err)
	} else {
		b.answered()
		a.take(resp)
	}
	for _, p := range a.r.parts {
		if p.listed.id == id { // the answer left it out
			p.listed = ask{}
			m.backOff(now, p)
		}
	}
	m.tidy()
}

// listAnswer is one ListOffsets answer while it is taken in.
type listAnswer struct {
	m   *Machine
	now time.Time
	r   *request
}

func (a *listAnswer) take(resp *kmsg.ListOffsetsResponse) {
	for i := range resp.Topics {
		t := a.m.topics[resp.Topics[i].Topic]
		for j := range resp.Topics[i].Partitions {
			rp := &resp.Topics[i].Partitions[j]
			if t == nil {
				a.m.Counters.Unasked++
				continue
			}
			a.partition(t.part(rp.Partition), rp)
		}
	}
}

func (a *listAnswer) partition(p *part, rp *kmsg.ListOffsetsResponseTopicPartition) {
	m := a.m
	if p == nil || p.listed.id != a.r.id {
		m.Counters.Unasked++
		return
	}
	p.listed = ask{}
	if rp.ErrorCode != 0 {
		m.onCode(a.now, p, "list offsets", rp.ErrorCode)
		return
	}
	p.patience = patience{}
	o := kafka.Offset(rp.Offset)
	switch {
	case p.list.reset && o >= 0:
		a.reset(p, o)
	case o >= 0:
		p.moveTo(o)
	case p.list.ts >= 0: // no record is that young: the end as it is now
		p.list.ts = timeLatest
	default:
		m.backOff(a.now, p)
	}
}

// reset takes in one end of the log of a partition whose position is outside.
func (a *listAnswer) reset(p *part, o kafka.Offset) {
	m, policy, old := a.m, a.m.cfg.Reset, p.next
	if p.list.ts == timeEarliest {
		if policy == ResetEarliest || old < o && policy != ResetFail {
			a.move(p, o, &kafka.OutOfRangeError{TopicPartition: p.tp, Position: old, Start: o, End: -1})
			return
		}
		p.list.first, p.list.ts = o, timeLatest
		return
	}
	oor := &kafka.OutOfRangeError{TopicPartition: p.tp, Position: old, Start: p.list.first, End: o}
	switch {
	case policy == ResetLatest || policy.byTime():
		a.move(p, o, oor)
	case p.list.ts >= 0 || p.list.sought: // back from the last record
		a.lose(p, o, oor)
	case old >= p.list.first && old <= o: // in range after all: the broker lags behind
		p.state = stateReading
		m.backOff(a.now, p)
	case policy == ResetBackFromLast && p.lastTime > 0:
		p.list.ts, p.list.sought = max(p.lastTime-kafka.Timestamp(m.cfg.ResetBack.Milliseconds()), 0), true
	case policy == ResetNearest || policy == ResetBackFromLast:
		a.lose(p, o, oor)
	default:
		m.fail(p, "fetch", oor)
	}
}

// lose moves a position that was above the end of the log.
func (a *listAnswer) lose(p *part, to kafka.Offset, reason error) {
	old := p.next
	a.move(p, to, reason)
	a.m.news.report(p, "fetch", &kafka.DataLossError{TopicPartition: p.tp, Position: old, Remaining: to})
}

// move moves the position by policy.
func (a *listAnswer) move(p *part, to kafka.Offset, reason error) {
	a.m.news.Resets = append(a.m.news.Resets, Position{TopicPartition: p.tp, Old: p.next, New: to, Reason: reason})
	p.invalidate()
	p.last = kafka.NoEpoch
	p.moveTo(to)
}

// backOff delays the partition after a failure.
func (m *Machine) backOff(now time.Time, p *part) {
	p.attempt++
	p.retryAt = now.Add(m.cfg.Retry.Delay(p.attempt, m.rng))
}

// onCode reacts to an error code of one partition.
func (m *Machine) onCode(now time.Time, p *part, op string, code int16) {
	switch retry.Of(code) {
	case retry.ResetPosition:
		switch {
		case p.state != stateReading:
			m.backOff(now, p)
		case p.tail != kafka.NoEpoch && p.vetting.passed != p.next: // epochs tell better than ends (F33)
			p.vetting = vetting{wanted: true, drained: true, passed: -1}
		default:
			p.startReset(now, &m.cfg)
		}
	case retry.Retry, retry.ResetSession:
		m.backOff(now, p)
	case retry.RefreshMetadata:
		m.backOff(now, p)
		p.stale = true
		if p.unknownTooLong(now, code, m.cfg.UnknownTimeout) {
			m.stop(p, op, kafka.CodeError(code, nil))
		}
	default:
		m.stop(p, op, kafka.CodeError(code, nil))
	}
}

const (
	codeUnknownTopic   = 3
	codeCorrupt        = 2
	codeUnknownTopicID = 100
	codeInconsistentID = 103
	codeSessionUnknown = 70
	codeSessionTopicID = 106
)

// unknownTooLong bounds the time for which a broker may not know a partition.
func (p *part) unknownTooLong(now time.Time, code int16, limit time.Duration) bool {
	if code != codeUnknownTopic && code != codeUnknownTopicID && code != codeInconsistentID {
		return false
	}
	if p.unknown.IsZero() {
		p.unknown = now
	}
	return now.Sub(p.unknown) >= limit
}

// brokerFailed backs a broker off after a request to it failed, and asks
// whether it still leads what it was asked for.
func (m *Machine) brokerFailed(now time.Time, b *broker, r *request, err error) {
	b.attempt++
	b.retryAt = now.Add(m.cfg.Retry.Delay(b.attempt, m.rng))
	for _, p := range r.parts {
		if !p.shun(now, b.id) && p.leader == b.id && p.state != stateFailed {
			p.stale = true
		}
	}
	if b.told {
		return
	}
	b.told = true
	m.news.failures = append(m.news.failures, Failure{Broker: b.id, Err: err})
	var auth *kafka.AuthError
	var version *kafka.VersionError
	if errors.As(err, &auth) || errors.As(err, &version) { // waiting mends neither
		m.news.errs = append(m.news.errs, err)
	}
}

func (b *broker) answered() {
	b.attempt, b.told = 0, false
}
