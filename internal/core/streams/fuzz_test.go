package streams

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzAnswer feeds the bytes of answers to a member that joins and to a member of
// the group.
func FuzzAnswer(f *testing.F) {
	for _, v := range lifecycle(f) {
		if v.Key == 88 {
			f.Add(v.bytes(f, v.Response), v.Version)
		}
	}
	f.Fuzz(func(t *testing.T, body []byte, version int16) {
		if version < 0 || version > 1 {
			return
		}
		resp := kmsg.NewPtrStreamsGroupHeartbeatResponse()
		resp.Version = version
		if resp.ReadFrom(body) != nil {
			return
		}
		for _, r := range []*rig{newRig(t, nil), newRig(t, nil).stable(2, "0_0")} {
			r.await()
			id := r.out.ID
			r.out = nil
			r.m.OnAnswer(r.now, id, resp)
			r.step()
			if held := r.m.snap.Target.Len(); held > len(body)+1 {
				t.Fatalf("%d tasks out of %d bytes", held, len(body))
			}
			for range 5 {
				r.pass(6 * time.Second)
			}
		}
	})
}

// FuzzTopology feeds the bytes of joins to what reads topologies.
func FuzzTopology(f *testing.F) {
	for _, v := range topologyVectors(f) {
		f.Add(v.bytes(f, v.Request))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
		req.Version = 1
		if req.ReadFrom(body) != nil || req.Topology == nil {
			return
		}
		built := ReadTopology(req.Topology)
		for _, java := range []bool{false, true} {
			built.JavaOrder = java
			c, err := built.Canonical()
			if err != nil {
				continue
			}
			again, err := c.Canonical()
			if err != nil || string(wireBytes(again.Wire())) != string(wireBytes(c.Wire())) {
				t.Fatalf("canonical twice is not canonical once: %v", err)
			}
		}
	})
}
