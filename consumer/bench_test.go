package consumer

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// sample is a batch of n records of size bytes, as a broker sends it.
func sample(tb testing.TB, n, size int, codec compress.Codec) record.Batch {
	tb.Helper()
	var b record.Builder
	var c compress.Compressor
	b.Reset(nil)
	value := bytes.Repeat([]byte("ottla reads "), size/12+1)[:size]
	for i := range n {
		b.Append(kafka.Timestamp(i), []byte("key"), value, nil)
	}
	wire, _ := b.Seal(record.NoProducer, codec, &c, 0, nil)
	rb, _, err := record.Next(wire)
	if err != nil || rb.IsZero() {
		tb.Fatal(err)
	}
	return rb
}

// viewed decodes a batch as Poll does and wraps it for the user.
func viewed(tb testing.TB, d *fetch.Decoder, rb record.Batch) Batch {
	payload, err := d.Decode(rb, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return newBatch(fetch.Loan{TopicPartition: kafka.TopicPartition{Topic: "t"}, Payload: payload}, rb)
}

func TestF44ReadingRecordsAllocatesNothingPerRecord(t *testing.T) {
	for _, codec := range []compress.Codec{compress.None, compress.LZ4} {
		rb := sample(t, 1000, 100, codec)
		var d fetch.Decoder
		sum := 0
		read := func() {
			for o, r := range viewed(t, &d, rb).Records() {
				sum += int(o) + len(r.Value)
			}
		}
		read()
		got := testing.AllocsPerRun(100, read)
		limit := 2.0 // for a batch of 1,000 records, whatever the codec
		if codec == compress.None {
			limit = 0
		}
		if got > limit {
			t.Errorf("%v: %v allocations for 1,000 records, want at most %v", codec, got, limit)
		}
		if sum == 0 {
			t.Error("nothing was read")
		}
	}
}

// F45: a range over records costs no allocation per record either; headers lie in
// slabs of 128. Mutation: a Reader without its slab.
func TestF45ARangeOverRecordsAllocatesNothingPerRecord(t *testing.T) {
	const records, headers = 1000, 2
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		var rs []*kgo.Record
		for range records {
			rs = append(rs, &kgo.Record{Topic: "t", Key: []byte("k"), Value: []byte("v"),
				Headers: []kgo.RecordHeader{{Key: "a", Value: []byte("1")}, {Key: "b"}}})
		}
		p := w.peer(kgo.ProducerLinger(time.Second))
		defer p.Close()
		if err := p.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0))
		b, l, err := c.next(ctx)
		if err != nil || b.Count() != records {
			t.Fatalf("%d records, %v", b.Count(), err)
		}
		n := 0
		got := testing.AllocsPerRun(20, func() {
			c.yieldAll(ctx, b, l, func(r kafka.Record, _ error) bool {
				n += len(r.Value) + len(r.Headers)
				return true
			})
		})
		if limit := float64(records*headers/128 + 6); got > limit || n == 0 {
			t.Errorf("%v allocations for %d records of %d headers, want at most %v", got, records, headers, limit)
		}
	})
}

func BenchmarkDecodeAndRange(b *testing.B) {
	for _, codec := range []compress.Codec{compress.None, compress.LZ4, compress.Snappy, compress.Zstd} {
		for _, size := range []int{100, 1024} {
			b.Run(fmt.Sprintf("%v/%d", codec, size), func(b *testing.B) {
				rb := sample(b, 64<<10/size, size, codec)
				var d fetch.Decoder
				n, sum := 0, 0
				b.ReportAllocs()
				for b.Loop() {
					for _, r := range viewed(b, &d, rb).Records() {
						sum += len(r.Value)
						n++
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
			})
		}
	}
}

func BenchmarkDecode(b *testing.B) {
	rb := sample(b, 655, 100, compress.None)
	var d fetch.Decoder
	for b.Loop() {
		if _, err := d.Decode(rb, nil); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/655, "ns/record")
}
