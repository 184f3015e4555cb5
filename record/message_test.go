package record

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// oldMessage is a message of format 0 or 1, as kmsg encodes it, with a right
// checksum.
func oldMessage(magic int8, attributes byte, offset int64, ts kafka.Timestamp, key, value []byte) []byte {
	var m []byte
	if magic == 0 {
		m = (&kmsg.MessageV0{Offset: offset, Attributes: int8(attributes), Key: key, Value: value}).AppendTo(nil)
	} else {
		m = (&kmsg.MessageV1{Offset: offset, Magic: magic, Attributes: int8(attributes), Timestamp: int64(ts), Key: key, Value: value}).AppendTo(nil)
	}
	binary.BigEndian.PutUint32(m[posLength:], uint32(len(m)-lengthEnd))
	mendChecksum(m)
	return m
}

// wrapped is a compressed message of format 1 at offset, around a set.
func wrapped(t testing.TB, magic int8, codec compress.Codec, offset int64, set []byte) []byte {
	t.Helper()
	value, err := new(compress.Compressor).Compress(nil, codec, 0, set)
	if err != nil {
		t.Fatal(err)
	}
	return oldMessage(magic, byte(codec), offset, 5000, nil, value)
}

// offsetsOf are the offsets in the one batch that wire is.
func offsetsOf(t *testing.T, wire []byte) (offsets []kafka.Offset, err error) {
	t.Helper()
	b, rest, err := Next(wire)
	if err != nil || b.IsZero() || len(rest) > 0 {
		t.Fatalf("%v, %d bytes behind", err, len(rest))
	}
	recs, err := all(b, 0)
	for i := range recs {
		offsets = append(offsets, recs[i].Offset)
	}
	return offsets, err
}

// B178, F18: offsets within a compressed message count from its first message
// in format 1, and are those of the log in format 0. Mutation: take them as they
// stand in both.
func TestB178OffsetsWithinACompressedMessage(t *testing.T) {
	want := []kafka.Offset{772034, 772036, 772043}
	for magic, inside := range [][]int64{{772034, 772036, 772043}, {0, 2, 9}} {
		var set []byte
		for _, o := range inside {
			set = append(set, oldMessage(int8(magic), 0, o, 1, nil, []byte("v"))...)
		}
		for _, codec := range []compress.Codec{compress.Gzip, compress.Snappy, compress.LZ4} {
			got, err := offsetsOf(t, wrapped(t, int8(magic), codec, 772043, set))
			if err != nil || len(got) != 3 || got[0] != want[0] || got[1] != want[1] || got[2] != want[2] {
				t.Errorf("format %d, %v: %v, %v", magic, codec, got, err)
			}
		}
	}
}

// B179: one level of compression is opened. A compressed message within is an
// error with the offset behind it, whatever stands before it.
func TestB179AMessageSetCompressedTwiceIsAnError(t *testing.T) {
	for magic := range int8(2) {
		var set []byte
		for o := range int64(3) {
			set = append(set, oldMessage(magic, 0, o, 1, nil, []byte("v"))...)
		}
		inner := wrapped(t, magic, compress.Gzip, 2, set)
		got, err := offsetsOf(t, wrapped(t, magic, compress.Gzip, 2, inner))
		var c *CorruptError
		if !errors.As(err, &c) || c.Next != 3 || len(got) != 0 || !strings.Contains(c.What, "compressed again") {
			t.Errorf("format %d: %v, %v", magic, got, err)
		}
	}
}

// F18, F19: with log append time the time of the message around is that of all
// within, and an uncompressed message has its own; format 0 has none.
func TestF19_F18TimesOfMessages(t *testing.T) {
	v1 := oldMessage(1, 0, 0, 111, nil, []byte("v"))
	v0 := oldMessage(0, 0, 0, 0, nil, []byte("v"))
	appended := wrapped(t, 1, compress.Gzip, 9, v1)
	appended[posOldAttributes] |= attrAppendTime
	mendChecksum(appended)
	single := oldMessage(1, attrAppendTime, 9, 222, nil, nil)
	for _, c := range []struct {
		name string
		wire []byte
		ts   kafka.Timestamp
		kind kafka.TimestampType
	}{
		{"created", wrapped(t, 1, compress.Gzip, 9, v1), 111, kafka.CreateTime},
		{"appended", appended, 5000, kafka.LogAppendTime},
		{"appended, one message", single, 222, kafka.LogAppendTime},
		{"format 0", wrapped(t, 0, compress.Gzip, 0, v0), kafka.NoTimestamp, kafka.NoTimeType},
	} {
		b, _, err := Next(c.wire)
		if err != nil {
			t.Fatal(err)
		}
		recs, err := all(b, 0)
		if err != nil || len(recs) != 1 || recs[0].Timestamp != c.ts || recs[0].TimestampType != c.kind {
			t.Errorf("%s: %+v, %v", c.name, recs, err)
		}
	}
}

// F21: the checksum of a message within is checked too, and the error says so:
// the message around it may have been made from damaged ones.
func TestF21DamageWithinACompressedMessage(t *testing.T) {
	set := append(oldMessage(1, 0, 0, 1, nil, []byte("good")), oldMessage(1, 0, 1, 1, nil, []byte("damaged"))...)
	set[len(set)-1] ^= 1
	got, err := offsetsOf(t, wrapped(t, 1, compress.Gzip, 41, set))
	var c *CorruptError
	if !errors.Is(err, ErrChecksum) || !errors.As(err, &c) || c.Next != 42 || len(got) != 1 || got[0] != 40 {
		t.Errorf("%v, %v", got, err)
	}
}

// F18, F22: offsets that do not fit the message around them, or that would wrap.
func TestF18_F22OffsetsThatDoNotFitTheMessageAroundThem(t *testing.T) {
	message := func(o int64) []byte { return oldMessage(1, 0, o, 1, nil, nil) }
	for name, c := range map[string]struct {
		offset int64
		set    []byte
	}{
		"more within than before":  {2, append(message(0), message(3)...)},
		"a last one below 0":       {2, append(message(-5), message(-1)...)},
		"the greatest, then small": {math.MaxInt64 - 1, append(message(math.MaxInt64), message(1)...)},
		"the least":                {math.MaxInt64 - 1, append(message(math.MinInt64), message(1)...)},
		"twice":                    {2, append(message(1), message(1)...)},
		"none":                     {2, nil},
	} {
		got, err := offsetsOf(t, wrapped(t, 1, compress.Snappy, c.offset, c.set))
		var ce *CorruptError
		if !errors.As(err, &ce) || len(got) > 1 {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// F16: what a broker fills an answer up with behind converted messages is the
// end of the data: an offset of -1, a length beyond the rest, zeros.
func TestF16FillerBehindConvertedMessagesIsACutTail(t *testing.T) {
	filler := make([]byte, 60)
	binary.BigEndian.PutUint64(filler, math.MaxUint64)
	binary.BigEndian.PutUint32(filler[posLength:], 49)
	for n := lengthEnd; n <= len(filler); n++ {
		_, rest, err := Next(append(oldMessage(1, 0, 7, 1, nil, nil), filler[:n]...))
		if err != nil || len(rest) != n {
			t.Fatal(err)
		}
		if b, _, err := Next(rest); err != nil || !b.IsZero() {
			t.Errorf("%d bytes of filler: %v", n, err)
		}
	}
}

// F22: message sets of any bytes within a compressed message: rising offsets
// within the message's, as many records as CountIn says, typed errors, and the
// fields that kmsg reads.
func FuzzMessages(f *testing.F) {
	seeds(f, func(data []byte) {
		for b, rest, err := Next(data); err == nil && !b.IsZero(); b, rest, err = Next(rest) {
			if p, err := b.Payload(nil, nil, 1<<20); err == nil && b.old() {
				f.Add(p, b.Magic(), int64(b.LastOffset()), b.has(attrAppendTime))
			}
		}
	})
	f.Fuzz(func(t *testing.T, set []byte, magic int8, offset int64, appendTime bool) {
		attributes := byte(compress.Gzip)
		if appendTime {
			attributes |= attrAppendTime
		}
		b, _, err := Next(oldMessage(magic&1, attributes, max(offset, 0), 5000, nil, nil))
		if err != nil {
			return // at 2^63-1
		}
		set = bytes.Clone(set)
		for rest := set; len(rest) > 0; { // or damaged checksums hide everything
			m, more, what := nextMessage(rest)
			if what != "" {
				break
			}
			mendChecksum(m)
			rest = more
		}
		var r Reader
		var recs []kafka.Record
		r.Reset(b, set)
		for rec := (kafka.Record{}); r.Next(&rec); {
			recs = append(recs, rec)
		}
		if r.Err() != nil {
			typed(t, r.Err())
		} else if len(recs) != b.CountIn(set) || len(recs) == 0 || recs[len(recs)-1].Offset > b.LastOffset() {
			t.Fatalf("%d records up to %d, %d counted", len(recs), recs[len(recs)-1].Offset, b.CountIn(set))
		}
		last := kafka.Offset(-1)
		for _, rec := range recs {
			if rec.Offset <= last || rec.Offset > b.LastOffset() {
				t.Fatalf("offset %d behind %d", rec.Offset, last)
			}
			m, rest, _ := nextMessage(set)
			asKmsgMessage(t, m, rec)
			last, set = rec.Offset, rest
		}
	})
}

// asKmsgMessage compares a record with what kmsg reads from its message.
func asKmsgMessage(t *testing.T, m []byte, got kafka.Record) {
	t.Helper()
	var v0 kmsg.MessageV0
	var v1 kmsg.MessageV1
	if m[posMagic] == 0 {
		if err := v0.ReadFrom(m); err != nil {
			t.Fatal(err)
		}
		v1.Timestamp, v1.Key, v1.Value = -1, v0.Key, v0.Value
	} else if err := v1.ReadFrom(m); err != nil {
		t.Fatal(err)
	}
	if got.TimestampType == kafka.LogAppendTime {
		v1.Timestamp = 5000
	}
	if !bytes.Equal(got.Key, v1.Key) || !bytes.Equal(got.Value, v1.Value) || int64(got.Timestamp) != v1.Timestamp ||
		(got.Key == nil) != (v1.Key == nil) || (got.Value == nil) != (v1.Value == nil) {
		t.Fatalf("%+v, kmsg reads %+v", got, v1)
	}
}
