package conn

import "github.com/twmb/franz-go/pkg/kmsg"

// Need is the lowest version that can carry what the fields of req ask for, 0
// if every version can, with the reason. Below it a field would be left out of
// the bytes without a word, and the answer would be to another question.
func Need(req kmsg.Request) (least int16, why string) {
	n := need{}
	n.byID(req)
	n.toLook(req)
	n.ofGroups(req)
	n.toChange(req)
	return n.least, n.why
}

// need is the highest of several lower bounds.
type need struct {
	least int16
	why   string
}

func (n *need) from(version int16, asked bool, why string) {
	if asked && version > n.least {
		n.least, n.why = version, why
	}
}

const byIDAlone = "a topic is named by its id alone"

// byID holds the topics that are named by their ids alone (KIP-516): a version
// without ids would name a topic "". The other way round is [Gate].
func (n *need) byID(req kmsg.Request) {
	topic := func(version int16, name string, id [16]byte) {
		n.from(version, name == "" && id != [16]byte{}, byIDAlone)
	}
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		for i := range r.Topics {
			topic(13, r.Topics[i].Topic, r.Topics[i].TopicID)
		}
	case *kmsg.FetchRequest:
		for i := range r.Topics {
			topic(13, r.Topics[i].Topic, r.Topics[i].TopicID)
		}
		for i := range r.ForgottenTopics {
			topic(13, r.ForgottenTopics[i].Topic, r.ForgottenTopics[i].TopicID)
		}
	case *kmsg.OffsetCommitRequest:
		for i := range r.Topics {
			topic(10, r.Topics[i].Topic, r.Topics[i].TopicID)
		}
	case *kmsg.OffsetFetchRequest:
		n.from(8, len(r.Groups) > 1, "several groups are named")
		for i := range r.Groups {
			for j := range r.Groups[i].Topics {
				topic(10, r.Groups[i].Topics[j].Topic, r.Groups[i].Topics[j].TopicID)
			}
		}
	case *kmsg.MetadataRequest:
		for i := range r.Topics {
			n.from(12, r.Topics[i].Topic == nil && r.Topics[i].TopicID != [16]byte{}, byIDAlone)
		}
	case *kmsg.DeleteTopicsRequest:
		for i := range r.Topics {
			n.from(6, r.Topics[i].Topic == nil, byIDAlone)
		}
	}
}

func (n *need) toLook(req kmsg.Request) {
	switch r := req.(type) {
	case *kmsg.ListOffsetsRequest:
		n.listOffsets(r)
	case *kmsg.ListGroupsRequest:
		n.from(4, len(r.StatesFilter) > 0, "groups are asked for by state")
		n.from(5, len(r.TypesFilter) > 0, "groups are asked for by type")
	case *kmsg.ListTransactionsRequest:
		n.from(1, r.DurationFilterMillis > 0, "transactions are asked for by age")
		n.from(2, r.TransactionalIDPattern != nil, "transactions are asked for by pattern")
	case *kmsg.DescribeClusterRequest:
		n.from(1, r.EndpointType == 2, "controllers are asked for")
		n.from(2, r.IncludeFencedBrokers, "fenced brokers are asked for")
	case *kmsg.ListConfigResourcesRequest:
		n.from(1, len(r.ResourceTypes) > 0, "resources are asked for by type")
	case *kmsg.DescribeACLsRequest:
		n.from(1, byPattern(r.ResourcePatternType), aclsByPattern)
	}
}

func (n *need) ofGroups(req kmsg.Request) {
	const static = "the member is static: it has an instance id (KIP-345)"
	switch r := req.(type) {
	case *kmsg.FindCoordinatorRequest:
		n.from(1, r.CoordinatorType != 0, "the coordinator of something other than a group is asked for")
		n.from(4, len(r.CoordinatorKeys) > 1, "several coordinators are asked for")
	case *kmsg.JoinGroupRequest:
		n.from(5, r.InstanceID != nil, static)
	case *kmsg.SyncGroupRequest:
		n.from(3, r.InstanceID != nil, static)
	case *kmsg.HeartbeatRequest:
		n.from(3, r.InstanceID != nil, static)
	case *kmsg.OffsetCommitRequest:
		n.from(7, r.InstanceID != nil, static)
	case *kmsg.ConsumerGroupHeartbeatRequest:
		n.from(1, r.SubscribedTopicRegex != nil, "topics are subscribed to by pattern")
	case *kmsg.LeaveGroupRequest:
		n.from(3, len(r.Members) > 1, "several members are named")
		for i := range r.Members {
			n.from(3, r.Members[i].InstanceID != nil, "a member is named by its instance id")
		}
	case *kmsg.InitProducerIDRequest:
		n.from(3, r.ProducerID >= 0 || r.ProducerEpoch >= 0, "the next epoch of a producer is asked for (KIP-360)")
	case *kmsg.TxnOffsetCommitRequest:
		n.from(3, r.MemberID != "" || r.Generation >= 0, "offsets are committed as a member of the group (KIP-447)")
	}
}

func (n *need) toChange(req kmsg.Request) {
	switch r := req.(type) {
	case *kmsg.CreateTopicsRequest:
		n.createTopics(r)
	case *kmsg.ElectLeadersRequest:
		n.from(1, r.ElectionType != 0, "another election than that of the preferred leader is asked for")
	case *kmsg.AlterPartitionAssignmentsRequest:
		n.from(1, !r.AllowReplicationFactorChange, "the number of replicas must not change (KIP-860)")
	case *kmsg.UpdateFeaturesRequest:
		n.from(1, r.ValidateOnly, "a dry run is asked for")
	case *kmsg.CreateDelegationTokenRequest:
		n.from(3, r.OwnerPrincipalName != nil, "a token for another owner is asked for")
	case *kmsg.CreateACLsRequest:
		for i := range r.Creations {
			n.from(1, byPattern(r.Creations[i].ResourcePatternType), aclsByPattern)
		}
	case *kmsg.DeleteACLsRequest:
		for i := range r.Filters {
			n.from(1, byPattern(r.Filters[i].ResourcePatternType), aclsByPattern)
		}
	}
}

const aclsByPattern = "resources are named by a pattern (KIP-290)"

// byPattern reports whether resources are meant that version 0, which knows
// literal names only, would mistake.
func byPattern(t kmsg.ACLResourcePatternType) bool {
	return t == kmsg.ACLResourcePatternTypeMatch || t == kmsg.ACLResourcePatternTypePrefixed
}

func (n *need) listOffsets(r *kmsg.ListOffsetsRequest) {
	n.from(2, r.IsolationLevel != 0, "the last stable offset is asked for")
	for i := range r.Topics {
		for j := range r.Topics[i].Partitions {
			at := r.Topics[i].Partitions[j].Timestamp
			n.from(1, at >= 0, "an offset is asked for by time")
			n.from(7, at == -3, "the offset of the latest timestamp is asked for")
			n.from(8, at == -4, "the first offset on local disks is asked for")
			n.from(9, at == -5, "the last offset in tiered storage is asked for")
			n.from(11, at == -6, "the first offset that waits for its upload is asked for")
		}
	}
}

func (n *need) createTopics(r *kmsg.CreateTopicsRequest) {
	n.from(1, r.ValidateOnly, "a dry run is asked for")
	for i := range r.Topics {
		t := &r.Topics[i]
		byBroker := len(t.ReplicaAssignment) == 0 && (t.NumPartitions < 0 || t.ReplicationFactor < 0)
		n.from(4, byBroker, "the brokers' defaults for partitions and replicas are asked for")
	}
}
