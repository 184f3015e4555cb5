package admin

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// Groups asks about groups and changes them. Get it from [Admin.Groups].
type Groups struct{ *client }

// The types of groups, in Kafka's words.
const (
	ClassicGroup  = "classic"
	ConsumerGroup = "consumer"
	ShareGroup    = "share"
	StreamsGroup  = "streams"
)

// ListedGroup is a group that some coordinator knows.
type ListedGroup struct {
	ID       string
	Protocol string // protocol type of its members, such as consumer; empty for offsets without members
	State    string // Kafka's word, such as Stable; empty before 2.6
	Type     string // one of the constants; empty before 3.8
}

// GroupFilter says which groups are listed. The zero value lists all.
type GroupFilter struct {
	States []string // Kafka's words (KIP-518, from Kafka 2.6 on); none = any
	Types  []string // (KIP-848, from 3.8 on); none = any
}

// List asks every broker for the groups that it coordinates, and returns
// them in order of their ids. One that two brokers list, as happens while its
// coordinator moves, is there once, as the broker with the lower id has it.
// Where brokers did not answer, what the others list comes with a
// [*cluster.PartialError].
func (a *Groups) List(ctx context.Context, f GroupFilter) ([]ListedGroup, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrListGroupsRequest()
	req.StatesFilter, req.TypesFilter = f.States, f.Types
	resp, err := req.RequestWith(ctx, a.c)
	if resp == nil {
		return nil, err
	}
	if err == nil {
		err = opError("list groups", "", kafka.CodeError(resp.ErrorCode, nil))
	}
	var out []ListedGroup
	for _, g := range resp.Groups {
		out = append(out, ListedGroup{g.Group, g.ProtocolType, g.GroupState, strings.ToLower(g.GroupType)})
	}
	slices.SortFunc(out, func(a, b ListedGroup) int { return strings.Compare(a.ID, b.ID) })
	return out, err
}

// Group is a group as its coordinator describes it.
type Group struct {
	Type     string // one of the constants
	State    string // Kafka's word, such as Stable
	Protocol string // of a classic group: the type of its members, such as consumer
	Assignor string // who divides; empty if none was chosen yet

	Epoch           int32 // of the group, -1 for a classic one
	AssignmentEpoch int32 // of its target assignment, -1 for a classic one
	Members         []GroupMember

	// Streams is all that a Streams group's coordinator says, with topology and
	// tasks; nil for other types.
	Streams *kmsg.StreamsGroupDescribeResponseGroup
}

// GroupMember is one member of a Group.
type GroupMember struct {
	ID         string
	InstanceID string // group.instance.id of a static member, else empty
	ClientID   string
	Host       string
	Rack       string
	Epoch      int32 // -1 in a classic group

	Topics   []string               // that it subscribes to by name
	Pattern  string                 // that it subscribes to by a pattern of the broker's
	Assigned []kafka.TopicPartition // what it has
	Target   []kafka.TopicPartition // what it shall have; nil where the protocol has no such thing
	Upgraded bool                   // it speaks the classic protocol in a consumer or Streams group
}

// Describe asks the coordinators of groups for their members. The type of
// a group need not be known: what is no consumer group is asked for as a classic
// one, then as a Streams and a share group, as far as the brokers have these.
// A group that does not exist is GROUP_ID_NOT_FOUND.
func (a *Groups) Describe(ctx context.Context, groups []string) Results[string, Group] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	found := make(map[string]describedGroup, len(groups))
	for _, ask := range []func(context.Context, []string) (map[string]describedGroup, error){
		a.consumer, a.classic, a.streams, a.share,
	} {
		var open []string
		for _, g := range groups {
			if f, ok := found[g]; (!ok || f.otherType()) && !slices.Contains(open, g) {
				open = append(open, g)
			}
		}
		if len(open) == 0 {
			break
		}
		got, err := ask(ctx, open)
		l := lostIn(err)
		for _, g := range open {
			f, ok := got[g]
			if err := l.of(g, 0, nil); err != nil {
				f = describedGroup{err: err}
			} else if !ok {
				f = describedGroup{err: errLeftOut}
			}
			if first := found[g].err; !f.otherType() || !errors.Is(first, kerr.GroupIDNotFound) {
				found[g] = f
			}
		}
	}
	res := make(Results[string, Group], len(groups))
	for i, g := range groups {
		res[i] = Result[string, Group]{Item: g, Value: found[g].group, Err: opError("describe group "+g, "", found[g].err)}
	}
	return res
}

// describedGroup is a group of an answer, or its error.
type describedGroup struct {
	group Group
	err   error
}

// otherType reports whether the group may be of another type than the one
// that was asked for.
func (d describedGroup) otherType() bool {
	return unsupported(d.err) || errors.Is(d.err, kerr.GroupIDNotFound) || errors.Is(d.err, kerr.UnsupportedVersion)
}

// Delete deletes groups and all offsets that they committed. One that has
// members is NON_EMPTY_GROUP, one that does not exist GROUP_ID_NOT_FOUND. One of
// which it is not known whether it was deleted is an [*InDoubtError].
func (a *Groups) Delete(ctx context.Context, groups []string) Results[string, struct{}] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	res := make(Results[string, struct{}], len(groups))
	if len(groups) == 0 {
		return res
	}
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = groups
	resp, err := req.RequestWith(ctx, a.c)
	l := lostIn(err)
	got := make(map[string]int16)
	if resp != nil {
		for _, g := range resp.Groups {
			got[g.Group] = g.ErrorCode
		}
	}
	for i, g := range groups {
		code, ok := got[g]
		err := l.of(g, code, nil)
		if err == nil && !ok {
			err = errLeftOut
		}
		res[i].Item, res[i].Err = g, a.inDoubt(opError("delete group "+g, "", err), Accepted, "group "+g, a.gone(g))
	}
	return res
}

// gone looks whether a group was deleted.
func (a *Groups) gone(group string) func(context.Context) reading {
	return func(ctx context.Context) reading {
		err := a.Describe(ctx, []string{group}).Err()
		switch {
		case errors.Is(err, kerr.GroupIDNotFound):
			return shown
		case err == nil:
			return notShown
		}
		return unreadable
	}
}

// MemberRef names a member of a group: by its ID, or where that is empty by its
// InstanceID (KIP-345, from Kafka 2.3 on).
type MemberRef struct {
	ID         string
	InstanceID string
}

// RemoveMembers takes members out of a group, which then divides their
// partitions anew. reason goes to the coordinator's log (KIP-800). A member that
// lives on joins again.
func (a *Groups) RemoveMembers(ctx context.Context, group string, members []MemberRef, reason string) Results[MemberRef, struct{}] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	res := make(Results[MemberRef, struct{}], len(members))
	if len(members) == 0 {
		return res
	}
	resp, err := leaveRequest(group, members, reason).RequestWith(ctx, a.c)
	if err == nil {
		err = kafka.CodeError(resp.ErrorCode, nil)
	}
	for i, m := range members {
		e := err
		if err == nil && resp.Version >= 3 {
			e = leftOf(resp, m)
		}
		name := m.ID
		if name == "" {
			name = m.InstanceID
		}
		res[i].Item, res[i].Err = m, opError("remove member "+name+" of group "+group, "", e)
	}
	return res
}

func leaveRequest(group string, members []MemberRef, reason string) *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group = group
	for _, m := range members {
		one := kmsg.NewLeaveGroupRequestMember()
		one.MemberID = m.ID
		if m.ID == "" {
			one.InstanceID = kmsg.StringPtr(m.InstanceID)
		}
		if reason != "" {
			one.Reason = kmsg.StringPtr(reason)
		}
		req.Members = append(req.Members, one)
	}
	return req
}

// leftOf is what an answer says of one member.
func leftOf(resp *kmsg.LeaveGroupResponse, m MemberRef) error {
	for i := range resp.Members {
		r := &resp.Members[i]
		if m.ID != "" && r.MemberID == m.ID || m.ID == "" && r.InstanceID != nil && *r.InstanceID == m.InstanceID {
			return kafka.CodeError(r.ErrorCode, nil)
		}
	}
	return errLeftOut
}
