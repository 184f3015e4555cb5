package conn

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// TestC24C25AFieldThatAVersionCannotCarryIsNotLeftOut holds every need from
// both sides: at the version below it the request is refused with the reason,
// at it it goes out.
func TestC24C25AFieldThatAVersionCannotCarryIsNotLeftOut(t *testing.T) {
	at := func(timestamp int64, level int8) kmsg.Request {
		r := kmsg.NewPtrListOffsetsRequest()
		r.IsolationLevel = level
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Timestamp = timestamp
		r.Topics = []kmsg.ListOffsetsRequestTopic{{Partitions: []kmsg.ListOffsetsRequestTopicPartition{p}}}
		return r
	}
	byDefault := kmsg.NewPtrCreateTopicsRequest()
	byDefault.Topics = []kmsg.CreateTopicsRequestTopic{{NumPartitions: -1, ReplicationFactor: 2}}
	oneDefault := kmsg.NewPtrCreateTopicsRequest()
	oneDefault.Topics = []kmsg.CreateTopicsRequestTopic{{NumPartitions: 2, ReplicationFactor: -1}}
	byHand := kmsg.NewPtrCreateTopicsRequest()
	byHand.Topics = []kmsg.CreateTopicsRequestTopic{{NumPartitions: -1, ReplicationFactor: -1, ReplicaAssignment: make([]kmsg.CreateTopicsRequestTopicReplicaAssignment, 1)}}
	dry := kmsg.NewPtrCreateTopicsRequest()
	dry.ValidateOnly = true
	byID := kmsg.NewPtrMetadataRequest()
	byID.Topics = []kmsg.MetadataRequestTopic{{TopicID: [16]byte{1}}}
	byBoth := kmsg.NewPtrMetadataRequest()
	byBoth.Topics = []kmsg.MetadataRequestTopic{{TopicID: [16]byte{1}, Topic: kmsg.StringPtr("t")}}
	deleteID := kmsg.NewPtrDeleteTopicsRequest()
	deleteID.Topics = []kmsg.DeleteTopicsRequestTopic{{TopicID: [16]byte{1}}}
	one := [16]byte{1}
	produceID := kmsg.NewPtrProduceRequest()
	produceID.Topics = []kmsg.ProduceRequestTopic{{TopicID: one, Topic: "t"}, {TopicID: one}}
	fetchID, forgetID := kmsg.NewPtrFetchRequest(), kmsg.NewPtrFetchRequest()
	fetchID.Topics = []kmsg.FetchRequestTopic{{TopicID: one}}
	forgetID.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{TopicID: one}}
	commitID := kmsg.NewPtrOffsetCommitRequest()
	commitID.Topics = []kmsg.OffsetCommitRequestTopic{{TopicID: one}}
	offsetsID, twoGroups := kmsg.NewPtrOffsetFetchRequest(), kmsg.NewPtrOffsetFetchRequest()
	offsetsID.Groups = []kmsg.OffsetFetchRequestGroup{{Topics: []kmsg.OffsetFetchRequestGroupTopic{{TopicID: one}}}}
	twoGroups.Groups = make([]kmsg.OffsetFetchRequestGroup, 2)
	fetchBoth := kmsg.NewPtrFetchRequest()
	fetchBoth.Topics = []kmsg.FetchRequestTopic{{TopicID: one, Topic: "t"}}
	age, pattern := kmsg.NewPtrListTransactionsRequest(), kmsg.NewPtrListTransactionsRequest()
	age.DurationFilterMillis, pattern.TransactionalIDPattern = 1, kmsg.StringPtr("x")
	controllers, fenced := kmsg.NewPtrDescribeClusterRequest(), kmsg.NewPtrDescribeClusterRequest()
	controllers.EndpointType, fenced.IncludeFencedBrokers = 2, true
	id := kmsg.StringPtr("i")
	keep := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	keep.AllowReplicationFactorChange = false
	for _, c := range []struct {
		req   kmsg.Request
		least int16
		why   string
	}{
		{at(-2, 0), 0, ""}, {at(-1, 0), 0, ""}, {at(5, 0), 1, "by time"}, {at(0, 0), 1, "by time"}, {at(5, 1), 2, "last stable"}, {at(-1, 1), 2, "last stable"},
		{at(-3, 0), 7, "latest timestamp"}, {at(-4, 1), 8, "local disks"}, {at(-5, 0), 9, "tiered"}, {at(-6, 0), 11, "upload"},
		{dry, 1, "dry run"}, {byHand, 0, ""}, {oneDefault, 4, "defaults"}, {byDefault, 4, "defaults"}, {byID, 12, "by its id"}, {byBoth, 0, ""}, {deleteID, 6, "by its id"},
		{produceID, 13, "by its id"}, {fetchID, 13, "by its id"}, {forgetID, 13, "by its id"}, {fetchBoth, 0, ""}, {commitID, 10, "by its id"},
		{offsetsID, 10, "by its id"}, {twoGroups, 8, "several groups"},
		{&kmsg.FindCoordinatorRequest{CoordinatorKeys: []string{"a", "b"}}, 4, "several coordinators"},
		{&kmsg.ListGroupsRequest{StatesFilter: []string{"Empty"}}, 4, "by state"},
		{&kmsg.ListGroupsRequest{StatesFilter: []string{"Empty"}, TypesFilter: []string{"share"}}, 5, "by type"},
		{kmsg.NewPtrListTransactionsRequest(), 0, ""}, {age, 1, "by age"}, {pattern, 2, "by pattern"},
		{&kmsg.LeaveGroupRequest{Members: make([]kmsg.LeaveGroupRequestMember, 1)}, 0, ""},
		{&kmsg.LeaveGroupRequest{Members: make([]kmsg.LeaveGroupRequestMember, 2)}, 3, "several members"},
		{&kmsg.LeaveGroupRequest{Members: []kmsg.LeaveGroupRequestMember{{InstanceID: kmsg.StringPtr("i")}}}, 3, "instance id"},
		{&kmsg.InitProducerIDRequest{ProducerID: -1, ProducerEpoch: -1}, 0, ""},
		{&kmsg.InitProducerIDRequest{ProducerID: 7, ProducerEpoch: 0}, 3, "next epoch"},
		{&kmsg.TxnOffsetCommitRequest{Generation: -1}, 0, ""}, {&kmsg.TxnOffsetCommitRequest{Generation: 0}, 3, "as a member"},
		{&kmsg.TxnOffsetCommitRequest{Generation: -1, MemberID: "m"}, 3, "as a member"},
		{controllers, 1, "controllers"}, {fenced, 2, "fenced"},
		{&kmsg.ListConfigResourcesRequest{ResourceTypes: []int8{2}}, 1, "by type"},
		{&kmsg.JoinGroupRequest{}, 0, ""}, {&kmsg.JoinGroupRequest{InstanceID: id}, 5, "static"},
		{&kmsg.SyncGroupRequest{InstanceID: id}, 3, "static"}, {&kmsg.HeartbeatRequest{InstanceID: id}, 3, "static"},
		{&kmsg.OffsetCommitRequest{InstanceID: id}, 7, "static"},
		{&kmsg.ConsumerGroupHeartbeatRequest{SubscribedTopicRegex: id}, 1, "by pattern"},
		{&kmsg.FindCoordinatorRequest{}, 0, ""}, {&kmsg.FindCoordinatorRequest{CoordinatorType: 1}, 1, "other than a group"},
		{&kmsg.ElectLeadersRequest{}, 0, ""}, {&kmsg.ElectLeadersRequest{ElectionType: 1}, 1, "another election"},
		{kmsg.NewPtrAlterPartitionAssignmentsRequest(), 0, ""}, {keep, 1, "number of replicas"},
		{&kmsg.UpdateFeaturesRequest{ValidateOnly: true}, 1, "dry run"},
		{&kmsg.CreateDelegationTokenRequest{OwnerPrincipalName: id}, 3, "another owner"},
		{&kmsg.CreateACLsRequest{Creations: []kmsg.CreateACLsRequestCreation{{ResourcePatternType: 3}}}, 0, ""},
		{&kmsg.CreateACLsRequest{Creations: []kmsg.CreateACLsRequestCreation{{ResourcePatternType: 4}}}, 1, "a pattern"},
		{&kmsg.DescribeACLsRequest{ResourcePatternType: 1}, 0, ""}, {&kmsg.DescribeACLsRequest{ResourcePatternType: 4}, 1, "a pattern"},
		{&kmsg.DeleteACLsRequest{Filters: []kmsg.DeleteACLsRequestFilter{{ResourcePatternType: 2}}}, 1, "a pattern"},
	} {
		key := c.req.Key()
		none := Bounds{NoBound, NoBound, NoBound}
		if got, err := tableOf([3]int16{key, 0, c.least}).Pick(c.req, none); got != c.least || err != nil {
			t.Errorf("%s %q: version %d, %v", APIName(key), c.why, got, err)
		}
		if c.least == 0 {
			continue
		}
		_, err := tableOf([3]int16{key, 0, c.least - 1}).Pick(c.req, none)
		var ve *kafka.VersionError
		if !errors.As(err, &ve) || ve.ClientMin != c.least || !strings.Contains(err.Error(), c.why) || !strings.Contains(err.Error(), "the broker is too old for this") {
			t.Errorf("%s below %d: %v", APIName(key), c.least, err)
		}
	}
}
