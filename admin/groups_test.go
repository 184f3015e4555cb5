package admin

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/group"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// listsGroups has a broker list groups of one state, by id and type.
func listsGroups(b *sim.Broker, state string, of map[string]string) {
	b.Handle(16, func(q *sim.Request) sim.Answer {
		resp := q.Response().(*kmsg.ListGroupsResponse)
		for id, kind := range of {
			g := kmsg.NewListGroupsResponseGroup()
			g.Group, g.GroupState, g.GroupType, g.ProtocolType = id, state, kind, "consumer"
			resp.Groups = append(resp.Groups, g)
		}
		return sim.Reply(resp)
	})
}

// TestB277_A2_A16GroupsAreListedOnceAndTheBrokerThatIsDownIsNamed: two brokers
// list g in different states, a third is down.
func TestB277_A2_A16GroupsAreListedOnceAndTheBrokerThatIsDownIsNamed(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		listsGroups(r.sim.Broker(1), "Stable", map[string]string{"g": "Classic", "z": "Share"})
		listsGroups(r.sim.Broker(2), "Dead", map[string]string{"g": "Classic", "a": "Consumer"})
		a := r.admin().Groups()
		r.sim.Broker(3).Close()
		got, err := a.List(r.within(5*time.Second), GroupFilter{States: []string{"Stable", "Dead"}, Types: []string{"classic"}})
		want := []ListedGroup{{"a", "consumer", "Dead", "consumer"}, {"g", "consumer", "Stable", "classic"}, {"z", "consumer", "Stable", "share"}}
		if !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
		var pe *cluster.PartialError
		if !errors.As(err, &pe) || len(pe.Failed) != 1 || pe.Failed[0].Broker != 3 {
			t.Errorf("%v", err)
		}
		req := sent[*kmsg.ListGroupsRequest](r.sim.Broker(1))[0]
		if !slices.Equal(req.StatesFilter, []string{"Stable", "Dead"}) || !slices.Equal(req.TypesFilter, []string{"classic"}) {
			t.Errorf("%+v", req)
		}
	})
}

func TestA16AFilterThatABrokerDoesNotHaveIsRefused(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.old(16, 3) // Kafka 2.5
		a := r.admin().Groups()
		var ve *kafka.VersionError
		if _, err := a.List(r.within(time.Minute), GroupFilter{States: []string{"Empty"}}); !errors.As(err, &ve) || r.sim.Count(16) != 0 {
			t.Errorf("%v", err)
		}
		if _, err := a.List(r.within(time.Minute), GroupFilter{}); err != nil {
			t.Error(err)
		}
	})
}

// describesGroups has the brokers know one group of each type, and nothing else.
func (r *rig) describesGroups() {
	notFound := func(id, want string) int16 {
		if id != want {
			return kerr.GroupIDNotFound.Code
		}
		return 0
	}
	r.everywhere(69, func(q *sim.Request) sim.Answer {
		resp := q.Response().(*kmsg.ConsumerGroupDescribeResponse)
		for _, id := range q.Req.(*kmsg.ConsumerGroupDescribeRequest).Groups {
			g := kmsg.NewConsumerGroupDescribeResponseGroup()
			g.Group, g.ErrorCode, g.State, g.Epoch, g.AssignmentEpoch, g.AssignorName = id, notFound(id, "new"), "Stable", 4, 3, "uniform"
			m := kmsg.NewConsumerGroupDescribeResponseGroupMember()
			m.MemberID, m.MemberEpoch, m.SubscribedTopics, m.MemberType = "m", 2, []string{"t"}, 1
			m.Assignment.TopicPartitions = []kmsg.AssignmentTopicPartition{{Topic: "t", Partitions: []int32{1, 0}}}
			m.TargetAssignment.TopicPartitions = []kmsg.AssignmentTopicPartition{{Topic: "t", Partitions: []int32{2}}}
			g.Members = append(g.Members, m)
			resp.Groups = append(resp.Groups, g)
		}
		return sim.Reply(resp)
	})
	r.everywhere(15, func(q *sim.Request) sim.Answer {
		resp := q.Response().(*kmsg.DescribeGroupsResponse)
		for _, id := range q.Req.(*kmsg.DescribeGroupsRequest).Groups {
			g := kmsg.NewDescribeGroupsResponseGroup()
			g.Group, g.State, g.ProtocolType, g.Protocol = id, "Stable", "consumer", "range"
			if id != "old" && id != "connect" {
				g.State = "Dead" // how older brokers say that there is none
			}
			if id == "connect" {
				g.ProtocolType = "connect"
			}
			s := group.Subscription{Topics: []string{"t"}, Generation: -1, Rack: "r"}
			m := kmsg.NewDescribeGroupsResponseGroupMember()
			m.MemberID, m.InstanceID, m.ClientID, m.ClientHost = "m", kmsg.StringPtr("i"), "c", "/h"
			m.ProtocolMetadata, m.MemberAssignment = s.Append(nil), group.AppendAssignment(nil, []kafka.TopicPartition{tp("t", 3)})
			hostile := m
			hostile.MemberID, hostile.ProtocolMetadata, hostile.MemberAssignment = "bad", []byte{0, 1, 127, 255, 255, 255}, []byte{1}
			g.Members = append(g.Members, m, hostile)
			resp.Groups = append(resp.Groups, g)
		}
		return sim.Reply(resp)
	})
	r.everywhere(89, func(q *sim.Request) sim.Answer {
		resp := q.Response().(*kmsg.StreamsGroupDescribeResponse)
		for _, id := range q.Req.(*kmsg.StreamsGroupDescribeRequest).Groups {
			g := kmsg.NewStreamsGroupDescribeResponseGroup()
			g.Group, g.ErrorCode, g.State, g.Epoch = id, notFound(id, "tasks"), "Stable", 9
			resp.Groups = append(resp.Groups, g)
		}
		return sim.Reply(resp)
	})
	r.everywhere(77, func(q *sim.Request) sim.Answer {
		resp := q.Response().(*kmsg.ShareGroupDescribeResponse)
		for _, id := range q.Req.(*kmsg.ShareGroupDescribeRequest).GroupIDs {
			g := kmsg.NewShareGroupDescribeResponseGroup()
			g.GroupID, g.ErrorCode, g.GroupState, g.GroupEpoch = id, notFound(id, "shared"), "Empty", 1
			resp.Groups = append(resp.Groups, g)
		}
		return sim.Reply(resp)
	})
}

func TestA17GroupsOfEveryTypeAreDescribed(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Coordinators = map[string]int32{"old": 2, "tasks": 2} })
		r.describesGroups()
		a := r.admin().Groups()
		res := a.Describe(r.within(time.Minute), []string{"shared", "old", "none", "new", "tasks", "connect"})
		var got []string
		for _, x := range res {
			if x.Err == nil {
				got = append(got, x.Item+" "+x.Value.Type+" "+x.Value.State+" "+x.Value.Assignor)
			}
		}
		if strings.Join(got, ", ") != "shared share Empty , old classic Stable range, new consumer Stable uniform, tasks streams Stable , connect classic Stable range" {
			t.Errorf("%v", got)
		}
		if !errors.Is(res[2].Err, kerr.GroupIDNotFound) {
			t.Errorf("%v", res[2].Err)
		}
		if m := res[1].Value.Members[0]; m.InstanceID != "i" || m.Rack != "r" || m.Host != "/h" || !slices.Equal(m.Topics, []string{"t"}) || !slices.Equal(m.Assigned, []kafka.TopicPartition{tp("t", 3)}) {
			t.Errorf("%+v", m)
		}
		if m := res[1].Value.Members[1]; m.ID != "bad" || m.Topics != nil || m.Assigned != nil {
			t.Errorf("bytes that make no sense: %+v", m)
		}
		if m := res[5].Value.Members[0]; m.Topics != nil || m.Assigned != nil {
			t.Errorf("what members of another protocol tell was read as a consumer's: %+v", m)
		}
		if m := res[3].Value.Members[0]; m.Epoch != 2 || m.Upgraded || !slices.Equal(m.Assigned, []kafka.TopicPartition{tp("t", 0), tp("t", 1)}) || !slices.Equal(m.Target, []kafka.TopicPartition{tp("t", 2)}) {
			t.Errorf("%+v", m)
		}
		if res[4].Value.Streams == nil || res[4].Value.Epoch != 9 {
			t.Errorf("%+v", res[4])
		}
		for _, f := range r.sim.Broker(1).FramesOf(69) {
			if slices.Contains(f.Req.(*kmsg.ConsumerGroupDescribeRequest).Groups, "old") {
				t.Error("a group was asked of another broker than its coordinator")
			}
		}
	})
}

// TestA17BrokersWithoutNewGroupsDescribeClassicOnes is Kafka 2.1.
func TestA17BrokersWithoutNewGroupsDescribeClassicOnes(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.describesGroups()
		r.without(69, 77, 89)
		r.old(15, 2)
		a := r.admin().Groups()
		res := a.Describe(r.within(time.Minute), []string{"old", "none"})
		if res[0].Err != nil || res[0].Value.Type != ClassicGroup || !errors.Is(res[1].Err, kerr.GroupIDNotFound) {
			t.Errorf("%+v", res)
		}
	})
	inBubble(t, 1, func(t *testing.T, r *rig) { // Kafka 3.9: the API is there, and switched off
		r.describesGroups()
		r.without(77, 89)
		r.everywhere(69, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.ConsumerGroupDescribeResponse)
			for _, id := range q.Req.(*kmsg.ConsumerGroupDescribeRequest).Groups {
				resp.Groups = append(resp.Groups, kmsg.ConsumerGroupDescribeResponseGroup{Group: id, ErrorCode: kerr.UnsupportedVersion.Code})
			}
			return sim.Reply(resp)
		})
		res := r.admin().Groups().Describe(r.within(time.Minute), []string{"old", "none"})
		if res[0].Err != nil || res[0].Value.Type != ClassicGroup || !errors.Is(res[1].Err, kerr.GroupIDNotFound) {
			t.Errorf("%+v", res)
		}
	})
}

// TestB280_A18AnAnswerThatLeavesPartitionsOutSaysSo commits three partitions of
// which the coordinator answers two.
func TestB280_A18AnAnswerThatLeavesPartitionsOutSaysSo(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		commit := func(code int16, leaveOut int32) {
			r.everywhere(8, func(q *sim.Request) sim.Answer {
				resp := q.Response().(*kmsg.OffsetCommitResponse)
				for _, x := range q.Req.(*kmsg.OffsetCommitRequest).Topics {
					rt := kmsg.NewOffsetCommitResponseTopic()
					rt.Topic = x.Topic
					for _, p := range x.Partitions {
						rp := kmsg.NewOffsetCommitResponseTopicPartition()
						rp.Partition, rp.ErrorCode = p.Partition, code
						if p.Partition != leaveOut {
							rt.Partitions = append(rt.Partitions, rp)
						}
					}
					resp.Topics = append(resp.Topics, rt)
				}
				return sim.Reply(resp)
			})
		}
		commit(0, 1)
		a := r.admin().Groups()
		three := map[kafka.TopicPartition]kafka.Commit{tp("t", 0): {Offset: 5, LeaderEpoch: -1}, tp("t", 1): {Offset: 6}, tp("t", 2): {Offset: 7, Metadata: "x"}}
		res := a.AlterOffsets(r.within(time.Minute), "g", three)
		if res[0].Err != nil || res[2].Err != nil || !errors.Is(res[1].Err, errLeftOut) || OutcomeOf(res[1].Err) != Unknown {
			t.Errorf("%+v", res)
		}
		req := sent[*kmsg.OffsetCommitRequest](r.sim.Broker(1))[0]
		if p := req.Topics[0].Partitions[0]; req.Generation != -1 || req.MemberID != "" || p.Offset != 5 || p.LeaderEpoch != -1 || *req.Topics[0].Partitions[2].Metadata != "x" {
			t.Errorf("%+v", req)
		}
		commit(kerr.UnknownMemberID.Code, -1)
		res = a.AlterOffsets(r.within(time.Minute), "g", three)
		var ga *GroupActiveError
		if !errors.As(res[0].Err, &ga) || OutcomeOf(res[0].Err) != NotDone || !errors.Is(res[0].Err, kerr.UnknownMemberID) {
			t.Errorf("%v", res[0].Err)
		}
		r.everywhere(47, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.OffsetDeleteResponse)
			rt := kmsg.NewOffsetDeleteResponseTopic()
			rt.Topic = "t"
			rt.Partitions = []kmsg.OffsetDeleteResponseTopicPartition{{Partition: 2}, {Partition: 0, ErrorCode: kerr.GroupSubscribedToTopic.Code}}
			resp.Topics = append(resp.Topics, rt)
			return sim.Reply(resp)
		})
		del := a.DeleteOffsets(r.within(time.Minute), "g", []kafka.TopicPartition{tp("t", 0), tp("t", 1), tp("t", 2)})
		if !errors.Is(del[0].Err, kerr.GroupSubscribedToTopic) || !errors.Is(del[1].Err, errLeftOut) || del[2].Err != nil {
			t.Errorf("%+v", del)
		}
	})
}

// fetchesOffsets has the brokers know offsets of t for every group but "other".
func (r *rig) fetchesOffsets() {
	r.everywhere(9, func(q *sim.Request) sim.Answer {
		req, resp := q.Req.(*kmsg.OffsetFetchRequest), q.Response().(*kmsg.OffsetFetchResponse)
		if q.Version < 8 {
			for p, o := range []int64{10, -1, 30} {
				if p == 0 {
					resp.Topics = append(resp.Topics, kmsg.OffsetFetchResponseTopic{Topic: "t"})
				}
				resp.Topics[0].Partitions = append(resp.Topics[0].Partitions, kmsg.OffsetFetchResponseTopicPartition{Partition: int32(p), Offset: o})
			}
			return sim.Reply(resp)
		}
		for _, g := range req.Groups {
			rg := kmsg.NewOffsetFetchResponseGroup()
			rg.Group = g.Group
			if g.Group == "other" {
				rg.ErrorCode = kerr.GroupAuthorizationFailed.Code
			}
			rg.Topics = []kmsg.OffsetFetchResponseGroupTopic{{Topic: "t", Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{
				{Partition: 2, Offset: 30, LeaderEpoch: 4, Metadata: kmsg.StringPtr("x")}, {Partition: 1, Offset: -1}, {Partition: 0, Offset: 10, LeaderEpoch: -1},
			}}}
			resp.Groups = append(resp.Groups, rg)
		}
		return sim.Reply(resp)
	})
}

func TestA18OffsetsOfManyGroups(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Coordinators = map[string]int32{"g": 2} })
		r.fetchesOffsets()
		a := r.admin().Groups()
		res := a.Offsets(r.within(time.Minute), []string{"g", "other", "h"})
		want := Results[kafka.TopicPartition, kafka.Commit]{
			{Item: tp("t", 0), Value: kafka.Commit{Offset: 10, LeaderEpoch: -1}}, {Item: tp("t", 2), Value: kafka.Commit{Offset: 30, LeaderEpoch: 4, Metadata: "x"}},
		}
		if !slices.Equal(res[0].Value, want) || res[0].Err != nil || res[2].Err != nil || !errors.Is(res[1].Err, kerr.GroupAuthorizationFailed) {
			t.Errorf("%+v", res)
		}
		if v := r.sim.Broker(2).FramesOf(9)[0].Version; v != 9 {
			t.Errorf("asked at version %d", v)
		}
		r.old(9, 3) // Kafka 0.11: one group a request
		for _, b := range r.sim.Brokers() {
			b.EndAll(sim.Close)
		}
		time.Sleep(time.Second)
		res = a.Offsets(r.within(time.Minute), []string{"g", "h"})
		if res.Err() != nil || len(res[0].Value) != 2 || len(res[1].Value) != 2 || res[0].Value[1].Value.Offset != 30 {
			t.Errorf("%+v", res)
		}
	})
}

func TestA18LagOfAGroup(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.SetTopic("t", 1, 1, 1, 1)
		r.describesGroups()
		r.fetchesOffsets()
		r.everywhere(2, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.ListOffsetsResponse)
			for _, x := range q.Req.(*kmsg.ListOffsetsRequest).Topics {
				rt := kmsg.NewListOffsetsResponseTopic()
				rt.Topic = x.Topic
				for _, p := range x.Partitions {
					rp := kmsg.NewListOffsetsResponseTopicPartition()
					rp.Partition, rp.Offset = p.Partition, 100
					if p.Timestamp == -2 {
						rp.Offset = 20
					}
					rt.Partitions = append(rt.Partitions, rp)
				}
				resp.Topics = append(resp.Topics, rt)
			}
			return sim.Reply(resp)
		})
		a := r.admin().Groups()
		got, err := a.Lag(r.within(time.Minute), "old")
		want := Results[kafka.TopicPartition, Lag]{
			{Item: tp("t", 0), Value: Lag{Committed: 10, Start: 20, End: 100, Records: 80}}, // retention passed the commit
			{Item: tp("t", 2), Value: Lag{Committed: 30, Start: 20, End: 100, Records: 70}},
			{Item: tp("t", 3), Value: Lag{Committed: -1, Start: 20, End: 100, Records: 80, Member: "m"}},
		}
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := a.Lag(r.within(time.Minute), "other"); !errors.Is(err, kerr.GroupAuthorizationFailed) {
			t.Errorf("%v", err)
		}
	})
}

func TestA19GroupsAreDeletedByTheirCoordinators(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Coordinators = map[string]int32{"a": 1, "b": 2, "old": 2} })
		r.describesGroups()
		r.everywhere(42, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DeleteGroupsResponse)
			for _, id := range q.Req.(*kmsg.DeleteGroupsRequest).Groups {
				g := kmsg.NewDeleteGroupsResponseGroup()
				g.Group = id
				if id == "b" {
					g.ErrorCode = kerr.NonEmptyGroup.Code
				}
				if id == "old" || id == "none" {
					return sim.Answer{End: sim.Close}
				}
				resp.Groups = append(resp.Groups, g)
			}
			return sim.Reply(resp)
		})
		a := r.admin().Groups()
		res := a.Delete(r.within(time.Minute), []string{"b", "a"})
		if !errors.Is(res[0].Err, kerr.NonEmptyGroup) || OutcomeOf(res[0].Err) != NotDone || res[1].Err != nil {
			t.Errorf("%+v", res)
		}
		for id, want := range map[string]Outcome{"old": NotDone, "none": Done} {
			var in *InDoubtError
			if err := a.Delete(r.within(time.Minute), []string{id}).Err(); !errors.As(err, &in) {
				t.Fatalf("a lost answer: %v", err)
			}
			if got, err := in.Resolve(r.within(2 * time.Minute)); got != want || err != nil {
				t.Errorf("%s: %v, %v", id, got, err)
			}
		}
		if n := r.sim.Count(42); n != 4 {
			t.Errorf("%d requests", n)
		}
	})
}

func TestA19MembersAreRemovedByIDOrInstance(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.everywhere(13, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.LeaveGroupResponse)
			for _, m := range q.Req.(*kmsg.LeaveGroupRequest).Members {
				rm := kmsg.NewLeaveGroupResponseMember()
				rm.MemberID, rm.InstanceID = m.MemberID, m.InstanceID
				if m.MemberID == "gone" {
					rm.ErrorCode = kerr.UnknownMemberID.Code
				}
				resp.Members = append(resp.Members, rm)
			}
			return sim.Reply(resp)
		})
		a := r.admin().Groups()
		res := a.RemoveMembers(r.within(time.Minute), "g", []MemberRef{{ID: "m"}, {ID: "gone"}, {InstanceID: "i"}}, "maintenance")
		if res[0].Err != nil || !errors.Is(res[1].Err, kerr.UnknownMemberID) || res[2].Err != nil {
			t.Errorf("%+v", res)
		}
		if m := sent[*kmsg.LeaveGroupRequest](r.sim.Broker(1))[0].Members; *m[0].Reason != "maintenance" || *m[2].InstanceID != "i" || m[0].InstanceID != nil {
			t.Errorf("%+v", m)
		}
		r.old(13, 2) // Kafka 2.3
		r.sim.Broker(1).EndAll(sim.Close)
		time.Sleep(time.Second)
		if res := a.RemoveMembers(r.within(time.Minute), "g", []MemberRef{{ID: "m"}}, "x"); res.Err() != nil {
			t.Errorf("%+v", res)
		}
		var ve *kafka.VersionError
		if res := a.RemoveMembers(r.within(time.Minute), "g", []MemberRef{{InstanceID: "i"}}, ""); !errors.As(res.Err(), &ve) {
			t.Errorf("%+v", res)
		}
	})
}
