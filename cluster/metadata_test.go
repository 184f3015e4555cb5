package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

func TestC57ConnectLoadsTheMapWithoutTopics(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.topic("t", 1, 2)
		c := r.connect()
		ms := r.allMetadata()
		if len(ms) != 1 || ms[0].Topics == nil || len(ms[0].Topics) != 0 || ms[0].AllowAutoTopicCreation {
			t.Fatalf("C71: Metadata requests of Connect: %+v", ms)
		}
		accepted := 0
		for _, b := range r.sim.Brokers() {
			accepted += b.Accepted()
		}
		if accepted != 1 {
			t.Errorf("Connect opened %d sockets", accepted)
		}
		if c.ID() != "sim" || len(c.Brokers()) != 3 {
			t.Errorf("map: %q %v", c.ID(), c.Brokers())
		}
		if _, ok := c.CachedTopic("t"); ok {
			t.Error("a topic was loaded that nobody asked for")
		}
	})
}

func TestC58ARefreshNamesWhatIsAskedForAndSaysWhetherToCreate(t *testing.T) {
	for _, no := range []bool{false, true} {
		inBubble(t, 1, func(t *testing.T, r *rig) {
			for _, name := range []string{"a", "b", "x"} {
				r.topic(name, 1)
			}
			c := r.connect(func(cfg *Config) { cfg.NoTopicCreation = no })
			// The first look-up takes a while, so that the next two go together.
			r.sim.Broker(1).Forget()
			r.sim.Broker(1).Handle(3, func(q *sim.Request) sim.Answer {
				return sim.Answer{Response: r.sim.Metadata(q), Delay: 100 * time.Millisecond}
			})
			var wg sync.WaitGroup
			for _, name := range []string{"x", "a", "b"} {
				wg.Go(func() { _, _ = c.RefreshIfStale(r.within(time.Second), name) })
				synctest.Wait()
			}
			wg.Wait()
			ms := r.allMetadata()
			if len(ms) != 2 || !slices.Equal(names(ms[0]), []string{"x"}) || !slices.Equal(names(ms[1]), []string{"a", "b"}) {
				t.Errorf("requests: %d", len(ms))
			}
			for _, m := range ms {
				if m.AllowAutoTopicCreation == no {
					t.Errorf("creation %v: %v asks with %v", !no, names(m), m.AllowAutoTopicCreation)
				}
			}
		})
	}
}

func TestC68ALeaderOfAnyAgeNeedsNoRequestAndUnknownOnesShareOne(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.topic("t", 1, 2)
		c := r.connect()
		ctx := r.within(time.Hour)
		before := len(r.allMetadata())
		var wg sync.WaitGroup
		for range 1000 {
			wg.Go(func() {
				if b, err := c.Leader(ctx, tp("t", 1)); err != nil || b.ID != 2 {
					t.Errorf("leader %v, %v", b, err)
				}
			})
		}
		wg.Wait()
		if n := len(r.allMetadata()) - before; n != 1 {
			t.Errorf("1,000 look-ups made %d requests", n)
		}
		_, err := c.Leader(ctx, tp("t", 7))
		var nl *kafka.NoLeaderError
		if !errors.As(err, &nl) || nl.TopicPartition != tp("t", 7) {
			t.Errorf("no such partition: %v", err)
		}
		if _, err = c.Leader(ctx, tp("none", 0)); !errors.As(err, &nl) || !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("no such topic: %v", err)
		}
		r.topic("u", 1, -1)
		if _, err = c.Leader(ctx, tp("u", 1)); !errors.As(err, &nl) || !errors.Is(err, kerr.LeaderNotAvailable) {
			t.Errorf("a partition that elects its leader: %v", err)
		}
		before = len(r.allMetadata())
		time.Sleep(4 * time.Minute)
		if b, err := c.Leader(ctx, tp("t", 1)); err != nil || b.ID != 2 {
			t.Errorf("leader %v, %v", b, err)
		}
		for _, m := range r.allMetadata()[before:] {
			if slices.Contains(names(m), "t") {
				t.Error("a leader that is known was asked for")
			}
		}
	})
}

func TestC63C64RefreshIfStaleAsksAtTheAgeAndReportsGrowthOnly(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1, 1, 1, 1)
		c := r.connect(func(cfg *Config) { cfg.MetadataMaxAge = 5 * time.Minute })
		if g := mustGrowth(t, c, "t"); g.Grew {
			t.Errorf("growth at first sight: %+v", g)
		}
		n := len(r.allMetadata())
		if g := mustGrowth(t, c, "t"); g.Grew || len(r.allMetadata()) != n {
			t.Error("a fresh topic was asked for")
		}
		r.topic("t", 1, 1, 1, 1, 1, 1)
		top, _ := c.CachedTopic("t")
		time.Sleep(time.Until(top.Updated.Add(269 * time.Second))) // before the refresh ahead
		if g := mustGrowth(t, c, "t"); g.Grew || len(r.allMetadata()) != n {
			t.Error("asked before the age")
		}
	})
}

func mustGrowth(t *testing.T, c *Cluster, topic string) Growth {
	t.Helper()
	g, err := c.RefreshIfStale(t.Context(), topic)
	return must(t, g, err)
}

func TestC66TheRefreshRunsAheadAndT6GrowthIsTold(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1, 1, 1, 1)
		c := r.connect(func(cfg *Config) { cfg.MetadataMaxAge = time.Second })
		ctx := r.within(time.Minute)
		must(t, int32(0), second(c.PartitionCount(ctx, "t")))
		w := c.Watch()
		defer w.Close()
		w.Take()
		r.topic("t", 1, 1, 1, 1, 1, 1, 1, 1)
		grown := time.Now()
		for {
			<-w.Ready()
			es := w.Take()
			i := slices.IndexFunc(es, func(e Event) bool { return e.Kind == TopicGrew })
			if i < 0 {
				continue
			}
			if es[i].Before != 4 || es[i].After != 8 || time.Since(grown) > 1200*time.Millisecond {
				t.Errorf("%+v after %v", es[i], time.Since(grown))
			}
			break
		}
		// In steady state no call waits: the topic never gets old.
		n := c.Stats().Refreshes
		for range 50 {
			time.Sleep(100 * time.Millisecond)
			start := time.Now()
			if n, err := c.PartitionCount(ctx, "t"); n != 8 || err != nil || time.Since(start) > 0 {
				t.Fatalf("%d, %v after %v", n, err, time.Since(start))
			}
		}
		if made := c.Stats().Refreshes - n; made < 4 || made > 7 {
			t.Errorf("%d refreshes in 5 s at an age of 1 s", made)
		}
	})
}

// TestC66AStaleCountIsUnknownAndALeaderIsNot while no broker answers. Mutation:
// serves without the age, Leader that asks where it knows.
func TestC66AStaleCountIsUnknownAndALeaderIsNot(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1, 1)
		c := r.connect(func(cfg *Config) { cfg.RebootstrapAfter = time.Hour })
		must(t, int32(0), second(c.PartitionCount(t.Context(), "t")))
		r.sim.Broker(1).Handle(3, func(q *sim.Request) sim.Answer { return sim.Answer{Until: q.Done()} })
		time.Sleep(5*time.Minute - time.Second)
		if n, err := c.PartitionCount(r.within(time.Second/2), "t"); n != 2 || err != nil {
			t.Errorf("before its age: %d, %v", n, err)
		}
		time.Sleep(2 * time.Second)
		if n, err := c.PartitionCount(r.within(time.Second), "t"); n != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("behind its age: %d, %v", n, err)
		}
		if b, err := c.Leader(r.within(time.Second), tp("t", 1)); b.ID != 1 || err != nil {
			t.Errorf("the leader of any age: %v, %v", b, err)
		}
	})
}

// TestC66ATopicThatWasOnlyLookedAtIsKeptFreshOnceItIsUsed has it described for a
// request first. Mutation: no track.
func TestC66ATopicThatWasOnlyLookedAtIsKeptFreshOnceItIsUsed(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		r.answerOffsets()
		c := r.connect()
		mustDo(t, second(c.Request(t.Context(), listOffsets(tp("t", 0)))))
		must(t, int32(0), second(c.PartitionCount(t.Context(), "t")))
		before := len(r.allMetadata())
		time.Sleep(5 * time.Minute)
		asked := slices.ContainsFunc(r.allMetadata()[before:], func(m *kmsg.MetadataRequest) bool { return slices.Contains(names(m), "t") })
		if !asked {
			t.Error("it was not refreshed within its age")
		}
	})
}

func second[A, B any](_ A, b B) B { return b }

func TestC69R33OneMovedPartitionIsOneRequestAndNoDial(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		leaders := make([]int32, 64)
		for i := range leaders {
			leaders[i] = int32(1 + i%2)
		}
		r.topic("t", leaders...)
		r.answerOffsets()
		c := r.connect()
		ctx := r.within(time.Minute)
		for p := range int32(64) {
			mustDo(t, second(c.Leader(ctx, tp("t", p))))
		}
		all := make([]kafka.TopicPartition, 64)
		for p := range all {
			all[p] = tp("t", int32(p))
		}
		mustDo(t, second(c.Request(ctx, listOffsets(all...))))
		dials := r.sim.Broker(1).Accepted() + r.sim.Broker(2).Accepted()
		n := len(r.allMetadata())
		r.sim.SetLeader("t", 5, 1)
		c.InvalidateLeader(tp("t", 5))
		b, err := c.Leader(ctx, tp("t", 5))
		if err != nil || b.ID != 1 {
			t.Errorf("leader after the move: %v, %v", b, err)
		}
		mustDo(t, second(c.Request(ctx, listOffsets(all...))))
		if made := len(r.allMetadata()) - n; made != 1 {
			t.Errorf("%d Metadata requests for one move", made)
		}
		if again := r.sim.Broker(1).Accepted() + r.sim.Broker(2).Accepted(); again != dials {
			t.Errorf("%d dials for one move", again-dials)
		}
	})
}

func TestC72C73TheControllerIsLookedUpOnceAndForgottenOnlyIfItIsStillTheOne(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := r.connect()
		ctx := r.within(time.Minute)
		if b, err := c.Controller(ctx); err != nil || b.ID != 1 || len(r.allMetadata()) != 1 {
			t.Fatalf("controller %v, %v after %d requests", b, err, len(r.allMetadata()))
		}
		r.sim.Update(func(tp *sim.Topology) { tp.Controller = -1 })
		c.InvalidateController(1)
		if _, err := c.Controller(ctx); !errors.Is(err, ErrNoController) || kafka.MayHaveHappened(err) {
			t.Errorf("during an election: %v", err)
		}
		r.sim.Update(func(tp *sim.Topology) { tp.Controller = 2 })
		if b, err := c.Controller(ctx); err != nil || b.ID != 2 {
			t.Errorf("after the election: %v, %v", b, err)
		}
		n := len(r.allMetadata())
		c.InvalidateController(1) // a late rejection of the old one
		if b, err := c.Controller(ctx); err != nil || b.ID != 2 || len(r.allMetadata()) != n {
			t.Errorf("after a late rejection: %v, %v", b, err)
		}
	})
}

// Mutation: an answer under way that does not count for the topics it has, or a
// topic that is asked for by nobody because it is under way.
func TestC68ARequestOverTopicsOfWhichOneIsBeingAskedForWaitsForTheOthers(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("a", 1)
		r.topic("b", 1)
		r.answerOffsets()
		c := r.connect()
		r.sim.Broker(1).Handle(3, func(q *sim.Request) sim.Answer {
			return sim.Answer{Response: r.sim.Metadata(q), Delay: 50 * time.Millisecond}
		})
		go func() { _, _ = c.Request(t.Context(), listOffsets(tp("a", 0))) }()
		time.Sleep(20 * time.Millisecond)
		began := time.Now()
		_, err := c.Request(r.within(time.Hour), listOffsets(tp("a", 0), tp("b", 0)))
		if took := time.Since(began); took > time.Second || err != nil {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// Mutation: a ForgetTopic that drops what others of the client wait for.
func TestC70ATopicThatSomebodyWaitsForIsAskedForAlthoughAnotherForgetsIt(t *testing.T) {
	t.Run("in creation", func(t *testing.T) {
		inBubble(t, 1, func(t *testing.T, r *rig) {
			c := r.connect()
			time.AfterFunc(1500*time.Millisecond, func() { c.ForgetTopic("b") })
			time.AfterFunc(2*time.Second, func() { r.topic("b", 1) })
			began := time.Now()
			if _, err := c.Topic(r.within(time.Hour), "b"); err != nil || time.Since(began) > 5*time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	})
	t.Run("behind another refresh", func(t *testing.T) {
		inBubble(t, 1, func(t *testing.T, r *rig) {
			r.topic("a", 1)
			r.topic("b", 1)
			c := r.connect()
			r.sim.Broker(1).Handle(3, func(q *sim.Request) sim.Answer {
				return sim.Answer{Response: r.sim.Metadata(q), Delay: 50 * time.Millisecond}
			})
			go func() { _, _ = c.Topic(t.Context(), "a") }()
			time.AfterFunc(20*time.Millisecond, func() { c.ForgetTopic("b") })
			time.Sleep(10 * time.Millisecond)
			began := time.Now()
			if _, err := c.Topic(r.within(time.Hour), "b"); err != nil || time.Since(began) > time.Second {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
		})
	})
}

func TestC70AForgottenTopicIsAskedForAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		c := r.connect()
		ctx := r.within(time.Minute)
		mustDo(t, second(c.Topic(ctx, "t")))
		n := len(r.allMetadata())
		c.ForgetTopic("t")
		mustDo(t, second(c.Leader(ctx, tp("t", 0))))
		if len(r.allMetadata()) != n+1 {
			t.Error("a forgotten topic was still known")
		}
	})
}

func TestR34ATopicInCreationIsWaitedForAndAnUnknownOneOnlyForItsPatience(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := r.connect()
		go func() {
			time.Sleep(2 * time.Second)
			r.topic("late", 2)
		}()
		start := time.Now()
		top, err := c.Topic(r.within(time.Minute), "late")
		if err != nil || top.Count() != 1 || time.Since(start) > 3100*time.Millisecond {
			t.Errorf("%v, %v after %v", top, err, time.Since(start))
		}
		start = time.Now()
		_, err = c.Topic(r.within(time.Minute), "never")
		var oe *kafka.OpError
		if !errors.Is(err, kerr.UnknownTopicOrPartition) || !errors.As(err, &oe) || oe.Topic != "never" {
			t.Errorf("unknown topic: %v", err)
		}
		if took := time.Since(start); took < 5*time.Second || took > 6200*time.Millisecond {
			t.Errorf("unknown topic reported after %v", took)
		}
		r.sim.Update(func(tp *sim.Topology) {
			tp.Topics = append(tp.Topics, sim.Topic{Name: "secret", Error: kerr.TopicAuthorizationFailed.Code})
		})
		start = time.Now()
		if _, err = c.Topic(r.within(time.Minute), "secret"); !errors.Is(err, kerr.TopicAuthorizationFailed) || time.Since(start) > time.Second {
			t.Errorf("refused topic: %v after %v", err, time.Since(start))
		}
	})
}

func TestK13AStormIsOneRequestEach100MsWithGrowingGaps(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		leaders := make([]int32, 1000)
		for i := range leaders {
			leaders[i] = 1
		}
		r.topic("t", leaders...)
		c := r.connect()
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		time.Sleep(20 * time.Second)
		r.sim.Broker(1).Forget()
		stop := time.Now().Add(10 * time.Second)
		for time.Now().Before(stop) {
			for p := range int32(1000) {
				c.InvalidateLeader(tp("t", p))
			}
			time.Sleep(10 * time.Millisecond)
		}
		var at []time.Time
		for _, f := range r.sim.Broker(1).FramesOf(3) {
			at = append(at, f.At)
		}
		if len(at) < 5 || len(at) > 15 {
			t.Errorf("%d requests in 10 s of a storm", len(at))
		}
		for i := 1; i < len(at); i++ {
			if gap := at[i].Sub(at[i-1]); gap < 99*time.Millisecond {
				t.Errorf("requests %d and %d are %v apart", i-1, i, gap)
			}
		}
		if last := at[len(at)-1].Sub(at[len(at)-2]); last < 900*time.Millisecond {
			t.Errorf("the last gap is %v: no growing backoff", last)
		}
	})
}

// Mutation: a list that is taken from whatever came.
func TestK15_B047AnAnswerThatSaysNothingIsNoListOfTopics(t *testing.T) {
	for name, spoil := range map[string]func(*kmsg.MetadataResponse){
		"a code":          func(m *kmsg.MetadataResponse) { m.ErrorCode, m.Topics = kerr.RebootstrapRequired.Code, nil },
		"no brokers":      func(m *kmsg.MetadataResponse) { m.Brokers, m.Topics = nil, nil },
		"another cluster": func(m *kmsg.MetadataResponse) { m.ClusterID, m.Topics = kmsg.StringPtr("other"), nil },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, r *rig) {
				r.topic("a", 1)
				c := r.connect()
				lies := 1
				r.sim.Broker(1).Handle(3, func(q *sim.Request) sim.Answer {
					resp := r.sim.Metadata(q)
					if q.Req.(*kmsg.MetadataRequest).Topics == nil && lies > 0 {
						lies--
						spoil(resp)
					}
					return sim.Reply(resp)
				})
				if names, err := c.TopicNames(r.within(time.Minute)); err == nil {
					t.Errorf("topics %q", names)
				}
				names, err := c.TopicNames(r.within(time.Minute))
				if err != nil || !slices.Equal(names, []string{"a"}) {
					t.Errorf("the next answer: %q, %v", names, err)
				}
			})
		})
	}
}
