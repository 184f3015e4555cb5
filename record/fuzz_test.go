package record

import (
	"bytes"
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// seeds calls add with every small file of the vectors.
func seeds(f *testing.F, add func([]byte)) {
	for _, folder := range []string{"records-v2", "records-legacy", "hostile", "codecs"} {
		for _, v := range vectors(f, folder) {
			if len(v.data) <= 2500 {
				add(v.data)
			}
		}
	}
}

// F16, F22, F23: whatever the bytes, splitting and reading them ends, moves
// forward, and fails with typed errors only.
func FuzzNext(f *testing.F) {
	seeds(f, func(data []byte) { f.Add(data, false); f.Add(data, true) })
	f.Fuzz(func(t *testing.T, data []byte, mend bool) {
		rest := bytes.Clone(data)
		for {
			b, more, err := Next(rest)
			if err != nil {
				typed(t, err)
			}
			if b.IsZero() {
				return
			}
			if b.Size() < 26 || b.Size()+len(more) != len(rest) || b.NextOffset() <= b.BaseOffset() || b.BaseOffset() < 0 && !b.wrapper() {
				t.Fatalf("batch of %d bytes at offsets %d to %d", b.Size(), b.BaseOffset(), b.NextOffset())
			}
			if mend { // or a damaged checksum hides everything behind it
				mendChecksum(b.b)
			}
			recs, err := all(b, 1<<20)
			if err != nil {
				typed(t, err)
			}
			rising(t, b, recs)
			rest = more
		}
	})
}

// mendChecksum makes the checksum of a batch the right one.
func mendChecksum(wire []byte) {
	if (Batch{wire}).old() {
		binary.BigEndian.PutUint32(wire[posOldCRC:], oldChecksum(wire))
		return
	}
	binary.BigEndian.PutUint32(wire[posCRC:], checksum(wire))
}

// rising fails unless the offsets of recs rise within the batch.
func rising(t *testing.T, b Batch, recs []kafka.Record) {
	t.Helper()
	last := b.BaseOffset() - 1
	for _, r := range recs {
		if r.Offset <= last || r.Offset > b.LastOffset() {
			t.Fatalf("offset %d behind %d in a batch of %d to %d", r.Offset, last, b.BaseOffset(), b.LastOffset())
		}
		last = r.Offset
	}
	if n := b.Count(); len(recs) > max(n, 0) && !b.wrapper() {
		t.Fatalf("%d records, the batch claims %d", len(recs), n)
	}
}

// around is a batch whose records are payload.
func around(payload []byte, count int32, attributes byte) Batch {
	wire := append(make([]byte, HeaderSize), payload...)
	var b Builder
	b.count, b.next, b.base, b.max = count, math.MaxInt32, 1000, 2000
	b.putHeader(wire, int16(attributes))
	stamp(wire, NoProducer)
	return Batch{wire}
}

// F22: the reader of records on any bytes: what it takes, kmsg's reader takes
// as the same records, and its short way takes what its long way takes.
func FuzzReader(f *testing.F) {
	seeds(f, func(data []byte) {
		for b, rest, err := Next(data); err == nil && !b.IsZero() && !b.old(); b, rest, err = Next(rest) {
			if p, err := b.Payload(new(compress.Decompressor), nil, 1<<20); err == nil && len(p) < 5000 {
				f.Add(p, int32At(b.b, posCount), b.has(attrAppendTime))
			}
		}
	})
	f.Fuzz(func(t *testing.T, payload []byte, count int32, appendTime bool) {
		var attributes byte
		if appendTime {
			attributes = attrAppendTime
		}
		b := around(payload, count, attributes)
		var short, long Reader
		short.Reset(b, payload)
		long.Reset(b, payload)
		for at := 0; ; {
			var r, l kafka.Record
			ok := short.Next(&r)
			l.TimestampType, l.LeaderEpoch = b.TimestampType(), b.LeaderEpoch()
			var longOK bool
			if l.Key, l.Value, l.Offset, l.Timestamp, longOK = long.readLong(); longOK != ok {
				t.Fatalf("the long way says %v: %v", !ok, long.err)
			}
			l.Headers = long.Headers()
			if !ok {
				break
			}
			if !same(r, l) {
				t.Fatalf("%+v, the long way reads %+v", r, l)
			}
			asKmsg(t, payload[at:short.pos], b, r)
			at = short.pos
		}
		if (short.Err() == nil) != (long.Err() == nil) || short.Err() != nil && short.Err().Error() != long.Err().Error() {
			t.Fatalf("%v, the long way says %v", short.Err(), long.Err())
		}
		if short.Err() != nil {
			typed(t, short.Err())
		}
		var check Reader
		check.Reset(b, payload)
		if err := check.Check(); (err == nil) != (short.Err() == nil) || err != nil && err.Error() != short.Err().Error() {
			t.Fatalf("%v, Check says %v", short.Err(), err)
		}
		if room := cap(short.slab); room > slabSize && room > len(payload) {
			t.Fatalf("a slab for %d headers, from %d bytes", room, len(payload))
		}
	})
}

// asKmsg compares a record with what kmsg reads from the same bytes. kmsg
// refuses some varints that Java takes.
func asKmsg(t *testing.T, wire []byte, b Batch, got kafka.Record) {
	t.Helper()
	var k kmsg.Record
	if err := k.ReadFrom(wire); err != nil {
		return
	}
	if want := fromKmsg(k, b); !same(got, want) {
		t.Fatalf("%+v, kmsg reads %+v", got, want)
	}
}

// same compares two records; null is not empty.
func same(a, b kafka.Record) bool {
	field := func(x, y []byte) bool { return (x == nil) == (y == nil) && bytes.Equal(x, y) }
	header := func(x, y kafka.Header) bool { return x.Key == y.Key && field(x.Value, y.Value) }
	return a.Offset == b.Offset && a.Timestamp == b.Timestamp && a.TimestampType == b.TimestampType &&
		a.LeaderEpoch == b.LeaderEpoch && field(a.Key, b.Key) && field(a.Value, b.Value) &&
		slices.EqualFunc(a.Headers, b.Headers, header)
}

func fromKmsg(k kmsg.Record, b Batch) kafka.Record {
	r := kafka.Record{
		Offset: b.BaseOffset() + kafka.Offset(k.OffsetDelta), LeaderEpoch: b.LeaderEpoch(), TimestampType: b.TimestampType(),
		Timestamp: b.FirstTimestamp() + kafka.Timestamp(k.TimestampDelta64), Key: k.Key, Value: k.Value,
	}
	if r.TimestampType == kafka.LogAppendTime {
		r.Timestamp = b.MaxTimestamp()
	}
	for _, h := range k.Headers {
		r.Headers = append(r.Headers, kafka.Header{Key: h.Key, Value: h.Value})
	}
	return r
}

// F13, F22: a marker read from any bytes.
func FuzzMarker(f *testing.F) {
	for _, folder := range []string{"records-v2", "hostile"} {
		for _, v := range vectors(f, folder) {
			if b, _, err := Next(v.data); err == nil && !b.IsZero() && b.Control() {
				f.Add(b.b[HeaderSize:], int32At(b.b, posCount))
			}
		}
	}
	f.Fuzz(func(t *testing.T, payload []byte, count int32) {
		typ, err := around(payload, count, attrControl).Marker(payload)
		if err != nil {
			typed(t, err)
		}
		if err != nil && typ != NoMarker {
			t.Errorf("%v and %v", typ, err)
		}
		if _, err := around(payload, count, 0).Marker(payload); err == nil {
			t.Error("a marker from a data batch")
		}
	})
}

// headersGen draws headers, nil as often as not.
func headersGen(t *rapid.T) (hs []kafka.Header) {
	for range rapid.SampledFrom([]int{0, 0, 0, 1, 2, 5, 70}).Draw(t, "headers") {
		hs = append(hs, kafka.Header{Key: rapid.StringN(0, 3, -1).Draw(t, "name"), Value: bytesGen(t)})
	}
	return hs
}

// bytesGen draws null, nothing, or bytes whose length is near a step of varints.
func bytesGen(t *rapid.T) []byte {
	n := rapid.SampledFrom([]int{-1, 0, 1, 2, 62, 63, 64, 65, 300, 8191, 8192}).Draw(t, "size")
	if n < 0 {
		return nil
	}
	return bytes.Repeat([]byte{rapid.Byte().Draw(t, "byte")}, n)
}

// P34, differential: records that this package writes, kmsg reads as they were;
// and records that kmsg writes, this package reads.
func TestP34SameRecordsAsKmsg(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var b Builder
		var want []kafka.Record
		var foreign []byte
		n := rapid.IntRange(1, 5).Draw(t, "records")
		for i := range n {
			r := kafka.Record{
				Offset: kafka.Offset(i), LeaderEpoch: -1, Key: bytesGen(t), Value: bytesGen(t), Headers: headersGen(t),
				Timestamp: kafka.Timestamp(rapid.Int64().Draw(t, "time")),
			}
			want = append(want, r)
			before, size := b.Len(), b.SizeOf(r.Timestamp, r.Key, r.Value, r.Headers)
			if !b.Append(r.Timestamp, r.Key, r.Value, r.Headers) || b.Len() != before+size {
				t.Fatalf("record of %d bytes took %d", size, b.Len()-before)
			}
			foreign = appendKmsg(foreign, r, want[0].Timestamp)
		}
		codec := rapid.SampledFrom(codecs).Draw(t, "codec")
		wire, _ := b.Seal(NoProducer, codec, new(compress.Compressor), 0, nil)
		batch, rest, err := Next(wire)
		if err != nil || len(rest) > 0 {
			t.Fatal(err)
		}
		got, err := all(batch, 0)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.EqualFunc(want, got, same) {
			t.Fatalf("%+v, want %+v", got, want)
		}
		payload, err := batch.Payload(new(compress.Decompressor), nil, 0)
		if err != nil || !bytes.Equal(payload, foreign) {
			t.Fatalf("%x, kmsg writes %x: %v", payload, foreign, err)
		}
		var kb kmsg.RecordBatch
		if err := kb.ReadFrom(wire); err != nil || kb.NumRecords != int32(n) || uint32(kb.CRC) != batch.CRC() {
			t.Fatalf("%+v: %v", kb, err)
		}
	})
}

// appendKmsg encodes r as kmsg does.
func appendKmsg(dst []byte, r kafka.Record, first kafka.Timestamp) []byte {
	k := kmsg.Record{TimestampDelta64: int64(r.Timestamp - first), OffsetDelta: int32(r.Offset), Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
	}
	k.Length = int32(len(k.AppendTo(nil)) - 1)
	return k.AppendTo(dst)
}
