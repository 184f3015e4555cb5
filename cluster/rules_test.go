package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// TestC2WhatAProbeLearnsIsMerged: its answer is one of the same cluster.
func TestC2WhatAProbeLearnsIsMerged(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		var nodes []sim.Node
		r.sim.Update(func(tp *sim.Topology) { nodes, tp.Nodes = tp.Nodes, tp.Nodes[:2:2] })
		b := r.sim.Broker(2)
		b.Handle(18, checkIdentity(b, "sim", 7))
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		r.sim.Broker(1).Handle(3, func(q *sim.Request) sim.Answer { return sim.Answer{Response: r.sim.Metadata(q), Delay: time.Minute} })
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = nodes })
		time.Sleep(time.Second)
		_ = describe(2, c, r) // has broker 1 asked for the brokers, which takes long
		time.Sleep(time.Second)
		if n := len(c.Brokers()); n != 3 {
			t.Errorf("%d brokers are known", n)
		}
	})
}

// TestC2AProbeThatFailsLeavesTheCheckToTheNextDial: only an answer settles who
// is at the address.
func TestC2AProbeThatFailsLeavesTheCheckToTheNextDial(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		b := r.sim.Broker(2)
		b.Handle(18, checkIdentity(b, "sim", 7))
		b.Handle(3, func(*sim.Request) sim.Answer { return sim.Answer{End: sim.Close} })
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		_ = describe(2, c, r)
		time.Sleep(10 * time.Second)
		before := len(identities(b))
		if err := describe(2, c, r); kafka.CodeOf(err) != kerr.RebootstrapRequired.Code {
			t.Errorf("the next request: %v", err)
		}
		if n := len(identities(b)); n != before+1 {
			t.Errorf("the next dial asked %d times who is there", n-before)
		}
	})
}

// TestC56ALateAnswerIsAnAnswer: an address that was slow once is asked again
// after it has answered.
func TestC56ALateAnswerIsAnAnswer(t *testing.T) {
	asks := map[string]func(c *Cluster, r *rig, i int) error{
		"any broker": func(c *Cluster, r *rig, _ int) error {
			return second(c.Request(r.within(time.Minute), kmsg.NewPtrDescribeClusterRequest()))
		},
		"coordinator": func(c *Cluster, r *rig, i int) error {
			return second(c.Coordinator(r.within(time.Minute), GroupCoordinator, fmt.Sprint("g", i)))
		},
	}
	for name, key := range map[string]int16{"any broker": 60, "coordinator": 10} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, r *rig) {
				c := r.connect()
				mustDo(t, describe(1, c, r))
				mustDo(t, describe(2, c, r))
				for _, b := range r.sim.Brokers() {
					b.Handle(key, func(q *sim.Request) sim.Answer {
						a := sim.Reply(q.Response())
						if key == 10 {
							a = sim.Reply(r.sim.FindCoordinator(q))
						}
						a.Delay = map[int32]time.Duration{1: 10 * time.Second, 2: 3 * time.Second}[q.Broker.ID]
						return a
					})
				}
				mustDo(t, asks[name](c, r, 0))
				time.Sleep(time.Minute)
				r.everywhere(key, nil)
				r.sim.Broker(2).Forget()
				for i := range 20 {
					mustDo(t, asks[name](c, r, i+1))
				}
				if r.sim.Broker(2).Count(key) == 0 {
					t.Error("the broker that answered is not asked any more")
				}
			})
		})
	}
}

func TestC56AnErrorIsNoAnswer(t *testing.T) {
	p := newPool(nil, nil)
	p.slow("b1:9092")
	if p.answered("b1:9092", errNoAnswerYet); !p.isSlow("b1:9092") {
		t.Error("an address that fails counts as one that answers")
	}
	if p.answered("b1:9092", nil); p.isSlow("b1:9092") {
		t.Error("an address that answered counts as slow")
	}
}

// TestB052TransactionsNeedAVersionThatTellsThemFromGroups: version 0 of
// FindCoordinator knows groups only.
func TestB052TransactionsNeedAVersionThatTellsThemFromGroups(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Broker(1).SetVersions(10, 0, 0)
		c := r.connect()
		mustDo(t, second(c.Coordinator(r.within(time.Minute), GroupCoordinator, "k")))
		_, err := c.Coordinator(r.within(time.Minute), TransactionCoordinator, "k")
		var ve *kafka.VersionError
		if !errors.As(err, &ve) || r.sim.Count(10) != 1 {
			t.Errorf("%v, after %d requests", err, r.sim.Count(10))
		}
	})
}

func TestK11AHintKeepsNothingOfTheCallers(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		c := r.connect()
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		for i := range 50 { // the client's goroutine may be as fast as this one
			at := []kafka.Broker{{ID: 9, Host: "b2", Port: 9092}}
			if !c.LearnLeader(tp("t", 0), 9, kafka.LeaderEpoch(5+i), at) {
				t.Fatal("the hint was not taken")
			}
			at[0] = kafka.Broker{ID: 9, Host: "elsewhere", Port: 1}
			if b, err := c.Leader(r.within(time.Minute), tp("t", 0)); err != nil || b.Host != "b2" {
				t.Fatalf("%v, %v", b, err)
			}
		}
	})
}

// TestC43ACodeInDoubtIsNotRepeatedForTheSakeOfAnother: of one answer, the group
// that may be deleted is left alone while the other is tried again.
func TestC43ACodeInDoubtIsNotRepeatedForTheSakeOfAnother(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		asked := map[string]int{}
		r.sim.Broker(1).Handle(42, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DeleteGroupsResponse)
			for _, g := range q.Req.(*kmsg.DeleteGroupsRequest).Groups {
				asked[g]++
				out := kmsg.NewDeleteGroupsResponseGroup()
				out.Group = g
				switch {
				case g == "doubt":
					out.ErrorCode = kerr.RequestTimedOut.Code
				case asked[g] < 3:
					out.ErrorCode = kerr.CoordinatorLoadInProgress.Code
				}
				resp.Groups = append(resp.Groups, out)
			}
			return sim.Reply(resp)
		})
		c := r.connect()
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Groups = []string{"doubt", "loading"}
		resp, err := c.Request(r.within(time.Minute), req)
		mustDo(t, err)
		if gs := resp.(*kmsg.DeleteGroupsResponse).Groups; gs[0].ErrorCode != kerr.RequestTimedOut.Code || gs[1].ErrorCode != 0 {
			t.Errorf("%+v", gs)
		}
		if asked["doubt"] != 1 || asked["loading"] != 3 {
			t.Errorf("asked %v times", asked)
		}
	})
}

func TestC47PartsOfARequestGoOutAtOnce(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.topic("t", 1, 2, 3)
		r.answerOffsets()
		c := r.connect()
		req := listOffsets(tp("t", 0), tp("t", 1), tp("t", 2))
		mustDo(t, second(c.Request(r.within(time.Minute), req)))
		r.everywhere(2, func(q *sim.Request) sim.Answer {
			return sim.Answer{Response: offsetsOf(q), Delay: 100 * time.Millisecond}
		})
		start := time.Now()
		mustDo(t, second(c.Request(r.within(time.Minute), req)))
		if took := time.Since(start); took > 150*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

func TestC57ConnectWithoutADeadlineEndsAfterTheRequestTimeout(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Broker(1).Handle(3, func(q *sim.Request) sim.Answer {
			return sim.Answer{Response: q.Response(), Delay: time.Hour}
		})
		cfg := r.config()
		cfg.RequestTimeout = 5 * time.Second
		start := time.Now()
		_, err := Connect(context.Background(), cfg)
		if took := time.Since(start); err == nil || took > 6*time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// TestC58ANameThatNoRequestCanHoldIsRefused before it makes a frame that no
// broker can read, of a request that others share.
func TestC58ANameThatNoRequestCanHoldIsRefused(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		c := r.connect()
		asked, name := r.sim.Count(3), strings.Repeat("t", 32_768)
		_, err := c.Topic(t.Context(), name)
		_, noLeader := c.Leader(t.Context(), tp(name, 0))
		for _, err := range []error{err, noLeader} {
			if !errors.Is(err, kerr.InvalidTopicException) || kafka.MayHaveHappened(err) {
				t.Errorf("%.200v", err)
			}
		}
		if r.sim.Count(3) != asked || r.sim.Broker(1).Accepted() != 1 {
			t.Errorf("%d requests and %d sockets", r.sim.Count(3)-asked, r.sim.Broker(1).Accepted())
		}
	})
}

// TestC42WhatKafkaCannotEncodeIsRefusedByEveryRoute before anything is written,
// and at once; look-ups that others share are not spoilt.
func TestC42WhatKafkaCannotEncodeIsRefusedByEveryRoute(t *testing.T) {
	long := strings.Repeat("x", 32_768)
	create := kmsg.NewPtrCreateTopicsRequest()
	create.Topics = append(create.Topics, kmsg.CreateTopicsRequestTopic{Topic: long, NumPartitions: 1, ReplicationFactor: 1})
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey = long
	for name, req := range map[string]kmsg.Request{
		"any": find, "controller": create, "the group's id": &kmsg.HeartbeatRequest{Group: long},
		"to the group": &kmsg.HeartbeatRequest{Group: "g", MemberID: long}, "transactional id": &kmsg.EndTxnRequest{TransactionalID: long},
		"groups": &kmsg.DescribeGroupsRequest{Groups: []string{long}}, "every broker": &kmsg.ListGroupsRequest{TypesFilter: []string{long}},
	} {
		inBubble(t, 3, func(t *testing.T, r *rig) {
			c := r.connect()
			start := time.Now()
			_, err := c.Request(r.within(time.Minute), req)
			var e *kafka.EncodeError
			if !errors.As(err, &e) || e.Size != len(long) || kafka.MayHaveHappened(err) || time.Since(start) > time.Second {
				t.Errorf("%s: %.300v after %v", name, err, time.Since(start))
			}
			if n := r.sim.Count(req.Key()); n != 0 {
				t.Errorf("%s: %d requests", name, n)
			}
			if _, err := c.Coordinator(r.within(time.Minute), GroupCoordinator, "good"); err != nil {
				t.Errorf("%s: another look-up: %v", name, err)
			}
		})
	}
}

func TestK7AKeyThatIsTooLongSpoilsNoSharedLookUp(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := r.connect()
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Groups = []string{strings.Repeat("x", 32_768), "g"}
		_, err := c.Request(r.within(time.Minute), req)
		var e *PartialError
		if !errors.As(err, &e) || len(e.Failed) != 1 || e.Failed[0].Item != req.Groups[0] || r.sim.Count(15) != 1 {
			t.Errorf("%.200v, %d requests", err, r.sim.Count(15))
		}
	})
}

func TestC67NoPartitionsIsNoLeaderYet(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("none")
		c := r.connect(func(cfg *Config) { cfg.RetryTimeout = 10 * time.Second })
		start := time.Now()
		_, err := c.Topic(t.Context(), "none")
		var nl *kafka.NoLeaderError
		if !errors.As(err, &nl) || nl.Partition != -1 || nl.Topic != "none" || time.Since(start) < 9*time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		go func() {
			time.Sleep(time.Second)
			r.topic("none", 1)
		}()
		if top, err := c.Topic(t.Context(), "none"); err != nil || top.Count() != 1 {
			t.Errorf("once it is made: %v, %v", top, err)
		}
	})
}

func TestC68TheErrorOfAPartitionThatTheTopicLacksSaysSo(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		c := r.connect()
		_, err := c.Leader(r.within(time.Minute), tp("t", 5))
		var nl *kafka.NoLeaderError
		if !errors.As(err, &nl) || nl.TopicPartition != tp("t", 5) || !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("%v", err)
		}
	})
}

func TestC72ARequestWaitsForAController(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Controller = -1 })
		c := r.connect()
		if _, err := c.Controller(r.within(time.Minute)); !errors.Is(err, ErrNoController) {
			t.Errorf("during the election: %v", err)
		}
		go func() {
			time.Sleep(time.Second)
			r.sim.Update(func(tp *sim.Topology) { tp.Controller = 1 })
		}()
		mustDo(t, second(c.Request(r.within(time.Minute), kmsg.NewPtrCreateTopicsRequest())))
	})
}

func TestK9TheZeroIDIsNeverSent(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		c := r.connect()
		asked := r.sim.Count(3)
		if _, err := c.TopicName(t.Context(), kafka.TopicID{}); !errors.Is(err, kerr.UnknownTopicID) || r.sim.Count(3) != asked {
			t.Errorf("%v, after %d requests", err, r.sim.Count(3)-asked)
		}
	})
}

// TestK12ForcedRefreshesGoToDifferentBrokers: who answered last is asked last.
func TestK12ForcedRefreshesGoToDifferentBrokers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		c := r.connect()
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		for id := range kafka.NodeID(3) {
			mustDo(t, describe(id+1, c, r))
		}
		for range 3 {
			mustDo(t, c.refresh(t.Context(), []string{"t"}, needNow))
		}
		for _, b := range r.sim.Brokers() {
			b.Forget()
		}
		for range 6 {
			mustDo(t, c.refresh(t.Context(), []string{"t"}, needNow))
		}
		for _, b := range r.sim.Brokers() {
			if n := b.Count(3); n != 2 {
				t.Errorf("broker %d was asked %d times of 6", b.ID, n)
			}
		}
	})
}

// TestC4ProduceAndOtherRequestsPassEachOther: neither waits behind the other.
func TestC4ProduceAndOtherRequestsPassEachOther(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Broker(1).Handle(0, func(q *sim.Request) sim.Answer {
			return sim.Answer{Response: q.Response(), Delay: 10 * time.Second}
		})
		c := r.connect()
		done := make(chan error, 1)
		c.Broker(1).Start(t.Context(), kmsg.NewPtrProduceRequest(), func(_ kmsg.Response, err error) { done <- err })
		time.Sleep(time.Second)
		start := time.Now()
		mustDo(t, describe(1, c, r))
		if took := time.Since(start); took > time.Second {
			t.Errorf("a request waited %v beside a slow Produce", took)
		}
		mustDo(t, <-done)
	})
}

// TestB053ALeaderThatDoesNotKnowItsPartitionIsAskedForThePatience, and not for
// the whole time of the request.
func TestB053ALeaderThatDoesNotKnowItsPartitionIsAskedForThePatience(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		r.everywhere(2, func(q *sim.Request) sim.Answer {
			resp := offsetsOf(q)
			resp.Topics[0].Partitions[0].ErrorCode = kerr.UnknownTopicOrPartition.Code
			return sim.Reply(resp)
		})
		c := r.connect()
		start := time.Now()
		resp, err := c.Request(r.within(time.Hour), listOffsets(tp("t", 0)))
		took := time.Since(start)
		if err != nil || soleCode(resp) != kerr.UnknownTopicOrPartition.Code || took < 5*time.Second || took > 10*time.Second {
			t.Errorf("%v, %v after %v", resp, err, took)
		}
	})
}
