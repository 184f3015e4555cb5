package cluster

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// splitByKey is a request for several groups or transactional ids as one whose
// items go to their coordinators, nil if it is none.
func splitByKey(req kmsg.Request) split {
	switch r := req.(type) {
	case *kmsg.DescribeGroupsRequest:
		return newKeySplit(describeGroupsShape(r), r.Groups)
	case *kmsg.DeleteGroupsRequest:
		return newKeySplit(deleteGroupsShape(r), r.Groups)
	case *kmsg.ConsumerGroupDescribeRequest:
		return newKeySplit(consumerGroupDescribeShape(r), r.Groups)
	case *kmsg.ShareGroupDescribeRequest:
		return newKeySplit(shareGroupDescribeShape(r), r.GroupIDs)
	case *kmsg.StreamsGroupDescribeRequest:
		return newKeySplit(streamsGroupDescribeShape(r), r.Groups)
	case *kmsg.DescribeShareGroupOffsetsRequest:
		return newKeySplit(describeShareGroupOffsetsShape(r), r.Groups)
	case *kmsg.DescribeTransactionsRequest:
		return newKeySplit(describeTransactionsShape(r), r.TransactionalIDs)
	case *kmsg.AddPartitionsToTxnRequest:
		if len(r.Transactions) > 0 {
			return newKeySplit(addPartitionsShape(r), r.Transactions)
		}
	case *kmsg.OffsetFetchRequest:
		return newKeySplit(offsetFetchShape(r), offsetFetchGroups(r))
	}
	return nil
}

// describeGroupsShape is how DescribeGroups holds its items.
func describeGroupsShape(req *kmsg.DescribeGroupsRequest) keyShape[string, kmsg.DescribeGroupsResponseGroup] {
	return keyShape[string, kmsg.DescribeGroupsResponseGroup]{
		key: func(q *string) string { return *q },
		like: func(q *string) kmsg.DescribeGroupsResponseGroup {
			r := kmsg.NewDescribeGroupsResponseGroup()
			r.Group = *q
			return r
		},
		rkey: func(r *kmsg.DescribeGroupsResponseGroup) string { return r.Group },
		code: func(r *kmsg.DescribeGroupsResponseGroup) *int16 { return &r.ErrorCode },
		text: func(r *kmsg.DescribeGroupsResponseGroup) **string { return &r.ErrorMessage },
		wrap: func(qs []string) kmsg.Request {
			r := *req
			r.Groups = qs
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.DescribeGroupsResponseGroup {
			return r.(*kmsg.DescribeGroupsResponse).Groups
		},
		merge: func(rs []kmsg.DescribeGroupsResponseGroup) kmsg.Response {
			r := kmsg.NewPtrDescribeGroupsResponse()
			r.Groups = rs
			return r
		},
	}
}

// deleteGroupsShape is how DeleteGroups holds its items.
func deleteGroupsShape(req *kmsg.DeleteGroupsRequest) keyShape[string, kmsg.DeleteGroupsResponseGroup] {
	return keyShape[string, kmsg.DeleteGroupsResponseGroup]{
		key: func(q *string) string { return *q },
		like: func(q *string) kmsg.DeleteGroupsResponseGroup {
			r := kmsg.NewDeleteGroupsResponseGroup()
			r.Group = *q
			return r
		},
		rkey: func(r *kmsg.DeleteGroupsResponseGroup) string { return r.Group },
		code: func(r *kmsg.DeleteGroupsResponseGroup) *int16 { return &r.ErrorCode },
		text: func(r *kmsg.DeleteGroupsResponseGroup) **string { return &r.ErrorMessage },
		wrap: func(qs []string) kmsg.Request {
			r := *req
			r.Groups = qs
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.DeleteGroupsResponseGroup { return r.(*kmsg.DeleteGroupsResponse).Groups },
		merge: func(rs []kmsg.DeleteGroupsResponseGroup) kmsg.Response {
			r := kmsg.NewPtrDeleteGroupsResponse()
			r.Groups = rs
			return r
		},
	}
}

// consumerGroupDescribeShape is how ConsumerGroupDescribe holds its items.
func consumerGroupDescribeShape(req *kmsg.ConsumerGroupDescribeRequest) keyShape[string, kmsg.ConsumerGroupDescribeResponseGroup] {
	return keyShape[string, kmsg.ConsumerGroupDescribeResponseGroup]{
		key: func(q *string) string { return *q },
		like: func(q *string) kmsg.ConsumerGroupDescribeResponseGroup {
			r := kmsg.NewConsumerGroupDescribeResponseGroup()
			r.Group = *q
			return r
		},
		rkey: func(r *kmsg.ConsumerGroupDescribeResponseGroup) string { return r.Group },
		code: func(r *kmsg.ConsumerGroupDescribeResponseGroup) *int16 { return &r.ErrorCode },
		text: func(r *kmsg.ConsumerGroupDescribeResponseGroup) **string { return &r.ErrorMessage },
		wrap: func(qs []string) kmsg.Request {
			r := *req
			r.Groups = qs
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.ConsumerGroupDescribeResponseGroup {
			return r.(*kmsg.ConsumerGroupDescribeResponse).Groups
		},
		merge: func(rs []kmsg.ConsumerGroupDescribeResponseGroup) kmsg.Response {
			r := kmsg.NewPtrConsumerGroupDescribeResponse()
			r.Groups = rs
			return r
		},
	}
}

// shareGroupDescribeShape is how ShareGroupDescribe holds its items.
func shareGroupDescribeShape(req *kmsg.ShareGroupDescribeRequest) keyShape[string, kmsg.ShareGroupDescribeResponseGroup] {
	return keyShape[string, kmsg.ShareGroupDescribeResponseGroup]{
		key: func(q *string) string { return *q },
		like: func(q *string) kmsg.ShareGroupDescribeResponseGroup {
			r := kmsg.NewShareGroupDescribeResponseGroup()
			r.GroupID = *q
			return r
		},
		rkey: func(r *kmsg.ShareGroupDescribeResponseGroup) string { return r.GroupID },
		code: func(r *kmsg.ShareGroupDescribeResponseGroup) *int16 { return &r.ErrorCode },
		text: func(r *kmsg.ShareGroupDescribeResponseGroup) **string { return &r.ErrorMessage },
		wrap: func(qs []string) kmsg.Request {
			r := *req
			r.GroupIDs = qs
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.ShareGroupDescribeResponseGroup {
			return r.(*kmsg.ShareGroupDescribeResponse).Groups
		},
		merge: func(rs []kmsg.ShareGroupDescribeResponseGroup) kmsg.Response {
			r := kmsg.NewPtrShareGroupDescribeResponse()
			r.Groups = rs
			return r
		},
	}
}

// streamsGroupDescribeShape is how StreamsGroupDescribe holds its items.
func streamsGroupDescribeShape(req *kmsg.StreamsGroupDescribeRequest) keyShape[string, kmsg.StreamsGroupDescribeResponseGroup] {
	return keyShape[string, kmsg.StreamsGroupDescribeResponseGroup]{
		key: func(q *string) string { return *q },
		like: func(q *string) kmsg.StreamsGroupDescribeResponseGroup {
			r := kmsg.NewStreamsGroupDescribeResponseGroup()
			r.Group = *q
			return r
		},
		rkey: func(r *kmsg.StreamsGroupDescribeResponseGroup) string { return r.Group },
		code: func(r *kmsg.StreamsGroupDescribeResponseGroup) *int16 { return &r.ErrorCode },
		text: func(r *kmsg.StreamsGroupDescribeResponseGroup) **string { return &r.ErrorMessage },
		wrap: func(qs []string) kmsg.Request {
			r := *req
			r.Groups = qs
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.StreamsGroupDescribeResponseGroup {
			return r.(*kmsg.StreamsGroupDescribeResponse).Groups
		},
		merge: func(rs []kmsg.StreamsGroupDescribeResponseGroup) kmsg.Response {
			r := kmsg.NewPtrStreamsGroupDescribeResponse()
			r.Groups = rs
			return r
		},
	}
}

// describeShareGroupOffsetsShape is how DescribeShareGroupOffsets holds its items.
func describeShareGroupOffsetsShape(req *kmsg.DescribeShareGroupOffsetsRequest) keyShape[kmsg.DescribeShareGroupOffsetsRequestGroup, kmsg.DescribeShareGroupOffsetsResponseGroup] {
	return keyShape[kmsg.DescribeShareGroupOffsetsRequestGroup, kmsg.DescribeShareGroupOffsetsResponseGroup]{
		key: func(q *kmsg.DescribeShareGroupOffsetsRequestGroup) string { return q.GroupID },
		like: func(q *kmsg.DescribeShareGroupOffsetsRequestGroup) kmsg.DescribeShareGroupOffsetsResponseGroup {
			r := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
			r.GroupID = q.GroupID
			return r
		},
		rkey: func(r *kmsg.DescribeShareGroupOffsetsResponseGroup) string { return r.GroupID },
		code: func(r *kmsg.DescribeShareGroupOffsetsResponseGroup) *int16 { return &r.ErrorCode },
		text: func(r *kmsg.DescribeShareGroupOffsetsResponseGroup) **string { return &r.ErrorMessage },
		wrap: func(qs []kmsg.DescribeShareGroupOffsetsRequestGroup) kmsg.Request {
			r := *req
			r.Groups = qs
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.DescribeShareGroupOffsetsResponseGroup {
			return r.(*kmsg.DescribeShareGroupOffsetsResponse).Groups
		},
		merge: func(rs []kmsg.DescribeShareGroupOffsetsResponseGroup) kmsg.Response {
			r := kmsg.NewPtrDescribeShareGroupOffsetsResponse()
			r.Groups = rs
			return r
		},
	}
}

// describeTransactionsShape is how DescribeTransactions holds its items.
func describeTransactionsShape(req *kmsg.DescribeTransactionsRequest) keyShape[string, kmsg.DescribeTransactionsResponseTransactionState] {
	return keyShape[string, kmsg.DescribeTransactionsResponseTransactionState]{
		key: func(q *string) string { return *q },
		like: func(q *string) kmsg.DescribeTransactionsResponseTransactionState {
			r := kmsg.NewDescribeTransactionsResponseTransactionState()
			r.TransactionalID = *q
			return r
		},
		rkey: func(r *kmsg.DescribeTransactionsResponseTransactionState) string { return r.TransactionalID },
		code: func(r *kmsg.DescribeTransactionsResponseTransactionState) *int16 { return &r.ErrorCode },
		wrap: func(qs []string) kmsg.Request {
			r := *req
			r.TransactionalIDs = qs
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.DescribeTransactionsResponseTransactionState {
			return r.(*kmsg.DescribeTransactionsResponse).TransactionStates
		},
		merge: func(rs []kmsg.DescribeTransactionsResponseTransactionState) kmsg.Response {
			r := kmsg.NewPtrDescribeTransactionsResponse()
			r.TransactionStates = rs
			return r
		},
	}
}
