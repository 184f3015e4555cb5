package streams

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/ottlatest"
)

// inMemory runs f on a cluster in memory, in virtual time.
func inMemory(t *testing.T, cfg ottlatest.Config, f func(s *stage, k *ottlatest.Cluster)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		cfg.InMemory, cfg.Seed, cfg.Streams.MaxSize = true, 7, fullGroup
		k, err := ottlatest.Start(cfg)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: k.Bootstrap(), Dial: k.Dial, Rand: rand.NewPCG(1, 2)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			cancel()
			c.Close()
			k.Close()
		}()
		s := &stage{
			t: t, ctx: ctx, k: c, minor: 4, memory: true, prefix: "s-",
			topic: func(name string, n int) {
				if err := k.CreateTopic(name, n); err != nil {
					t.Fatal(err)
				}
			},
			grow: func(name string, n int) {
				if err := k.AddPartitions(name, n); err != nil {
					t.Fatal(err)
				}
			},
		}
		f(s, k)
		for _, done := range s.closers {
			done()
		}
	})
}

// TestScenariosInMemory runs the scripts that real Kafka passes, see
// TestKafkaScenarios.
func TestScenariosInMemory(t *testing.T) {
	runScenarios(t, func(t *testing.T, run func(s *stage)) {
		inMemory(t, ottlatest.Config{}, func(s *stage, _ *ottlatest.Cluster) { run(s) })
	})
}

// TestScenariosInMemoryOfKafka42 runs them on a coordinator of version 0.
func TestScenariosInMemoryOfKafka42(t *testing.T) {
	runScenarios(t, func(t *testing.T, run func(s *stage)) {
		inMemory(t, ottlatest.Config{Streams: ottlatest.Streams{Legacy: true}}, func(s *stage, _ *ottlatest.Cluster) {
			s.minor = 2
			run(s)
		})
	})
}
