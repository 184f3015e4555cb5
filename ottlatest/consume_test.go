package ottlatest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
)

func TestAConsumerGetsEverythingThroughFaults(t *testing.T) {
	faults := map[string]func(t *testing.T, c *Cluster){
		"close in a request": func(_ *testing.T, c *Cluster) { c.CloseAfter(0, Requests, 13) },
		"close in an answer": func(_ *testing.T, c *Cluster) { c.CloseAfter(0, Answers, 50) },
		"close all":          func(_ *testing.T, c *Cluster) { c.CloseConnections(0) },
		"code":               func(_ *testing.T, c *Cluster) { c.Fail(1, 6, 2, 1) },
		"session refused":    func(_ *testing.T, c *Cluster) { c.Fail(1, 71, 1, 0) },
		"throttle":           func(_ *testing.T, c *Cluster) { c.Throttle(1e6, 1) },
		"slow link":          func(_ *testing.T, c *Cluster) { c.SlowLink(0, 20_000) },
		"leader moves": func(t *testing.T, c *Cluster) {
			if err := c.MoveLeader("t", 0, 1); err != nil {
				t.Error(err)
			}
		},
		"broker stops": func(t *testing.T, c *Cluster) {
			if err := c.StopBroker(0); err != nil {
				t.Error(err)
			}
		},
	}
	for name, once := range faults {
		t.Run(name, func(t *testing.T) {
			everywhere(t, Config{Topics: map[string]int{"t": 1}}, func(t *testing.T, c *Cluster) {
				prod := peer(t, c)
				produce(t, prod, "t", 0, "0", "1", "2")
				cons := peer(t, c, kgo.FetchMaxWait(100e6), kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{"t": {0: kgo.NewOffset().AtStart()}}))
				strike := once
				var got, want []string
				for i := range 12 {
					want = append(want, fmt.Sprint(i))
				}
				for len(got) < len(want) {
					fs := cons.PollFetches(t.Context())
					if t.Context().Err() != nil {
						t.Fatal("out of time")
					}
					fs.EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
					if len(got) >= 3 && strike != nil {
						strike(t, c)
						strike = nil
						produce(t, prod, "t", 0, want[3:]...)
					}
				}
				if !slices.Equal(got, want) {
					t.Errorf("consumed %q", got)
				}
				wantLog(t, c, "t", 0, want...)
			})
		})
	}
}

func TestAGroupSurvivesTheEndOfItsCoordinator(t *testing.T) {
	everywhere(t, Config{Topics: map[string]int{"t": 2}}, func(t *testing.T, c *Cluster) {
		prod := peer(t, c)
		produce(t, prod, "t", 0, "a")
		produce(t, prod, "t", 1, "b")
		member := peer(t, c, kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
		read := func(n int) (got []string) {
			for len(got) < n {
				member.PollFetches(t.Context()).EachRecord(func(r *kgo.Record) { got = append(got, string(r.Value)) })
			}
			slices.Sort(got)
			return got
		}
		if got := read(2); !slices.Equal(got, []string{"a", "b"}) {
			t.Fatalf("read %q", got)
		}
		old := c.Coordinator("g")
		if old == 2 {
			c.MoveCoordinators() // the controller has to live on
			old = c.Coordinator("g")
		}
		if err := c.StopBroker(old); err != nil {
			t.Fatal(err)
		}
		for c.Coordinator("g") == old {
			c.MoveCoordinators()
		}
		produce(t, prod, "t", 0, "c")
		if got := read(1); !slices.Equal(got, []string{"c"}) {
			t.Errorf("read %q", got)
		}
		if err := member.CommitUncommittedOffsets(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// TestRandomCutsLoseAndDoubleNothing is a check of the rig itself: an
// idempotent producer that is not ours keeps its promise through cuts at
// seeded places, so that a failure of ours is ours.
func TestRandomCutsLoseAndDoubleNothing(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			c := New(t, Config{InMemory: true, Seed: seed, Topics: map[string]int{"t": 3}})
			cl := peer(t, c)
			want := map[int32][]string{}
			for i := range 60 {
				if rng.IntN(3) == 0 {
					c.CloseAfter(kafka.NodeID(rng.IntN(3)), Direction(rng.IntN(2)), rng.Int64N(400))
				}
				p := int32(rng.IntN(3))
				produce(t, cl, "t", p, fmt.Sprint(i))
				want[p] = append(want[p], fmt.Sprint(i))
			}
			for p := range int32(3) {
				if got := logOf(t, c, "t", p); !slices.Equal(got, want[p]) {
					t.Errorf("seed %d: the log of t-%d is %q, want %q", seed, p, got, want[p])
				}
			}
		})
	}
}
