package producer

import (
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
)

// Versions of the requests of a transaction. From bumpingEnd and addingCommit on
// a broker follows part 2 of KIP-890; AddPartitionsToTxn above clientAdd is the
// form between brokers.
const (
	clientAdd    = 3
	bumpingEnd   = 5
	addingCommit = 5
	anyVersion   = -1
)

// askFor makes one request to a coordinator, and takes its answer by kind.
func askFor[R kmsg.Response](ctx context.Context, at kmsg.Requestor, req kmsg.Request, read func(R) produce.Reply) produce.Reply {
	resp, err := at.Request(ctx, req)
	if err != nil {
		return produce.Reply{Err: err, ID: -1}
	}
	r, ok := resp.(R)
	if !ok {
		return produce.Reply{Err: errOddAnswer, ID: -1}
	}
	return read(r)
}

var errOddAnswer error = &kafka.ProtocolError{Addr: "the coordinator", What: "the answer is of another kind than the request"}

// asker makes the requests of one transactional id; it does not change.
type asker struct {
	coordinators
	id      string
	timeout int32 // of a transaction, ms
	bound   *binding
}

func (k *asker) coordinator(maxVersion int16) kmsg.Requestor {
	return k.once(cluster.TransactionCoordinator, k.id, maxVersion)
}

func (k *asker) initProducer(ctx context.Context, act produce.InitProducer) produce.Reply {
	if k.bound != nil {
		return k.bound.identity(act)
	}
	bumping, err := k.bumping(ctx, k.id)
	if err != nil {
		return produce.Reply{Err: endedWait{err}, ID: -1}
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = &k.id
	req.TransactionTimeoutMillis = k.timeout
	req.ProducerID, req.ProducerEpoch = int64(act.ID), int16(act.Epoch)
	return askFor(ctx, k.coordinator(anyVersion), req, func(r *kmsg.InitProducerIDResponse) produce.Reply {
		reply := produce.Reply{
			Code: r.ErrorCode, ID: kafka.ProducerID(r.ProducerID), Epoch: kafka.ProducerEpoch(r.ProducerEpoch),
			Bumping: bumping, Identity: r.ErrorCode == 0,
		}
		if reply.Identity && (r.ProducerID < 0 || r.ProducerEpoch < 0) {
			return produce.Reply{Err: errNoIdentity, ID: -1}
		}
		return reply
	})
}

func (k *asker) enrol(ctx context.Context, act produce.Enrol) produce.Reply {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = k.id, int64(act.ID), int16(act.Epoch)
	for _, tp := range act.Partitions {
		n := len(req.Topics)
		if n == 0 || req.Topics[n-1].Topic != tp.Topic {
			rt := kmsg.NewAddPartitionsToTxnRequestTopic()
			rt.Topic = tp.Topic
			req.Topics = append(req.Topics, rt)
			n++
		}
		req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, tp.Partition)
	}
	return askFor(ctx, k.coordinator(clientAdd), req, func(r *kmsg.AddPartitionsToTxnResponse) produce.Reply {
		reply := produce.Reply{ID: -1}
		for _, t := range r.Topics {
			for _, part := range t.Partitions {
				at := kafka.TopicPartition{Topic: t.Topic, Partition: part.Partition}
				reply.Parts = append(reply.Parts, produce.PartitionCode{Partition: at, Code: part.ErrorCode})
			}
		}
		return reply
	})
}

func (k *asker) enrolGroup(ctx context.Context, act produce.EnrolGroup) produce.Reply {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = k.id, int64(act.ID), int16(act.Epoch), act.Group
	return askFor(ctx, k.coordinator(anyVersion), req, func(r *kmsg.AddOffsetsToTxnResponse) produce.Reply {
		return produce.Reply{Code: r.ErrorCode, ID: -1}
	})
}

// offsetsRequest is a TxnOffsetCommit without the producer's identity.
func offsetsRequest(id string, group kafka.GroupMetadata, offsets map[kafka.TopicPartition]kafka.Commit) *kmsg.TxnOffsetCommitRequest {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.MemberID, req.Generation = id, group.Group, group.MemberID, group.Generation
	if group.InstanceID != "" {
		req.InstanceID = &group.InstanceID
	}
	for _, tp := range slices.SortedFunc(maps.Keys(offsets), kafka.TopicPartition.Compare) {
		n := len(req.Topics)
		if n == 0 || req.Topics[n-1].Topic != tp.Topic {
			rt := kmsg.NewTxnOffsetCommitRequestTopic()
			rt.Topic = tp.Topic
			req.Topics = append(req.Topics, rt)
			n++
		}
		at := offsets[tp]
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = tp.Partition, int64(at.Offset), int32(at.LeaderEpoch), &at.Metadata
		req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, rp)
	}
	return req
}

func (k *asker) commitOffsets(ctx context.Context, req *kmsg.TxnOffsetCommitRequest, act produce.CommitOffsets) produce.Reply {
	req.ProducerID, req.ProducerEpoch = int64(act.ID), int16(act.Epoch)
	most := int16(addingCommit - 1)
	if act.Bumping {
		most = addingCommit
	}
	at := k.once(cluster.GroupCoordinator, req.Group, most)
	return askFor(ctx, at, req, func(r *kmsg.TxnOffsetCommitResponse) produce.Reply {
		reply := produce.Reply{ID: -1}
		for _, t := range r.Topics {
			for _, part := range t.Partitions {
				at := kafka.TopicPartition{Topic: t.Topic, Partition: part.Partition}
				reply.Parts = append(reply.Parts, produce.PartitionCode{Partition: at, Code: part.ErrorCode})
			}
		}
		return reply
	})
}

func (k *asker) endTxn(ctx context.Context, act produce.EndTxn) produce.Reply {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = k.id, int64(act.ID), int16(act.Epoch), act.Commit
	most := int16(bumpingEnd - 1)
	if act.Bumping {
		most = bumpingEnd
	}
	return askFor(ctx, k.coordinator(most), req, func(r *kmsg.EndTxnResponse) produce.Reply {
		reply := produce.Reply{Code: r.ErrorCode, ID: -1}
		if act.Bumping && r.Version >= bumpingEnd {
			reply.ID, reply.Epoch = kafka.ProducerID(r.ProducerID), kafka.ProducerEpoch(r.ProducerEpoch)
		}
		return reply
	})
}
