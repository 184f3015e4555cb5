package model

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

const readCommitted = 1

// fetch answers at once with what is there; waiting for more is a matter of who
// serves.
func (c request) fetch(req *kmsg.FetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		name := c.named(t.Topic, t.TopicID)
		for j := range t.Partitions {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition, rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = t.Partitions[j].Partition, -1, -1, -1
			if name == "" {
				rp.ErrorCode = kerr.UnknownTopicID.Code
			} else {
				c.fetchOne(kafka.TopicPartition{Topic: name, Partition: rp.Partition}, req.IsolationLevel, &t.Partitions[j], &rp)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (c request) fetchOne(tp kafka.TopicPartition, isolation int8, in *kmsg.FetchRequestTopicPartition, out *kmsg.FetchResponseTopicPartition) {
	p, code := c.leads(tp)
	if code != 0 {
		out.ErrorCode = code
		return
	}
	limit := p.end
	if isolation == readCommitted {
		limit = p.stable()
	}
	from := kafka.Offset(in.FetchOffset)
	out.HighWatermark, out.LastStableOffset, out.LogStartOffset = int64(p.end), int64(p.stable()), int64(p.start)
	if from < p.start || from > p.end {
		out.ErrorCode = kerr.OffsetOutOfRange.Code
		return
	}
	out.RecordBatches = []byte{}
	upper := from
	for _, e := range p.entries {
		full := len(out.RecordBatches) > 0 && len(out.RecordBatches)+e.Size() > int(in.PartitionMaxBytes)
		if e.NextOffset() <= from || e.NextOffset() > limit {
			continue
		}
		if full {
			break
		}
		out.RecordBatches = append(out.RecordBatches, e.Bytes()...)
		upper = e.NextOffset()
	}
	for _, a := range p.aborted {
		if isolation == readCommitted && a.last >= from && a.first < upper {
			at := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			at.ProducerID, at.FirstOffset = int64(a.id), int64(a.first)
			out.AbortedTransactions = append(out.AbortedTransactions, at)
		}
	}
}

func (c request) listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewListOffsetsResponseTopic()
		rt.Topic = t.Topic
		for _, want := range t.Partitions {
			rp := kmsg.NewListOffsetsResponseTopicPartition()
			rp.Partition, rp.Offset, rp.Timestamp = want.Partition, -1, -1
			p, code := c.leads(kafka.TopicPartition{Topic: t.Topic, Partition: want.Partition})
			if rp.ErrorCode = code; code == 0 {
				p.offsetAt(want.Timestamp, req.IsolationLevel, &rp)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (p *partition) offsetAt(ts int64, isolation int8, out *kmsg.ListOffsetsResponseTopicPartition) {
	out.LeaderEpoch = int32(p.leaderEpoch)
	switch {
	case ts == -2:
		out.Offset = int64(p.start)
	case ts == -1 && isolation == readCommitted:
		out.Offset = int64(p.stable())
	case ts == -1:
		out.Offset = int64(p.end)
	default:
		if r, ok := p.firstAt(kafka.Timestamp(ts)); ok {
			out.Offset, out.Timestamp = int64(r.Offset), int64(r.Timestamp)
		}
	}
}

// firstAt is the first record with this time or a later one.
func (p *partition) firstAt(ts kafka.Timestamp) (kafka.Record, bool) {
	for _, e := range p.entries {
		if e.Control() {
			continue
		}
		for _, r := range recordsOf(e.Batch) {
			if r.Timestamp >= ts {
				return r, true
			}
		}
	}
	return kafka.Record{}, false
}

func (c request) describeTransactions(req *kmsg.DescribeTransactionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	for _, name := range req.TransactionalIDs {
		out := kmsg.NewDescribeTransactionsResponseTransactionState()
		out.TransactionalID, out.ProducerID, out.ProducerEpoch, out.StartTimestamp = name, -1, -1, -1
		t, known := c.Transaction(name)
		switch {
		case !c.coordinates(name):
			out.ErrorCode = kerr.NotCoordinator.Code
		case !known:
			out.ErrorCode = kerr.TransactionalIDNotFound.Code
		default:
			describe(&out, t)
		}
		resp.TransactionStates = append(resp.TransactionStates, out)
	}
	return resp
}

func describe(out *kmsg.DescribeTransactionsResponseTransactionState, t Transaction) {
	out.State, out.ProducerID, out.ProducerEpoch = string(t.State), int64(t.ID), int16(t.Epoch)
	out.TimeoutMillis = int32(t.Timeout.Milliseconds())
	if !t.Started.IsZero() && t.State != Empty {
		out.StartTimestamp = t.Started.UnixMilli()
	}
	for _, tp := range t.Partitions {
		n := len(out.Topics)
		if n == 0 || out.Topics[n-1].Topic != tp.Topic {
			rt := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			rt.Topic = tp.Topic
			out.Topics = append(out.Topics, rt)
			n++
		}
		out.Topics[n-1].Partitions = append(out.Topics[n-1].Partitions, tp.Partition)
	}
}

func (c request) describeProducers(req *kmsg.DescribeProducersRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewDescribeProducersResponseTopic()
		rt.Topic = t.Topic
		for _, i := range t.Partitions {
			rp := kmsg.NewDescribeProducersResponseTopicPartition()
			rp.Partition = i
			p, code := c.leads(kafka.TopicPartition{Topic: t.Topic, Partition: i})
			if rp.ErrorCode = code; code == 0 {
				rp.ActiveProducers = p.active()
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (p *partition) active() []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
	var out []kmsg.DescribeProducersResponseTopicPartitionActiveProducer
	for _, id := range slices.Sorted(maps.Keys(p.producers)) {
		s := p.producers[id]
		a := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		a.ProducerID, a.ProducerEpoch, a.LastSequence = int64(id), int32(s.epoch), -1
		a.LastTimestamp, a.CurrentTxnStartOffset = s.updated.UnixMilli(), int64(s.open)
		if n := len(s.last); n > 0 {
			a.LastSequence = s.last[n-1].last
		}
		out = append(out, a)
	}
	return out
}
