package admin

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/group"
	"github.com/ottla/ottla/kafka"
)

// classic describes groups of the classic protocol. Before version 6 the
// answer shows a group that does not exist as one that is dead.
func (a *Groups) classic(ctx context.Context, ids []string) (map[string]describedGroup, error) {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = ids
	resp, err := req.RequestWith(ctx, a.c)
	out := make(map[string]describedGroup)
	if resp == nil {
		return out, err
	}
	for i := range resp.Groups {
		g := &resp.Groups[i]
		d := describedGroup{err: kafka.CodeError(g.ErrorCode, g.ErrorMessage)}
		if d.err == nil && g.State == "Dead" {
			d.err = kafka.CodeError(kerr.GroupIDNotFound.Code, nil)
		}
		if d.err == nil {
			d.group = Group{Type: ClassicGroup, State: g.State, Protocol: g.ProtocolType, Assignor: g.Protocol, Epoch: -1, AssignmentEpoch: -1}
			for j := range g.Members {
				d.group.Members = append(d.group.Members, classicMember(&g.Members[j], g.ProtocolType))
			}
		}
		out[g.Group] = d
	}
	return out, err
}

// classicMember reads a member of a classic group. What members of other
// protocols than consumer tell is theirs.
func classicMember(m *kmsg.DescribeGroupsResponseGroupMember, protocol string) GroupMember {
	out := GroupMember{ID: m.MemberID, InstanceID: text(m.InstanceID), ClientID: m.ClientID, Host: m.ClientHost, Epoch: -1}
	if protocol != "consumer" {
		return out
	}
	if s, err := group.ParseSubscription(m.ProtocolMetadata); err == nil {
		out.Topics, out.Rack = s.Topics, s.Rack
	}
	if tps, err := group.ParseAssignment(m.MemberAssignment); err == nil {
		out.Assigned = tps
	}
	return out
}

// consumer describes groups of KIP-848.
func (a *Groups) consumer(ctx context.Context, ids []string) (map[string]describedGroup, error) {
	req := kmsg.NewPtrConsumerGroupDescribeRequest()
	req.Groups = ids
	resp, err := req.RequestWith(ctx, a.c)
	out := make(map[string]describedGroup)
	if resp == nil {
		return out, err
	}
	for i := range resp.Groups {
		g := &resp.Groups[i]
		d := describedGroup{err: kafka.CodeError(g.ErrorCode, g.ErrorMessage)}
		if d.err == nil {
			d.group = Group{Type: ConsumerGroup, State: g.State, Assignor: g.AssignorName, Epoch: g.Epoch, AssignmentEpoch: g.AssignmentEpoch}
		}
		for j := range g.Members {
			m := &g.Members[j]
			d.group.Members = append(d.group.Members, GroupMember{
				ID: m.MemberID, InstanceID: text(m.InstanceID), ClientID: m.ClientID, Host: m.ClientHost, Rack: text(m.RackID),
				Epoch: m.MemberEpoch, Topics: m.SubscribedTopics, Pattern: text(m.SubscribedTopicRegex),
				Assigned: assignment(m.Assignment), Target: assignment(m.TargetAssignment), Upgraded: m.MemberType == 0,
			})
		}
		out[g.Group] = d
	}
	return out, err
}

// streams describes groups of KIP-1071.
func (a *Groups) streams(ctx context.Context, ids []string) (map[string]describedGroup, error) {
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Groups = ids
	resp, err := req.RequestWith(ctx, a.c)
	out := make(map[string]describedGroup)
	if resp == nil {
		return out, err
	}
	for i := range resp.Groups {
		g := &resp.Groups[i]
		d := describedGroup{err: kafka.CodeError(g.ErrorCode, g.ErrorMessage)}
		if d.err == nil {
			d.group = Group{
				Type: StreamsGroup, State: g.State, Assignor: text(g.AssignorName), Epoch: g.Epoch, AssignmentEpoch: g.AssignmentEpoch, Streams: g,
			}
		}
		for j := range g.Members {
			m := &g.Members[j]
			d.group.Members = append(d.group.Members, GroupMember{
				ID: m.MemberID, InstanceID: text(m.InstanceID), ClientID: m.ClientID, Host: m.ClientHost, Rack: text(m.RackID),
				Epoch: m.MemberEpoch, Upgraded: m.IsClassic,
			})
		}
		out[g.Group] = d
	}
	return out, err
}

// share describes groups of KIP-932.
func (a *Groups) share(ctx context.Context, ids []string) (map[string]describedGroup, error) {
	req := kmsg.NewPtrShareGroupDescribeRequest()
	req.GroupIDs = ids
	resp, err := req.RequestWith(ctx, a.c)
	out := make(map[string]describedGroup)
	if resp == nil {
		return out, err
	}
	for i := range resp.Groups {
		g := &resp.Groups[i]
		d := describedGroup{err: kafka.CodeError(g.ErrorCode, g.ErrorMessage)}
		if d.err == nil {
			d.group = Group{Type: ShareGroup, State: g.GroupState, Assignor: g.Assignor, Epoch: g.GroupEpoch, AssignmentEpoch: g.AssignmentEpoch}
		}
		for j := range g.Members {
			m := &g.Members[j]
			one := GroupMember{
				ID: m.MemberID, ClientID: m.ClientID, Host: m.ClientHost, Rack: text(m.RackID), Epoch: m.MemberEpoch, Topics: m.SubscribedTopicNames,
			}
			for _, t := range m.Assignment.TopicPartitions {
				one.Assigned = appendTopic(one.Assigned, t.Topic, t.Partitions)
			}
			d.group.Members = append(d.group.Members, one)
		}
		out[g.GroupID] = d
	}
	return out, err
}

// text is a nullable string, empty for null.
func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func assignment(as kmsg.Assignment) []kafka.TopicPartition {
	var out []kafka.TopicPartition
	for _, t := range as.TopicPartitions {
		out = appendTopic(out, t.Topic, t.Partitions)
	}
	slices.SortFunc(out, kafka.TopicPartition.Compare)
	return out
}

func appendTopic(tps []kafka.TopicPartition, topic string, ps []int32) []kafka.TopicPartition {
	for _, p := range ps {
		tps = append(tps, kafka.TopicPartition{Topic: topic, Partition: p})
	}
	return tps
}
