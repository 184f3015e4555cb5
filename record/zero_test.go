package record

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// Nil and zero arguments do what the documentation says of them.
func TestZeroAndNilArguments(t *testing.T) {
	value := bytes.Repeat([]byte("ottla "), 100)
	for _, codec := range []compress.Codec{compress.None, compress.Gzip, compress.Snappy, compress.LZ4, compress.Zstd} {
		var b Builder
		b.Append(1, nil, value, nil)
		wire, compressed := b.Seal(NoProducer, codec, nil, 0, nil)
		if compressed != (codec != compress.None) {
			t.Errorf("%v: compressed %v", codec, compressed)
		}
		batch, rest, err := Next(wire)
		if err != nil || len(rest) > 0 || batch.Verify() != nil {
			t.Fatal(codec, err, batch.Verify())
		}
		payload, err := batch.Payload(nil, nil, 0)
		if err != nil {
			t.Fatal(codec, err)
		}
		var r Reader
		var rec kafka.Record
		r.Reset(batch, payload)
		if !r.Next(&rec) || !bytes.Equal(rec.Value, value) || r.Next(&rec) || r.Err() != nil {
			t.Errorf("%v: %q, %v", codec, rec.Value, r.Err())
		}
		r.Reset(Batch{}, payload)
		if r.Next(&rec) || r.Err() != nil {
			t.Errorf("%v: the zero Batch has a record, or an error %v", codec, r.Err())
		}
		r.Reset(batch, nil)
		if r.Next(&rec) || r.Err() == nil {
			t.Errorf("%v: a batch without its payload has a record", codec)
		}
		if _, err := batch.Marker(nil); err == nil {
			t.Errorf("%v: data has a marker", codec)
		}
	}
	var b Builder
	if wire, compressed := b.Seal(NoProducer, compress.Gzip, nil, 0, nil); wire != nil || compressed {
		t.Errorf("an empty batch is %x", wire)
	}
	Restamp(nil, NoProducer)
	if b.Release() != nil || b.Len() != HeaderSize || b.Count() != 0 {
		t.Errorf("the zero Builder has %d bytes, %d records", b.Len(), b.Count())
	}
	var r Reader
	r.Recycle()
	if r.Next(new(kafka.Record)) || r.Err() != nil {
		t.Error("the zero Reader has a record")
	}
	if batch, rest, err := Next(nil); !batch.IsZero() || rest != nil || err != nil {
		t.Errorf("no bytes are %v, %v, %v", batch, rest, err)
	}
}

// A batch that is cut off says how large it is; filler and a few bytes do not.
func TestF17SizeOfABatchThatIsCutOff(t *testing.T) {
	wire := make([]byte, 20)
	binary.BigEndian.PutUint32(wire[8:], 1000)
	filler := bytes.Repeat([]byte{0xff}, 8)
	for want, data := range map[int64][]byte{1012: wire[:12], 0: wire[:11]} {
		if got := SizeOf(data); got != want {
			t.Errorf("%d bytes: size %d, want %d", len(data), got, want)
		}
	}
	if got := SizeOf(append(filler, wire[8:]...)); got != 0 {
		t.Errorf("filler: size %d", got)
	}
}
