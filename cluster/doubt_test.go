package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// TestC43AnEarlierAttemptLeavesTheRequestInDoubt has a broker read EndTxn and
// close, and then be gone, so that the last attempt wrote nothing. The mutation
// that it finds: an outcome that only the last attempt decides.
func TestC43AnEarlierAttemptLeavesTheRequestInDoubt(t *testing.T) {
	for name, end := range map[string]func(r *rig, c *Cluster){
		"context": func(*rig, *Cluster) {},
		"close": func(_ *rig, c *Cluster) {
			time.AfterFunc(3*time.Second, func() { c.Close() })
		},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *rig) {
				b := r.sim.Broker(1)
				b.Handle(26, func(*sim.Request) sim.Answer {
					go b.Close() // nobody listens from here on
					return sim.Answer{End: sim.Close}
				})
				c := r.connect()
				end(r, c)
				req := kmsg.NewPtrEndTxnRequest()
				req.TransactionalID, req.ProducerID = "tx", 1
				_, err := c.Request(r.within(10*time.Second), req)
				if err == nil || b.Count(26) == 0 {
					t.Fatalf("%v after %d requests", err, b.Count(26))
				}
				if !kafka.MayHaveHappened(err) {
					t.Errorf("said not to have happened: %v", err)
				}
				if name == "close" && !errors.Is(err, ErrClosed) {
					t.Errorf("%v is not ErrClosed", err)
				}
			})
		})
	}
}

// TestC43WhatIsInDoubtOfOneItemIsNotLostAmongOthers has one of two partitions
// lose its answer and then its broker, while the other is refused at every
// attempt. The mutation that it finds: a doubt that only the last failure of a
// round leaves.
func TestC43WhatIsInDoubtOfOneItemIsNotLostAmongOthers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.topic("t", 2, 3)
		r.sim.Broker(2).Handle(21, func(*sim.Request) sim.Answer {
			go r.sim.Broker(2).Close()
			return sim.Answer{End: sim.Close}
		})
		r.sim.Broker(3).Handle(21, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DeleteRecordsResponse)
			p := kmsg.NewDeleteRecordsResponseTopicPartition()
			p.Partition, p.ErrorCode = 1, 6
			resp.Topics = []kmsg.DeleteRecordsResponseTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsResponseTopicPartition{p}}}
			return sim.Reply(resp)
		})
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		req := kmsg.NewPtrDeleteRecordsRequest()
		req.Topics = []kmsg.DeleteRecordsRequestTopic{{Topic: "t", Partitions: []kmsg.DeleteRecordsRequestTopicPartition{
			{Partition: 0, Offset: 5}, {Partition: 1, Offset: 5},
		}}}
		_, err := c.Request(r.within(10*time.Second), req)
		if n := r.sim.Broker(2).Count(21); n != 1 {
			t.Fatalf("%d requests", n)
		}
		if err == nil || !kafka.MayHaveHappened(err) {
			t.Errorf("said not to have happened: %v", err)
		}
	})
}

// TestC43ALostLookUpLeavesTheRequestAfterItUndone fails where the outcome of a
// look-up is taken for that of the request that it was for: a mutation that was
// never sent would be in doubt, and not tried again.
func TestC43ALostLookUpLeavesTheRequestAfterItUndone(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		b := r.sim.Broker(1)
		c := r.connect()
		lost := sim.Answer{End: sim.Reset}
		lose := func(key int16) { b.Script(key, lost, lost) } // the repetition too
		c.InvalidateController(1)
		lose(3)
		if _, err := c.Request(r.within(time.Minute), kmsg.NewPtrCreateTopicsRequest()); err != nil || b.Count(19) != 1 {
			t.Errorf("CreateTopics after a lost Metadata: %v after %d requests", err, b.Count(19))
		}
		b.Handle(3, func(*sim.Request) sim.Answer { return lost })
		b.Handle(10, func(*sim.Request) sim.Answer { return lost })
		c.InvalidateController(1)
		for name, do := range map[string]func() (kmsg.Response, error){
			"controller": func() (kmsg.Response, error) {
				return c.Request(r.within(time.Second), kmsg.NewPtrCreateTopicsRequest())
			},
			"broker": func() (kmsg.Response, error) {
				return c.Broker(77).Request(r.within(time.Second), kmsg.NewPtrEndTxnRequest())
			},
			"coordinator": func() (kmsg.Response, error) {
				return c.RequestCoordinator(r.within(time.Second), "g", kmsg.NewPtrOffsetCommitRequest())
			},
			"groups": func() (kmsg.Response, error) {
				return c.Request(r.within(time.Second), &kmsg.DeleteGroupsRequest{Groups: []string{"g", "h"}})
			},
		} {
			if _, err := do(); err == nil || kafka.MayHaveHappened(err) {
				t.Errorf("%s: never sent, and %v", name, err)
			}
		}
	})
}

// TestC43AMembersRequestIsSentOnce loses the answers of requests that a broker
// would recognise if they came again. What came with the answer, such as an
// assignment, does not come again, and a commit that was carried out may be
// refused then: whoever keeps a membership has to know.
func TestC43AMembersRequestIsSentOnce(t *testing.T) {
	for _, req := range []kmsg.Request{
		kmsg.NewPtrOffsetCommitRequest(), kmsg.NewPtrConsumerGroupHeartbeatRequest(), kmsg.NewPtrSyncGroupRequest(),
		&kmsg.JoinGroupRequest{MemberID: "m"}, kmsg.NewPtrHeartbeatRequest(), kmsg.NewPtrLeaveGroupRequest(),
	} {
		inBubble(t, 2, func(t *testing.T, r *rig) {
			r.coordinates("g", 2)
			r.sim.Broker(2).Script(req.Key(), sim.Answer{End: sim.Reset})
			c := r.connect()
			req.SetVersion(-1)
			_, err := c.RequestCoordinator(r.within(time.Minute), "g", req)
			if n := r.sim.Broker(2).Count(req.Key()); n != 1 || err == nil || !kafka.MayHaveHappened(err) {
				t.Errorf("%T: sent %d times, %v", req, n, err)
			}
		})
	}
}

// TestC43ASlowMutationIsNotAskedOfASecondBroker holds the answer back for longer
// than a request that changes nothing would wait.
func TestC43ASlowMutationIsNotAskedOfASecondBroker(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.everywhere(38, func(q *sim.Request) sim.Answer {
			time.Sleep(5 * hedge)
			return sim.Reply(q.Response())
		})
		c := r.connect()
		mustDo(t, second(c.Request(r.within(time.Minute), kmsg.NewPtrCreateDelegationTokenRequest())))
		n := 0
		for _, b := range r.sim.Brokers() {
			n += b.Count(38)
		}
		if n != 1 {
			t.Errorf("sent %d times", n)
		}
	})
}

// TestC48WhatAnAnswerLeavesOutIsAnError has brokers answer with nothing in it:
// taken for success, a partition would have an offset that nobody gave.
func TestC48WhatAnAnswerLeavesOutIsAnError(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		empty := func(q *sim.Request) sim.Answer { return sim.Reply(q.Response()) }
		r.everywhere(2, empty)
		r.everywhere(42, empty)
		c := r.connect()
		resp, err := c.Request(r.within(time.Minute), listOffsets(tp("t", 0)))
		mustDo(t, err)
		if p := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]; p.ErrorCode == 0 {
			t.Errorf("%+v", p)
		}
		resp, err = c.Request(r.within(time.Minute), &kmsg.DeleteGroupsRequest{Groups: []string{"g"}})
		mustDo(t, err)
		if g := resp.(*kmsg.DeleteGroupsResponse).Groups[0]; g.ErrorCode == 0 {
			t.Errorf("%+v", g)
		}
	})
}

// TestC48AnAnswerAboutAnotherGroupIsAnError has the broker answer OffsetFetch with
// the offsets of a group that was not asked for: relabelled, a consumer would go on
// at another group's place. Only an answer that names no group is taken as it is.
func TestC48AnAnswerAboutAnotherGroupIsAnError(t *testing.T) {
	for _, most := range []int16{7, 10} {
		inBubble(t, 1, func(t *testing.T, r *rig) {
			r.sim.Broker(1).Handle(9, func(q *sim.Request) sim.Answer {
				resp := q.Response().(*kmsg.OffsetFetchResponse)
				if resp.Version >= 8 {
					resp.Groups = []kmsg.OffsetFetchResponseGroup{{Group: "another", Topics: []kmsg.OffsetFetchResponseGroupTopic{{
						Topic: "t", Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{{Offset: 42}},
					}}}}
				} else {
					resp.Topics = []kmsg.OffsetFetchResponseTopic{{Topic: "t", Partitions: []kmsg.OffsetFetchResponseTopicPartition{{Offset: 42}}}}
				}
				return sim.Reply(resp)
			})
			c := r.connect()
			req := kmsg.NewPtrOffsetFetchRequest()
			req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "mine"}}
			resp, err := Within(c, -1, most).Request(r.within(time.Minute), req)
			g := must(t, resp, err).(*kmsg.OffsetFetchResponse).Groups[0]
			if got := g.ErrorCode != 0 && len(g.Topics) == 0; g.Group != "mine" || got != (most >= 8) {
				t.Errorf("version %d: %+v", most, g)
			}
		})
	}
}
