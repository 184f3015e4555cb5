package consumer

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/kafka"
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
	payload, err := d.Decode(rb)
	if err != nil {
		tb.Fatal(err)
	}
	return newBatch(fetch.Loan{TopicPartition: kafka.TopicPartition{Topic: "t"}, Batch: rb}, payload)
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
		if _, err := d.Decode(rb); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/655, "ns/record")
}
