package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

var _ kmsg.Requestor = (*Cluster)(nil)

var _ kmsg.Requestor = (*Broker)(nil)

// TestEveryAPIHasARoute holds the table beside kmsg's own marks: no API is
// without a decision.
func TestEveryAPIHasARoute(t *testing.T) {
	internal := []int16{4, 5, 6, 7, 17, 27, 34, 36, 52, 53, 54, 56, 58, 59, 62, 63, 67, 70, 73, 78, 79, 82, 83, 84, 85, 86, 87}
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		to := routes[key]
		if (to == named) != slices.Contains(internal, key) {
			t.Errorf("%s goes to %d", kmsg.NameForKey(key), to)
		}
		if _, ok := req.(kmsg.GroupCoordinatorRequest); ok && to != groupKeys {
			t.Errorf("%s is for the group coordinator and goes to %d", kmsg.NameForKey(key), to)
		}
		if _, ok := req.(kmsg.AdminRequest); ok && to != theController && to != named {
			t.Errorf("%s is for the controller and goes to %d", kmsg.NameForKey(key), to)
		}
	}
	for _, key := range []int16{88, 89, 93} {
		if routes[key] != groupKeys {
			t.Errorf("API %d does not go to the group coordinator", key)
		}
	}
}

func offsets(t *testing.T, resp kmsg.Response) map[kafka.TopicPartition]int64 {
	t.Helper()
	got := make(map[kafka.TopicPartition]int64)
	for _, rt := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, rp := range rt.Partitions {
			got[tp(rt.Topic, rp.Partition)] = rp.Offset
		}
	}
	return got
}

// order is the partitions of an answer in its order.
func order(resp kmsg.Response) (at []string) {
	for _, rt := range resp.(*kmsg.ListOffsetsResponse).Topics {
		for _, rp := range rt.Partitions {
			at = append(at, tp(rt.Topic, rp.Partition).String())
		}
	}
	return at
}

func TestPartitionsGoToTheirLeadersAndTheAnswersKeepTheOrder(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.topic("a", 1, 2, 3)
		r.topic("b", 3, 1)
		r.answerOffsets()
		c := r.connect()
		resp, err := c.Request(r.within(time.Minute), listOffsets(tp("a", 2), tp("a", 0), tp("b", 1), tp("b", 0), tp("a", 1)))
		mustDo(t, err)
		if got := strings.Join(order(resp), " "); got != "a-2 a-0 b-1 b-0 a-1" {
			t.Errorf("order %s", got)
		}
		for at, want := range map[kafka.TopicPartition]int64{tp("a", 0): 1000, tp("a", 1): 2001, tp("a", 2): 3002, tp("b", 0): 3000, tp("b", 1): 1001} {
			if got := offsets(t, resp)[at]; got != want {
				t.Errorf("%s: %d, want %d", at, got, want)
			}
		}
		for _, b := range r.sim.Brokers() {
			if n := b.Count(2); n != 1 {
				t.Errorf("broker %d got %d requests", b.ID, n)
			}
		}
		if resp.GetVersion() != 11 {
			t.Errorf("the answer has version %d", resp.GetVersion())
		}
	})
}

// TestB053OnlyTheMovedPartitionIsAskedAgain also holds R26 for plain requests:
// what was answered is not repeated.
func TestB053OnlyTheMovedPartitionIsAskedAgain(t *testing.T) {
	for _, code := range []int16{kerr.NotLeaderForPartition.Code, kerr.UnknownTopicOrPartition.Code, kerr.FencedLeaderEpoch.Code} {
		inBubble(t, 3, func(t *testing.T, r *rig) {
			r.topic("t", 1, 1, 2)
			r.answerOffsets()
			c := r.connect()
			mustDo(t, second(c.Request(r.within(time.Minute), listOffsets(tp("t", 0), tp("t", 1), tp("t", 2)))))
			r.sim.Broker(1).Forget()
			r.sim.Broker(2).Forget()
			r.sim.Broker(1).Handle(2, func(q *sim.Request) sim.Answer {
				resp := offsetsOf(q)
				for i := range resp.Topics[0].Partitions {
					if p := &resp.Topics[0].Partitions[i]; p.Partition == 1 {
						p.ErrorCode = code
					}
				}
				return sim.Reply(resp)
			})
			r.sim.SetLeader("t", 1, 3)
			resp, err := c.Request(r.within(time.Minute), listOffsets(tp("t", 0), tp("t", 1), tp("t", 2)))
			mustDo(t, err)
			if got := offsets(t, resp); got[tp("t", 1)] != 3001 || got[tp("t", 0)] != 1000 || soleCode(resp) != 0 {
				t.Errorf("code %d: %v", code, got)
			}
			if r.sim.Broker(1).Count(2) != 1 || r.sim.Broker(2).Count(2) != 1 || r.sim.Broker(3).Count(2) != 1 {
				t.Errorf("code %d: %d, %d and %d requests", code, r.sim.Broker(1).Count(2), r.sim.Broker(2).Count(2), r.sim.Broker(3).Count(2))
			}
		})
	}
}

func TestB053AnUnknownPartitionIsFinalAfterThePatience(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		r.answerOffsets()
		c := r.connect()
		start := time.Now()
		resp, err := c.Request(r.within(time.Minute), listOffsets(tp("t", 0), tp("t", 9), tp("none", 0)))
		var pe *PartialError
		if !errors.As(err, &pe) || len(pe.Failed) != 2 || pe.Failed[0].Item != "t-9" || !errors.Is(pe.Failed[1].Err, kerr.UnknownTopicOrPartition) {
			t.Fatalf("%v", err)
		}
		if kafka.MayHaveHappened(err) {
			t.Error("nothing was sent for these")
		}
		if took := time.Since(start); took < 5*time.Second || took > 8*time.Second {
			t.Errorf("after %v", took)
		}
		got := resp.(*kmsg.ListOffsetsResponse)
		if got.Topics[0].Partitions[0].ErrorCode != 0 || got.Topics[0].Partitions[1].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("%+v", got)
		}
		for _, m := range r.allMetadata() {
			if m.AllowAutoTopicCreation {
				t.Error("a look-up for a request may create topics")
			}
		}
	})
}

func TestA3C43ARejectedControllerRequestIsRepeatedAndAReadOneIsNot(t *testing.T) {
	create := func() *kmsg.CreateTopicsRequest {
		req := kmsg.NewPtrCreateTopicsRequest()
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic = "new"
		req.Topics = append(req.Topics, rt)
		return req
	}
	reject := func(code int16) sim.Handler {
		return func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.CreateTopicsResponse)
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic, rt.ErrorCode = "new", code
			resp.Topics = append(resp.Topics, rt)
			return sim.Reply(resp)
		}
	}
	t.Run("41 goes to the next controller", func(t *testing.T) {
		inBubble(t, 2, func(t *testing.T, r *rig) {
			c := r.connect()
			r.sim.Broker(1).Handle(19, reject(kerr.NotController.Code))
			r.sim.Broker(2).Handle(19, reject(0))
			r.sim.Update(func(tp *sim.Topology) { tp.Controller = 2 })
			resp, err := c.Request(r.within(time.Minute), create())
			if err != nil || soleCode(resp) != 0 || r.sim.Broker(1).Count(19) != 1 || r.sim.Broker(2).Count(19) != 1 {
				t.Errorf("%v, %v", resp, err)
			}
		})
	})
	t.Run("89 is repeated, -1 and 7 and unknown codes are not", func(t *testing.T) {
		for code, want := range map[int16]int{kerr.ThrottlingQuotaExceeded.Code: 3, -1: 1, 7: 1, 12345: 1} {
			inBubble(t, 1, func(t *testing.T, r *rig) {
				c := r.connect()
				r.sim.Broker(1).Handle(19, func(q *sim.Request) sim.Answer {
					if q.Nth == 3 {
						return reject(0)(q)
					}
					return reject(code)(q)
				})
				resp, err := c.Request(r.within(time.Minute), create())
				if err != nil || r.sim.Broker(1).Count(19) != want || want == 1 && soleCode(resp) != code {
					t.Errorf("code %d: %d requests, %v", code, r.sim.Broker(1).Count(19), err)
				}
			})
		}
	})
	t.Run("a lost answer is unknown", func(t *testing.T) {
		inBubble(t, 2, func(t *testing.T, r *rig) {
			c := r.connect()
			r.everywhere(19, func(*sim.Request) sim.Answer { return sim.Answer{End: sim.Close} })
			_, err := c.Request(r.within(time.Minute), create())
			if err == nil || !kafka.MayHaveHappened(err) || r.sim.Broker(1).Count(19)+r.sim.Broker(2).Count(19) != 1 {
				t.Errorf("%v after %d requests", err, r.sim.Broker(1).Count(19))
			}
		})
	})
	t.Run("a request that never left is repeated", func(t *testing.T) {
		inBubble(t, 2, func(t *testing.T, r *rig) {
			r.sim.Update(func(tp *sim.Topology) { tp.Controller = 2 })
			c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
			r.sim.Broker(2).OnAccept(func(n int, _ netConn) sim.End {
				if n <= 3 {
					return sim.Reset
				}
				return sim.Keep
			})
			if _, err := c.Request(r.within(time.Minute), create()); err != nil || r.sim.Broker(2).Count(19) != 1 {
				t.Errorf("%v", err)
			}
		})
	})
}

func TestConfigResourcesGoToTheBrokerThatTheyAreAbout(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.everywhere(32, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeConfigsResponse)
			for _, in := range q.Req.(*kmsg.DescribeConfigsRequest).Resources {
				out := kmsg.NewDescribeConfigsResponseResource()
				out.ResourceType, out.ResourceName = in.ResourceType, in.ResourceName
				out.Configs = []kmsg.DescribeConfigsResponseResourceConfig{{Name: "at", Value: kmsg.StringPtr(string(rune('0' + q.Broker.ID)))}}
				resp.Resources = append(resp.Resources, out)
			}
			return sim.Reply(resp)
		})
		c := r.connect()
		req := kmsg.NewPtrDescribeConfigsRequest()
		for _, at := range []struct {
			kind kmsg.ConfigResourceType
			name string
		}{{kmsg.ConfigResourceTypeBroker, "3"}, {kmsg.ConfigResourceTypeTopic, "3"}, {kmsg.ConfigResourceTypeBrokerLogger, "2"}, {kmsg.ConfigResourceTypeBroker, "9"}} {
			in := kmsg.NewDescribeConfigsRequestResource()
			in.ResourceType, in.ResourceName = at.kind, at.name
			req.Resources = append(req.Resources, in)
		}
		resp, err := c.Request(r.within(time.Minute), req)
		var pe *PartialError
		if !errors.As(err, &pe) || len(pe.Failed) != 1 || !errors.Is(pe.Failed[0].Err, ErrUnknownBroker) {
			t.Errorf("%v", err)
		}
		rs := resp.(*kmsg.DescribeConfigsResponse).Resources
		if len(rs) != 4 || *rs[0].Configs[0].Value != "3" || *rs[1].Configs[0].Value != "1" || *rs[2].Configs[0].Value != "2" || rs[3].ErrorCode == 0 {
			t.Errorf("%+v", rs)
		}
	})
}

func TestA7ConfigsOfANewBrokerAreAskedOfIt(t *testing.T) {
	for _, lazy := range []bool{false, true} {
		inBubble(t, 3, func(t *testing.T, r *rig) {
			r.everywhere(32, func(q *sim.Request) sim.Answer {
				resp := q.Response().(*kmsg.DescribeConfigsResponse)
				out := kmsg.NewDescribeConfigsResponseResource()
				out.ResourceType, out.ResourceName = kmsg.ConfigResourceTypeBroker, "3"
				resp.Resources = append(resp.Resources, out)
				return sim.Reply(resp)
			})
			var nodes []sim.Node
			r.sim.Update(func(tp *sim.Topology) { nodes, tp.Nodes = tp.Nodes, tp.Nodes[:2:2] })
			c := r.connect(func(cfg *Config) { cfg.Lazy, cfg.Bootstrap = lazy, []string{"b1:9092"} })
			r.sim.Update(func(tp *sim.Topology) { tp.Nodes = nodes })
			req := kmsg.NewPtrDescribeConfigsRequest()
			in := kmsg.NewDescribeConfigsRequestResource()
			in.ResourceType, in.ResourceName = kmsg.ConfigResourceTypeBroker, "3"
			req.Resources = append(req.Resources, in)
			mustDo(t, second(c.Request(r.within(time.Minute), req)))
			if n := r.sim.Broker(3).Count(32); n != 1 || r.sim.Count(32) != 1 {
				t.Errorf("lazy %v: the broker was asked %d times, all %d", lazy, n, r.sim.Count(32))
			}
		})
	}
}

func TestListCallsAskEveryBrokerAndNameThoseThatDoNotAnswer(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.everywhere(16, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.ListGroupsResponse)
			for _, g := range []string{"both", string(rune('0' + q.Broker.ID))} {
				resp.Groups = append(resp.Groups, kmsg.ListGroupsResponseGroup{Group: g})
			}
			return sim.Reply(resp)
		})
		c := r.connect()
		groups := func(resp kmsg.Response) (gs []string) {
			for _, g := range resp.(*kmsg.ListGroupsResponse).Groups {
				gs = append(gs, g.Group)
			}
			return gs
		}
		resp, err := c.Request(r.within(time.Minute), kmsg.NewPtrListGroupsRequest())
		if err != nil || !slices.Equal(groups(resp), []string{"both", "1", "2", "3"}) {
			t.Errorf("%v, %v", groups(resp), err)
		}
		for id := range int32(3) { // also where the code is below zero, and wherever it comes in the order
			r.sim.Broker(id+1).Script(16, sim.Reply(&kmsg.ListGroupsResponse{ErrorCode: -1}))
			resp, err = c.Request(r.within(time.Minute), kmsg.NewPtrListGroupsRequest())
			if err != nil || resp.(*kmsg.ListGroupsResponse).ErrorCode != -1 {
				t.Errorf("broker %d could not list its groups: %+v, %v", id+1, resp, err)
			}
		}
		r.sim.Broker(2).Handle(16, func(q *sim.Request) sim.Answer { return sim.Answer{Until: q.Done()} })
		resp, err = c.Request(r.within(time.Second), kmsg.NewPtrListGroupsRequest())
		var pe *PartialError
		if !errors.As(err, &pe) || len(pe.Failed) != 1 || pe.Failed[0].Broker != 2 || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%v", err)
		}
		if !slices.Equal(groups(resp), []string{"both", "1", "3"}) {
			t.Errorf("%v", groups(resp))
		}
	})
}

func TestRequestsBetweenBrokersAreNotRouted(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		c := r.connect()
		_, err := c.Request(t.Context(), kmsg.NewPtrVoteRequest())
		if !errors.Is(err, ErrNotRouted) || kafka.MayHaveHappened(err) {
			t.Errorf("%v", err)
		}
		mustDo(t, second(c.Broker(1).Request(t.Context(), kmsg.NewPtrVoteRequest())))
	})
}

func TestB020BrokerRequestsFollowTheNode(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[:2] })
		r.topic("t", 2)
		r.answerOffsets()
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		mustDo(t, second(c.Request(r.within(time.Minute), listOffsets(tp("t", 0)))))
		// Node 2 comes back on another machine.
		r.sim.Broker(3).Handle(18, checkIdentity(r.sim.Broker(3), "sim", 2))
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes[1].Host = "b3" })
		r.sim.Broker(2).Close()
		start := time.Now()
		resp, err := c.Request(r.within(time.Minute), listOffsets(tp("t", 0)))
		if err != nil || offsets(t, resp)[tp("t", 0)] != 3000 || time.Since(start) > time.Second {
			t.Errorf("%v, %v after %v", resp, err, time.Since(start))
		}
		accepted := r.sim.Broker(2).Accepted()
		time.Sleep(5 * time.Minute)
		if r.sim.Broker(2).Accepted() != accepted {
			t.Error("the retired address was dialled")
		}
	})
}

func TestC24K9TheVersionIsTheHighestThatBothSpeakAndIDsAllow(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		b := r.sim.Broker(1)
		for _, key := range []int16{0, 1} {
			b.Handle(key, func(q *sim.Request) sim.Answer { return sim.Reply(q.Response()) })
		}
		c := r.connect(func(cfg *Config) { cfg.MaxVersions = map[int16]int16{60: 1} })
		mustDo(t, second(c.Request(t.Context(), kmsg.NewPtrDescribeClusterRequest())))
		fetch := fetchOf(0)
		fetch.Topics[0].Partitions = fetch.Topics[0].Partitions[:1]
		_, _ = c.Request(r.within(time.Second), fetch)
		top, err := c.Topic(t.Context(), "t")
		mustDo(t, err)
		fetch.Topics[0].TopicID = top.ID
		_, _ = c.Request(r.within(time.Second), fetch)
		commit := &kmsg.OffsetCommitRequest{Group: "g", Topics: []kmsg.OffsetCommitRequestTopic{{Topic: "t"}}}
		_, _ = c.Request(r.within(time.Second), commit)
		of := &kmsg.OffsetFetchRequest{Group: "g", Topics: []kmsg.OffsetFetchRequestTopic{{Topic: "t"}}}
		_, _ = c.Request(r.within(time.Second), of)
		for key, want := range map[int16][]int16{60: {1}, 1: {12, 18}, 8: {9}, 9: {9}} {
			var got []int16
			for _, f := range b.FramesOf(key) {
				if !slices.Contains(got, f.Version) {
					got = append(got, f.Version)
				}
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s went out at %v, want %v", kmsg.NameForKey(key), got, want)
			}
		}
		if n := b.OutOfRange(); n != 0 {
			t.Errorf("%d requests out of range", n)
		}
	})
}
