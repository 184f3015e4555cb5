package producer

import (
	"context"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// sink is a fakeCluster that acknowledges everything unread, at once.
type sink struct{ *fakeCluster }

func (s sink) produce(_ context.Context, _ kafka.NodeID, req *produceRequest, done func(kmsg.Response, error)) {
	resp := kmsg.NewPtrProduceResponse()
	for _, t := range req.topics {
		out := kmsg.NewProduceResponseTopic()
		out.Topic = t.name
		for _, p := range t.parts {
			ans := kmsg.NewProduceResponseTopicPartition()
			ans.Partition = p.partition
			out.Partitions = append(out.Partitions, ans)
		}
		resp.Topics = append(resp.Topics, out)
	}
	done(resp, nil)
}

// What a record costs the client but for the socket: encoding, partitioning,
// checksum or compression, bookkeeping. With GOMAXPROCS 1 it is all on one core.
func BenchmarkAppend(b *testing.B) {
	for _, size := range []int{100, 1024} {
		for _, codec := range []Compression{Uncompressed, LZ4, Snappy, Zstd} {
			b.Run(fmt.Sprintf("%dB/%v", size, codec), func(b *testing.B) {
				p, err := start(sink{newFake(b, 4)}, Config{Compression: codec})
				if err != nil {
					b.Fatal(err)
				}
				defer p.Close()
				r := kafka.Record{Topic: "t", Value: text1(size)}
				ctx := b.Context()
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := p.Append(ctx, r); err != nil {
						b.Fatal(err)
					}
				}
				if err := p.Flush(ctx); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}

func BenchmarkAppendAll(b *testing.B) {
	for _, keyed := range []bool{false, true} {
		b.Run(fmt.Sprintf("100B/keyed=%v", keyed), func(b *testing.B) {
			p, err := start(sink{newFake(b, 4)}, Config{Compression: Uncompressed})
			if err != nil {
				b.Fatal(err)
			}
			defer p.Close()
			rs := make([]kafka.Record, 500)
			for i := range rs {
				rs[i] = kafka.Record{Topic: "t", Value: text1(100)}
				if keyed {
					rs[i].Key = fmt.Appendf(nil, "key-%d", i)
				}
			}
			var to []Receipt
			ctx := b.Context()
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				if to, err = p.AppendAll(ctx, rs, to[:0]); err != nil {
					b.Fatal(err)
				}
				n += len(rs)
			}
			if err := p.Flush(ctx); err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
		})
	}
}

// text1 is half compressible.
func text1(size int) []byte {
	v := make([]byte, size)
	x := uint32(1)
	for i := range v {
		if i%8 < 4 {
			x = x*1664525 + 1013904223
			v[i] = byte(x >> 24)
		} else {
			v[i] = 'a' + byte(i%8)
		}
	}
	return v
}
