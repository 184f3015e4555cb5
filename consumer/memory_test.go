package consumer

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

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
func TestT4F26AStoppedPollKeepsMemoryWithinTheBudget(t *testing.T) {
	const budget = 16 << 20
	for _, codec := range []compress.Codec{compress.None, compress.Gzip} {
		t.Run(fmt.Sprint(codec), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := scripted(t, 1, 1, 2, 1, 2)
				batch := bigBatch(1<<20, codec)
				for _, b := range s.Brokers() {
					b.Handle(1, fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) {
						p.HighWatermark = 1 << 30
						p.RecordBatches = append([]byte(nil), batch...)
						binary.BigEndian.PutUint64(p.RecordBatches, uint64(o))
					}))
				}
				before := heap()
				cons, err := New(c, Config{Budget: budget})
				if err != nil {
					t.Fatal(err)
				}
				defer cons.Close()
				at := map[kafka.TopicPartition]Start{}
				for p := range int32(4) {
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
				r.until(t.Context(), 60)
				if len(r.values) != 4 {
					t.Errorf("%d of 4 partitions flow", len(r.values))
				}
			})
		})
	}
}
