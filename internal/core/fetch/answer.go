package fetch

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// OnFetch takes in the answer to a FetchAction, or the error that came instead.
// resp and the bytes it aliases are the Machine's from here on.
func (m *Machine) OnFetch(now time.Time, id uint64, resp *kmsg.FetchResponse, err error) {
	b := m.asker(id, func(b *broker) *request { return b.fetch })
	if b == nil {
		return
	}
	a := answer{m: m, now: now, b: b, r: b.fetch, resp: resp, frame: &frame{}}
	if err == nil { // or a connection may still write to it
		a.frame.memory, a.frame.home = a.r.memory, &m.shelf.spares
	}
	b.fetch = nil
	m.reserved -= a.r.reserved
	switch {
	case err != nil:
		a.failed(err)
	case retry.Of(resp.ErrorCode) == retry.ResetSession:
		a.noSession()
	case resp.ErrorCode != 0:
		a.failed(&kafka.OpError{Op: "fetch", Broker: b.id, Partition: -1, Err: kafka.CodeError(resp.ErrorCode, nil)})
	default:
		b.answered()
		b.session.accepted(now, a.r.session, resp)
		a.take()
		a.pace()
	}
	for _, p := range a.r.parts {
		if p.fetch.id == id {
			p.fetch = ask{}
		}
		p.ask(now)
	}
	m.tidy()
}

// failed is for a Fetch without a useful answer.
func (a *answer) failed(err error) {
	a.b.session.end()
	a.m.brokerFailed(a.now, a.b, a.r, err)
}

// noSession is for a broker that does not know the session. The full request
// that follows goes out at once, but the broker may refuse that too.
func (a *answer) noSession() {
	a.b.answered()
	a.b.session.failed(a.now, a.resp.ErrorCode)
	a.moved = a.r.session == sessionGoes
	a.pace()
}

// answer is one Fetch answer while it is taken in.
type answer struct {
	m     *Machine
	now   time.Time
	b     *broker
	r     *request
	resp  *kmsg.FetchResponse
	frame *frame
	moved bool // a position moved on, or a partition was told to wait
}

// pace keeps a broker that answers at once with nothing from being asked in a
// spin.
func (a *answer) pace() {
	left := a.r.wait - a.now.Sub(a.r.sent)
	if a.moved {
		a.b.brief = 0
	}
	if a.moved || left <= 0 {
		a.b.empty = 0
		return
	}
	a.b.empty++
	a.b.retryAt = a.now.Add(min(a.m.cfg.Retry.Delay(a.b.empty, a.m.rng), left))
}

func (a *answer) take() {
	byID := a.resp.Version >= 13
	for i := range a.resp.Topics {
		rt := &a.resp.Topics[i]
		t := a.topic(rt, byID)
		for j := range rt.Partitions {
			rp := &rt.Partitions[j]
			a.frame.bytes += int64(len(rp.RecordBatches))
			var p *part
			if t != nil {
				p = t.part(rp.Partition)
			}
			if p == nil || p.fetch.id != a.r.id {
				a.unasked(rt, byID, rp.Partition)
				continue
			}
			a.partition(p, rp)
		}
	}
	a.b.resize(a.r, a.frame.bytes, a.now.Sub(a.r.sent), a.m.shelf.used == 0)
	if a.frame.refs > 0 {
		a.m.shelf.used += a.frame.bytes
	}
	a.frame.recycle()
	if a.r.session == sessionOpens && !onlyThrottle(a.resp) && slices.ContainsFunc(a.r.parts, a.missing) {
		a.b.session.end()
	}
}

// missing reports whether a full answer left a partition out: the broker's
// session does not have it then.
func (a *answer) missing(p *part) bool { return p.fetch.id == a.r.id && a.m.part(p.tp) == p }

// unasked is for a partition that nobody waits for. If the broker was never
// asked for it, its session is not this one.
func (a *answer) unasked(rt *kmsg.FetchResponseTopic, byID bool, partition int32) {
	a.m.Counters.Unasked++
	if !a.b.session.holds(rt, byID, partition) {
		a.b.session.end()
	}
}

// topic finds the topic of an answer.
func (a *answer) topic(rt *kmsg.FetchResponseTopic, byID bool) *topic {
	if !byID {
		return a.m.topics[rt.Topic]
	}
	return a.m.byID[rt.TopicID] // the zero id is nobody's (F9)
}

func (a *answer) partition(p *part, rp *kmsg.FetchResponseTopicPartition) {
	m := a.m
	current := p.fetch.gen == p.gen && p.fetch.offset == p.next
	p.fetch = ask{}
	if !current {
		m.Counters.Outdated++
		a.moved = true // not the broker's fault: it is asked anew at once
		return
	}
	if rp.ErrorCode == codeCorrupt {
		a.moved = true
		a.corrupt(p)
		return
	}
	if rp.ErrorCode != 0 {
		a.moved = true
		a.hint(p, rp)
		if leaves(rp.ErrorCode) && p.shun(a.now, a.b.id) {
			return
		}
		m.onCode(a.now, p, "fetch", rp.ErrorCode)
		return
	}
	p.unknown = time.Time{}
	p.log = Log{
		Start: kafka.Offset(rp.LogStartOffset), Stable: kafka.Offset(rp.LastStableOffset),
		HighWatermark: kafka.Offset(rp.HighWatermark),
	}
	if len(rp.RecordBatches) > 0 {
		a.b.served = p.tp
	}
	if d := kafka.Offset(rp.DivergingEpoch.EndOffset); d >= 0 && d < p.next {
		a.moved = true
		m.truncated(p, d, kafka.LeaderEpoch(rp.DivergingEpoch.Epoch))
		return
	}
	before := p.next
	w := walk{a: a, p: p, cursor: p.next, epoch: p.tail}
	w.batches(rp)
	p.next, p.tail = w.cursor, w.epoch
	if rp.PreferredReadReplica >= 0 && m.cfg.Rack != "" {
		p.prefer(kafka.NodeID(rp.PreferredReadReplica), a.now.Add(m.cfg.ReplicaTime))
		m.broker(p.source())
		a.moved = true // it is asked next
	}
	if p.next > before || w.stopped {
		p.attempt, p.limit, p.short = 0, 0, 0
		a.moved = true
	} else if len(rp.RecordBatches) > 0 || a.resp.Version < 3 && p.next < p.log.HighWatermark {
		a.tooLittle(p, w.cut)
		a.moved = true // the partition has its own backoff
	}
	p.settle()
	m.shelf.enlist(p)
}

// tooLittle is for data that moves nothing on: the limit cut the first batch, or,
// before Fetch 3, left nothing of it. The next fetch has the limit that the batch
// asks for, or twice the last one (F17). A batch that does not come with the
// highest stops the partition.
func (a *answer) tooLittle(p *part, cut []byte) {
	c := &a.m.cfg
	limit, highest := int64(max(p.limit, c.PartitionMaxBytes)), int64(max(c.MaxBytes, c.PartitionMaxBytes))
	next := min(2*limit, highest)
	if size := record.SizeOf(cut); size > limit {
		next = min(size, max(highest, maxCutSize))
	}
	if p.limit = int32(next); next > limit {
		a.m.backOff(a.now, p)
		return
	}
	if p.short++; p.short < cutPatience {
		a.m.backOff(a.now, p)
		return
	}
	a.m.stop(p, "fetch", &kafka.UnreadableError{
		TopicPartition: p.tp, Offset: p.next, Next: p.next + 1,
		Err: &overLimitError{limit: next},
	})
}

const (
	maxCutSize  = 256 << 20 // the limit that a batch's own length may raise a fetch to
	cutPatience = 5
)

// overLimitError is the reason why a batch does not come.
type overLimitError struct{ limit int64 }

func (e *overLimitError) Error() string {
	return fmt.Sprintf("the broker sends no whole batch with a limit of %d bytes; a higher Config.MaxBytes may help", e.limit)
}

func (*overLimitError) MayHaveHappened() bool { return false }

// corrupt reacts to a broker that finds its own log damaged.
func (a *answer) corrupt(p *part) {
	err := errors.Join(kafka.CodeError(codeCorrupt, nil), record.ErrChecksum)
	p.queue = append(p.queue, chunk{from: p.next, next: p.next + 1, err: err})
	a.m.shelf.enlist(p)
}

// hint offers the leader that an answer names beside an error (KIP-951).
func (a *answer) hint(p *part, rp *kmsg.FetchResponseTopicPartition) {
	l := rp.CurrentLeader
	if l.LeaderID < 0 || kafka.LeaderEpoch(l.LeaderEpoch) <= p.epoch {
		return
	}
	h := &HintAction{TopicPartition: p.tp, Leader: kafka.NodeID(l.LeaderID), Epoch: kafka.LeaderEpoch(l.LeaderEpoch)}
	for _, b := range a.resp.Brokers {
		kb := kafka.Broker{ID: kafka.NodeID(b.NodeID), Host: string([]byte(b.Host)), Port: b.Port}
		if b.Rack != nil {
			kb.Rack = string([]byte(*b.Rack))
		}
		h.Brokers = append(h.Brokers, kb)
	}
	a.m.queued = append(a.m.queued, h)
}
