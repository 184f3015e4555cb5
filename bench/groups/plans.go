package main

import (
	"fmt"
	"runtime"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/benchmark"
	"github.com/ottla/ottla/internal/core/group"
)

// plans measures what the leader does with JoinGroup's answer for 1,000 members
// that own 10,000 partitions of 100 topics after ten others left: read the
// subscriptions, divide, write the assignments.
func plans() error {
	fmt.Println("\n| sticky plan, 1,000 members x 10,000 partitions | CPU, ms | MB allocated |\n|---|---|---|")
	for _, mixed := range []bool{false, true} {
		listed, counts := bigGroup(mixed)
		kind := map[bool]string{false: "equal subscriptions", true: "mixed subscriptions"}[mixed]
		took, mb := cost(func() error { return planOttla(listed, counts) })
		fmt.Printf("| ottla, %s | %.0f | %.0f |\n", kind, took, mb)
		took, mb = cost(func() error { return planKgo(listed, counts) })
		fmt.Printf("| kgo, %s | %.0f | %.0f |\n", kind, took, mb)
	}
	return nil
}

// cost is the median CPU time of five calls in ms, and what one allocates in MB.
func cost(f func() error) (took, mb float64) {
	var all []float64
	var before, after runtime.MemStats
	for range 5 {
		runtime.GC()
		runtime.ReadMemStats(&before)
		began := benchmark.CPUTime()
		if err := f(); err != nil {
			panic(err)
		}
		all = append(all, float64(benchmark.CPUTime()-began)/1e6)
		runtime.ReadMemStats(&after)
		mb = float64(after.TotalAlloc-before.TotalAlloc) / 1e6
	}
	return median(all), mb
}

func bigGroup(mixed bool) (listed []kmsg.JoinGroupResponseMember, counts map[string]int32) {
	counts = map[string]int32{}
	var topics []string
	for i := range 100 {
		topics = append(topics, fmt.Sprintf("t%02d", i))
		counts[topics[i]] = 100
	}
	for i := range 1000 {
		meta := kmsg.NewConsumerMemberMetadata()
		meta.Version, meta.Topics, meta.Generation = 3, topics, 1
		if mixed {
			meta.Topics = topics[i%50:]
		}
		for k := range 10 { // a fair share of what it subscribes to
			own := kmsg.NewConsumerMemberMetadataOwnedPartition()
			own.Topic, own.Partitions = topics[50+(i/2)%50], nil
			if n := (i%2)*50 + (i/100)*5 + k/2; k%2 == 0 && n < 100 {
				own.Partitions = []int32{int32(n)}
				meta.OwnedPartitions = append(meta.OwnedPartitions, own)
			}
		}
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.ProtocolMetadata = "m"+strconv.Itoa(i), meta.AppendTo(nil)
		if i >= 10 {
			listed = append(listed, m)
		}
	}
	return listed, counts
}

func planOttla(listed []kmsg.JoinGroupResponseMember, counts map[string]int32) error {
	now := time.Now()
	m := group.New(group.Config{Group: "g", Session: time.Minute, Heartbeat: time.Second, Rebalance: time.Minute, Assignors: []string{group.CooperativeSticky}}, nil)
	m.Subscribe(now, []string{"t00"}, "")
	resp := kmsg.NewPtrJoinGroupResponse()
	name := group.CooperativeSticky
	resp.MemberID, resp.LeaderID, resp.Protocol, resp.Members = "m10", "m10", &name, listed
	for a, ok := m.Next(now); ok; a, ok = m.Next(now) {
		switch a := a.(type) {
		case *group.Send:
			if sync, ok := a.Req.(*kmsg.SyncGroupRequest); ok {
				if len(sync.GroupAssignment) != len(listed) {
					return fmt.Errorf("%d assignments", len(sync.GroupAssignment))
				}
				return nil
			}
			m.OnAnswer(now, a.ID, resp, nil)
		case *group.WatchCounts:
			m.OnCounts(counts)
		}
	}
	return fmt.Errorf("no plan: %w", m.Err())
}

func planKgo(listed []kmsg.JoinGroupResponseMember, counts map[string]int32) error {
	b, _, err := kgo.CooperativeStickyBalancer().MemberBalancer(listed)
	if err != nil {
		return err
	}
	plan, err := b.(kgo.GroupMemberBalancerOrError).BalanceOrError(counts)
	if err != nil {
		return err
	}
	if n := len(plan.IntoSyncAssignment()); n != len(listed) {
		return fmt.Errorf("%d assignments", n)
	}
	return nil
}
