package producer

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

const acksAll = -1

// send starts one Produce request. Nobody waits for it: its answer comes to the
// inbox.
func (a *actor) send(now time.Time, act produce.Send) {
	if a.p.seam.closed() {
		a.m.OnFailure(now, act.Request, produce.Final(cluster.ErrClosed))
		return
	}
	req := &produceRequest{acks: acksAll, timeout: int32(a.p.cfg.RequestTimeout.Milliseconds())}
	for _, item := range act.Items {
		b := a.live[item.Batch]
		a.restamp(b, item.Stamp)
		var id kafka.TopicID
		if t, ok := a.p.seam.CachedTopic(b.tp.Topic); ok {
			id = t.ID
		}
		req.add(b.tp, id, b.wire)
	}
	p := a.p
	p.seam.produce(a.ctx, act.Broker, req, func(resp kmsg.Response, err error) {
		p.post(func(a *actor, now time.Time) { a.onProduced(now, act.Request, req, resp, err) })
	})
}

// restamp writes the stamp that the machine chose at last into a batch. It
// differs from the one in it if the batch was never sent, or if it was rejected
// and cannot be in the log; then nothing reads the bytes any more either.
func (a *actor) restamp(b *batch, s record.Stamp) {
	if b.stamp != s {
		record.Restamp(b.wire, s)
		b.stamp = s
	}
}

func (a *actor) onProduced(now time.Time, id produce.RequestID, req *produceRequest, resp kmsg.Response, err error) {
	if err != nil {
		if errors.Is(err, cluster.ErrClosed) {
			err = produce.Final(cutOff{err})
		}
		a.m.OnFailure(now, id, err)
		return
	}
	r, ok := resp.(*kmsg.ProduceResponse)
	if !ok {
		a.m.OnFailure(now, id, errNoAnswer)
		return
	}
	a.m.OnAnswer(now, id, a.answers(req, r))
}

// cutOff is a request that was on its way when the cluster handle was closed.
type cutOff struct{ error }

func (c cutOff) Unwrap() error       { return c.error }
func (cutOff) MayHaveHappened() bool { return true }

var errNoAnswer error = &kafka.ProtocolError{Addr: "the leader", What: "the answer to Produce is of another kind"}

// answers is a response in the machine's words.
func (a *actor) answers(req *produceRequest, r *kmsg.ProduceResponse) []produce.Answer {
	var endpoints []kafka.Broker
	for _, b := range r.Brokers {
		node := kafka.Broker{ID: kafka.NodeID(b.NodeID), Host: b.Host, Port: b.Port}
		if b.Rack != nil {
			node.Rack = *b.Rack
		}
		endpoints = append(endpoints, node)
	}
	var out []produce.Answer
	for i := range r.Topics {
		t := &r.Topics[i]
		name := req.topicName(t)
		for j := range t.Partitions {
			out = append(out, a.answer(name, &t.Partitions[j], endpoints))
		}
	}
	return out
}

func (a *actor) answer(topic string, p *kmsg.ProduceResponseTopicPartition, endpoints []kafka.Broker) produce.Answer {
	ans := produce.Answer{
		Partition: kafka.TopicPartition{Topic: topic, Partition: p.Partition},
		Code:      p.ErrorCode, Base: kafka.Offset(p.BaseOffset), AppendTime: kafka.Timestamp(p.LogAppendTime),
		LogStart: kafka.Offset(p.LogStartOffset), Leader: kafka.NoNode,
	}
	if p.ErrorMessage != nil {
		ans.Message = *p.ErrorMessage
	}
	leader, epoch := kafka.NodeID(p.CurrentLeader.LeaderID), kafka.LeaderEpoch(p.CurrentLeader.LeaderEpoch)
	if p.ErrorCode != 0 && leader >= 0 && a.p.seam.LearnLeader(ans.Partition, leader, epoch, endpoints) {
		ans.Leader = leader
	}
	return ans
}

// topicName is the name of a topic in the answer to r, empty if r did not name
// it.
func (r *produceRequest) topicName(t *kmsg.ProduceResponseTopic) string {
	if r.version < idsProduce {
		return t.Topic
	}
	for i := range r.topics {
		if r.topics[i].id == t.TopicID {
			return r.topics[i].name
		}
	}
	return ""
}
