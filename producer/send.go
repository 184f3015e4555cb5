package producer

import (
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// What Produce asks for, as Kafka numbers it.
const (
	acksAll    = -1
	acksNone   = 0
	acksLeader = 1
)

// zstdProduce is the first version of Produce that may carry zstd.
const zstdProduce = 7

// send starts one Produce request. Nobody waits for it: its answer comes to the
// inbox.
func (a *actor) send(now time.Time, act produce.Send) {
	if a.p.seam.closed() {
		a.m.OnFailure(now, act.Request, produce.Final(cluster.ErrClosed))
		return
	}
	req := &produceRequest{
		acks: a.p.cfg.Durability.acks(), timeout: int32(a.p.cfg.RequestTimeout.Milliseconds()),
		behind: act.Behind, least: batchProduce,
	}
	if a.tx != nil {
		a.tx.mark(req)
	}
	for _, item := range act.Items {
		b := a.live[item.Batch]
		known, _ := a.p.seam.CachedTopic(b.tp.Topic)
		id := b.part.topic.id
		if known != nil && known.ID != id && !id.IsZero() { // the news of it is on its way
			a.m.OnFailure(now, act.Request, errRecreated)
			return
		}
		b.restamp(item.Stamp)
		req.add(b.tp, id, b.wire)
		if b.codec == compress.Zstd {
			req.least = max(req.least, zstdProduce)
		}
	}
	p := a.p
	p.seam.produce(a.ctx, act.Broker, req, func(resp kmsg.Response, err error) {
		p.post(func(a *actor, now time.Time) { a.onProduced(now, act.Request, req, resp, err) })
	})
}

// restamp writes the stamp that the machine chose at last into a batch. It
// differs from the one in it if the batch was never sent, or if it was rejected
// and cannot be in the log; then nothing reads the bytes any more either.
func (b *batch) restamp(s record.Stamp) {
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
	if req.acks == acksNone {
		a.m.OnWritten(now, id)
		return
	}
	r, ok := resp.(*kmsg.ProduceResponse)
	if !ok {
		a.m.OnFailure(now, id, errNoAnswer)
		return
	}
	a.m.OnAnswer(now, id, a.p.answers(req, r))
}

// cutOff is a request that was on its way when the cluster handle was closed.
type cutOff struct{ error }

func (c cutOff) Unwrap() error       { return c.error }
func (cutOff) MayHaveHappened() bool { return true }

var errRecreated error = notDone("ottla: the topic was deleted and created again")

var errNoAnswer error = &kafka.ProtocolError{Addr: "the leader", What: "the answer to Produce is of another kind"}

// answers is a response in the machine's words.
func (p *Producer) answers(req *produceRequest, r *kmsg.ProduceResponse) []produce.Answer {
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
			out = append(out, p.answer(name, &t.Partitions[j], endpoints))
		}
	}
	return out
}

func (p *Producer) answer(topic string, part *kmsg.ProduceResponseTopicPartition, endpoints []kafka.Broker) produce.Answer {
	ans := produce.Answer{
		Partition: kafka.TopicPartition{Topic: topic, Partition: part.Partition},
		Code:      part.ErrorCode, Base: kafka.Offset(part.BaseOffset), AppendTime: kafka.Timestamp(part.LogAppendTime),
		LogStart: kafka.Offset(part.LogStartOffset), Leader: kafka.NoNode,
	}
	if part.ErrorMessage != nil {
		ans.Message = *part.ErrorMessage
	}
	for _, r := range part.ErrorRecords {
		reason := produce.Reason{Index: r.RelativeOffset}
		if r.ErrorMessage != nil {
			reason.Text = *r.ErrorMessage
		}
		ans.Reasons = append(ans.Reasons, reason)
	}
	leader, epoch := kafka.NodeID(part.CurrentLeader.LeaderID), kafka.LeaderEpoch(part.CurrentLeader.LeaderEpoch)
	if part.ErrorCode != 0 && leader >= 0 && p.seam.LearnLeader(ans.Partition, leader, epoch, endpoints) {
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
