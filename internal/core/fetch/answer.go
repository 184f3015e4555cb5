package fetch

import (
	"errors"
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
	r := b.fetch
	b.fetch = nil
	m.reserved -= r.reserved
	if err == nil && resp.ErrorCode != 0 && retry.Of(resp.ErrorCode) != retry.ResetSession {
		err = &kafka.OpError{Op: "fetch", Broker: b.id, Partition: -1, Err: kafka.CodeError(resp.ErrorCode, nil)}
	}
	if err != nil {
		m.brokerFailed(now, b, r, err)
	} else {
		b.answered()
		a := answer{m: m, now: now, b: b, r: r, resp: resp, frame: &frame{}}
		a.take()
		a.pace()
	}
	for _, p := range r.parts {
		if p.fetch.id == id {
			p.fetch = ask{}
		}
	}
	m.tidy()
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
			if t == nil {
				a.m.Counters.Unasked++
				continue
			}
			a.partition(t.part(rp.Partition), rp)
		}
	}
	if a.frame.refs > 0 {
		a.m.shelf.used += a.frame.bytes
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
	switch {
	case p == nil || p.fetch.id != a.r.id:
		m.Counters.Unasked++
		return
	case p.fetch.gen != p.gen || p.fetch.offset != p.next:
		p.fetch = ask{}
		m.Counters.Outdated++
		a.moved = true // not the broker's fault: it is asked anew at once
		return
	}
	p.fetch = ask{}
	if rp.ErrorCode == codeCorrupt {
		a.moved = true
		a.corrupt(p)
		return
	}
	if rp.ErrorCode != 0 {
		a.moved = true
		a.hint(p, rp)
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
	before := p.next
	w := walk{a: a, p: p, cursor: p.next}
	w.batches(rp)
	p.next = w.cursor
	if p.next > before || w.stopped {
		p.attempt, p.limit = 0, 0
		a.moved = true
	} else if len(rp.RecordBatches) > 0 {
		p.raiseLimit(&m.cfg)
		m.backOff(a.now, p)
		a.moved = true // the partition has its own backoff
	}
	p.settle()
	m.shelf.enlist(p)
}

// raiseLimit is for data that moves nothing on, such as a cut first batch: a
// higher limit may help (F17).
func (p *part) raiseLimit(c *Config) {
	limit := max(p.limit, c.PartitionMaxBytes)
	p.limit = int32(min(2*int64(limit), int64(max(c.MaxBytes, c.PartitionMaxBytes))))
}

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
