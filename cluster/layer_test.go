package cluster

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

func TestC4AHeartbeatPassesAParkedFetchAndAParkedJoin(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		park := func(q *sim.Request) sim.Answer { return sim.Answer{Response: q.Response(), Delay: 30 * time.Second} }
		r.sim.Broker(1).Handle(1, park)
		r.sim.Broker(1).Handle(11, park)
		c := r.connect()
		parked := make(chan error, 2)
		fetch := fetchOf(0)
		fetch.MaxWaitMillis = 30_000
		c.Broker(1).Start(t.Context(), fetch, func(_ kmsg.Response, err error) { parked <- err })
		c.Broker(1).Start(t.Context(), &kmsg.JoinGroupRequest{Group: "g", RebalanceTimeoutMillis: 60_000}, func(_ kmsg.Response, err error) { parked <- err })
		mustDo(t, second(c.Request(t.Context(), &kmsg.HeartbeatRequest{Group: "g"})))
		for range 50 {
			start := time.Now()
			mustDo(t, second(c.Request(t.Context(), &kmsg.HeartbeatRequest{Group: "g"})))
			if took := time.Since(start); took > 10*time.Millisecond {
				t.Fatalf("a heartbeat took %v", took)
			}
		}
		for range 2 {
			if err := <-parked; err != nil {
				t.Error(err)
			}
		}
	})
}

// TestC5AnyNumberOfGoroutinesShareAClient mixes requests of every route while
// leaders, coordinators and brokers move and sockets break.
func TestC5AnyNumberOfGoroutinesShareAClient(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.topic("t", 1, 2, 3, 1, 2, 3)
		r.answerOffsets()
		c := r.connect()
		stop := make(chan struct{})
		var chaos sync.WaitGroup
		chaos.Go(func() {
			rng := rand.New(rand.NewPCG(5, 5))
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(1+rng.IntN(20)) * time.Millisecond):
				}
				r.sim.SetLeader("t", rng.Int32N(6), 1+rng.Int32N(3))
				r.coordinates("g", 1+rng.Int32N(3))
				r.sim.Update(func(tp *sim.Topology) { tp.Controller = 1 + rng.Int32N(3) })
				if i%10 == 0 {
					r.sim.Broker(1 + rng.Int32N(3)).EndAll(sim.Reset)
				}
			}
		})
		var wg sync.WaitGroup
		for g := range 200 {
			wg.Go(func() {
				for i := range 10 {
					if err := mixed(r, c, g+i); err != nil {
						t.Errorf("goroutine %d: %v", g, err)
					}
				}
			})
		}
		wg.Wait()
		close(stop)
		chaos.Wait()
	})
}

func mixed(r *rig, c *Cluster, n int) error {
	ctx := r.within(time.Minute)
	switch n % 8 {
	case 0:
		resp, err := c.Request(ctx, listOffsets(tp("t", 0), tp("t", 4), tp("t", 2)))
		if err != nil || len(order(resp)) != 3 {
			return fmt.Errorf("list offsets: %v %w", resp, err)
		}
	case 1:
		return second(c.Request(ctx, &kmsg.HeartbeatRequest{Group: "g"}))
	case 2:
		return second(c.Topic(ctx, "t"))
	case 3:
		c.InvalidateLeader(tp("t", int32(n%6)))
		c.LearnLeader(tp("t", int32(n%6)), 2, kafka.LeaderEpoch(n), nil)
	case 4:
		return second(c.Request(ctx, kmsg.NewPtrListGroupsRequest()))
	case 5:
		c.ForgetCoordinator("g")
		return second(c.Coordinator(ctx, GroupCoordinator, "g"))
	case 6:
		_, err := c.Controller(ctx)
		c.Stats()
		return err
	case 7:
		if _, err := c.Request(ctx, kmsg.NewPtrDescribeClusterRequest()); err != nil {
			return err
		}
	}
	return nil
}

func TestB034ALowerEpochThatEveryBrokerShowsIsAcceptedInTime(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		r.sim.Update(func(tp *sim.Topology) { tp.Topics[0].ID, tp.Topics[0].Partitions[0].Epoch = [16]byte{}, 12 })
		r.answerOffsets()
		c := r.connect()
		mustDo(t, second(c.Topic(t.Context(), "t")))
		r.sim.Broker(1).Handle(2, func(q *sim.Request) sim.Answer {
			resp := offsetsOf(q)
			resp.Topics[0].Partitions[0].ErrorCode = kerr.NotLeaderForPartition.Code
			return sim.Reply(resp)
		})
		r.sim.Update(func(tp *sim.Topology) {
			tp.Topics[0].Partitions[0] = sim.Partition{Leader: 2, Epoch: 10}
		})
		start := time.Now()
		resp, err := c.Request(r.within(time.Minute), listOffsets(tp("t", 0)))
		if err != nil || offsets(t, resp)[tp("t", 0)] != 2000 {
			t.Fatalf("%v, %v", resp, err)
		}
		if took := time.Since(start); took > 3*time.Second {
			t.Errorf("accepted after %v", took)
		}
		asked := map[int]bool{}
		for i, b := range r.sim.Brokers() {
			asked[i] = b.Count(3) > 0
		}
		if !asked[0] || !asked[1] || !asked[2] {
			t.Errorf("not every broker was asked: %v", asked)
		}
	})
}

func TestB056R6IDsThatComeAndGoNeverLeaveTheGate(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		b := r.sim.Broker(1)
		b.SetVersions(3, 0, 9) // no ids in metadata, though Produce 13 and Fetch 18 are offered
		for _, key := range []int16{0, 1} {
			b.Handle(key, func(q *sim.Request) sim.Answer {
				var resp kmsg.Response = q.Response()
				if f, ok := q.Req.(*kmsg.FetchRequest); ok {
					fr := resp.(*kmsg.FetchResponse)
					fr.Topics = []kmsg.FetchResponseTopic{{Topic: f.Topics[0].Topic, TopicID: f.Topics[0].TopicID, Partitions: []kmsg.FetchResponseTopicPartition{{}}}}
				}
				if p, ok := q.Req.(*kmsg.ProduceRequest); ok {
					pr := resp.(*kmsg.ProduceResponse)
					pr.Topics = []kmsg.ProduceResponseTopic{{Topic: p.Topics[0].Topic, TopicID: p.Topics[0].TopicID, Partitions: []kmsg.ProduceResponseTopicPartition{{}}}}
				}
				return sim.Reply(resp)
			})
		}
		c := r.connect(func(cfg *Config) { cfg.MetadataMaxAge = time.Second })
		use := func() {
			t.Helper()
			top, err := c.Topic(r.within(time.Minute), "t")
			mustDo(t, err)
			fetch := fetchOf(0)
			fetch.Topics[0].TopicID = top.ID
			mustDo(t, second(c.Request(r.within(time.Minute), fetch)))
			produce := kmsg.NewPtrProduceRequest()
			produce.Acks = -1
			produce.Topics = []kmsg.ProduceRequestTopic{{Topic: "t", TopicID: top.ID, Partitions: []kmsg.ProduceRequestTopicPartition{{Records: []byte{1}}}}}
			mustDo(t, second(c.Request(r.within(time.Minute), produce)))
		}
		use()
		b.SetVersions(3, 0, 13)
		b.EndAll(sim.Close)
		time.Sleep(2 * time.Second)
		use()
		b.SetVersions(3, 0, 9)
		b.EndAll(sim.Close)
		time.Sleep(2 * time.Second)
		use()
		want := map[int16][]int16{1: {12, 18, 18}, 0: {12, 13, 13}}
		for key, versions := range want {
			var got []int16
			for _, f := range b.FramesOf(key) {
				got = append(got, f.Version)
				if f.Version >= 13 && bytes.Contains(f.Body, make([]byte, 16)) && key == 0 {
					t.Error("the zero id was sent")
				}
			}
			if !slices.Equal(got, versions) {
				t.Errorf("%s at %v, want %v", kmsg.NameForKey(key), got, versions)
			}
		}
	})
}

func TestK18ClientsShareNothingAndOwnTheirGoroutines(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		a, b := r.connect(), r.connect()
		mustDo(t, second(a.Topic(t.Context(), "t")))
		if _, ok := b.CachedTopic("t"); ok {
			t.Error("what one client knows, the other does too")
		}
		mustDo(t, a.Close())
		mustDo(t, second(b.Topic(t.Context(), "t")))
		if _, err := a.Topic(t.Context(), "t"); !errors.Is(err, ErrClosed) {
			t.Errorf("%v", err)
		}
	})
}

func TestB035B040B041TheMapKeepsWhatAnswersLeaveOut(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.topic("t", 1, 2, 1, 2)
		r.sim.Update(func(tp *sim.Topology) { tp.Topics[0].Partitions[0].Epoch = 7 })
		c := r.connect()
		mustDo(t, second(c.Topic(t.Context(), "t")))
		change := func(f func(top *sim.Topic)) *Topic {
			t.Helper()
			r.sim.Update(func(tp *sim.Topology) { f(&tp.Topics[0]) })
			mustDo(t, c.refresh(r.within(time.Minute), []string{"t"}, needNow))
			top, _ := c.CachedTopic("t")
			return top
		}
		c.InvalidateLeader(tp("t", 0))
		for range 8 {
			top := change(func(top *sim.Topic) { top.Partitions[0] = sim.Partition{Leader: -1, Epoch: -1, Error: 5} })
			if top.Partitions[0].Epoch != 7 || top.Count() != 4 {
				t.Errorf("%+v", top)
			}
		}
		if top := change(func(top *sim.Topic) { top.Partitions = top.Partitions[:3] }); top.Count() != 4 || top.Partitions[3].Leader != 2 {
			t.Errorf("a partition vanished: %+v", top)
		}
		top := change(func(top *sim.Topic) {
			top.Partitions[0] = sim.Partition{Leader: 2, Epoch: 8}
			top.Partitions = append(top.Partitions, sim.Partition{Leader: 2})
		})
		if top.Partitions[0] != (Partition{Leader: 2, Epoch: 8}) || top.Count() != 4 {
			t.Errorf("%+v", top)
		}
	})
}

func TestB020AFailedDialHasTheBrokersLookedAtAgain(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[:2] })
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		mustDo(t, describe(2, c, r))
		r.sim.Broker(3).Handle(18, checkIdentity(r.sim.Broker(3), "sim", 2))
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes[1].Host = "b3" })
		r.sim.Broker(2).Close()
		start := time.Now()
		for time.Since(start) < time.Minute {
			done := make(chan error, 1)
			c.Broker(2).Start(t.Context(), kmsg.NewPtrDescribeClusterRequest(), func(_ kmsg.Response, err error) { done <- err })
			if <-done == nil {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("the new address was used after %v", took)
		}
	})
}

func TestC43AnAnyBrokerMutationThatWasReadGoesToNoOtherBroker(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect()
		r.everywhere(38, func(*sim.Request) sim.Answer { return sim.Answer{End: sim.Close} })
		_, err := c.Request(r.within(time.Minute), kmsg.NewPtrCreateDelegationTokenRequest())
		n := 0
		for _, b := range r.sim.Brokers() {
			n += b.Count(38)
		}
		if err == nil || !kafka.MayHaveHappened(err) || n != 1 {
			t.Errorf("%v after %d requests", err, n)
		}
	})
}

func TestC69AForcedRefreshIsNotServedByOneUnderWay(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		c := r.connect()
		mustDo(t, second(c.Topic(t.Context(), "t")))
		time.Sleep(20 * time.Second)
		n := len(r.allMetadata())
		r.sim.Broker(1).Handle(3, func(q *sim.Request) sim.Answer {
			return sim.Answer{Response: r.sim.Metadata(q), Delay: 50 * time.Millisecond}
		})
		first := make(chan error, 1)
		go func() { first <- c.refresh(t.Context(), []string{"t"}, needNow) }()
		time.Sleep(20 * time.Millisecond) // the first answer is as good as written
		r.topic("t", 1, 1)
		mustDo(t, c.refresh(t.Context(), []string{"t"}, needNow))
		mustDo(t, <-first)
		if top, _ := c.CachedTopic("t"); top.Count() != 2 || len(r.allMetadata()) != n+2 {
			t.Errorf("%d partitions after %d requests", top.Count(), len(r.allMetadata())-n)
		}
	})
}

func TestC57AWrongPasswordFailsAtOnceInConnect(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		for _, b := range r.sim.Brokers() {
			b.SetSASL(sim.SASL{Mechanisms: []string{"PLAIN"}, Users: map[string]string{"u": "right"}, Refusal: "no such user"})
		}
		cfg := r.config()
		cfg.SASL = []sasl.Mechanism{plain.Auth{User: "u", Pass: "wrong"}.AsMechanism()}
		start := time.Now()
		_, err := Connect(r.within(time.Minute), cfg)
		var ae *kafka.AuthError
		if !errors.As(err, &ae) || time.Since(start) > time.Second {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		cfg.SASL = []sasl.Mechanism{plain.Auth{User: "u", Pass: "right"}.AsMechanism()}
		c, err := Connect(r.within(time.Minute), cfg)
		mustDo(t, err)
		mustDo(t, c.Close())
	})
}
