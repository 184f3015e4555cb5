package fetch

import (
	"errors"
	"testing"
	"time"

	"github.com/ottla/ottla/kafka"
)

// nearby is a rig with a rack, that was sent from leader 1 to replica 2 at
// offset 4. The fetch to the replica is out.
func nearby(t *testing.T) *rig {
	cfg := testConfig()
	cfg.Rack, cfg.ReplicaTime = "r2", 5*time.Minute
	r := reading(t, cfg, 0)
	a := r.answer("t", partAnswer{hw: 50, lso: 50, data: data(0, 3).build(), replica: 2})
	if a.Broker != 1 || a.Req.Rack != "r2" {
		t.Fatalf("broker %d, rack %q", a.Broker, a.Req.Rack)
	}
	return r
}

// takeFetch is the Fetch that goes out, with its broker and offset.
func (r *rig) takeFetch(broker kafka.NodeID, offset int64) *FetchAction {
	r.t.Helper()
	r.waitFetch()
	a := take[*FetchAction](r)
	if rp := a.Req.Topics[0].Partitions[0]; a.Broker != broker || rp.FetchOffset != offset {
		r.t.Fatalf("fetch at broker %d from %d, want broker %d from %d", a.Broker, rp.FetchOffset, broker, offset)
	}
	return a
}

func (r *rig) got(a *FetchAction, p partAnswer) {
	r.t.Helper()
	r.m.OnFetch(r.now, a.ID, fetchAnswer("t", p), nil)
	r.step()
}

// Mutations: the replica taken from the position before the data; no rack in the
// request; candidates by leader.
func TestF41_B140ThePreferredReplicaServesFromTheNextFetchOn(t *testing.T) {
	r := nearby(t)
	a := r.takeFetch(2, 4)
	if a.Req.Topics[0].Partitions[0].CurrentLeaderEpoch != 3 {
		t.Error("B139: the leader epoch is not told to the replica")
	}
	r.got(a, partAnswer{hw: 50, lso: 50, data: data(4, 9).build()})
	r.takeFetch(2, 10)
	wantOffsets(t, r.offsets(), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	// The replica leads nothing and is not forgotten for that.
	if r.m.brokers[2] == nil || r.m.brokers[1] == nil {
		t.Error("a broker is forgotten")
	}
	// Without records, as a broker does it.
	cfg := testConfig()
	cfg.Rack = "r2"
	cfg.ReplicaTime = time.Minute
	r = reading(t, cfg, 7)
	r.answer("t", partAnswer{hw: 50, lso: 50, replica: 3})
	r.takeFetch(3, 7)
}

// Without a rack of its own the client asks for no replica and takes none.
func TestF41NoRackNoReplica(t *testing.T) {
	cfg := testConfig()
	cfg.ReplicaTime = time.Minute
	r := reading(t, cfg, 0)
	a := r.answer("t", partAnswer{hw: 50, lso: 50, data: data(0, 3).build(), replica: 2})
	if a.Req.Rack != "" {
		t.Errorf("rack %q", a.Req.Rack)
	}
	r.takeFetch(1, 4)
}

// After the metadata age the leader is asked again, in the middle of the stream;
// no record comes twice or not at all. Mutation: no ask.
func TestF41_R12TheLeaderIsAskedAgain(t *testing.T) {
	r := nearby(t)
	r.now = r.now.Add(5*time.Minute - time.Second)
	r.got(r.takeFetch(2, 4), partAnswer{hw: 50, lso: 50, data: data(4, 5).build()})
	r.now = r.now.Add(2 * time.Second)
	r.got(r.takeFetch(2, 6), partAnswer{hw: 50, lso: 50, data: data(6, 7).build()})
	a := r.takeFetch(1, 8)
	if a.Req.Rack != "r2" {
		t.Error("the leader is not told the rack")
	}
	r.got(a, partAnswer{hw: 50, lso: 50, replica: 2})
	r.got(r.takeFetch(2, 8), partAnswer{hw: 50, lso: 50, data: data(8, 9).build()})
	wantOffsets(t, r.offsets(), 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
}

// Out of range at a replica is no word about the position: the leader is asked, at
// the same offset, and sends nobody away again for a while. Mutations: leaves
// without 1, onCode before shun, rack while one is shunned.
func TestF31_F41_R12_B139CodesOfAReplicaLeadBackToTheLeader(t *testing.T) {
	for _, code := range []int16{1, 3, 6, 9, 56, 74, 78, 109} {
		r := nearby(t)
		r.got(r.takeFetch(2, 4), partAnswer{code: code})
		a := r.takeFetch(1, 4)
		if a.Req.Rack != "" {
			t.Errorf("code %d: the leader will send us back there, a spin", code)
		}
		if n := r.m.News(); n.Err != nil || len(n.Resets) > 0 {
			t.Errorf("code %d: %v %v", code, n.Err, n.Resets)
		}
		if r.m.part(tp0).stale {
			t.Errorf("code %d: metadata is asked for a replica's fault", code)
		}
		r.got(a, partAnswer{hw: 50, lso: 50, data: data(4, 5).build()})
		r.now = r.now.Add(shunTime)
		r.got(r.takeFetch(1, 6), partAnswer{hw: 50, lso: 50, data: data(6, 7).build()})
		if a = r.takeFetch(1, 8); a.Req.Rack != "r2" {
			t.Errorf("code %d: no replica is ever taken again", code)
		}
	}
	// Only the leader's word resets.
	r := nearby(t)
	r.got(r.takeFetch(2, 4), partAnswer{code: 1})
	r.got(r.takeFetch(1, 4), partAnswer{code: 1})
	r.poll()
	r.vetted(500, 0)
	r.got(r.takeFetch(1, 4), partAnswer{code: 1})
	r.listed(20, 0)
	if rs := r.m.News().Resets; len(rs) != 1 || rs[0].Old != 4 || rs[0].New != 20 {
		t.Errorf("%+v", rs)
	}
}

// 75 and others are waited out where the replica is.
func TestF41OtherCodesStayWithTheReplica(t *testing.T) {
	r := nearby(t)
	r.got(r.takeFetch(2, 4), partAnswer{code: 75})
	r.takeFetch(2, 4)
}

// A replica that fails, or that the cluster does not know, hands back to the
// leader at once, while it is backed off itself. Mutation: brokerFailed without
// shun.
func TestF41_B140AReplicaThatFails(t *testing.T) {
	r := nearby(t)
	r.m.OnFetch(r.now, r.takeFetch(2, 4).ID, nil, errors.New("unknown broker"))
	began := r.now
	r.step()
	r.takeFetch(1, 4)
	if r.now != began {
		t.Error("the leader has to wait for the replica's backoff")
	}
	if r.m.part(tp0).stale {
		t.Error("the leader is doubted for it")
	}
	// The leader that fails while a replica serves is no matter of the replica.
	r = nearby(t)
	r.m.brokerFailed(r.now, r.m.brokers[1], &request{parts: nil}, errors.New("lost"))
	r.got(r.takeFetch(2, 4), partAnswer{hw: 50, lso: 50, data: data(4, 5).build()})
	r.takeFetch(2, 6)
}

// A new leader serves itself, until it names a replica. Mutation: follow that keeps
// the replica.
func TestF41ANewLeaderIsAskedFirst(t *testing.T) {
	r := nearby(t)
	old := r.takeFetch(2, 4)
	ti := info("t", 3)
	ti.Partitions[0].Epoch = 9
	r.m.OnTopic(r.now, "t", ti)
	r.step()
	r.vetted(4, 0)
	r.takeFetch(3, 4)
	r.got(old, partAnswer{hw: 50, lso: 50, data: data(4, 9).build()})
	wantOffsets(t, r.offsets(), 0, 1, 2, 3)
}
