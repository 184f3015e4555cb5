package record

import (
	"testing"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// P35: appending to a batch allocates nothing once its buffer is there.
func TestP35AppendAllocatesNothing(t *testing.T) {
	key, value := []byte("key"), make([]byte, 100)
	headers := []kafka.Header{{Key: "a", Value: []byte("b")}, {Key: "c"}}
	buf := make([]byte, 0, 1<<20)
	var b Builder
	if n := testing.AllocsPerRun(20, func() {
		b.Reset(buf)
		for i := range 1000 {
			b.Append(kafka.Timestamp(i), key, value, headers)
		}
		b.Seal(NoProducer, compress.None, nil, 0, nil)
	}); n != 0 {
		t.Errorf("%v allocations for 1000 records and a seal", n)
	}
}

// F44: walking a batch allocates nothing, whatever the codec; headers take one
// slab for 128 of them, and none once the slab may be used again.
func TestF44ReadAllocatesNothing(t *testing.T) {
	for _, codec := range codecs {
		var b Builder
		for i := range 1000 {
			b.Append(kafka.Timestamp(i), []byte("key"), make([]byte, 100), nil)
		}
		wire, _ := b.Seal(NoProducer, codec, new(compress.Compressor), 0, nil)
		batch, _, err := Next(wire)
		if err != nil {
			t.Fatal(err)
		}
		var d compress.Decompressor
		var r Reader
		var rec kafka.Record
		var buf []byte
		if n := testing.AllocsPerRun(20, func() {
			payload, err := batch.Payload(&d, buf[:0], 0)
			if codec != compress.None {
				buf = payload
			}
			n := 0
			for r.Reset(batch, payload); r.Next(&rec); {
				n++
			}
			if err != nil || r.Err() != nil || n != 1000 {
				t.Fatal(n, err, r.Err())
			}
		}); n > most(codec) {
			t.Errorf("%v: %v allocations for 1000 records", codec, n)
		}
	}
}

// most is the number of allocations that a codec's library may make per batch:
// gzip and zstd keep tables in pools, which forget some under the race detector.
func most(codec compress.Codec) float64 {
	if codec == compress.Gzip || codec == compress.Zstd {
		return 9
	}
	return 0
}

func TestF44HeadersComeFromASlab(t *testing.T) {
	headers := []kafka.Header{{Key: "a", Value: []byte("b")}, {Key: "c"}}
	var b Builder
	for range 640 {
		b.Append(0, nil, nil, headers)
	}
	wire, _ := b.Seal(NoProducer, compress.None, nil, 0, nil)
	batch, _, _ := Next(wire)
	payload, _ := batch.Payload(nil, nil, 0)
	var r Reader
	walk := func() {
		var rec kafka.Record
		n := 0
		for r.Reset(batch, payload); r.Next(&rec); n += len(rec.Headers) {
		}
		if n != 1280 {
			t.Fatal(n, r.Err())
		}
	}
	if n := testing.AllocsPerRun(10, walk); n > 10 {
		t.Errorf("%v allocations for 1280 headers", n)
	}

	// What was handed out stays as it was, until Recycle.
	var first, rec kafka.Record
	r.Reset(batch, payload)
	r.Next(&first)
	for r.Next(&rec) {
	}
	if len(first.Headers) != 2 || first.Headers[0].Key != "a" || first.Headers[1].Key != "c" || cap(first.Headers) != 2 {
		t.Errorf("the headers of the first record have become %v", first.Headers)
	}
	r.Recycle()
	kept := &r.slab[:1][0]
	r.Reset(batch, payload)
	r.Next(&first)
	if &first.Headers[0] != kept {
		t.Error("Recycle does not use the slab again")
	}
}
