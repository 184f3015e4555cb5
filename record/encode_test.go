package record

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// encodeLike encodes recs as the batch that they were read from: offsets with
// gaps, too, which only this test has a use for.
func encodeLike(t *testing.T, from Batch, recs []kafka.Record, codec compress.Codec) []byte {
	t.Helper()
	var b Builder
	b.Reset(make([]byte, 0, 64))
	times := createTimes(t, from)
	for i, r := range recs {
		if !b.appendAt(int32(r.Offset-from.BaseOffset()), times[i], r.Key, r.Value, r.Headers) {
			t.Fatal("no room")
		}
	}
	b.next = lastDelta(from) + 1
	wire, _ := b.Seal(Stamp{from.ProducerID(), from.ProducerEpoch(), from.BaseSequence(), from.Transactional()},
		codec, new(compress.Compressor), 0, nil)
	// What a broker changes: the offset, the leader's epoch, append time.
	binary.BigEndian.PutUint64(wire[posBaseOffset:], uint64(from.BaseOffset()))
	binary.BigEndian.PutUint32(wire[posLeaderEpoch:], uint32(from.LeaderEpoch()))
	if from.TimestampType() == kafka.LogAppendTime {
		wire[posAttributes+1] |= attrAppendTime
		binary.BigEndian.PutUint64(wire[posMaxTime:], uint64(from.MaxTimestamp()))
		stamp(wire, Stamp{from.ProducerID(), from.ProducerEpoch(), from.BaseSequence(), from.Transactional()})
	}
	return wire
}

// createTimes are the times that the producer gave, which a log append time
// hides.
func createTimes(t *testing.T, b Batch) (times []kafka.Timestamp) {
	t.Helper()
	raw := bytes.Clone(b.Bytes())
	raw[posAttributes+1] &^= attrAppendTime
	stamp(raw, Stamp{b.ProducerID(), b.ProducerEpoch(), b.BaseSequence(), b.Transactional()})
	recs, err := all(Batch{raw}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recs {
		times = append(times, r.Timestamp)
	}
	return times
}

// P5, P34: what this package encodes is, byte for byte, what Java's client
// encodes of the same records. Compressed batches are read back instead, since
// no two compressors write the same.
func TestP5_P34EncodesAsJavaDoes(t *testing.T) {
	exact := 0
	for _, v := range vectors(t, "records-v2") {
		t.Run(v.File, func(t *testing.T) {
			for rest := v.data; ; {
				from, more, err := Next(rest)
				if err != nil || from.IsZero() {
					return
				}
				rest = more
				if _, horizon := from.DeleteHorizon(); horizon || from.Control() || from.Count() == 0 {
					continue // not of a producer
				}
				want, err := all(from, 0)
				if err != nil {
					t.Fatal(err)
				}
				if from.FirstTimestamp() != createTimes(t, from)[0] {
					continue // the record that times count from was compacted away
				}
				for _, codec := range []compress.Codec{compress.None, compress.Gzip, compress.Snappy, compress.LZ4, compress.Zstd} {
					wire := encodeLike(t, from, want, codec)
					if codec == compress.None && from.Codec() == compress.None {
						exact++
						if !bytes.Equal(wire, from.Bytes()) {
							t.Errorf("encoded %x, Java %x", wire, from.Bytes())
						}
					}
					got, _, err := Next(wire)
					if err != nil {
						t.Fatal(err)
					}
					recs, err := all(got, 0)
					if err != nil || digest(recs) != digest(want) {
						t.Errorf("%v: %v, or not the same records", codec, err)
					}
					if len(wire) > HeaderSize+len(payloadOf(t, from)) {
						t.Errorf("%v: %d bytes for %d", codec, len(wire), HeaderSize+len(payloadOf(t, from)))
					}
				}
			}
		})
	}
	if exact < 30 {
		t.Errorf("only %d batches were compared", exact)
	}
}

func payloadOf(t *testing.T, b Batch) []byte {
	t.Helper()
	p, err := b.Payload(new(compress.Decompressor), nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// P33: a batch that does not shrink goes uncompressed.
func TestP33ABatchThatDoesNotShrinkStaysUncompressed(t *testing.T) {
	var c compress.Compressor
	for _, codec := range []compress.Codec{compress.Gzip, compress.Snappy, compress.LZ4, compress.Zstd} {
		for _, value := range []string{"x", strings.Repeat("x", 1000)} {
			var b Builder
			b.Append(1, nil, []byte(value), nil)
			plain := b.Len()
			dst := make([]byte, 3, 5)
			wire, compressed := b.Seal(NoProducer, codec, &c, 0, dst)
			got, _, err := Next(wire)
			if err != nil {
				t.Fatal(err)
			}
			if want := len(value) > 1; compressed != want || (got.Codec() != compress.None) != want {
				t.Errorf("%v: %d bytes to %d, compressed %v, codec %v", codec, plain, len(wire), compressed, got.Codec())
			}
			raw := b.Release()
			if aliases := &raw[0] == &wire[0]; aliases == compressed {
				t.Errorf("%v: compressed %v, but the bytes alias the builder's buffer: %v", codec, compressed, aliases)
			}
			recs, err := all(got, 0)
			if err != nil || len(recs) != 1 || string(recs[0].Value) != value {
				t.Errorf("%v: %v, %v", codec, recs, err)
			}
		}
	}
}

// P29: a builder takes nothing beyond its limit, and says before how much a
// record takes.
func TestP29BuilderKeepsItsLimit(t *testing.T) {
	b := Builder{Limit: 200}
	for b.Append(5, []byte("key"), []byte("a value"), nil) {
		if b.Len() > 200 {
			t.Fatalf("%d bytes", b.Len())
		}
	}
	n, count := b.Len(), b.Count()
	if size := b.SizeOf(5, []byte("key"), []byte("a value"), nil); n+size <= 200 || n+size > 200+size {
		t.Errorf("refused %d bytes at %d", size, n)
	}
	if b.Append(5, nil, make([]byte, 300), nil) || b.Len() != n || b.Count() != count {
		t.Error("a refused record changed the batch")
	}
	b.Reset(b.Release())
	if b.Limit != 200 || b.Len() != HeaderSize || b.Count() != 0 {
		t.Errorf("after Reset: %+v", b)
	}
	if b.Append(9, nil, make([]byte, 300), nil) || b.FirstTimestamp() != 0 {
		t.Error("a refused first record left its timestamp")
	}
	if wire, _ := b.Seal(NoProducer, compress.None, nil, 0, nil); wire != nil {
		t.Errorf("an empty builder sealed %x", wire)
	}
}

// P5: after 2^31-1 comes 0.
func TestP5SequencesWrap(t *testing.T) {
	const top = 1<<31 - 1
	for _, c := range []struct{ seq, n, want int32 }{
		{0, 0, 0}, {0, 5, 5}, {top, 0, top}, {top, 1, 0}, {top - 1, 3, 1}, {top, top, top - 1},
	} {
		if got := AddSequence(c.seq, c.n); got != c.want {
			t.Errorf("%d + %d = %d, want %d", c.seq, c.n, got, c.want)
		}
	}
}
