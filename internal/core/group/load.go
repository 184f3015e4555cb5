package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// sendLoad asks for committed offsets.
func (c *commits) sendLoad(m *Machine) {
	op := c.loads[0]
	c.loads = c.loads[1:]
	req := OffsetsRequest(m.cfg.Group, op.tps)
	if m.cfg.Consumer {
		req.Groups[0].MemberID, req.Groups[0].MemberEpoch = &m.memberID, m.proto.epoch()
	}
	c.asking = op
	m.send(&flight{kind: flightLoad, load: op}, req, 0)
}

// OffsetsRequest asks for the committed offsets of partitions, stable ones only.
// The form for several groups and the one for a single group are both filled in.
func OffsetsRequest(group string, tps []kafka.TopicPartition) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group, req.RequireStable = group, true
	one := kmsg.NewOffsetFetchRequestGroup()
	one.Group = group
	for topic, ps := range byTopic(tps) {
		t := kmsg.NewOffsetFetchRequestTopic()
		t.Topic, t.Partitions = topic, ps
		req.Topics = append(req.Topics, t)
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = topic, ps
		one.Topics = append(one.Topics, gt)
	}
	req.Groups = append(req.Groups, one)
	return req
}

// OffsetsOf reads the answer of an OffsetsRequest by somebody who is no member:
// what is committed of these partitions. unstable says that transactions hold
// some back, or that the answer leaves some out, so that it is to be asked again.
func OffsetsOf(group string, tps []kafka.TopicPartition, r *kmsg.OffsetFetchResponse) (offsets Offsets, unstable bool, err error) {
	as, code := offsetAnswers(group, r)
	if code != 0 {
		if code == codeUnstable {
			return nil, true, nil
		}
		return nil, false, kafka.CodeError(code, nil)
	}
	offsets = Offsets{}
	for _, tp := range tps {
		a, answered := as[tp]
		switch {
		case !answered || a.code == codeUnstable:
			unstable = true
		case a.code != 0:
			return nil, false, &kafka.OpError{
				Op: "fetch committed offset", Broker: kafka.NoNode, Topic: tp.Topic, Partition: tp.Partition, Err: kafka.CodeError(a.code, nil),
			}
		case a.commit.Offset >= 0:
			offsets[tp] = a.commit
		}
	}
	return offsets, unstable, nil
}

// offsetAnswer is one partition of an OffsetFetch answer of either form.
type offsetAnswer struct {
	commit kafka.Commit
	code   int16
}

func offsetAnswers(group string, r *kmsg.OffsetFetchResponse) (as map[kafka.TopicPartition]offsetAnswer, code int16) {
	as = map[kafka.TopicPartition]offsetAnswer{}
	add := func(topic string, p kmsg.OffsetFetchResponseGroupTopicPartition) {
		a := offsetAnswer{commit: kafka.Commit{Offset: kafka.Offset(p.Offset), LeaderEpoch: kafka.LeaderEpoch(p.LeaderEpoch)}, code: p.ErrorCode}
		if p.Metadata != nil {
			a.commit.Metadata = *p.Metadata
		}
		as[kafka.TopicPartition{Topic: topic, Partition: p.Partition}] = a
	}
	code = r.ErrorCode
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			add(t.Topic, kmsg.OffsetFetchResponseGroupTopicPartition(p))
		}
	}
	for _, g := range r.Groups {
		if g.Group != group {
			continue
		}
		code = g.ErrorCode
		for _, t := range g.Topics {
			for _, p := range t.Partitions {
				add(t.Topic, p)
			}
		}
	}
	return as, code
}

// onLoad takes the answer of OffsetFetch. What it leaves out, and what is not
// stable yet, is asked for again as long as the partition is owned.
func (c *commits) onLoad(m *Machine, now time.Time, f *flight, resp kmsg.Response, err error) {
	op := f.load
	c.asking = nil
	r, ok := resp.(*kmsg.OffsetFetchResponse)
	if permanent(err) {
		m.queue = append(m.queue, &Loaded{Op: op.id, Err: err})
		return
	}
	if err != nil || !ok {
		c.ask(m, now, op)
		return
	}
	as, code := offsetAnswers(m.cfg.Group, r)
	if code != 0 {
		c.loadRefused(m, now, f, code)
		return
	}
	var left []kafka.TopicPartition
	for _, tp := range op.tps {
		a, answered := as[tp]
		switch {
		case !m.Owns(tp):
		case !answered || a.code != 0 && loadAgain(a.code):
			m.coordinatorMoved(a.code)
			left = append(left, tp)
		case a.code != 0:
			m.queue = append(m.queue, &Loaded{Op: op.id, Err: &kafka.OpError{
				Op: "fetch committed offset", Broker: kafka.NoNode, Topic: tp.Topic, Partition: tp.Partition, Err: kafka.CodeError(a.code, nil),
			}})
			return
		case a.commit.Offset >= 0:
			op.got[tp] = a.commit
		}
	}
	if len(left) > 0 {
		op.tps = left
		c.ask(m, now, op)
		return
	}
	c.asks = 0
	m.queue = append(m.queue, &Loaded{Op: op.id, Offsets: op.got})
}

// loadAgain reports whether a code on a partition is worth another try.
func loadAgain(code int16) bool {
	switch retry.Of(code) {
	case retry.Retry, retry.FindCoordinator, retry.RefreshMetadata:
		return true
	}
	return code == codeStaleEpoch
}

// loadRefused deals with a code for the whole group.
func (c *commits) loadRefused(m *Machine, now time.Time, f *flight, code int16) {
	current := f.epoch == m.proto.epoch()
	switch {
	case loadAgain(code):
		m.coordinatorMoved(code)
		if code == codeStaleEpoch && current {
			m.proto.rejoin("stale epoch")
		}
		c.ask(m, now, f.load)
	case memberGone(code) && current && m.cfg.Consumer:
		c.loads = append(c.loads, f.load) // lost ends it
		c.gone(m, now, code)
	default:
		m.queue = append(m.queue, &Loaded{Op: f.load.id, Err: kafka.CodeError(code, nil)})
	}
}

// ask keeps a load for later, without what is not owned any more.
func (c *commits) ask(m *Machine, now time.Time, op *loadOp) {
	op.tps = slices.DeleteFunc(op.tps, func(tp kafka.TopicPartition) bool { return !m.Owns(tp) })
	if len(op.tps) == 0 {
		m.queue = append(m.queue, &Loaded{Op: op.id, Offsets: op.got})
		return
	}
	c.asks++
	c.loadAt = now.Add(m.cfg.Backoff.Delay(c.asks, m.rng))
	c.loads = append([]*loadOp{op}, c.loads...)
}
