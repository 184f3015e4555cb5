package consumer

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// reusing reads topics of uncompressed and of compressed batches with
// Config.ReuseBuffers, where memory that is to be used again is overwritten at
// once. value is what record n of a partition holds.
func reusing(t *testing.T, reuse bool, f func(ctx context.Context, c *Consumer, total int, value func(n int) string)) {
	for name, codec := range map[string]kgo.CompressionCodec{"none": kgo.NoCompression(), "lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, ottlatest.Config{Brokers: 2, Topics: map[string]int{"t": 3}}, func(ctx context.Context, w *world) {
				const each = 120
				value := func(n int) string {
					return fmt.Sprintf("value %d, and something that does compress: aaaaaaaaaaaaaaaaaaaa", n)
				}
				w.prod = w.peer(kgo.ProducerBatchCompression(codec))
				for p := range int32(3) {
					for b := 0; b < each; b += 20 {
						var rs []*kgo.Record
						for i := range 20 {
							rs = append(rs, &kgo.Record{Topic: "t", Partition: p, Value: []byte(value(b + i))})
						}
						if err := w.prod.ProduceSync(ctx, rs...).FirstErr(); err != nil {
							t.Fatal(err)
						}
					}
				}
				c := w.consumer(Config{ReuseBuffers: reuse, MaxPollBytes: 3000, PartitionMaxBytes: 2500, poison: true})
				assign(t, c, tp("t", 0), tp("t", 1), tp("t", 2))
				f(ctx, c, 3*each, value)
			})
		})
	}
}

// F46: what a poll hands out is right until the next one begins, and its memory
// is used again then. Mutations: free what was handed out within the poll; free
// nothing.
func TestF46WithReuseBuffersBatchesAreValidUntilTheNextPoll(t *testing.T) {
	reusing(t, true, func(ctx context.Context, c *Consumer, total int, value func(int) string) {
		var kept []kafka.Record
		for n := 0; n < total; {
			bs, err := c.Poll(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range bs {
				for o, r := range b.Records() {
					if string(r.Value) != value(int(o)) {
						t.Fatalf("offset %d: %q", o, r.Value)
					}
					kept = append(kept, r)
					n++
				}
			}
		}
		changed := 0
		for _, r := range kept {
			if string(r.Value) != value(int(r.Offset)) {
				changed++
			}
		}
		if changed < total/2 {
			t.Errorf("the memory of %d of %d records was used again", changed, total)
		}
	})
}

// F46: the same, by ranges, which are left and entered again on the way.
func TestF46WithReuseBuffersRangesAreValidUntilTheirNextStep(t *testing.T) {
	reusing(t, true, func(ctx context.Context, c *Consumer, total int, value func(int) string) {
		for n := 0; n < total; {
			for r, err := range c.Records(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				if string(r.Value) != value(int(r.Offset)) {
					t.Fatalf("offset %d: %q", r.Offset, r.Value)
				}
				if n++; n == total || n%7 == 0 {
					break
				}
			}
			if n == total {
				break
			}
			for b, err := range c.Batches(ctx) {
				if err != nil {
					t.Fatal(err)
				}
				for o, r := range b.Records() {
					if string(r.Value) != value(int(o)) {
						t.Fatalf("offset %d: %q", o, r.Value)
					}
					n++
				}
				break
			}
		}
	})
}

// F46: by default nothing is ever written to what was handed out.
func TestF46BatchesStayAsTheyAre(t *testing.T) {
	reusing(t, false, func(ctx context.Context, c *Consumer, total int, value func(int) string) {
		var kept []kafka.Record
		for len(kept) < total {
			bs, err := c.Poll(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range bs {
				for _, r := range b.Records() {
					kept = append(kept, r)
				}
			}
		}
		for _, r := range kept {
			if string(r.Value) != value(int(r.Offset)) {
				t.Fatalf("offset %d: %q", r.Offset, r.Value)
			}
		}
	})
}

// F44: a compressed batch that the user may keep takes little more memory than its
// records have, but for the first of a partition. Mutation: spare that makes nothing.
func TestF44AKeptBatchHasTheMemoryItNeeds(t *testing.T) {
	reusing(t, false, func(ctx context.Context, c *Consumer, total int, _ func(int) string) {
		seen := map[kafka.TopicPartition]int{}
		for n := 0; n < total; {
			bs, err := c.Poll(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range bs {
				n += b.Count()
				size, room := len(b.payload), cap(b.payload)
				if seen[b.TopicPartition()]++; seen[b.TopicPartition()] > 1+aheadBatches && room > size+size/4 {
					t.Errorf("batch %d of %s: %d bytes in %d", seen[b.TopicPartition()], b.TopicPartition(), size, room)
				}
			}
		}
	})
}

// aheadBatches of a partition may be under way to be decompressed before the first
// one tells how large they become.
const aheadBatches = 4
