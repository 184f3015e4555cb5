package streams

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	core "github.com/ottla/ottla/internal/core/streams"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// Keys and highest versions of the APIs.
const (
	keyHeartbeat = 88
	keyDescribe  = 89
	keyPush      = 93

	maxHeartbeat = 1
	maxDescribe  = 1
)

// feature is what turns Streams groups on in a cluster.
const feature = "streams.version"

// lookup finds the coordinator and the version to speak with it.
func (a *actor) lookup(ctx context.Context, act *core.LookupAction) {
	began := time.Now()
	if act.Forget {
		a.kafka.ForgetCoordinator(a.cfg.Group)
	}
	timeout, cancel := context.WithTimeout(ctx, a.cfg.SessionTimeout/3)
	version, err := heartbeatVersion(timeout, a.kafka, a.cfg.Group)
	cancel()
	a.tracer.lookedUp(a.cfg.Group, time.Since(began), err)
	a.post(ctx, func(now time.Time) {
		switch {
		case isClosed(err):
			a.machine.OnClosed(now, err)
		case err != nil:
			a.machine.OnLookupFailed(now, act.ID, kafka.CodeOf(err), err)
		default:
			a.machine.OnVersion(now, act.ID, version)
		}
	})
}

// heartbeatVersion is the version of StreamsGroupHeartbeat to use with the
// coordinator of a group, or why there is none.
func heartbeatVersion(ctx context.Context, k Kafka, group string) (int16, error) {
	_, hi, ok, err := k.CoordinatorVersions(ctx, group, keyHeartbeat)
	if err != nil {
		return 0, err
	}
	if !ok {
		return 0, errNoStreams()
	}
	level, _, err := k.FinalizedFeature(ctx, feature)
	if err != nil {
		return 0, err
	}
	if level < 1 {
		return 0, &UnsupportedError{
			Missing: "the feature " + feature,
			Hint:    "turn it on with kafka-features.sh upgrade --feature streams.version=1 (Kafka 4.2 or newer)",
		}
	}
	return min(hi, maxHeartbeat), nil
}

// errNoStreams is a coordinator that is too old.
func errNoStreams() error {
	return &UnsupportedError{Missing: "StreamsGroupHeartbeat (API 88)", Hint: "streams groups need Kafka 4.2 or newer"}
}

// send sends a heartbeat, once.
func (a *actor) send(ctx context.Context, act *core.SendAction) {
	began := time.Now()
	timeout, cancel := context.WithTimeout(ctx, act.Timeout)
	resp, err := a.kafka.RequestCoordinator(timeout, a.cfg.Group, act.Req)
	cancel()
	r, ok := resp.(*kmsg.StreamsGroupHeartbeatResponse)
	if err == nil && !ok {
		err = &ProtocolError{Reason: "another answer than that of a heartbeat"}
	}
	var code int16
	if err == nil {
		code = r.ErrorCode
	}
	var version *kafka.VersionError
	if errors.As(err, &version) && version.BrokerMax < 0 {
		err = errNoStreams()
	}
	a.tracer.heartbeat(a.cfg.Group, act.Req.MemberEpoch, time.Since(began), code, err)
	a.post(ctx, func(now time.Time) {
		switch {
		case isClosed(err):
			a.machine.OnClosed(now, err)
		case err != nil:
			a.machine.OnFailure(now, act.ID, err, !kafka.MayHaveHappened(err))
		default:
			a.machine.OnAnswer(now, act.ID, r)
		}
	})
}

// describe finds the member's assignment, together with the other members of
// this process that ask.
func (a *actor) describe(ctx context.Context, act *core.DescribeAction) {
	g, err := describers.describe(ctx, a.kafka, a.cfg.Group)
	var tasks Tasks
	found := false
	if err == nil {
		for _, m := range g.Members {
			if m.ID == act.Member {
				tasks, found = m.Tasks, true
			}
		}
	}
	a.post(ctx, func(now time.Time) { a.machine.OnDescribed(now, act.ID, tasks, found, err) })
}

// push gives the broker the description that it asked for. Config.Description
// runs on a goroutine that nobody waits for, so that it may end the member.
func (a *actor) push(ctx context.Context, act *core.PushAction) {
	described := make(chan TopologyDescription, 1)
	calls := task.NewCalls(1)
	defer calls.Close(nil)
	calls.Add(func() { described <- a.cfg.Description() })
	req := kmsg.NewPtrStreamsGroupTopologyDescriptionUpdateRequest()
	req.Group, req.MemberID, req.TopologyEpoch = a.cfg.Group, act.Member, act.Epoch
	select {
	case d := <-described:
		req.TopologyDescription = d.wire()
	case <-ctx.Done():
		return
	}
	timeout, cancel := context.WithTimeout(ctx, a.cfg.SessionTimeout/3)
	resp, err := a.kafka.RequestCoordinator(timeout, a.cfg.Group, req)
	cancel()
	if r, ok := resp.(*kmsg.StreamsGroupTopologyDescriptionUpdateResponse); ok && err == nil {
		err = kafka.CodeError(r.ErrorCode, r.ErrorMessage)
	}
	a.post(ctx, func(time.Time) { a.machine.OnPushed(err) })
}
