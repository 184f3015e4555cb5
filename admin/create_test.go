package admin

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

func TestA1_A5_A10EachTopicHasItsResultInOrder(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.makesTopics(map[string]int16{"taken": 36, "bad": 17})
		a := r.admin()
		res := a.CreateTopics(r.within(time.Minute), []NewTopic{
			{Name: "b", Partitions: 3, Replicas: 2, Configs: map[string]string{"x": "1", "a": "2"}},
			{Name: "taken"}, {Name: "a"}, {Name: "bad"},
		}, Visible)
		var items []string
		for _, x := range res {
			items = append(items, x.Item)
		}
		if !slices.Equal(items, []string{"b", "taken", "a", "bad"}) {
			t.Fatalf("in the order %v", items)
		}
		if res[0].Err != nil || res[0].Value.Partitions != 3 || res[2].Err != nil {
			t.Errorf("%+v, %+v", res[0], res[2])
		}
		if !errors.Is(res[1].Err, kerr.TopicAlreadyExists) || OutcomeOf(res[1].Err) != NotDone {
			t.Errorf("a name that is taken: %v", res[1].Err)
		}
		if !errors.Is(res[3].Err, kerr.InvalidTopicException) || len(res.Failed()) != 2 || res.Err() != res[1].Err {
			t.Errorf("%+v", res)
		}
		reqs := sent[*kmsg.CreateTopicsRequest](r.sim.Broker(1))
		if len(reqs) != 1 || len(sent[*kmsg.CreateTopicsRequest](r.sim.Broker(2))) != 0 {
			t.Fatalf("%d requests at the controller", len(reqs))
		}
		b, byDefault := reqs[0].Topics[0], reqs[0].Topics[1]
		if b.NumPartitions != 3 || b.ReplicationFactor != 2 || b.Configs[0].Name != "a" || b.Configs[1].Name != "x" {
			t.Errorf("%+v", b)
		}
		if byDefault.NumPartitions != -1 || byDefault.ReplicationFactor != -1 || reqs[0].ValidateOnly {
			t.Errorf("%+v", byDefault)
		}
	})
}

// TestR34_A4ACreatedTopicIsSeenByEveryBroker has broker 2 lag by two seconds,
// and broker 3 not answer at all. Without the wait the first check is red.
func TestR34_A4ACreatedTopicIsSeenByEveryBroker(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.makesTopics(nil)
		var since time.Time
		create := func(q *sim.Request) sim.Answer {
			since = time.Now()
			resp := q.Response().(*kmsg.CreateTopicsResponse)
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic, rt.NumPartitions = "t", 2
			resp.Topics = append(resp.Topics, rt)
			r.sim.SetTopic("t", 1, 2)
			return sim.Reply(resp)
		}
		r.everywhere(19, create)
		r.sim.Broker(2).Handle(3, func(q *sim.Request) sim.Answer {
			resp := r.sim.Metadata(q)
			for i := range resp.Topics {
				if time.Since(since) < 2*time.Second {
					resp.Topics[i].ErrorCode, resp.Topics[i].Partitions = 3, nil
				}
			}
			return sim.Reply(resp)
		})
		a := r.admin()
		r.sim.Broker(3).Handle(3, func(q *sim.Request) sim.Answer {
			if m := q.Req.(*kmsg.MetadataRequest); len(m.Topics) > 0 {
				return sim.Answer{} // a broker that stands still
			}
			return sim.Reply(r.sim.Metadata(q))
		})
		start := time.Now()
		res := a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "t", Partitions: 2}}, Visible)
		mustDo(t, res.Err())
		if took := time.Since(start); took < 2*time.Second || took > 15*time.Second {
			t.Errorf("returned after %v, while broker 2 showed it after 2 s", took)
		}
		start = time.Now()
		mustDo(t, a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "t", Partitions: 2}}, Accepted).Err())
		if took := time.Since(start); took > time.Second {
			t.Errorf("acceptance took %v", took)
		}
	})
}

func TestA4ATimeoutWhileWaitingIsDoneAndNotVisible(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.makesTopics(nil)
		r.sim.Broker(2).Handle(3, func(q *sim.Request) sim.Answer {
			resp := r.sim.Metadata(q)
			for i := range resp.Topics {
				resp.Topics[i].ErrorCode, resp.Topics[i].Partitions = 3, nil
			}
			return sim.Reply(resp)
		})
		a := r.admin()
		res := a.CreateTopics(r.within(3*time.Second), []NewTopic{{Name: "t"}}, Visible)
		var nv *NotVisibleError
		if !errors.As(res[0].Err, &nv) || !slices.Equal(nv.Brokers, []kafka.NodeID{2}) || OutcomeOf(res[0].Err) != Done {
			t.Errorf("%v (%v)", res[0].Err, OutcomeOf(res[0].Err))
		}
		if res[0].Value.Partitions != 1 {
			t.Errorf("what was made is not told: %+v", res[0].Value)
		}
		if n := r.sim.Count(19); n != 1 {
			t.Errorf("created %d times", n)
		}
	})
}

func TestA5ADryRunChangesNothing(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.makesTopics(nil)
		a := r.admin()
		mustDo(t, a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "t"}}, ValidateOnly).Err())
		if reqs := sent[*kmsg.CreateTopicsRequest](r.sim.Broker(1)); !reqs[0].ValidateOnly {
			t.Error("the topic was made")
		}
		r.sim.Broker(1).Handle(19, func(*sim.Request) sim.Answer { return sim.Answer{End: sim.Close} })
		res := a.CreateTopics(r.within(time.Second), []NewTopic{{Name: "t"}}, ValidateOnly)
		if OutcomeOf(res[0].Err) != NotDone {
			t.Errorf("a dry run without an answer: %v, %v", OutcomeOf(res[0].Err), res[0].Err)
		}
		r.sim.SetTopic("t", 1)
		mustDo(t, a.CreatePartitions(r.within(time.Minute), map[string]MorePartitions{}, ValidateOnly).Err())
		if res := a.DeleteTopics(r.within(time.Minute), Topics("t"), ValidateOnly); OutcomeOf(res[0].Err) != NotDone || r.sim.Count(20) != 0 {
			t.Errorf("a dry run of a deletion: %v", res[0].Err)
		}
	})
}

// TestB274_A3TheControllerIsFoundAgain: broker 1 says that it is not the
// controller, then there is none for 5 s, then it is 3.
func TestB274_A3TheControllerIsFoundAgain(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.makesTopics(nil)
		a := r.admin()
		start := time.Now()
		r.sim.Broker(1).Handle(19, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.CreateTopicsResponse)
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic, rt.ErrorCode = "t", kerr.NotController.Code
			resp.Topics = append(resp.Topics, rt)
			r.sim.Update(func(tp *sim.Topology) { tp.Controller = -1 })
			return sim.Reply(resp)
		})
		go func() {
			time.Sleep(5 * time.Second)
			r.sim.Update(func(tp *sim.Topology) { tp.Controller = 3 })
		}()
		mustDo(t, a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "t"}}, Visible).Err())
		if took := time.Since(start); took < 5*time.Second || took > 10*time.Second {
			t.Errorf("after %v", took)
		}
		if n1, n3 := r.sim.Broker(1).Count(19), r.sim.Broker(3).Count(19); n1 != 1 || n3 != 1 {
			t.Errorf("%d and %d requests", n1, n3)
		}
	})
}

// TestA3ItemsThatWereHeldBackGoAgainAlone: of three topics the quota lets one
// through; the two others go again, the one never.
func TestA3ItemsThatWereHeldBackGoAgainAlone(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		codes := map[string]int16{"b": kerr.ThrottlingQuotaExceeded.Code, "c": kerr.NotController.Code}
		r.makesTopics(codes)
		a := r.admin()
		go func() {
			time.Sleep(time.Second)
			r.makesTopics(nil)
		}()
		res := a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "a"}, {Name: "b"}, {Name: "c"}}, Visible)
		mustDo(t, res.Err())
		for i, q := range sent[*kmsg.CreateTopicsRequest](r.sim.Broker(1)) {
			if names := len(q.Topics); i > 0 && (names != 2 || q.Topics[0].Topic != "b" || q.Topics[1].Topic != "c") {
				t.Errorf("request %d names %+v", i, q.Topics)
			}
		}
	})
}

func TestA1_A3AnAnswerThatLeavesATopicOutIsUnknown(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Broker(1).Handle(19, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.CreateTopicsResponse)
			rt := kmsg.NewCreateTopicsResponseTopic()
			rt.Topic = "a"
			resp.Topics = append(resp.Topics, rt)
			return sim.Reply(resp)
		})
		a := r.admin()
		res := a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "a"}, {Name: "b"}}, Accepted)
		if res[0].Err != nil || OutcomeOf(res[1].Err) != Unknown || !errors.Is(res[1].Err, errLeftOut) {
			t.Errorf("%v; %v", res[0].Err, res[1].Err)
		}
		for _, code := range []int16{-1, 7} {
			r.makesTopics(map[string]int16{"c": code})
			res := a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "c"}}, Accepted)
			if OutcomeOf(res[0].Err) != Unknown {
				t.Errorf("code %d is %v: %v", code, OutcomeOf(res[0].Err), res[0].Err)
			}
		}
		if n := r.sim.Count(19); n != 3 {
			t.Errorf("%d requests for three calls", n)
		}
	})
}

// TestA6ResolveReadsWhatBecameOfALostCreation: the answer is lost once with
// and once without the topic made. Nothing is sent a second time.
func TestA6ResolveReadsWhatBecameOfALostCreation(t *testing.T) {
	for name, made := range map[string]bool{"made": true, "not made": false} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 2, func(t *testing.T, r *rig) {
				r.everywhere(19, func(*sim.Request) sim.Answer {
					if made {
						r.sim.SetTopic("t", 1)
					}
					return sim.Answer{End: sim.Close}
				})
				a := r.admin()
				res := a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "t"}}, Visible)
				var in *InDoubtError
				if !errors.As(res[0].Err, &in) || OutcomeOf(res[0].Err) != Unknown {
					t.Fatalf("%v is %v", res[0].Err, OutcomeOf(res[0].Err))
				}
				if _, err := in.Resolve(r.within(time.Second)); !made && err == nil {
					t.Error("what may still happen was called not done")
				}
				got, err := in.Resolve(r.within(2 * time.Minute))
				want := NotDone
				if made {
					want = Done
				}
				if err != nil || got != want {
					t.Errorf("%v, %v", got, err)
				}
				if n := r.sim.Count(19); n != 1 {
					t.Errorf("created %d times", n)
				}
			})
		})
	}
}

func TestA6ResolveReadsWhatBecameOfALostDeletion(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.SetTopic("t", 1)
		r.everywhere(20, func(*sim.Request) sim.Answer { return sim.Answer{End: sim.Close} })
		a := r.admin()
		res := a.DeleteTopics(r.within(time.Minute), Topics("t"), Visible)
		var in *InDoubtError
		if !errors.As(res[0].Err, &in) {
			t.Fatal(res[0].Err)
		}
		gone := func(q *sim.Request) sim.Answer {
			resp := r.sim.Metadata(q)
			for i := range resp.Topics {
				resp.Topics[i].ErrorCode, resp.Topics[i].Partitions = 3, nil
			}
			return sim.Reply(resp)
		}
		r.sim.Broker(2).Handle(3, gone)
		if got, err := in.Resolve(r.within(2 * time.Minute)); got != Unknown || err == nil {
			t.Errorf("it is there at one of two brokers: %v, %v", got, err)
		}
		r.sim.Broker(2).Close()
		if got, err := in.Resolve(r.within(2 * time.Minute)); got != Unknown || err == nil {
			t.Errorf("it is there, and one broker says nothing: %v, %v", got, err)
		}
		r.sim.Update(func(tp *sim.Topology) { tp.Topics = nil })
		if got, err := in.Resolve(r.within(time.Minute)); got != Done || err != nil {
			t.Errorf("it is gone: %v, %v", got, err)
		}
	})
}

// TestB278ACallAfterATimeoutStandsOnItsOwn leaves the first creation without
// an answer until its context ends, or until the request's own time does.
func TestB278ACallAfterATimeoutStandsOnItsOwn(t *testing.T) {
	for name, first := range map[string]struct {
		answer sim.Answer
		within time.Duration
	}{
		"answered late": {sim.Answer{Response: kmsg.NewPtrCreateTopicsResponse(), Delay: 6 * time.Second}, 5 * time.Second},
		"never":         {sim.Answer{End: sim.StopReading}, 10 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *rig) {
				a := r.admin()
				r.makesTopics(nil)
				r.sim.Broker(1).Script(19, first.answer)
				res := a.CreateTopics(r.within(first.within), []NewTopic{{Name: "first"}}, Visible)
				if OutcomeOf(res[0].Err) != Unknown || r.sim.Broker(1).Count(19) != 1 {
					t.Fatalf("%v after %d requests", res[0].Err, r.sim.Broker(1).Count(19))
				}
				mustDo(t, a.CreateTopics(r.within(5*time.Second), []NewTopic{{Name: "second"}}, Visible).Err())
				if reqs := sent[*kmsg.CreateTopicsRequest](r.sim.Broker(1)); len(reqs) != 2 || reqs[1].Topics[0].Topic != "second" {
					t.Errorf("%d requests", len(reqs))
				}
			})
		})
	}
}

func TestA10DefaultsNeedABrokerThatHasThem(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.old(19, 3) // Kafka 2.1
		r.makesTopics(nil)
		a := r.admin()
		res := a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "t"}}, Visible)
		var ve *kafka.VersionError
		if !errors.As(res[0].Err, &ve) || ve.ClientMin != 4 || OutcomeOf(res[0].Err) != NotDone || r.sim.Count(19) != 0 {
			t.Errorf("%v", res[0].Err)
		}
		res = a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "t", Partitions: 2, Replicas: 1}}, Visible)
		if res[0].Err != nil || res[0].Value.Partitions != 2 {
			t.Errorf("%+v", res[0])
		}
	})
}

func TestA10DeleteByNameAndByID(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.SetTopic("a", 1)
		r.sim.SetTopic("b", 2)
		var ids []kafka.TopicID
		r.sim.Update(func(tp *sim.Topology) {
			for _, x := range tp.Topics {
				ids = append(ids, x.ID)
			}
		})
		r.everywhere(20, func(q *sim.Request) sim.Answer {
			req, resp := q.Req.(*kmsg.DeleteTopicsRequest), q.Response().(*kmsg.DeleteTopicsResponse)
			for _, x := range req.Topics {
				rt := kmsg.NewDeleteTopicsResponseTopic()
				rt.Topic, rt.TopicID = x.Topic, x.TopicID
				if x.Topic != nil && *x.Topic == "none" {
					rt.ErrorCode = 3
				} else if x.Topic != nil {
					rt.TopicID = ids[0]
				} else {
					rt.Topic = kmsg.StringPtr("b")
				}
				resp.Topics = append(resp.Topics, rt)
			}
			go func() { // gone after a while
				time.Sleep(time.Second)
				r.sim.Update(func(tp *sim.Topology) { tp.Topics = nil })
			}()
			return sim.Reply(resp)
		})
		a := r.admin()
		start := time.Now()
		res := a.DeleteTopics(r.within(time.Minute), []TopicRef{{Name: "a"}, {ID: ids[1]}, {Name: "none"}}, Visible)
		if res[0].Err != nil || res[0].Value != ids[0] || res[1].Err != nil || !errors.Is(res[2].Err, kerr.UnknownTopicOrPartition) {
			t.Errorf("%+v", res)
		}
		if took := time.Since(start); took < time.Second {
			t.Errorf("returned after %v, while they were still shown", took)
		}
		r.old(20, 5)
		r.sim.Broker(1).EndAll(sim.Close)
		r.sim.Broker(2).EndAll(sim.Close)
		time.Sleep(time.Second)
		var ve *kafka.VersionError
		if res := a.DeleteTopics(r.within(time.Minute), []TopicRef{{ID: ids[1]}}, Visible); !errors.As(res[0].Err, &ve) || ve.ClientMin != 6 {
			t.Errorf("by id at a broker that has no ids: %v", res[0].Err)
		}
	})
}

func TestA4_A10PartitionsAreATotalAndWaitedFor(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.SetTopic("t", 1)
		r.everywhere(37, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.CreatePartitionsResponse)
			for _, x := range q.Req.(*kmsg.CreatePartitionsRequest).Topics {
				rt := kmsg.NewCreatePartitionsResponseTopic()
				rt.Topic = x.Topic
				if x.Count == 1 {
					rt.ErrorCode = kerr.InvalidPartitions.Code
				}
				resp.Topics = append(resp.Topics, rt)
			}
			go func() {
				time.Sleep(time.Second)
				r.sim.SetTopic("t", 1, 2, 1)
			}()
			return sim.Reply(resp)
		})
		a := r.admin()
		start := time.Now()
		res := a.CreatePartitions(r.within(time.Minute), map[string]MorePartitions{
			"t": {Total: 3, Assignment: [][]kafka.NodeID{{2}, {1}}}, "s": {Total: 1},
		}, Visible)
		if res[0].Item != "s" || !errors.Is(res[0].Err, kerr.InvalidPartitions) || res[1].Err != nil || res[1].Value != 3 {
			t.Errorf("%+v", res)
		}
		if took := time.Since(start); took < time.Second {
			t.Errorf("returned after %v", took)
		}
		req := sent[*kmsg.CreatePartitionsRequest](r.sim.Broker(1))[0]
		if req.Topics[1].Count != 3 || len(req.Topics[1].Assignment) != 2 || req.Topics[0].Assignment != nil {
			t.Errorf("%+v", req)
		}
	})
}

func TestACallOnAClosedClientSaysSo(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		a := r.admin()
		mustDo(t, a.c.Close())
		res := a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "t"}}, Visible)
		if !errors.Is(res[0].Err, cluster.ErrClosed) || OutcomeOf(res[0].Err) != NotDone {
			t.Errorf("%v", res[0].Err)
		}
	})
}
