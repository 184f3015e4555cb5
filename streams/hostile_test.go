package streams

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// Heartbeats whose answers make no sense end the member with an error that says
// so, and a leave; what is only odd is survived.
func TestM63AnswersThatMakeNoSense(t *testing.T) {
	list := func(sub string, ps ...int32) kmsg.TaskIDs {
		l := kmsg.NewTaskIDs()
		l.SubtopologyID, l.Partitions = sub, ps
		return l
	}
	many := make([]int32, 200_000)
	for name, c := range map[string]struct {
		fatal bool
		spoil func(r *kmsg.StreamsGroupHeartbeatResponse)
	}{
		"a task 200,000 times": {true, func(r *kmsg.StreamsGroupHeartbeatResponse) { r.ActiveTasks = append(r.ActiveTasks, list("0", many...)) }},
		"an entry twice":       {true, func(r *kmsg.StreamsGroupHeartbeatResponse) { r.ActiveTasks = append(r.ActiveTasks, list("0", 0)) }},
		"two roles":            {true, func(r *kmsg.StreamsGroupHeartbeatResponse) { r.WarmupTasks = append(r.WarmupTasks, list("0", 0)) }},
		"an unknown name":      {true, func(r *kmsg.StreamsGroupHeartbeatResponse) { r.StandbyTasks = append(r.StandbyTasks, list("", 1)) }},
		"a negative partition": {true, func(r *kmsg.StreamsGroupHeartbeatResponse) {
			r.StandbyTasks = append(r.StandbyTasks, list("0", math.MinInt32))
		}},
		"one list null":  {true, func(r *kmsg.StreamsGroupHeartbeatResponse) { r.WarmupTasks = nil }},
		"two lists null": {true, func(r *kmsg.StreamsGroupHeartbeatResponse) { r.ActiveTasks, r.WarmupTasks = nil, nil }},
		"the largest partition": {false, func(r *kmsg.StreamsGroupHeartbeatResponse) {
			r.StandbyTasks = append(r.StandbyTasks, list("0", math.MaxInt32))
		}},
		"an entry with nothing": {false, func(r *kmsg.StreamsGroupHeartbeatResponse) { r.StandbyTasks = append(r.StandbyTasks, list("0")) }},
		"negative numbers": {false, func(r *kmsg.StreamsGroupHeartbeatResponse) {
			r.MemberEpoch, r.HeartbeatIntervalMillis, r.ThrottleMillis = math.MinInt32, math.MinInt32, math.MinInt32
			r.TaskOffsetIntervalMillis, r.AcceptableRecoveryLag, r.EndpointInformationEpoch = -1, math.MinInt64, math.MinInt32
		}},
		"statuses nobody knows": {false, func(r *kmsg.StreamsGroupHeartbeatResponse) {
			for code := range 256 {
				if s := kmsg.NewStreamsGroupHeartbeatResponseStatus(); int8(code) < 0 || int8(code) > 6 {
					s.StatusCode = int8(code)
					r.Status = append(r.Status, s)
				}
			}
		}},
		"endpoints without sense": {false, func(r *kmsg.StreamsGroupHeartbeatResponse) {
			for range 10_000 {
				e := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpoint()
				p := kmsg.NewStreamsGroupHeartbeatResponsePartitionsByUserEndpointActivePartition()
				p.Partitions = []int32{-1, -1, math.MaxInt32}
				e.ActivePartitions = append(e.ActivePartitions, p)
				r.PartitionsByUserEndpoint = append(r.PartitionsByUserEndpoint, e)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.co.assign(all("0_0"))
				m := w.join()
				w.own(m, nil)
				time.Sleep(10 * time.Second)
				w.co.then(func(q *sim.Request, r *kmsg.StreamsGroupHeartbeatRequest) sim.Answer {
					resp := w.co.actLocked(q, r)
					setTarget(resp, active("0_0"))
					c.spoil(resp)
					return sim.Reply(resp)
				})
				time.Sleep(20 * time.Second)
				var pe *ProtocolError
				if got := errors.As(m.Err(), &pe); got != c.fatal {
					t.Fatalf("%v, state %v", m.Err(), m.Info().State)
				}
				if left := w.lastRequest().MemberEpoch == -1; left != c.fatal {
					t.Errorf("left %v", left)
				}
				if !c.fatal && (m.Info().State != Stable || m.Info().Epoch < 1) {
					t.Errorf("%+v", m.Info())
				}
			})
		})
	}
	t.Run("bytes that are no answer", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			w.co.assign(all("0_0"))
			m := w.join()
			w.own(m, nil)
			time.Sleep(10 * time.Second)
			for _, b := range [][]byte{{0}, {0, 0, 0, 0, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f}, make([]byte, 3)} {
				w.co.then(func(*sim.Request, *kmsg.StreamsGroupHeartbeatRequest) sim.Answer { return sim.Answer{Body: b} })
			}
			time.Sleep(time.Minute)
			if i := m.Info(); i.State != Stable || i.Failures < 3 || i.Rejoins != 0 {
				t.Errorf("%+v", i)
			}
		})
	})
}

// Descriptions that make no sense are an error, or described as they are.
func TestDescriptionsThatMakeNoSense(t *testing.T) {
	for name, c := range map[string]struct {
		fails bool
		spoil func(r *kmsg.StreamsGroupDescribeResponse)
	}{
		"no group":       {true, func(r *kmsg.StreamsGroupDescribeResponse) { r.Groups = nil }},
		"two groups":     {true, func(r *kmsg.StreamsGroupDescribeResponse) { r.Groups = append(r.Groups, r.Groups[0]) }},
		"another group":  {true, func(r *kmsg.StreamsGroupDescribeResponse) { r.Groups[0].Group = "h" }},
		"a code unknown": {true, func(r *kmsg.StreamsGroupDescribeResponse) { r.Groups[0].ErrorCode = 31000 }},
		"-1":             {true, func(r *kmsg.StreamsGroupDescribeResponse) { r.Groups[0].ErrorCode = -1 }},
		"numbers": {false, func(r *kmsg.StreamsGroupDescribeResponse) {
			g := &r.Groups[0]
			g.State, g.Epoch, g.AssignmentEpoch, g.TopologyDescriptionStatus = "", math.MinInt32, -5, -128
			for range 1000 {
				m := kmsg.NewStreamsGroupDescribeResponseGroupMember()
				m.MemberEpoch = math.MinInt32
				o := kmsg.NewTaskOffset()
				o.Partition, o.Offset = -9, math.MinInt64
				m.TaskOffsets = append(m.TaskOffsets, o, o)
				l := kmsg.NewTaskIDs()
				l.Partitions = []int32{-1, -1, math.MaxInt32}
				m.Assignment.ActiveTasks = append(m.Assignment.ActiveTasks, l, l)
				g.Members = append(g.Members, m)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				w.co.onDesc = func(q *sim.Request) sim.Answer {
					resp := q.Response().(*kmsg.StreamsGroupDescribeResponse)
					g := kmsg.NewStreamsGroupDescribeResponseGroup()
					g.Group = "g"
					resp.Groups = append(resp.Groups, g)
					c.spoil(resp)
					return sim.Reply(resp)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				g, err := Describe(ctx, w.c, "g", DescribeOptions{TopologyDescription: true})
				if (err != nil) != c.fails || (g != nil) == c.fails {
					t.Fatalf("%v, %v", g, err)
				}
				if g != nil {
					_ = fmt.Sprint(g.Topology, g.Description, g.Members[0].Tasks)
				}
				if err := Delete(ctx, w.c, "g", true); c.fails && err == nil {
					t.Error("a group was deleted that was not described")
				}
			})
		})
	}
}

// The answer to the deletion is lost, and the group is gone when it is asked for
// again: its internal topics, which only the description named, go as well.
func TestP29AGroupWhoseDeletionIsAnsweredToNobody(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.onDesc = func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.StreamsGroupDescribeResponse)
			g := kmsg.NewStreamsGroupDescribeResponseGroup()
			g.Group, g.State = "g", "Empty"
			top := kmsg.NewStreamsGroupDescribeResponseGroupTopology()
			sub := kmsg.NewStreamsGroupDescribeResponseGroupTopologySubtopology()
			log := kmsg.NewTopicInfo()
			log.Topic = "g-a-changelog"
			sub.SubtopologyID, sub.StateChangelogTopics = "0", append(sub.StateChangelogTopics, log)
			top.Subtopologies = append(top.Subtopologies, sub)
			g.Topology = &top
			resp.Groups = append(resp.Groups, g)
			return sim.Reply(resp)
		}
		deletions := 0
		var topics []string
		for _, b := range w.sim.Brokers() {
			b.Handle(42, func(q *sim.Request) sim.Answer {
				if deletions++; deletions == 1 {
					return sim.Answer{End: sim.Close}
				}
				resp := q.Response().(*kmsg.DeleteGroupsResponse)
				g := kmsg.NewDeleteGroupsResponseGroup()
				g.Group, g.ErrorCode = "g", 69
				resp.Groups = append(resp.Groups, g)
				return sim.Reply(resp)
			})
			b.Handle(20, func(q *sim.Request) sim.Answer {
				resp := q.Response().(*kmsg.DeleteTopicsResponse)
				for _, asked := range q.Req.(*kmsg.DeleteTopicsRequest).Topics {
					topics = append(topics, *asked.Topic)
					a := kmsg.NewDeleteTopicsResponseTopic()
					a.Topic = asked.Topic
					resp.Topics = append(resp.Topics, a)
				}
				return sim.Reply(resp)
			})
		}
		if err := Delete(t.Context(), w.c, "g", true); err != nil || deletions != 2 || len(topics) != 1 || topics[0] != "g-a-changelog" {
			t.Errorf("%v after %d deletions, of topics %q", err, deletions, topics)
		}
	})
}

// confused answers every request with the answer to another one.
type confused struct{ Kafka }

func (confused) Request(context.Context, kmsg.Request) (kmsg.Response, error) {
	return kmsg.NewPtrHeartbeatResponse(), nil
}

// Mutation: an answer of another type that is taken for none, and no error.
func TestAnAnswerOfAnotherTypeIsAnError(t *testing.T) {
	tps := []kafka.TopicPartition{{Topic: "t"}}
	for name, call := range map[string]func(k Kafka) error{
		"GroupConfigs":    func(k Kafka) error { _, err := GroupConfigs(t.Context(), k, "g"); return err },
		"SetGroupConfigs": func(k Kafka) error { return SetGroupConfigs(t.Context(), k, "g", map[string]string{"a": "b"}) },
		"List":            func(k Kafka) error { _, err := List(t.Context(), k); return err },
		"deleteTopics":    func(k Kafka) error { return deleteTopics(t.Context(), k, []string{"t"}) },
		"topic ids":       func(k Kafka) error { _, err := new(topicIDs).lookup(t.Context(), k, tps); return err },
	} {
		var pe *ProtocolError
		if err := call(confused{}); !errors.As(err, &pe) || !kafka.MayHaveHappened(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// silent answers every request with an answer that speaks of nothing.
type silent struct{ Kafka }

func (silent) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	return req.ResponseKind(), nil
}

// What an answer leaves out was not done.
func TestAnAnswerThatLeavesOutWhatWasAskedIsAnError(t *testing.T) {
	for name, call := range map[string]func(k Kafka) error{
		"GroupConfigs":    func(k Kafka) error { _, err := GroupConfigs(t.Context(), k, "g"); return err },
		"SetGroupConfigs": func(k Kafka) error { return SetGroupConfigs(t.Context(), k, "g", map[string]string{"a": "b"}) },
		"deleteTopics":    func(k Kafka) error { return deleteTopics(t.Context(), k, []string{"t"}) },
	} {
		var pe *ProtocolError
		if err := call(silent{}); !errors.As(err, &pe) || !kafka.MayHaveHappened(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// old refuses settings of groups as Kafka 3.9 does, and has Streams groups or
// not.
type old struct {
	Kafka
	streams bool
}

func (o old) CoordinatorVersions(context.Context, string, int16) (lo, hi int16, ok bool, err error) {
	return 0, 0, o.streams, nil
}

func (old) FinalizedFeature(context.Context, string) (int16, bool, error) { return 1, true, nil }

func (old) Request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	if req.Key() == 32 {
		return &kmsg.DescribeConfigsResponse{Resources: []kmsg.DescribeConfigsResponseResource{{ErrorCode: 42}}}, nil
	}
	return &kmsg.IncrementalAlterConfigsResponse{Resources: []kmsg.IncrementalAlterConfigsResponseResource{{ErrorCode: 42}}}, nil
}

func TestSettingsOfABrokerWithoutStreamsGroupsAreUnsupported(t *testing.T) {
	for name, call := range map[string]func(k Kafka) error{
		"GroupConfigs":    func(k Kafka) error { _, err := GroupConfigs(t.Context(), k, "g"); return err },
		"SetGroupConfigs": func(k Kafka) error { return SetGroupConfigs(t.Context(), k, "g", map[string]string{"a": "b"}) },
	} {
		var missing *UnsupportedError
		if err := call(old{}); !errors.As(err, &missing) || kafka.MayHaveHappened(err) {
			t.Errorf("%s: %v", name, err)
		}
		if err := call(old{streams: true}); errors.As(err, &missing) || !errors.Is(err, kerr.InvalidRequest) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
