package record

import (
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/benchmark"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// sampleBatch is a sealed batch of about 64 KiB.
func sampleBatch(size int, codec compress.Codec) (Batch, int) {
	var b Builder
	b.Limit = 64 << 10
	n := 0
	for _, v := range benchmark.Values(size, 1000) {
		if !b.Append(1700000000000+kafka.Timestamp(n/8), []byte("key-0001"), v, nil) {
			break
		}
		n++
	}
	wire, _ := b.Seal(NoProducer, codec, new(compress.Compressor), 0, nil)
	batch, _, err := Next(wire)
	if err != nil {
		panic(err)
	}
	return batch, n
}

var codecs = []compress.Codec{compress.None, compress.Gzip, compress.Snappy, compress.LZ4, compress.Zstd}

// BenchmarkAppend is the cost of one record, its share of the checksum
// included.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1024} {
		b.Run(fmt.Sprintf("%dB", size), func(b *testing.B) {
			values := benchmark.Values(size, 64)
			key := []byte("key-0001")
			buf := make([]byte, 0, 1<<20)
			var bld Builder
			bld.Reset(buf)
			i := 0
			b.ReportAllocs()
			b.SetBytes(int64(size))
			for b.Loop() {
				if bld.Len() > 64<<10 {
					bld.Seal(NoProducer, compress.None, nil, 0, nil)
					bld.Reset(buf)
				}
				i++
				bld.Append(1700000000000+kafka.Timestamp(i), key, values[i&63], nil)
			}
		})
	}
}

// BenchmarkRead is the cost of a batch, checked, decompressed and walked.
func BenchmarkRead(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, codec := range codecs {
			b.Run(fmt.Sprintf("%dB/%v", size, codec), func(b *testing.B) {
				batch, n := sampleBatch(size, codec)
				var d compress.Decompressor
				var r Reader
				var rec kafka.Record
				var buf []byte
				sum := 0
				b.ReportAllocs()
				for b.Loop() {
					if err := batch.Verify(); err != nil {
						b.Fatal(err)
					}
					payload, err := batch.Payload(&d, buf[:0], 0)
					if err != nil {
						b.Fatal(err)
					}
					if codec != compress.None {
						buf = payload
					}
					r.Reset(batch, payload)
					for r.Next(&rec) {
						sum += len(rec.Value)
					}
				}
				perRecord(b, n)
				b.ReportMetric(float64(batch.Size())/float64(n), "wireB/rec")
			})
		}
	}
}

// BenchmarkReadKgo is the same as BenchmarkRead by kgo's reader, for comparison
// within one run.
func BenchmarkReadKgo(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, codec := range codecs {
			b.Run(fmt.Sprintf("%dB/%v", size, codec), func(b *testing.B) {
				batch, n := sampleBatch(size, codec)
				d := kgo.DefaultDecompressor()
				rp := kmsg.NewFetchResponseTopicPartition()
				rp.RecordBatches = batch.Bytes()
				sum := 0
				b.ReportAllocs()
				for b.Loop() {
					fp, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{Topic: "t"}, &rp, d, nil)
					if len(fp.Records) != n {
						b.Fatal(len(fp.Records), fp.Err)
					}
					for _, r := range fp.Records {
						sum += len(r.Value)
					}
				}
				perRecord(b, n)
			})
		}
	}
}

// BenchmarkWalkHeaders is BenchmarkWalk with two headers on each record.
func BenchmarkWalkHeaders(b *testing.B) {
	var bld Builder
	bld.Limit = 64 << 10
	headers := []kafka.Header{{Key: "traceparent", Value: []byte("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")}, {Key: "a", Value: []byte("1")}}
	n := 0
	for ; bld.Append(kafka.Timestamp(n), []byte("key-0001"), make([]byte, 100), headers); n++ {
	}
	wire, _ := bld.Seal(NoProducer, compress.None, nil, 0, nil)
	batch, _, _ := Next(wire)
	b.ReportAllocs()
	walk(b, batch, n)
}

// BenchmarkWalk is the cost of the iterator alone.
func BenchmarkWalk(b *testing.B) {
	batch, n := sampleBatch(100, compress.None)
	walk(b, batch, n)
}

func walk(b *testing.B, batch Batch, n int) {
	payload, _ := batch.Payload(nil, nil, 0)
	var r Reader
	var rec kafka.Record
	sum := 0
	for b.Loop() {
		r.Reset(batch, payload)
		for r.Next(&rec) {
			sum += len(rec.Value)
		}
	}
	perRecord(b, n)
}

func perRecord(b *testing.B, n int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(n), "ns/rec")
}

// BenchmarkCompress is the cost of compressing a batch of 64 KiB, by level.
func BenchmarkCompress(b *testing.B) {
	for _, size := range []int{100, 1024} {
		plain, _ := sampleBatch(size, compress.None)
		payload := plain.Bytes()[HeaderSize:]
		for _, codec := range codecs[1:] {
			lo, hi := codec.Levels()
			for level := range hi + 1 {
				if level < lo && level != 0 || level > 9 {
					continue
				}
				b.Run(fmt.Sprintf("%dB/%v/%d", size, codec, level), func(b *testing.B) {
					var c compress.Compressor
					var out []byte
					b.SetBytes(int64(len(payload)))
					b.ReportAllocs()
					for b.Loop() {
						out, _ = c.Compress(out[:0], codec, level, payload)
					}
					b.ReportMetric(float64(len(out))/float64(len(payload)), "ratio")
				})
			}
		}
	}
}
