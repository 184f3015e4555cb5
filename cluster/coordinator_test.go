package cluster

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// lookups are the keys of the FindCoordinator requests that brokers saw.
func (r *rig) lookups() (keys [][]string) {
	for _, f := range r.sim.Frames() {
		if q, ok := f.Req.(*kmsg.FindCoordinatorRequest); ok && f.Key == 10 {
			if q.Version < 4 {
				keys = append(keys, []string{q.CoordinatorKey})
			} else {
				keys = append(keys, q.CoordinatorKeys)
			}
		}
	}
	return keys
}

func (r *rig) coordinates(key string, node int32) {
	r.sim.Update(func(tp *sim.Topology) {
		if tp.Coordinators == nil {
			tp.Coordinators = map[string]int32{}
		}
		tp.Coordinators[key] = node
	})
}

// everywhere sets a handler at every broker.
func (r *rig) everywhere(key int16, h sim.Handler) {
	for _, b := range r.sim.Brokers() {
		b.Handle(key, h)
	}
}

func TestK7R7OneLookupForAllAndACancelledCallerDoesNotCancelIt(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.coordinates("g", 3)
		r.everywhere(10, func(q *sim.Request) sim.Answer {
			return sim.Answer{Response: r.sim.FindCoordinator(q), Delay: 100 * time.Millisecond}
		})
		c := r.connect()
		first, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for i := range 3 {
			ctx := t.Context()
			if i == 0 {
				ctx = first
			}
			wg.Go(func() {
				b, err := c.Coordinator(ctx, GroupCoordinator, "g")
				if i == 0 && !errors.Is(err, context.Canceled) {
					t.Errorf("the caller that gave up: %v, %v", b, err)
				}
				if i > 0 && (err != nil || b.ID != 3) {
					t.Errorf("caller %d: %v, %v", i, b, err)
				}
			})
			time.Sleep(time.Millisecond)
		}
		time.Sleep(10 * time.Millisecond)
		cancel()
		wg.Wait()
		mustDo(t, second(c.Coordinator(t.Context(), GroupCoordinator, "g")))
		if n := len(r.lookups()); n != 1 {
			t.Errorf("%d look-ups for four callers", n)
		}
		c.ForgetCoordinator("g")
		mustDo(t, second(c.Coordinator(t.Context(), GroupCoordinator, "g")))
		if n := len(r.lookups()); n != 2 {
			t.Error("a forgotten coordinator was not looked up")
		}
	})
}

func TestB052KeysGoInOneRequestOrWhereTheBrokerIsOldInOneEach(t *testing.T) {
	for _, old := range []bool{false, true} {
		inBubble(t, 2, func(t *testing.T, r *rig) {
			r.coordinates("a", 1)
			r.coordinates("b", 2)
			for _, b := range r.sim.Brokers() {
				if old {
					b.SetVersions(10, 0, 2)
				}
				b.Handle(10, func(q *sim.Request) sim.Answer {
					resp := r.sim.FindCoordinator(q)
					if req := q.Req.(*kmsg.FindCoordinatorRequest); req.Version < 4 && req.CoordinatorKey == "" {
						resp.ErrorCode, resp.NodeID, resp.Host = kerr.InvalidGroupID.Code, -1, ""
					}
					for i, f := range resp.Coordinators {
						if f.Key == "" {
							resp.Coordinators[i].ErrorCode, resp.Coordinators[i].NodeID = kerr.InvalidGroupID.Code, -1
						}
					}
					return sim.Reply(resp)
				})
			}
			c := r.connect()
			req := kmsg.NewPtrFindCoordinatorRequest()
			req.CoordinatorKeys = []string{"a", "b", ""}
			resp, err := c.Request(r.within(time.Minute), req)
			mustDo(t, err)
			got := resp.(*kmsg.FindCoordinatorResponse).Coordinators
			if len(got) != 3 || got[0].Key != "a" || got[0].NodeID != 1 || got[1].NodeID != 2 || got[2].ErrorCode != kerr.InvalidGroupID.Code {
				t.Errorf("old %v: %+v", old, got)
			}
			// The same through the cache.
			r.sim.Broker(1).Forget()
			r.sim.Broker(2).Forget()
			groups := kmsg.NewPtrDescribeGroupsRequest()
			groups.Groups = []string{"b", "", "a"}
			_, err = c.Request(r.within(time.Minute), groups)
			if !errors.Is(err, kerr.InvalidGroupID) {
				t.Errorf("the empty group: %v", err)
			}
			want := 1
			if old {
				want = 3
			}
			if n := len(r.lookups()); n != want {
				t.Errorf("old %v: %d look-ups: %v", old, n, r.lookups())
			}
		})
	}
}

func TestB049K8OnlyGoodAnswersAreCachedAndUnknownNodesAreReached(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[:2] }) // node 3 is not in metadata
		tries := 0
		r.everywhere(10, func(q *sim.Request) sim.Answer {
			resp := r.sim.FindCoordinator(q)
			tries++
			for i := range resp.Coordinators {
				rc := &resp.Coordinators[i]
				if tries < 5 {
					rc.ErrorCode, rc.NodeID, rc.Host, rc.Port = kerr.CoordinatorNotAvailable.Code, -1, "", -1
				} else {
					rc.ErrorCode, rc.NodeID, rc.Host, rc.Port = 0, 3, "b3", 9092
				}
			}
			return sim.Reply(resp)
		})
		c := r.connect()
		b, err := c.Coordinator(r.within(time.Minute), GroupCoordinator, "g")
		if err != nil || b.Addr() != "b3:9092" || tries != 5 {
			t.Fatalf("%v, %v after %d tries", b, err, tries)
		}
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Group = "g"
		mustDo(t, second(c.Request(r.within(time.Minute), hb)))
		if r.sim.Broker(3).Count(12) != 1 {
			t.Error("the heartbeat did not reach the address in the answer")
		}
		tries = -1 << 30
		ctx := r.within(300 * time.Millisecond)
		_, err = c.Coordinator(ctx, GroupCoordinator, "none")
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Errorf("the end of patience does not say what the broker said: %v", err)
		}
	})
}

// TestR24R10TheCoordinatorIsLookedUpAfterARejection also holds that a rejected
// request is not repeated blindly at the same broker.
func TestR24R10TheCoordinatorIsLookedUpAfterARejection(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.coordinates("g", 2)
		c := r.connect()
		hb := kmsg.NewPtrHeartbeatRequest()
		hb.Group = "g"
		mustDo(t, second(c.Request(r.within(time.Minute), hb)))
		r.sim.Broker(2).Handle(12, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.HeartbeatResponse)
			resp.ErrorCode = kerr.NotCoordinator.Code
			return sim.Reply(resp)
		})
		r.coordinates("g", 3)
		resp, err := c.Request(r.within(time.Minute), hb)
		if err != nil || resp.(*kmsg.HeartbeatResponse).ErrorCode != 0 {
			t.Fatalf("%+v, %v", resp, err)
		}
		if a, b, n := r.sim.Broker(2).Count(12), r.sim.Broker(3).Count(12), len(r.lookups()); a != 2 || b != 1 || n != 2 {
			t.Errorf("%d requests to the old one, %d to the new one, %d look-ups", a, b, n)
		}
		// It dies between look-up and use.
		r.coordinates("g", 1)
		r.sim.Broker(3).Close()
		start := time.Now()
		mustDo(t, second(c.Request(r.within(time.Minute), hb)))
		if took := time.Since(start); took > time.Second {
			t.Errorf("a dead coordinator cost %v", took)
		}
	})
}

func TestK7B050ACoordinatorThatLeavesTheMapIsForgotten(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.coordinates("g", 3)
		r.coordinates("h", 3)
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		for _, g := range []string{"g", "h"} {
			mustDo(t, second(c.Coordinator(r.within(time.Minute), GroupCoordinator, g)))
		}
		r.coordinates("g", 1)
		r.coordinates("h", 2)
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[:2] })
		mustDo(t, c.refresh(t.Context(), nil, needNow))
		b, err := c.Coordinator(r.within(time.Minute), GroupCoordinator, "h")
		if err != nil || b.ID != 2 {
			t.Errorf("%v, %v", b, err)
		}
	})
}

func TestC24RequestCoordinatorSendsAtTheCallersVersionOrNotAtAll(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.coordinates("g", 2)
		r.sim.Broker(2).SetVersions(88, 0, 0)
		c := r.connect()
		req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
		req.Group = "g"
		req.Version = 0
		resp, err := c.RequestCoordinator(r.within(time.Minute), "g", req)
		if err != nil || resp.GetVersion() != 0 {
			t.Fatalf("%v, %v", resp, err)
		}
		req.Version = 1
		_, err = c.RequestCoordinator(r.within(time.Minute), "g", req)
		var ve *kafka.VersionError
		if !errors.As(err, &ve) || ve.BrokerMax != 0 || ve.ClientMin != 1 || kafka.MayHaveHappened(err) {
			t.Errorf("a version that the broker lacks: %v", err)
		}
		if n := r.sim.Broker(2).Count(88); n != 1 {
			t.Errorf("%d requests were sent", n)
		}
		beat := kmsg.NewPtrHeartbeatRequest()
		beat.Group, beat.Version = "g", -1
		r.sim.Broker(2).SetVersions(12, 0, 2)
		r.sim.Broker(2).EndAll(sim.Close)
		time.Sleep(time.Second)
		if resp, err := c.RequestCoordinator(r.within(time.Minute), "g", beat); err != nil || resp.GetVersion() != 2 {
			t.Errorf("the highest version of both sides: %v, %v", resp, err)
		}
		lo, hi, ok, err := c.CoordinatorVersions(r.within(time.Minute), "g", 88)
		if lo != 0 || hi != 0 || !ok || err != nil {
			t.Errorf("versions %d-%d %v %v", lo, hi, ok, err)
		}
		r.sim.Broker(2).RemoveVersions(89)
		r.sim.Broker(2).EndAll(sim.Close)
		time.Sleep(time.Second)
		if _, _, ok, err = c.CoordinatorVersions(r.within(time.Minute), "g", 89); ok || err != nil {
			t.Errorf("an API that it lacks: %v %v", ok, err)
		}
		r.sim.Broker(2).Handle(88, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.StreamsGroupHeartbeatResponse)
			resp.ErrorCode = kerr.NotCoordinator.Code
			return sim.Reply(resp)
		})
		req.Version = 0
		resp, err = c.RequestCoordinator(r.within(time.Minute), "g", req)
		if err != nil || soleCode(resp) != kerr.NotCoordinator.Code || r.sim.Broker(2).Count(88) != 2 {
			t.Errorf("its answer is the caller's: %v %v", resp, err)
		}
	})
}

func TestRequestsForCoordinatorsOfEveryKind(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		r.coordinates("g", 2)
		r.coordinates("tx", 3)
		c := r.connect()
		group, txn := "g", "tx"
		for _, q := range []struct {
			req  kmsg.Request
			node int32
			lane string
		}{
			{&kmsg.OffsetCommitRequest{Group: group}, 2, "coordinator"},
			{&kmsg.OffsetFetchRequest{Group: group}, 2, "coordinator"},
			{&kmsg.JoinGroupRequest{Group: group}, 2, "join"},
			{&kmsg.SyncGroupRequest{Group: group}, 2, "join"},
			{&kmsg.HeartbeatRequest{Group: group}, 2, "coordinator"},
			{&kmsg.LeaveGroupRequest{Group: group}, 2, "coordinator"},
			{&kmsg.TxnOffsetCommitRequest{Group: group, TransactionalID: txn}, 2, "coordinator"},
			{&kmsg.OffsetDeleteRequest{Group: group}, 2, "general"},
			{&kmsg.ConsumerGroupHeartbeatRequest{Group: group}, 2, "coordinator"},
			{&kmsg.StreamsGroupHeartbeatRequest{Group: group}, 2, "coordinator"},
			{&kmsg.StreamsGroupTopologyDescriptionUpdateRequest{Group: group}, 2, "coordinator"},
			{&kmsg.StreamsGroupDescribeRequest{Groups: []string{group}}, 2, "general"},
			{&kmsg.InitProducerIDRequest{TransactionalID: &txn}, 3, "coordinator"},
			{&kmsg.AddPartitionsToTxnRequest{TransactionalID: txn}, 3, "coordinator"},
			{&kmsg.AddOffsetsToTxnRequest{TransactionalID: txn, Group: group}, 3, "coordinator"},
			{&kmsg.EndTxnRequest{TransactionalID: txn}, 3, "coordinator"},
			{&kmsg.DescribeTransactionsRequest{TransactionalIDs: []string{txn}}, 3, "general"},
		} {
			key := q.req.Key()
			resp, err := c.Request(r.within(time.Minute), q.req)
			var pe *PartialError
			if err != nil && !errors.As(err, &pe) || resp == nil {
				t.Errorf("%s: %v", kmsg.NameForKey(key), err)
			}
			for _, b := range r.sim.Brokers() {
				want := 0
				if b.ID == q.node {
					want = 1
				}
				if n := b.Count(key); n != want {
					t.Errorf("%s: %d requests at broker %d", kmsg.NameForKey(key), n, b.ID)
				}
			}
			if got := laneOf(q.req).String(); got != q.lane {
				t.Errorf("%s travels on the %s lane", kmsg.NameForKey(key), got)
			}
		}
		var kinds []int8
		for _, f := range r.sim.Frames() {
			if q, ok := f.Req.(*kmsg.FindCoordinatorRequest); ok && f.Key == 10 {
				kinds = append(kinds, q.CoordinatorType)
			}
		}
		slices.Sort(kinds)
		if !slices.Equal(kinds, []int8{0, 1}) {
			t.Errorf("look-ups of kinds %v, want one of each", kinds)
		}
	})
}
