package retry

import "github.com/twmb/franz-go/pkg/kmsg"

// Class says whether a request may be sent again after its answer was lost.
// The zero value is [Mutation], which is also the class of unknown APIs.
type Class uint8

const (
	Mutation    Class = iota // only if no byte was written, or the answer says that nothing was done
	Safe                     // changes nothing, or only what a repetition sets to the same value
	SafeByToken              // the broker recognises the repetition by an id, an epoch or a sequence
)

// String is the class in words.
func (c Class) String() string {
	switch c {
	case Safe:
		return "safe"
	case SafeByToken:
		return "safe by token"
	default:
		return "mutation"
	}
}

// Repeatable reports whether a request of the class may be sent again after
// its answer was lost.
func (c Class) Repeatable() bool { return c == Safe || c == SafeByToken }

// classes is the table of APIs whose class does not depend on the request's
// fields; what is not in it is Mutation. StreamsGroupHeartbeat is not in it: a
// lost answer may hold task lists that no repetition brings back, so the member
// has to know of each.
var classes = map[int16]Class{
	1:  Safe, // Fetch
	2:  Safe, // ListOffsets
	3:  Safe, // Metadata
	9:  Safe, // OffsetFetch
	10: Safe, // FindCoordinator
	12: Safe, // Heartbeat
	15: Safe, // DescribeGroups
	16: Safe, // ListGroups
	18: Safe, // ApiVersions
	21: Safe, // DeleteRecords: the offset is absolute
	23: Safe, // OffsetForLeaderEpoch
	29: Safe, // DescribeAcls
	32: Safe, // DescribeConfigs
	35: Safe, // DescribeLogDirs
	41: Safe, // DescribeDelegationToken
	46: Safe, // ListPartitionReassignments
	48: Safe, // DescribeClientQuotas
	50: Safe, // DescribeUserScramCredentials
	55: Safe, // DescribeQuorum
	60: Safe, // DescribeCluster
	61: Safe, // DescribeProducers
	65: Safe, // DescribeTransactions
	66: Safe, // ListTransactions
	68: Safe, // ConsumerGroupHeartbeat
	69: Safe, // ConsumerGroupDescribe
	74: Safe, // ListConfigResources
	75: Safe, // DescribeTopicPartitions
	77: Safe, // ShareGroupDescribe
	89: Safe, // StreamsGroupDescribe
	90: Safe, // DescribeShareGroupOffsets

	8:  SafeByToken, // OffsetCommit: member and epoch
	13: SafeByToken, // LeaveGroup: member
	14: SafeByToken, // SyncGroup: member and generation
	24: SafeByToken, // AddPartitionsToTxn: producer id and epoch
	25: SafeByToken, // AddOffsetsToTxn: producer id and epoch
	26: SafeByToken, // EndTxn: producer id and epoch, same direction
	28: SafeByToken, // TxnOffsetCommit: producer id and epoch
}

// ClassOf is the class of an API for a request about which nothing more is
// known. Produce, InitProducerId and JoinGroup are Mutation here; see
// [ClassOfRequest].
func ClassOf(key int16) Class { return classes[key] }

// Classed is implemented by requests that know their class better than their
// API does: an idempotent Produce is SafeByToken.
type Classed interface{ RepeatClass() Class }

// ClassOfRequest is the class of one request. It looks at the fields that
// decide: InitProducerId with id and epoch and JoinGroup with a member id are
// SafeByToken. InitProducerId without a transactional id is Safe, since an id
// that nobody uses does nothing.
func ClassOfRequest(req kmsg.Request) Class {
	switch r := req.(type) {
	case Classed:
		return r.RepeatClass()
	case *kmsg.InitProducerIDRequest:
		if r.ProducerID >= 0 && r.ProducerEpoch >= 0 {
			return SafeByToken
		}
		if r.TransactionalID == nil {
			return Safe
		}
	case *kmsg.JoinGroupRequest:
		if r.MemberID != "" {
			return SafeByToken
		}
	}
	return ClassOf(req.Key())
}
