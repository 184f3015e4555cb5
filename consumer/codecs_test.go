package consumer

import (
	"encoding/binary"
	"testing"
	"testing/synctest"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// B164: decoders belong to the consumer, not to partitions: with 200 of them, all
// of zstd, memory stays where it is with one, and nothing is left behind, which
// the bubble checks. Mutation: keep a Decoder for each partition.
func TestB164ZstdDecodersDoNotPileUp(t *testing.T) {
	const parts = 200
	synctest.Test(t, func(t *testing.T) {
		s, c := scripted(t, 1, allAt1(parts)...)
		batch := bigBatch(10_000, compress.Zstd)
		for _, b := range s.Brokers() {
			b.Handle(1, fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) {
				if p.HighWatermark = 5; o < 5 {
					p.RecordBatches = append([]byte(nil), batch...)
					binary.BigEndian.PutUint64(p.RecordBatches, uint64(o))
				}
			}))
		}
		cons, err := New(c, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer cons.Close()
		at := map[kafka.TopicPartition]Start{tp("t", 0): AtOffset(0)}
		if err := cons.Assign(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		r := newReader(t, cons)
		r.until(t.Context(), 5)
		one := heap()
		for p := range int32(parts) {
			at[tp("t", p)] = AtOffset(0)
		}
		if err := cons.Assign(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		clear(r.last)
		r.until(t.Context(), r.n+5*(parts-1))
		clear(r.values)
		if grown := heap() - one; grown > parts*50_000 { // a decoder has 400,000
			t.Errorf("the heap grew by %d KiB", grown>>10)
		}
	})
}

// allAt1 are the leaders of n partitions: broker 1.
func allAt1(n int) []int32 {
	leaders := make([]int32, n)
	for i := range leaders {
		leaders[i] = 1
	}
	return leaders
}
