package cluster

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// splitByLeader is a request as one whose partitions go to their leaders, nil
// if it is none.
func splitByLeader(req kmsg.Request) partitioned {
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		return newTopicSplit(produceShape(r), r.Topics)
	case *kmsg.FetchRequest:
		return newTopicSplit(fetchShape(r), r.Topics)
	case *kmsg.ListOffsetsRequest:
		return newTopicSplit(listOffsetsShape(r), r.Topics)
	case *kmsg.OffsetForLeaderEpochRequest:
		return newTopicSplit(offsetForLeaderEpochShape(r), r.Topics)
	case *kmsg.DeleteRecordsRequest:
		return newTopicSplit(deleteRecordsShape(r), r.Topics)
	case *kmsg.DescribeProducersRequest:
		return newTopicSplit(describeProducersShape(r), r.Topics)
	}
	return nil
}

// produceShape is how Produce holds topics and partitions.
func produceShape(req *kmsg.ProduceRequest) topicShape[kmsg.ProduceRequestTopic, kmsg.ProduceRequestTopicPartition, kmsg.ProduceResponseTopic, kmsg.ProduceResponseTopicPartition] {
	return topicShape[kmsg.ProduceRequestTopic, kmsg.ProduceRequestTopicPartition, kmsg.ProduceResponseTopic, kmsg.ProduceResponseTopicPartition]{
		name:  func(t *kmsg.ProduceRequestTopic) (string, kafka.TopicID) { return t.Topic, t.TopicID },
		parts: func(t *kmsg.ProduceRequestTopic) *[]kmsg.ProduceRequestTopicPartition { return &t.Partitions },
		id:    func(p *kmsg.ProduceRequestTopicPartition) int32 { return p.Partition },
		like: func(t *kmsg.ProduceRequestTopic) kmsg.ProduceResponseTopic {
			return kmsg.ProduceResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		},
		rname:  func(t *kmsg.ProduceResponseTopic) (string, kafka.TopicID) { return t.Topic, t.TopicID },
		rparts: func(t *kmsg.ProduceResponseTopic) *[]kmsg.ProduceResponseTopicPartition { return &t.Partitions },
		blank: func(id int32) kmsg.ProduceResponseTopicPartition {
			p := kmsg.NewProduceResponseTopicPartition()
			p.Partition = id
			return p
		},
		rid:  func(p *kmsg.ProduceResponseTopicPartition) int32 { return p.Partition },
		code: func(p *kmsg.ProduceResponseTopicPartition) *int16 { return &p.ErrorCode },
		text: func(p *kmsg.ProduceResponseTopicPartition) **string { return &p.ErrorMessage },
		wrap: func(ts []kmsg.ProduceRequestTopic) kmsg.Request {
			r := *req
			r.Topics = ts
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.ProduceResponseTopic { return r.(*kmsg.ProduceResponse).Topics },
		merge: func(ts []kmsg.ProduceResponseTopic) kmsg.Response {
			r := kmsg.NewPtrProduceResponse()
			r.Topics = ts
			return r
		},
	}
}

// fetchShape is how Fetch holds topics and partitions.
func fetchShape(req *kmsg.FetchRequest) topicShape[kmsg.FetchRequestTopic, kmsg.FetchRequestTopicPartition, kmsg.FetchResponseTopic, kmsg.FetchResponseTopicPartition] {
	return topicShape[kmsg.FetchRequestTopic, kmsg.FetchRequestTopicPartition, kmsg.FetchResponseTopic, kmsg.FetchResponseTopicPartition]{
		name:  func(t *kmsg.FetchRequestTopic) (string, kafka.TopicID) { return t.Topic, t.TopicID },
		parts: func(t *kmsg.FetchRequestTopic) *[]kmsg.FetchRequestTopicPartition { return &t.Partitions },
		id:    func(p *kmsg.FetchRequestTopicPartition) int32 { return p.Partition },
		like: func(t *kmsg.FetchRequestTopic) kmsg.FetchResponseTopic {
			return kmsg.FetchResponseTopic{Topic: t.Topic, TopicID: t.TopicID}
		},
		rname:  func(t *kmsg.FetchResponseTopic) (string, kafka.TopicID) { return t.Topic, t.TopicID },
		rparts: func(t *kmsg.FetchResponseTopic) *[]kmsg.FetchResponseTopicPartition { return &t.Partitions },
		blank: func(id int32) kmsg.FetchResponseTopicPartition {
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition = id
			return p
		},
		rid:  func(p *kmsg.FetchResponseTopicPartition) int32 { return p.Partition },
		code: func(p *kmsg.FetchResponseTopicPartition) *int16 { return &p.ErrorCode },
		wrap: func(ts []kmsg.FetchRequestTopic) kmsg.Request {
			r := *req
			r.Topics = ts
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.FetchResponseTopic { return r.(*kmsg.FetchResponse).Topics },
		merge: func(ts []kmsg.FetchResponseTopic) kmsg.Response {
			r := kmsg.NewPtrFetchResponse()
			r.Topics = ts
			return r
		},
	}
}

// listOffsetsShape is how ListOffsets holds topics and partitions.
func listOffsetsShape(req *kmsg.ListOffsetsRequest) topicShape[kmsg.ListOffsetsRequestTopic, kmsg.ListOffsetsRequestTopicPartition, kmsg.ListOffsetsResponseTopic, kmsg.ListOffsetsResponseTopicPartition] {
	return topicShape[kmsg.ListOffsetsRequestTopic, kmsg.ListOffsetsRequestTopicPartition, kmsg.ListOffsetsResponseTopic, kmsg.ListOffsetsResponseTopicPartition]{
		name:  func(t *kmsg.ListOffsetsRequestTopic) (string, kafka.TopicID) { return t.Topic, kafka.TopicID{} },
		parts: func(t *kmsg.ListOffsetsRequestTopic) *[]kmsg.ListOffsetsRequestTopicPartition { return &t.Partitions },
		id:    func(p *kmsg.ListOffsetsRequestTopicPartition) int32 { return p.Partition },
		like: func(t *kmsg.ListOffsetsRequestTopic) kmsg.ListOffsetsResponseTopic {
			return kmsg.ListOffsetsResponseTopic{Topic: t.Topic}
		},
		rname:  func(t *kmsg.ListOffsetsResponseTopic) (string, kafka.TopicID) { return t.Topic, kafka.TopicID{} },
		rparts: func(t *kmsg.ListOffsetsResponseTopic) *[]kmsg.ListOffsetsResponseTopicPartition { return &t.Partitions },
		blank: func(id int32) kmsg.ListOffsetsResponseTopicPartition {
			p := kmsg.NewListOffsetsResponseTopicPartition()
			p.Partition = id
			return p
		},
		rid:  func(p *kmsg.ListOffsetsResponseTopicPartition) int32 { return p.Partition },
		code: func(p *kmsg.ListOffsetsResponseTopicPartition) *int16 { return &p.ErrorCode },
		wrap: func(ts []kmsg.ListOffsetsRequestTopic) kmsg.Request {
			r := *req
			r.Topics = ts
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.ListOffsetsResponseTopic { return r.(*kmsg.ListOffsetsResponse).Topics },
		merge: func(ts []kmsg.ListOffsetsResponseTopic) kmsg.Response {
			r := kmsg.NewPtrListOffsetsResponse()
			r.Topics = ts
			return r
		},
	}
}

// offsetForLeaderEpochShape is how OffsetForLeaderEpoch holds topics and partitions.
func offsetForLeaderEpochShape(req *kmsg.OffsetForLeaderEpochRequest) topicShape[kmsg.OffsetForLeaderEpochRequestTopic, kmsg.OffsetForLeaderEpochRequestTopicPartition, kmsg.OffsetForLeaderEpochResponseTopic, kmsg.OffsetForLeaderEpochResponseTopicPartition] {
	return topicShape[kmsg.OffsetForLeaderEpochRequestTopic, kmsg.OffsetForLeaderEpochRequestTopicPartition, kmsg.OffsetForLeaderEpochResponseTopic, kmsg.OffsetForLeaderEpochResponseTopicPartition]{
		name: func(t *kmsg.OffsetForLeaderEpochRequestTopic) (string, kafka.TopicID) {
			return t.Topic, kafka.TopicID{}
		},
		parts: func(t *kmsg.OffsetForLeaderEpochRequestTopic) *[]kmsg.OffsetForLeaderEpochRequestTopicPartition {
			return &t.Partitions
		},
		id: func(p *kmsg.OffsetForLeaderEpochRequestTopicPartition) int32 { return p.Partition },
		like: func(t *kmsg.OffsetForLeaderEpochRequestTopic) kmsg.OffsetForLeaderEpochResponseTopic {
			return kmsg.OffsetForLeaderEpochResponseTopic{Topic: t.Topic}
		},
		rname: func(t *kmsg.OffsetForLeaderEpochResponseTopic) (string, kafka.TopicID) {
			return t.Topic, kafka.TopicID{}
		},
		rparts: func(t *kmsg.OffsetForLeaderEpochResponseTopic) *[]kmsg.OffsetForLeaderEpochResponseTopicPartition {
			return &t.Partitions
		},
		blank: func(id int32) kmsg.OffsetForLeaderEpochResponseTopicPartition {
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition = id
			return p
		},
		rid:  func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) int32 { return p.Partition },
		code: func(p *kmsg.OffsetForLeaderEpochResponseTopicPartition) *int16 { return &p.ErrorCode },
		wrap: func(ts []kmsg.OffsetForLeaderEpochRequestTopic) kmsg.Request {
			r := *req
			r.Topics = ts
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.OffsetForLeaderEpochResponseTopic {
			return r.(*kmsg.OffsetForLeaderEpochResponse).Topics
		},
		merge: func(ts []kmsg.OffsetForLeaderEpochResponseTopic) kmsg.Response {
			r := kmsg.NewPtrOffsetForLeaderEpochResponse()
			r.Topics = ts
			return r
		},
	}
}

// deleteRecordsShape is how DeleteRecords holds topics and partitions.
func deleteRecordsShape(req *kmsg.DeleteRecordsRequest) topicShape[kmsg.DeleteRecordsRequestTopic, kmsg.DeleteRecordsRequestTopicPartition, kmsg.DeleteRecordsResponseTopic, kmsg.DeleteRecordsResponseTopicPartition] {
	return topicShape[kmsg.DeleteRecordsRequestTopic, kmsg.DeleteRecordsRequestTopicPartition, kmsg.DeleteRecordsResponseTopic, kmsg.DeleteRecordsResponseTopicPartition]{
		name: func(t *kmsg.DeleteRecordsRequestTopic) (string, kafka.TopicID) { return t.Topic, kafka.TopicID{} },
		parts: func(t *kmsg.DeleteRecordsRequestTopic) *[]kmsg.DeleteRecordsRequestTopicPartition {
			return &t.Partitions
		},
		id: func(p *kmsg.DeleteRecordsRequestTopicPartition) int32 { return p.Partition },
		like: func(t *kmsg.DeleteRecordsRequestTopic) kmsg.DeleteRecordsResponseTopic {
			return kmsg.DeleteRecordsResponseTopic{Topic: t.Topic}
		},
		rname: func(t *kmsg.DeleteRecordsResponseTopic) (string, kafka.TopicID) { return t.Topic, kafka.TopicID{} },
		rparts: func(t *kmsg.DeleteRecordsResponseTopic) *[]kmsg.DeleteRecordsResponseTopicPartition {
			return &t.Partitions
		},
		blank: func(id int32) kmsg.DeleteRecordsResponseTopicPartition {
			p := kmsg.NewDeleteRecordsResponseTopicPartition()
			p.Partition = id
			return p
		},
		rid:  func(p *kmsg.DeleteRecordsResponseTopicPartition) int32 { return p.Partition },
		code: func(p *kmsg.DeleteRecordsResponseTopicPartition) *int16 { return &p.ErrorCode },
		wrap: func(ts []kmsg.DeleteRecordsRequestTopic) kmsg.Request {
			r := *req
			r.Topics = ts
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.DeleteRecordsResponseTopic { return r.(*kmsg.DeleteRecordsResponse).Topics },
		merge: func(ts []kmsg.DeleteRecordsResponseTopic) kmsg.Response {
			r := kmsg.NewPtrDeleteRecordsResponse()
			r.Topics = ts
			return r
		},
	}
}

// describeProducersShape is how DescribeProducers holds topics and partitions.
func describeProducersShape(req *kmsg.DescribeProducersRequest) topicShape[kmsg.DescribeProducersRequestTopic, int32, kmsg.DescribeProducersResponseTopic, kmsg.DescribeProducersResponseTopicPartition] {
	return topicShape[kmsg.DescribeProducersRequestTopic, int32, kmsg.DescribeProducersResponseTopic, kmsg.DescribeProducersResponseTopicPartition]{
		name:  func(t *kmsg.DescribeProducersRequestTopic) (string, kafka.TopicID) { return t.Topic, kafka.TopicID{} },
		parts: func(t *kmsg.DescribeProducersRequestTopic) *[]int32 { return &t.Partitions },
		id:    func(p *int32) int32 { return *p },
		like: func(t *kmsg.DescribeProducersRequestTopic) kmsg.DescribeProducersResponseTopic {
			return kmsg.DescribeProducersResponseTopic{Topic: t.Topic}
		},
		rname: func(t *kmsg.DescribeProducersResponseTopic) (string, kafka.TopicID) { return t.Topic, kafka.TopicID{} },
		rparts: func(t *kmsg.DescribeProducersResponseTopic) *[]kmsg.DescribeProducersResponseTopicPartition {
			return &t.Partitions
		},
		blank: func(id int32) kmsg.DescribeProducersResponseTopicPartition {
			p := kmsg.NewDescribeProducersResponseTopicPartition()
			p.Partition = id
			return p
		},
		rid:  func(p *kmsg.DescribeProducersResponseTopicPartition) int32 { return p.Partition },
		code: func(p *kmsg.DescribeProducersResponseTopicPartition) *int16 { return &p.ErrorCode },
		text: func(p *kmsg.DescribeProducersResponseTopicPartition) **string { return &p.ErrorMessage },
		wrap: func(ts []kmsg.DescribeProducersRequestTopic) kmsg.Request {
			r := *req
			r.Topics = ts
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.DescribeProducersResponseTopic {
			return r.(*kmsg.DescribeProducersResponse).Topics
		},
		merge: func(ts []kmsg.DescribeProducersResponseTopic) kmsg.Response {
			r := kmsg.NewPtrDescribeProducersResponse()
			r.Topics = ts
			return r
		},
	}
}
