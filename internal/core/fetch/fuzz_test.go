package fetch

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// FuzzFetchAnswer feeds whole answer bodies to a machine that asked for
// something. Whatever they hold: no panic, the invariants stand, offsets handed
// out rise, and the machine comes to rest.
func FuzzFetchAnswer(f *testing.F) {
	for _, v := range readVectors(f) {
		if (v.Version == 4 || v.Version == 12 || v.Version == 18) && len(v.resp) < 2000 {
			f.Add(uint8(v.Version), v.resp[8+v.RespHeader:])
		}
	}
	f.Fuzz(func(t *testing.T, version uint8, body []byte) {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = int16(4 + version%15)
		if resp.UnsafeReadFrom(body) != nil {
			return
		}
		cfg := testConfig()
		cfg.Isolation = Isolation(len(body) % 2)
		r := newRig(t, cfg)
		r.dec.NoCRC, r.dec.Limit = len(body)%3 == 0, 1<<20
		r.assignLike(resp)
		a, ok := maybe[*FetchAction](r)
		if !ok {
			return
		}
		r.m.OnFetch(r.now, a.ID, resp, nil)
		last := map[kafka.TopicPartition]kafka.Offset{}
		for _, g := range r.poll() {
			if o, ok := last[g.tp]; ok && g.o <= o {
				t.Fatalf("offset %d behind %d", g.o, o)
			}
			last[g.tp] = g.o
		}
		_ = r.err()
		if r.m.shelf.used != 0 {
			t.Fatalf("%d bytes are still counted", r.m.shelf.used)
		}
	})
}

// assignLike assigns up to eight partitions that the answer names, from 0.
func (r *rig) assignLike(resp *kmsg.FetchResponse) {
	topics, ids := map[string]map[int32]Start{}, map[string]kafka.TopicID{}
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		name := rt.Topic
		if resp.Version >= 13 {
			name = kafka.TopicID(rt.TopicID).String()
			ids[name] = rt.TopicID
		}
		for _, rp := range rt.Partitions {
			if rp.Partition < 0 || rp.Partition > 2 || len(topics) > 4 {
				continue
			}
			if topics[name] == nil {
				topics[name] = map[int32]Start{}
			}
			topics[name][rp.Partition] = AtOffset(0)
		}
	}
	r.assignAll(topics, ids)
}
