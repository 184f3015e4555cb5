package consumer

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// bigBatch is a batch of one record of about size bytes of zeros.
func bigBatch(size int, codec compress.Codec) []byte {
	var b record.Builder
	var c compress.Compressor
	b.Reset(nil)
	b.Append(1, nil, make([]byte, size), nil)
	wire, _ := b.Seal(record.NoProducer, codec, &c, 0, nil)
	return wire
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// T4 and F26: with a poll that never comes memory stays below budget + 16 MiB +
// 1 MiB for each of the two brokers, whatever batches would become once they are
// decompressed; afterwards everything flows. Mutation: plan.room without used.
func TestF26_T4AStoppedPollKeepsMemoryWithinTheBudget(t *testing.T) {
	const budget, parts = 16 << 20, 40 // what every partition may keep, 1 MiB, is more than the budget in all
	for _, codec := range []compress.Codec{compress.None, compress.Gzip} {
		t.Run(fmt.Sprint(codec), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				leaders := make([]int32, parts)
				for i := range leaders {
					leaders[i] = int32(i%2) + 1
				}
				s, c := scripted(t, 1, leaders...)
				batch := bigBatch(1<<20, codec)
				for _, b := range s.Brokers() {
					left := 0 // of the answer's limit
					answer := fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) {
						p.HighWatermark = 1 << 30
						if left <= 0 {
							return
						}
						left -= len(batch)
						p.RecordBatches = append([]byte(nil), batch...)
						binary.BigEndian.PutUint64(p.RecordBatches, uint64(o))
					})
					b.Handle(1, func(r *sim.Request) sim.Answer {
						left = int(r.Req.(*kmsg.FetchRequest).MaxBytes)
						return answer(r)
					})
				}
				before := heap()
				cons, err := New(c, Config{Budget: budget})
				if err != nil {
					t.Fatal(err)
				}
				defer cons.Close()
				at := map[kafka.TopicPartition]Start{}
				for p := range int32(parts) {
					at[tp("t", p)] = AtOffset(0)
				}
				if err := cons.Assign(t.Context(), at); err != nil {
					t.Fatal(err)
				}
				time.Sleep(3 * time.Second)
				fetches := s.Count(1)
				if grown, limit := heap()-before, int64(budget+16<<20+2<<20); grown > limit {
					t.Errorf("the heap grew by %d MiB, the limit is %d MiB", grown>>20, limit>>20)
				}
				if codec == compress.None {
					time.Sleep(10 * time.Second)
					if n := s.Count(1) - fetches; n > 2 {
						t.Errorf("%d fetches without room", n)
					}
				}
				r := newReader(t, cons)
				for len(r.values) < parts && r.n < 20*parts {
					r.poll(t.Context())
				}
				if len(r.values) != parts || len(r.errs) > 0 {
					t.Errorf("%d of %d partitions flow, %v", len(r.values), parts, r.errs)
				}
			})
		})
	}
}
