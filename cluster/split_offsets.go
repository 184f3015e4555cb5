package cluster

import (
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetFetch and AddPartitionsToTxn have two forms: one group, or one
// transaction, for each request in old versions, several in new ones.

// offsetFetchGroupsVersion is the first version whose answer names its groups.
const offsetFetchGroupsVersion = 8

// offsetFetchGroups are the groups of a request in either form.
func offsetFetchGroups(r *kmsg.OffsetFetchRequest) []kmsg.OffsetFetchRequestGroup {
	if len(r.Groups) > 0 {
		return r.Groups
	}
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = r.Group
	if r.Topics != nil { // null means all topics
		g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(r.Topics))
	}
	for _, t := range r.Topics {
		gt := kmsg.NewOffsetFetchRequestGroupTopic()
		gt.Topic, gt.Partitions = t.Topic, t.Partitions
		g.Topics = append(g.Topics, gt)
	}
	return []kmsg.OffsetFetchRequestGroup{g}
}

// offsetFetchShape sends one group in each request, in both forms, so that a
// broker of any age gets all of it.
func offsetFetchShape(req *kmsg.OffsetFetchRequest) keyShape[kmsg.OffsetFetchRequestGroup, kmsg.OffsetFetchResponseGroup] {
	return keyShape[kmsg.OffsetFetchRequestGroup, kmsg.OffsetFetchResponseGroup]{
		key: func(q *kmsg.OffsetFetchRequestGroup) string { return q.Group },
		like: func(q *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
			r := kmsg.NewOffsetFetchResponseGroup()
			r.Group = q.Group
			return r
		},
		rkey: func(r *kmsg.OffsetFetchResponseGroup) string { return r.Group },
		code: func(r *kmsg.OffsetFetchResponseGroup) *int16 { return &r.ErrorCode },
		adopt: func(version int16, r *kmsg.OffsetFetchResponseGroup, q *kmsg.OffsetFetchRequestGroup) {
			if version < offsetFetchGroupsVersion {
				r.Group = q.Group
			}
		},
		wrap: func(qs []kmsg.OffsetFetchRequestGroup) kmsg.Request {
			r := *req
			r.Groups, r.Group, r.Topics = qs, qs[0].Group, nil
			if qs[0].Topics != nil {
				r.Topics = make([]kmsg.OffsetFetchRequestTopic, 0, len(qs[0].Topics))
			}
			for _, gt := range qs[0].Topics {
				t := kmsg.NewOffsetFetchRequestTopic()
				t.Topic, t.Partitions = gt.Topic, gt.Partitions
				r.Topics = append(r.Topics, t)
			}
			return &r
		},
		unwrap: func(r kmsg.Response) []kmsg.OffsetFetchResponseGroup {
			return offsetFetchAnswer(r.(*kmsg.OffsetFetchResponse))
		},
		merge: func(rs []kmsg.OffsetFetchResponseGroup) kmsg.Response { return offsetFetchMerged(rs) },
	}
}

// offsetFetchAnswer is the answer as groups. An old answer does not name its
// group.
func offsetFetchAnswer(r *kmsg.OffsetFetchResponse) []kmsg.OffsetFetchResponseGroup {
	if r.Version >= offsetFetchGroupsVersion {
		return r.Groups
	}
	g := kmsg.NewOffsetFetchResponseGroup()
	g.ErrorCode = r.ErrorCode
	for _, t := range r.Topics {
		gt := kmsg.NewOffsetFetchResponseGroupTopic()
		gt.Topic = t.Topic
		for _, p := range t.Partitions {
			gt.Partitions = append(gt.Partitions, kmsg.OffsetFetchResponseGroupTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		g.Topics = append(g.Topics, gt)
	}
	return []kmsg.OffsetFetchResponseGroup{g}
}

// offsetFetchMerged is the answer in both forms; the old one only for a single
// group.
func offsetFetchMerged(rs []kmsg.OffsetFetchResponseGroup) *kmsg.OffsetFetchResponse {
	r := kmsg.NewPtrOffsetFetchResponse()
	r.Version = offsetFetchGroupsVersion
	r.Groups = rs
	if len(rs) != 1 {
		return r
	}
	r.ErrorCode = rs[0].ErrorCode
	for _, gt := range rs[0].Topics {
		t := kmsg.NewOffsetFetchResponseTopic()
		t.Topic = gt.Topic
		for _, p := range gt.Partitions {
			t.Partitions = append(t.Partitions, kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			})
		}
		r.Topics = append(r.Topics, t)
	}
	return r
}

// addPartitionsShape splits the batched form of AddPartitionsToTxn. Its items
// have a code for each partition only; that of the first stands for all.
func addPartitionsShape(req *kmsg.AddPartitionsToTxnRequest) keyShape[kmsg.AddPartitionsToTxnRequestTransaction, addedPartitions] {
	return keyShape[kmsg.AddPartitionsToTxnRequestTransaction, addedPartitions]{
		key: func(q *kmsg.AddPartitionsToTxnRequestTransaction) string { return q.TransactionalID },
		like: func(q *kmsg.AddPartitionsToTxnRequestTransaction) addedPartitions {
			var r addedPartitions
			r.TransactionalID = q.TransactionalID
			for _, t := range q.Topics {
				rt := kmsg.AddPartitionsToTxnResponseTransactionTopic{Topic: t.Topic}
				for _, p := range t.Partitions {
					rt.Partitions = append(rt.Partitions, kmsg.AddPartitionsToTxnResponseTransactionTopicPartition{Partition: p})
				}
				r.Topics = append(r.Topics, rt)
			}
			return r
		},
		rkey: func(r *addedPartitions) string { return r.TransactionalID },
		code: func(r *addedPartitions) *int16 { return &r.code },
		wrap: func(qs []kmsg.AddPartitionsToTxnRequestTransaction) kmsg.Request {
			r := *req
			r.Transactions = qs
			return &r
		},
		unwrap: func(r kmsg.Response) []addedPartitions {
			resp := r.(*kmsg.AddPartitionsToTxnResponse)
			var out []addedPartitions
			for _, t := range resp.Transactions {
				a := addedPartitions{AddPartitionsToTxnResponseTransaction: t, code: resp.ErrorCode}
				if len(t.Topics) > 0 && len(t.Topics[0].Partitions) > 0 && a.code == 0 {
					a.code = t.Topics[0].Partitions[0].ErrorCode
				}
				out = append(out, a)
			}
			return out
		},
		merge: func(rs []addedPartitions) kmsg.Response {
			r := kmsg.NewPtrAddPartitionsToTxnResponse()
			r.Version = 4
			for _, a := range rs {
				r.Transactions = append(r.Transactions, a.answer())
			}
			return r
		},
	}
}

// addedPartitions is one transaction of an answer, with the code that stands
// for it.
type addedPartitions struct {
	kmsg.AddPartitionsToTxnResponseTransaction
	code int16
}

// answer writes the client's own code into partitions that have none.
func (a addedPartitions) answer() kmsg.AddPartitionsToTxnResponseTransaction {
	for t := range a.Topics {
		for p := range a.Topics[t].Partitions {
			if c := &a.Topics[t].Partitions[p].ErrorCode; *c == 0 && a.code != 0 {
				*c = a.code
			}
		}
	}
	return a.AddPartitionsToTxnResponseTransaction
}
