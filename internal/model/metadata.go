package model

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// feature is the name of what gates the second protocol.
const feature = "transaction.version"

// offered are the versions of the requests that the model knows, as Kafka 4.4
// has them.
var offered = []struct {
	key      kmsg.Key
	min, max int16
}{
	{kmsg.Produce, 3, 13}, {kmsg.Fetch, 4, 17}, {kmsg.ListOffsets, 1, 10}, {kmsg.Metadata, 0, 13},
	{kmsg.OffsetFetch, 8, 9}, {kmsg.FindCoordinator, 0, 6}, {kmsg.ApiVersions, 0, 4}, {kmsg.InitProducerID, 0, 5},
	{kmsg.AddPartitionsToTxn, 0, 5}, {kmsg.AddOffsetsToTxn, 0, 4}, {kmsg.EndTxn, 0, 5}, {kmsg.TxnOffsetCommit, 0, 5},
	{kmsg.DescribeProducers, 0, 0}, {kmsg.DescribeTransactions, 0, 0},
}

func (c request) apiVersions(req *kmsg.ApiVersionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	for _, o := range offered {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = int16(o.key), o.min, o.max
		resp.ApiKeys = append(resp.ApiKeys, k)
	}
	supported := kmsg.NewApiVersionsResponseSupportedFeature()
	supported.Name, supported.MaxVersion = feature, 2
	resp.SupportedFeatures = append(resp.SupportedFeatures, supported)
	resp.FinalizedFeaturesEpoch = 1
	if c.level > 0 { // level 0 is told by absence
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = feature, c.level, c.level
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, f)
	}
	return resp
}

func (c request) metadata(req *kmsg.MetadataRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.ClusterID, resp.ControllerID = kmsg.StringPtr("model"), 1
	for _, id := range slices.Sorted(maps.Keys(c.addrs)) {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port = int32(id), c.addrs[id].Host, c.addrs[id].Port
		resp.Brokers = append(resp.Brokers, b)
	}
	if req.Topics == nil || req.Version == 0 && len(req.Topics) == 0 {
		for _, name := range slices.Sorted(maps.Keys(c.topics)) {
			resp.Topics = append(resp.Topics, c.topics[name].metadata())
		}
		return resp
	}
	for _, want := range req.Topics {
		name := ""
		if want.Topic != nil {
			name = *want.Topic
		}
		if t := c.topics[c.named(name, want.TopicID)]; t != nil {
			resp.Topics = append(resp.Topics, t.metadata())
			continue
		}
		rt := kmsg.NewMetadataResponseTopic()
		rt.Topic, rt.TopicID, rt.ErrorCode = want.Topic, want.TopicID, kerr.UnknownTopicOrPartition.Code
		if want.Topic == nil {
			rt.ErrorCode = kerr.UnknownTopicID.Code
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (t *topic) metadata() kmsg.MetadataResponseTopic {
	rt := kmsg.NewMetadataResponseTopic()
	rt.Topic, rt.TopicID = kmsg.StringPtr(t.name), t.id
	for i, p := range t.parts {
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition, rp.Leader, rp.LeaderEpoch = int32(i), int32(p.leader), int32(p.leaderEpoch)
		rp.Replicas, rp.ISR = []int32{int32(p.leader)}, []int32{int32(p.leader)}
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}

func (c request) findCoordinator(req *kmsg.FindCoordinatorRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.FindCoordinatorResponse)
	if req.Version < 4 {
		b := c.home(req.CoordinatorKey)
		resp.NodeID, resp.Host, resp.Port = int32(b.ID), b.Host, b.Port
		return resp
	}
	for _, key := range req.CoordinatorKeys {
		b := c.home(key)
		one := kmsg.NewFindCoordinatorResponseCoordinator()
		one.Key, one.NodeID, one.Host, one.Port = key, int32(b.ID), b.Host, b.Port
		resp.Coordinators = append(resp.Coordinators, one)
	}
	return resp
}

func (c request) home(key string) kafka.Broker { return c.addrs[c.Coordinator(key)] }
