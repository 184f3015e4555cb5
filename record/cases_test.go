package record

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// readPayload reads a payload with a count and says what was read before an
// error. The error is a CorruptError or nil.
func readPayload(t *testing.T, payload string, count int32) (recs []kafka.Record, err error) {
	t.Helper()
	var r Reader
	r.Reset(around([]byte(payload), count, 0), []byte(payload))
	for rec := (kafka.Record{}); r.Next(&rec); {
		recs = append(recs, rec)
	}
	if r.Err() != nil {
		typed(t, r.Err())
	}
	return recs, r.Err()
}

// B170: the count of a batch is checked against its bytes: too many, too few,
// negative and absurd ones are errors. Records that were read before the error
// have been given out; a consumer checks a batch as a whole first.
func TestB170RecordCountsAgainstTheBytesThere(t *testing.T) {
	const three, five = 3, 5
	payload := func(n int) (p string) {
		for i := range n {
			p += plainRecord(byte(i), "\x01\x01\x00")
		}
		return p
	}
	for _, c := range []struct {
		count   int32
		present int
		read    int
	}{
		{-1, three, 0}, {math.MinInt32, three, 0}, {math.MaxInt32, three, three}, {five, three, three}, {three, five, three},
		{1, 0, 0}, {0, three, 0},
	} {
		recs, err := readPayload(t, payload(c.present), c.count)
		if err == nil || len(recs) != c.read {
			t.Errorf("count %d, %d there: %d read, %v", c.count, c.present, len(recs), err)
		}
	}
}

// B172: a varint longer than its width is an error wherever it stands; the
// length of a record is binding, spare bytes within it are an error.
func TestB172VarintsThatAreTooLongAndLengthsThatDoNotFit(t *testing.T) {
	long32, long64 := strings.Repeat("\xff", 5)+"\x00", strings.Repeat("\xff", 10)+"\x00"
	record := func(body string) string { return string(rune(len(body)<<1)) + body }
	for name, payload := range map[string]string{
		"length":          long32 + strings.Repeat("\x00", 40),
		"timestamp":       record("\x00" + long64 + "\x00\x01\x01\x00"),
		"timestamp of 11": record("\x00" + strings.Repeat("\xff", 11)),
		"offset":          record("\x00\x00" + long32 + "\x01\x01\x00"),
		"key length":      record("\x00\x00\x00" + long32 + "\x01\x00"),
		"value length":    record("\x00\x00\x00\x01" + long32 + "\x00"),
		"header count":    record("\x00\x00\x00\x01\x01" + long32),
		"header name":     record("\x00\x00\x00\x01\x01\x02" + long32),
		"header value":    record("\x00\x00\x00\x01\x01\x02\x00" + long32),
		"a byte spare":    record("\x00\x00\x00\x01\x01\x00\x00"),
		"a byte short":    "\x0a\x00\x00\x00\x01\x01" + "\x00",
	} {
		if recs, err := readPayload(t, payload, 1); err == nil || len(recs) != 0 {
			t.Errorf("%s: %d records, %v", name, len(recs), err)
		}
	}
	// The header count is a varint: 100 of them take two bytes.
	many := "\x00\x00\x00\x01\x01\xc8\x01" + strings.Repeat("\x00\x01", 100)
	recs, err := readPayload(t, "\x9e\x03"+many, 1)
	if err != nil || len(recs) != 1 || len(recs[0].Headers) != 100 {
		t.Errorf("100 headers: %d records, %v", len(recs), err)
	}
}

// B173: header counts that cannot be are errors and reserve nothing; 10,000
// headers come back, in order.
func TestB173HeaderCounts(t *testing.T) {
	for name, tail := range map[string]string{
		"-1 headers":    "\x01\x01\x01",
		"2^31-1":        "\x01\x01\xfe\xff\xff\xff\x0f",
		"no name":       "\x01\x01\x02\x01\x01",
		"no second one": "\x01\x01\x04\x00\x01",
	} {
		if recs, err := readPayload(t, plainRecord(0, tail), 1); err == nil || len(recs) != 0 {
			t.Errorf("%s: %d records, %v", name, len(recs), err)
		}
	}
	var want []kafka.Header
	for i := range 10_000 {
		want = append(want, kafka.Header{Key: fmt.Sprint(i % 100), Value: []byte(fmt.Sprint(i))})
	}
	for _, codec := range codecs {
		var b Builder
		b.Append(1, nil, nil, want)
		wire, _ := b.Seal(NoProducer, codec, nil, 0, nil)
		batch, _, err := Next(wire)
		if err != nil {
			t.Fatal(err)
		}
		recs, err := all(batch, 0)
		if err != nil || len(recs) != 1 || len(recs[0].Headers) != len(want) {
			t.Fatalf("%v: %v", codec, err)
		}
		for i, h := range recs[0].Headers {
			if h.Key != want[i].Key || !bytes.Equal(h.Value, want[i].Value) {
				t.Fatalf("%v: header %d is %v", codec, i, h)
			}
		}
	}
}

// B176: times of 64 bits, before 1970 and before the batch's first, both ways.
func TestB176TimesOfMoreThan32BitsAndNegativeOnes(t *testing.T) {
	for _, first := range []kafka.Timestamp{0, -1, -2_000_000_000_000, 1_700_000_000_000} {
		for _, delta := range []kafka.Timestamp{0, 1<<31 + 1, 1 << 40, -5, -1 << 40} {
			var b Builder
			b.Append(first, nil, nil, nil)
			b.Append(first+delta, nil, nil, nil)
			wire, _ := b.Seal(NoProducer, compress.None, nil, 0, nil)
			batch, _, err := Next(wire)
			if err != nil {
				t.Fatal(err)
			}
			recs, err := all(batch, 0)
			if err != nil || len(recs) != 2 || recs[0].Timestamp != first || recs[1].Timestamp != first+delta {
				t.Errorf("%d, then %d more: %+v, %v", first, delta, recs, err)
			}
			if batch.FirstTimestamp() != first || batch.MaxTimestamp() != max(first, first+delta) {
				t.Errorf("%d, then %d more: %d to %d", first, delta, batch.FirstTimestamp(), batch.MaxTimestamp())
			}
		}
	}
}

// B175, F19: the time of the broker is that of all records, also where the batch
// has no first time.
func TestB175LogAppendTimeIsTheTimeOfEveryRecord(t *testing.T) {
	var b Builder
	for i := range 5 {
		b.Append(kafka.Timestamp(i-1)*3_600_000, nil, nil, nil)
	}
	wire, _ := b.Seal(NoProducer, compress.Zstd, nil, 0, nil)
	wire[posAttributes+1] |= attrAppendTime
	copy(wire[posBaseTime:], "\xff\xff\xff\xff\xff\xff\xff\xff")
	copy(wire[posMaxTime:], "\x00\x00\x00\x00\x00\x00\x30\x39")
	mendChecksum(wire)
	batch, _, err := Next(wire)
	if err != nil {
		t.Fatal(err)
	}
	recs, err := all(batch, 0)
	if err != nil || len(recs) != 5 {
		t.Fatal(len(recs), err)
	}
	for _, r := range recs {
		if r.Timestamp != 12345 || r.TimestampType != kafka.LogAppendTime {
			t.Errorf("%d %v", r.Timestamp, r.TimestampType)
		}
	}
}

// B169: a payload in a buffer that was used before has the records of the batch
// and nothing else, behind an error too.
func TestB169PayloadsInBuffersThatWereUsed(t *testing.T) {
	var d compress.Decompressor
	var buf []byte
	var over *compress.LimitError
	for n := range 200 {
		codec := codecs[n%len(codecs)]
		var b Builder
		for i := range n%7 + 1 {
			b.Append(kafka.Timestamp(i), nil, bytes.Repeat([]byte{byte(n)}, (n*37)%900), nil)
		}
		want := bytes.Clone(b.buf[HeaderSize:b.n])
		wire, _ := b.Seal(NoProducer, codec, nil, 0, nil)
		batch, _, err := Next(wire)
		if err != nil {
			t.Fatal(err)
		}
		if len(want) > 8 && batch.Codec() != compress.None {
			if _, err := batch.Payload(&d, buf[:0], len(want)-1); !errors.As(err, &over) {
				t.Fatal(err)
			}
		}
		got, err := batch.Payload(&d, buf[:0], 0)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%v, batch %d: %d bytes, %v", codec, n, len(got), err)
		}
		if batch.Codec() != compress.None {
			buf = got
			for i := range buf[:cap(buf)] {
				buf[:cap(buf)][i] = 0xaa
			}
		}
	}
}
