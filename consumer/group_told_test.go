package consumer

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// A partition that goes while its committed offset is still looked up was never
// the user's: no callback names it, neither before nor afterwards. Mutations: an
// assign that does not look at what is still owned; an OnRevoked of everything.
func TestG36_G37WhatGoesBeforeItsOffsetIsKnownIsNeverTold(t *testing.T) {
	inGroups(t, map[string]int{"t": 1, "u": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		cfg := w.client()
		cfg.MetadataMaxAge = 2 * time.Second
		own, err := cluster.Connect(ctx, cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		defer own.Close()
		var mu sync.Mutex
		var story []string
		tell := func(what string, tps ...kafka.TopicPartition) {
			mu.Lock()
			defer mu.Unlock()
			for _, tp := range tps {
				story = append(story, fmt.Sprint(what, " ", tp))
			}
		}
		c, err := New(own, Config{Group: GroupConfig{
			ID: "g", Topics: []string{"t"}, Protocol: protocol,
			OnAssigned: func(_ *Consumer, at map[kafka.TopicPartition]kafka.Commit) {
				tell("assigned", sortedKeys(at)...)
			},
			OnRevoked: func(_ *Consumer, tps []kafka.TopicPartition) {
				tell("revoked", tps...)
				time.Sleep(4 * time.Second) // the look-up ends meanwhile
			},
		}})
		if err != nil {
			w.t.Fatal(err)
		}
		defer c.Close()
		stop := drainAll(ctx, c)
		settle(10 * time.Second)
		unstable := w.k.Fail(9, 88, -1, 0)
		if err := w.k.AddPartitions("t", 2); err != nil {
			w.t.Fatal(err)
		}
		settle(20 * time.Second)
		if n := c.Group().Stats().Partitions; n != 2 {
			w.t.Fatalf("%d partitions", n)
		}
		if err := c.Group().Subscribe("u"); err != nil {
			w.t.Fatal(err)
		}
		settle(time.Second)
		unstable.Remove()
		settle(20 * time.Second)
		stop()
		mu.Lock()
		defer mu.Unlock()
		if want := []string{"assigned t-0", "revoked t-0", "assigned u-0"}; !slices.Equal(story, want) {
			w.t.Errorf("%q, want %q", story, want)
		}
	})
}
