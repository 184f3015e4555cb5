package model

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// Handle answers a request that reaches a broker now, at the request's version;
// nil is no answer (acks 0). It keeps no part of the request. A request of
// another kind gets the empty answer of its API.
func (c *Cluster) Handle(now time.Time, node kafka.NodeID, req kmsg.Request) kmsg.Response {
	c.Advance(now)
	return request{c, node}.answer(req)
}

// request is a request on the broker that it reached.
type request struct {
	*Cluster
	node kafka.NodeID
}

func (c request) answer(req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.ApiVersionsRequest:
		return c.apiVersions(req)
	case *kmsg.MetadataRequest:
		return c.metadata(req)
	case *kmsg.FindCoordinatorRequest:
		return c.findCoordinator(req)
	case *kmsg.InitProducerIDRequest:
		return c.initProducerID(req)
	case *kmsg.AddPartitionsToTxnRequest:
		return c.addPartitions(req)
	case *kmsg.AddOffsetsToTxnRequest:
		return c.addOffsets(req)
	case *kmsg.EndTxnRequest:
		return c.endTxn(req)
	case *kmsg.TxnOffsetCommitRequest:
		return c.txnOffsetCommit(req)
	case *kmsg.OffsetFetchRequest:
		return c.offsetFetch(req)
	case *kmsg.ProduceRequest:
		return c.produce(req)
	case *kmsg.FetchRequest:
		return c.fetch(req)
	case *kmsg.ListOffsetsRequest:
		return c.listOffsets(req)
	case *kmsg.DescribeTransactionsRequest:
		return c.describeTransactions(req)
	case *kmsg.DescribeProducersRequest:
		return c.describeProducers(req)
	}
	return req.ResponseKind()
}

// coordinates reports whether a broker is the coordinator of a key.
func (c request) coordinates(key string) bool {
	return c.node == AnyBroker || c.node == c.Coordinator(key)
}

// leads is the code for a request to a partition at a broker.
func (c request) leads(tp kafka.TopicPartition) (*partition, int16) {
	p := c.partition(tp)
	switch {
	case p == nil:
		return nil, kerr.UnknownTopicOrPartition.Code
	case c.node != AnyBroker && c.node != p.leader:
		return p, kerr.NotLeaderForPartition.Code
	}
	return p, 0
}

// named is a topic that a request names, by name or by id.
func (c request) named(name string, id kafka.TopicID) string {
	if name == "" {
		return c.names[id]
	}
	return name
}

func (c request) addPartitions(req *kmsg.AddPartitionsToTxnRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if req.Version > 3 { // the form that brokers send to each other
		resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
		return resp
	}
	code, missing := int16(0), false
	var tps []kafka.TopicPartition
	for _, t := range req.Topics {
		for _, i := range t.Partitions {
			tp := kafka.TopicPartition{Topic: t.Topic, Partition: i}
			tps = append(tps, tp)
			missing = missing || c.partition(tp) == nil
		}
	}
	switch {
	case !c.coordinates(req.TransactionalID):
		code = kerr.NotCoordinator.Code
	case missing: // then the others are not tried
		code = kerr.OperationNotAttempted.Code
	default:
		t := c.coord.txn(req.TransactionalID)
		code = t.mayAdd(pair{kafka.ProducerID(req.ProducerID), kafka.ProducerEpoch(req.ProducerEpoch)})
		if code == 0 {
			c.coord.add(t, tps...)
		}
	}
	if code == kerr.ProducerFenced.Code && req.Version < 2 {
		code = kerr.InvalidProducerEpoch.Code
	}
	for _, t := range req.Topics {
		rt := kmsg.NewAddPartitionsToTxnResponseTopic()
		rt.Topic = t.Topic
		for _, i := range t.Partitions {
			rp := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
			rp.Partition, rp.ErrorCode = i, code
			if missing && c.partition(kafka.TopicPartition{Topic: t.Topic, Partition: i}) == nil {
				rp.ErrorCode = kerr.UnknownTopicOrPartition.Code
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// Versions of Produce with another way to say what a transaction is about.
const (
	abortableProduce = 11 // knows TRANSACTION_ABORTABLE
	addingProduce    = 12 // adds its partitions to the transaction (KIP-890)
	hintingProduce   = 10 // tells the present leader (KIP-951)
)

func (c request) produce(req *kmsg.ProduceRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for i := range req.Topics {
		t := &req.Topics[i]
		rt := kmsg.NewProduceResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		name := c.named(t.Topic, t.TopicID)
		for j := range t.Partitions {
			rp := kmsg.NewProduceResponseTopicPartition()
			rp.Partition, rp.BaseOffset = t.Partitions[j].Partition, -1
			tp := kafka.TopicPartition{Topic: name, Partition: rp.Partition}
			if name == "" {
				rp.ErrorCode = kerr.UnknownTopicID.Code
			} else {
				c.produceOne(req, tp, t.Partitions[j].Records, &rp)
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	if req.Acks == 0 {
		return nil
	}
	return resp
}

func (c request) produceOne(req *kmsg.ProduceRequest, tp kafka.TopicPartition, data []byte, out *kmsg.ProduceResponseTopicPartition) {
	p, code := c.leads(tp)
	if code != 0 {
		out.ErrorCode = code
		if p != nil && req.Version >= hintingProduce {
			out.CurrentLeader.LeaderID, out.CurrentLeader.LeaderEpoch = int32(p.leader), int32(p.leaderEpoch)
		}
		return
	}
	b, code := oneBatch(data)
	if code == 0 && b.Transactional() {
		code = c.mayProduce(req, p, pair{b.ProducerID(), b.ProducerEpoch()})
	}
	p.expire(c.now, c.cfg.ProducerExpiration)
	if code == 0 {
		var base kafka.Offset
		code, base = p.append(c.now, b)
		out.BaseOffset = int64(base)
	}
	out.ErrorCode, out.LogStartOffset = code, int64(p.start)
}

// mayProduce asks the coordinator about a transactional batch, as a leader does
// that knows of no open transaction of its producer, and enrols the partition
// under the second protocol.
func (c request) mayProduce(req *kmsg.ProduceRequest, p *partition, held pair) int16 {
	adding := req.Version >= addingProduce
	if adding && c.level == 0 {
		return kerr.UnsupportedVersion.Code
	}
	if p.inTransaction(held.id, held.epoch) || c.cfg.NoVerification && !adding {
		return 0
	}
	name := ""
	if req.TransactionID != nil {
		name = *req.TransactionID
	}
	t := c.coord.txn(name)
	var code int16
	if adding {
		if code = t.mayAdd(held); code == 0 {
			c.coord.add(t, p.tp)
		}
	} else {
		code = t.verify(held, p.tp)
	}
	switch {
	case code == kerr.ProducerFenced.Code:
		return kerr.InvalidProducerEpoch.Code
	case code == kerr.TransactionAbortable.Code && req.Version < abortableProduce:
		return kerr.InvalidTxnState.Code
	case code == kerr.ConcurrentTransactions.Code && !adding:
		return kerr.NotEnoughReplicas.Code
	}
	return code
}
