package streams

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	core "github.com/ottla/ottla/internal/core/streams"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// DescribeOptions says what a description holds beside the group.
type DescribeOptions struct {
	TopologyDescription  bool // as a member pushed it (KIP-1331); Kafka 4.4
	AuthorizedOperations bool
}

// GroupDescription is a Streams group as its coordinator describes it.
type GroupDescription struct {
	Group           string
	State           string // Empty, NotReady, Assigning, Reconciling, Stable, Dead, or what else the broker says
	Epoch           int32
	AssignmentEpoch int32
	Topology        *Topology // nil if the broker sent none; without copartition groups
	Members         []MemberDescription
	Assignor        string // of the next assignment; empty before Kafka 4.4
	Operations      int32  // bits of the allowed operations; the lowest int32 if not asked for

	DescriptionStatus DescriptionStatus
	Description       *TopologyDescription // nil unless the status is Available
}

// DescriptionStatus says what is known of the description of a topology.
type DescriptionStatus int8

const (
	NotRequested   DescriptionStatus = iota // it was not asked for
	NotStored                               // no member pushed one, or the broker has no plug-in
	DescribeFailed                          // the broker's plug-in failed
	Available
)

// MemberDescription is one member of a described group.
type MemberDescription struct {
	ID, InstanceID, RackID, ProcessID string
	ClientID, Host                    string
	Epoch, TopologyEpoch              int32
	Endpoint                          *Endpoint
	Tags                              map[string]string
	Offsets, Ends                     map[TaskID]int64
	Tasks                             Tasks // what the coordinator counts as held
	Target                            Tasks // what it wants the member to have
}

// codeGroupNotFound is GROUP_ID_NOT_FOUND.
const codeGroupNotFound = 69

// Describe describes a Streams group. What may get better is tried again until
// ctx ends, or for a minute if it has no deadline.
//
// Errors: [*GroupTypeError] for a group that does not exist or is of another
// kind, [*UnsupportedError], [*BrokerError]. An empty group without committed
// offsets ceases to exist by itself, within ten minutes by default.
func Describe(ctx context.Context, c Kafka, group string, o DescribeOptions) (*GroupDescription, error) {
	var out *GroupDescription
	err := coordinate(ctx, c, group, func(ctx context.Context) reply {
		g, err := describeOnce(ctx, c, group, o)
		if err != nil {
			return reply{err: err}
		}
		out = readDescription(g)
		return reply{code: g.ErrorCode, message: g.ErrorMessage}
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// describeOnce asks the coordinator once.
func describeOnce(ctx context.Context, c Kafka, group string, o DescribeOptions) (*kmsg.StreamsGroupDescribeResponseGroup, error) {
	version, err := versionOf(ctx, c, group, keyDescribe, "StreamsGroupDescribe (API 89)")
	if err != nil {
		return nil, err
	}
	version = min(version, maxDescribe)
	if o.TopologyDescription && version < 1 {
		return nil, &UnsupportedError{Missing: "descriptions of topologies", Hint: "they need Kafka 4.4 or newer"}
	}
	req := kmsg.NewPtrStreamsGroupDescribeRequest()
	req.Version, req.Groups = version, []string{group}
	req.IncludeAuthorizedOperations, req.IncludeTopologyDescription = o.AuthorizedOperations, o.TopologyDescription
	resp, err := c.RequestCoordinator(ctx, group, req)
	if err != nil {
		return nil, err
	}
	r, ok := resp.(*kmsg.StreamsGroupDescribeResponse)
	if !ok || len(r.Groups) != 1 || r.Groups[0].Group != group {
		return nil, &ProtocolError{Reason: "the description is not of the group that was asked for"}
	}
	return &r.Groups[0], nil
}

// versionOf is the highest version of an API that the coordinator speaks.
func versionOf(ctx context.Context, c Kafka, group string, key int16, name string) (int16, error) {
	_, hi, ok, err := c.CoordinatorVersions(ctx, group, key)
	if err == nil && !ok {
		err = &UnsupportedError{Missing: name, Hint: "streams groups need Kafka 4.2 or newer"}
	}
	return hi, err
}

// answerOf is an answer of the type that it should have. The zero R comes with
// an error.
func answerOf[R kmsg.Response](resp kmsg.Response, err error) (R, error) {
	r, ok := resp.(R)
	if err == nil && !ok {
		err = &openError{&ProtocolError{Reason: fmt.Sprintf("it is a %T and no %T", resp, r)}}
	}
	return r, err
}

// patience is how long calls without a deadline try.
const patience = time.Minute

// reply is what a coordinator answered, or why there is no answer.
type reply struct {
	code    int16
	message *string
	again   bool // worth another try although the code alone does not say so
	open    bool // it may have taken effect, whatever err and code say
	err     error
}

// openError is the end of a call of which one try, or a part, may have taken effect.
type openError struct{ err error }

func (e *openError) Error() string {
	return e.err.Error() + "; a part of it, or an unanswered try, may have taken effect"
}
func (e *openError) Unwrap() error       { return e.err }
func (*openError) MayHaveHappened() bool { return true }

// leftOpen says of an error that an earlier try may have taken effect.
func leftOpen(err error, open bool) error {
	if err == nil || !open || kafka.MayHaveHappened(err) {
		return err
	}
	return &openError{err}
}

// coordinate calls a coordinator until it gives a reply that another try cannot
// better, or ctx ends.
func coordinate(ctx context.Context, c Kafka, group string, ask func(context.Context) reply) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	for tries := 1; ; tries++ {
		r := ask(ctx)
		if r.err != nil {
			r.code = kafka.CodeOf(r.err)
		} else if r.code != 0 {
			r.err = answered(group, r.code, r.message)
		}
		if r.err == nil {
			return nil
		}
		unreached := r.code == 0 && worthwhile(r.err)
		if unreached || retry.Of(r.code) == retry.FindCoordinator {
			c.ForgetCoordinator(group)
		} else if !r.again && retry.Of(r.code) != retry.Retry {
			return r.err
		}
		if task.Sleep(ctx, retry.Reconnect().Delay(tries, nil)) != nil {
			return &FailedError{Group: group, Tries: tries, Err: r.err}
		}
	}
}

// worthwhile reports whether another try may get an answer.
func worthwhile(err error) bool {
	var unsupported *UnsupportedError
	var protocol *ProtocolError
	return !isClosed(err) && !errors.Is(err, ErrClosed) && !errors.Is(err, kafka.ErrNotInGroup) &&
		!errors.As(err, &unsupported) && !errors.As(err, &protocol)
}

// answered is the error for a code.
func answered(group string, code int16, message *string) error {
	if code == codeGroupNotFound {
		return core.NoStreamsGroup(group, message)
	}
	return core.NewBrokerError(group, code, message)
}

// bounded gives ctx a deadline if it has none.
func bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	if _, ok := ctx.Deadline(); ok {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, patience)
}

func readDescription(g *kmsg.StreamsGroupDescribeResponseGroup) *GroupDescription {
	out := &GroupDescription{
		Group: g.Group, State: g.State, Epoch: g.Epoch, AssignmentEpoch: g.AssignmentEpoch, Topology: readTopology(g.Topology),
		Assignor: deref(g.AssignorName), Operations: g.AuthorizedOperations, DescriptionStatus: DescriptionStatus(g.TopologyDescriptionStatus),
	}
	for i := range g.Members {
		out.Members = append(out.Members, readMember(&g.Members[i]))
	}
	slices.SortFunc(out.Members, func(a, b MemberDescription) int {
		if a.ID < b.ID {
			return -1
		}
		return 1
	})
	if d := g.TopologyDescription; d != nil {
		r := readTopologyDescription(d.Subtopologies, d.GlobalStores)
		out.Description = &r
	}
	return out
}

func readTopology(w *kmsg.StreamsGroupDescribeResponseGroupTopology) *Topology {
	if w == nil {
		return nil
	}
	t := &Topology{Epoch: w.Epoch}
	for _, s := range w.Subtopologies {
		t.Subtopologies = append(t.Subtopologies, Subtopology{
			ID: s.SubtopologyID, Sources: s.SourceTopics, RepartitionSinks: s.RepartitionSinkTopics,
			Repartitions: core.ReadTopics(s.RepartitionSourceTopics), Changelogs: core.ReadTopics(s.StateChangelogTopics),
		})
	}
	return t
}

func readMember(m *kmsg.StreamsGroupDescribeResponseGroupMember) MemberDescription {
	out := MemberDescription{
		ID: m.MemberID, InstanceID: deref(m.InstanceID), RackID: deref(m.RackID), ProcessID: m.ProcessID,
		ClientID: m.ClientID, Host: m.ClientHost, Epoch: m.MemberEpoch, TopologyEpoch: m.TopologyEpoch,
		Offsets: readOffsets(m.TaskOffsets), Ends: readOffsets(m.TaskEndOffsets),
		Tasks: core.ReadAssignment(&m.Assignment), Target: core.ReadAssignment(&m.TargetAssignment), Tags: map[string]string{},
	}
	if e := m.UserEndpoint; e != nil {
		out.Endpoint = &Endpoint{Host: e.Host, Port: e.Port}
	}
	for _, t := range m.ClientTags {
		out.Tags[t.Key] = t.Value
	}
	return out
}

func readOffsets(ws []kmsg.TaskOffset) map[TaskID]int64 {
	out := map[TaskID]int64{}
	for _, w := range ws {
		out[TaskID{Subtopology: w.SubtopologyID, Partition: w.Partition}] = w.Offset
	}
	return out
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// GroupListing is one Streams group of a cluster.
type GroupListing struct {
	Group string
	State string
}

// List lists the Streams groups of the cluster, in order of their ids. It asks
// every broker: one that gives no answer is an error beside the groups of the
// others.
func List(ctx context.Context, c Kafka) ([]GroupListing, error) {
	req := kmsg.NewPtrListGroupsRequest()
	req.TypesFilter = []string{"streams"}
	r, err := answerOf[*kmsg.ListGroupsResponse](c.Request(ctx, req))
	if r == nil {
		return nil, err
	}
	if err == nil {
		err = kafka.CodeError(r.ErrorCode, nil)
	}
	found := map[string]GroupListing{}
	for _, g := range r.Groups {
		if g.GroupType == "streams" || g.GroupType == "" && g.ProtocolType == "streams" {
			found[g.Group] = GroupListing{Group: g.Group, State: g.GroupState}
		}
	}
	out := make([]GroupListing, 0, len(found))
	for _, id := range slices.Sorted(maps.Keys(found)) {
		out = append(out, found[id])
	}
	return out, err
}
