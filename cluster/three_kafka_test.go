//go:build kafka

package cluster

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/kafka"
)

// TestKafkaB020B050A8AKilledBrokerIsLeftBehind runs three brokers, kills the one
// that leads a partition and coordinates a group and a transaction, and goes on;
// then, through the controllers, the one that is the active controller.
func TestKafkaB020B050A8AKilledBrokerIsLeftBehind(t *testing.T) {
	three := realkafka.Start(t, realkafka.Options{Brokers: 3})
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	c, err := Connect(ctx, Config{Bootstrap: strings.Split(three.Bootstrap(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	known := func(n int) { // a broker of a busy machine may be taken for dead for a moment
		t.Helper()
		for len(c.Brokers()) != n {
			if err := c.refresh(ctx, nil, needNow); ctx.Err() != nil {
				t.Fatalf("%d brokers are known, not %d: %v", len(c.Brokers()), n, err)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	known(3)
	createTopic(t, ctx, c, "cluster-three", 3, 3)
	coordinator, err := c.Coordinator(ctx, GroupCoordinator, "g")
	if err != nil {
		t.Fatal(err)
	}
	// The partition that the group's coordinator leads moves with it.
	moving := int32(-1)
	for p := range int32(3) {
		if b, err := c.Leader(ctx, tp("cluster-three", p)); err == nil && b.ID == coordinator.ID {
			moving = p
		}
	}
	t.Logf("broker %d coordinates g and leads partition %d", coordinator.ID, moving)
	all := listOffsets(tp("cluster-three", 0), tp("cluster-three", 1), tp("cluster-three", 2))
	commit := func() *kmsg.OffsetCommitRequest {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Group, req.Generation = "g", -1
		rt := kmsg.NewOffsetCommitRequestTopic()
		rt.Topic = "cluster-three"
		rp := kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Offset = 1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return req
	}
	step := func(what string) {
		t.Helper()
		start := time.Now()
		if resp, err := c.Request(ctx, all); err != nil || soleCode(resp) != 0 {
			t.Fatalf("%s: list offsets: %+v, %v", what, resp, err)
		}
		offsets := time.Since(start)
		if resp, err := c.Request(ctx, commit()); err != nil || soleCode(resp) != 0 {
			t.Fatalf("%s: commit: %+v, %v", what, resp, err)
		}
		t.Logf("%s: offsets after %v, commit after %v", what, offsets, time.Since(start)-offsets)
	}
	step("three brokers")
	w := c.Watch()
	defer w.Close()
	if err := three.Kill(int(coordinator.ID)); err != nil {
		t.Fatal(err)
	}
	step("one of them killed")
	if b, err := c.Coordinator(ctx, GroupCoordinator, "g"); err != nil || b.ID == coordinator.ID {
		t.Errorf("coordinator %v, %v", b, err)
	}
	if moving >= 0 {
		if b, err := c.Leader(ctx, tp("cluster-three", moving)); err != nil || b.ID == coordinator.ID {
			t.Errorf("leader %v, %v", b, err)
		}
	}
	known(2)
	dead := kafka.JoinAddr(coordinator.Host, coordinator.Port)
	dials := func() (n int64) {
		for _, x := range c.Stats().Connections {
			if x.Addr == dead {
				n += x.Dials
			}
		}
		return n
	}
	before := dials()
	for range 20 {
		step("two brokers")
	}
	if n := dials(); n != before {
		t.Errorf("the dead address was dialled %d times more", n-before)
	}
	if err := three.Restart(int(coordinator.ID)); err != nil {
		t.Fatal(err)
	}
	known(3)
	step("all three again")
	counts := map[EventKind]int{}
	for _, e := range w.Take() {
		counts[e.Kind]++
	}
	t.Logf("events %v", counts)
	if moving >= 0 && counts[LeaderChanged] == 0 {
		t.Error("no event tells of the moved leader")
	}
	t.Run("A8", func(t *testing.T) { followsTheController(t, ctx, three) })
}
