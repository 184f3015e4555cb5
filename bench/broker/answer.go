package broker

import (
	"encoding/binary"
	"math"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// versions are the APIs that the broker has, and their versions, as Kafka 4
// offers them.
var versions = [][3]int16{
	{0, 3, 13}, {1, 4, 17}, {2, 1, 10}, {3, 0, 13}, {10, 0, 6}, {12, 0, 4}, {18, 0, 4}, {22, 0, 5}, {23, 2, 4},
}

const (
	far  = math.MaxInt64 / 2 // the end of every log that is read
	node = 1
)

// answer is the answer to anything but Fetch, nil for none.
func (b *Broker) answer(req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.ProduceRequest:
		return b.produce(req)
	case *kmsg.ApiVersionsRequest:
		resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
		for _, v := range versions {
			k := kmsg.NewApiVersionsResponseApiKey()
			k.ApiKey, k.MinVersion, k.MaxVersion = v[0], v[1], v[2]
			resp.ApiKeys = append(resp.ApiKeys, k)
		}
		return resp
	case *kmsg.MetadataRequest:
		return b.metadata(req)
	case *kmsg.FindCoordinatorRequest:
		return b.coordinator(req)
	case *kmsg.InitProducerIDRequest:
		resp := req.ResponseKind().(*kmsg.InitProducerIDResponse)
		b.mu.Lock()
		b.nextID++
		resp.ProducerID = b.nextID
		b.mu.Unlock()
		return resp
	case *kmsg.ListOffsetsRequest:
		return listOffsets(req)
	case *kmsg.OffsetForLeaderEpochRequest:
		return epochs(req)
	}
	return req.ResponseKind() // Heartbeat: success
}

func (b *Broker) produce(req *kmsg.ProduceRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	for _, rt := range req.Topics {
		t := b.byID(rt.TopicID)
		if t == nil {
			t = b.topic(rt.Topic)
		}
		st := kmsg.NewProduceResponseTopic()
		st.Topic, st.TopicID = rt.Topic, rt.TopicID
		for _, rp := range rt.Partitions {
			sp := kmsg.NewProduceResponseTopicPartition()
			sp.Partition, sp.BaseOffset = rp.Partition, t.append(rp.Partition, rp.Records)
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	if req.Acks == 0 {
		return nil
	}
	return resp
}

// append counts the records of batches and gives the offset of the first.
func (t *topic) append(part int32, batches []byte) (base int64) {
	var n int64
	for len(batches) >= 61 {
		n += int64(int32(binary.BigEndian.Uint32(batches[57:])))
		batches = batches[min(len(batches), 12+int(binary.BigEndian.Uint32(batches[8:]))):]
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	base = t.ends[part%Parts]
	t.ends[part%Parts] += n
	return base
}

func (b *Broker) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	mb := kmsg.NewMetadataResponseBroker()
	mb.NodeID, mb.Host, mb.Port = node, b.host, b.port
	resp.Brokers = append(resp.Brokers, mb)
	resp.ControllerID, resp.ClusterID = node, kmsg.StringPtr("canned")
	var topics []*topic
	for _, rt := range req.Topics {
		if rt.Topic == nil {
			if t := b.byID(rt.TopicID); t != nil {
				topics = append(topics, t)
			}
			continue
		}
		topics = append(topics, b.topic(*rt.Topic))
	}
	if req.Topics == nil {
		for _, n := range b.names() {
			topics = append(topics, b.topic(n))
		}
	}
	for _, t := range topics {
		mt := kmsg.NewMetadataResponseTopic()
		mt.Topic, mt.TopicID = kmsg.StringPtr(t.name), t.id
		for p := range t.parts() {
			mp := kmsg.NewMetadataResponseTopicPartition()
			mp.Partition, mp.Leader, mp.LeaderEpoch = p, node, 0
			mp.Replicas, mp.ISR = []int32{node}, []int32{node}
			mt.Partitions = append(mt.Partitions, mp)
		}
		resp.Topics = append(resp.Topics, mt)
	}
	return resp
}

func (b *Broker) coordinator(req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	resp.NodeID, resp.Host, resp.Port = node, b.host, b.port
	for _, key := range req.CoordinatorKeys {
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.Key, c.NodeID, c.Host, c.Port = key, node, b.host, b.port
		resp.Coordinators = append(resp.Coordinators, c)
	}
	return resp
}

func listOffsets(req *kmsg.ListOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
	for _, rt := range req.Topics {
		st := kmsg.NewListOffsetsResponseTopic()
		st.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			sp := kmsg.NewListOffsetsResponseTopicPartition()
			sp.Partition, sp.Offset, sp.LeaderEpoch = rp.Partition, 0, 0
			if rp.Timestamp == -1 {
				sp.Offset = far
			}
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}

func epochs(req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, rt := range req.Topics {
		st := kmsg.NewOffsetForLeaderEpochResponseTopic()
		st.Topic = rt.Topic
		for _, rp := range rt.Partitions {
			sp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			sp.Partition, sp.LeaderEpoch, sp.EndOffset = rp.Partition, 0, far
			st.Partitions = append(st.Partitions, sp)
		}
		resp.Topics = append(resp.Topics, st)
	}
	return resp
}
