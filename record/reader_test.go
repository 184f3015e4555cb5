package record

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// F13: the type of a marker is in its key; types that are not known here are no
// error, and an empty control batch has none.
func TestF13MarkersOfJava(t *testing.T) {
	want := map[string]ControlType{
		"control-abort.bin": Abort, "control-commit.bin": Commit, "control-commit-max.bin": Commit,
		"control-commit-future-version.bin": Commit, "control-leader-change.bin": LeaderChange,
		"control-snapshot-header.bin": SnapshotHeader, "control-snapshot-footer.bin": SnapshotFooter,
		"control-kraft-version.bin": KRaftVersion, "control-voters.bin": KRaftVoters,
		"control-unknown-type.bin": 99, "empty-control.bin": NoMarker,
	}
	for _, v := range vectors(t, "records-v2") {
		typ, ok := want[v.File]
		if !ok {
			continue
		}
		delete(want, v.File)
		b, _, err := Next(v.data)
		if err != nil || !b.Control() {
			t.Fatal(v.File, err)
		}
		if got, err := b.Marker(payloadOf(t, b)); err != nil || got != typ {
			t.Errorf("%s: %v (%v), want %v", v.File, got, err, typ)
		}
	}
	if len(want) > 0 {
		t.Errorf("not there: %v", want)
	}
}

// plainRecord is a record without key, value and headers, but with what the
// test puts behind its offset.
func plainRecord(delta byte, tail string) string {
	body := "\x00\x00" + string(rune(delta<<1)) + tail
	return string(rune(len(body)<<1)) + body
}

// F22, F23: records that are wrong in one place, the message that says so, and
// what was read before.
func TestF22_F23WrongRecordsSayWhatIsWrong(t *testing.T) {
	const good = "\x01\x01\x00" // null, null, no headers
	for _, c := range []struct {
		name    string
		payload string
		count   int32
		before  int
		want    string // "" for a good batch
	}{
		{"good", plainRecord(0, good) + plainRecord(1, good), 2, 2, ""},
		{"key length -2", plainRecord(0, "\x03\x01\x00"), 1, 0, "key"},
		{"value length -2", plainRecord(0, "\x01\x03\x00"), 1, 0, "value"},
		{"value length -64", plainRecord(0, "\x01\x7f\x00"), 1, 0, "value"},
		{"key beyond the record", plainRecord(0, "\x08\x01\x00"), 1, 0, "key"},
		{"no header count", plainRecord(0, "\x01\x02x"), 1, 0, "number of headers"},
		{"one header, no bytes", plainRecord(0, "\x01\x01\x02"), 1, 0, "number of headers"},
		{"10 headers, 8 bytes", plainRecord(0, "\x01\x01\x1412345678"), 1, 0, "number of headers"},
		{"-1 headers", plainRecord(0, "\x01\x01\x01"), 1, 0, "number of headers"},
		{"header without name", plainRecord(0, "\x01\x01\x02\x01\x00"), 1, 0, "name of a header"},
		{"header value beyond", plainRecord(0, "\x01\x01\x02\x00\x04x"), 1, 0, "value of a header"},
		{"stray byte in the record", plainRecord(0, good+"x"), 1, 0, "length"},
		{"stray zero in the record", plainRecord(0, good+"\x00"), 1, 0, "length"},
		{"stray byte behind", plainRecord(0, good) + "x", 1, 1, "1 bytes stand behind its 1 records"},
		{"offset twice", plainRecord(0, good) + plainRecord(0, good), 2, 1, "record 2 of 2: its offset"},
		{"offset falls", plainRecord(1, good) + plainRecord(0, good), 2, 1, "record 2 of 2: its offset"},
		{"one too few", plainRecord(0, good), 2, 1, "record 2 of 2: its length"},
		{"none, and none claimed", "", 0, 0, ""},
		{"none, -1 claimed", "", -1, 0, "its record count is -1"},
		{"length -1", "\x01", 1, 0, "record 1 of 1: its length"},
		{"length 0", "\x00", 1, 0, "timestamp"},
	} {
		t.Run(c.name, func(t *testing.T) {
			// What lies behind the payload in memory is not to be read: here it
			// would make a short payload good.
			memory := []byte(c.payload + plainRecord(1, good) + strings.Repeat("\x00", 50))
			b := around([]byte(c.payload), c.count, 0)
			var r Reader
			var rec kafka.Record
			n := 0
			for r.Reset(b, memory[:len(c.payload)]); r.Next(&rec); n++ {
				if rec.Key != nil || rec.Value != nil || rec.Headers != nil {
					t.Errorf("%+v", rec)
				}
			}
			err := r.Err()
			if n != c.before || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("%d records, %v; want %d, %q", n, err, c.before, c.want)
			}
			if room := cap(r.slab); room > slabSize {
				t.Errorf("room for %d headers", room)
			}
			if r.Next(&rec) || r.Err() != err {
				t.Error("it goes on behind the end")
			}
			var e *CorruptError
			if err != nil && (!errors.As(err, &e) || e.Base != b.BaseOffset() || e.Next != b.NextOffset()) {
				t.Errorf("%#v", err)
			}
		})
	}
}

// F22: a key is not read beyond its record, even if the batch goes on there.
func TestF22FieldsEndWithTheirRecord(t *testing.T) {
	long := append([]byte("\x10\x00\x00\x00\x01\x14\x00\x00\x00"), bytes.Repeat([]byte{0}, 300)...)
	var r Reader
	var rec kafka.Record
	r.Reset(around(long, 2, 0), long)
	if r.Next(&rec) || !strings.Contains(r.Err().Error(), "value goes beyond the record") {
		t.Errorf("%+v, %v", rec, r.Err())
	}
}

// F22: a batch that ends in the middle of a record is wrong, whatever lies
// behind it in memory.
func TestF22RecordsEndWithTheirBatch(t *testing.T) {
	memory := []byte(plainRecord(0, "\x01\x01\x00") + plainRecord(1, "\x01\x01\x00"))
	for cut := range len(memory) {
		var r Reader
		var rec kafka.Record
		n := 0
		for r.Reset(around(memory[:cut], 2, 0), memory[:cut]); r.Next(&rec); {
			n++
		}
		if n != cut/7 || r.Err() == nil {
			t.Errorf("%d bytes of %d: %d records, %v", cut, len(memory), n, r.Err())
		}
	}
}

// F16, F23: Next says what is wrong, gives the offsets it can, and the bytes
// behind the wrong batch where their beginning is known.
func TestF16_F23NextOnWrongHeaders(t *testing.T) {
	batch := func(change func(b []byte)) []byte {
		var bld Builder
		bld.Append(1, nil, nil, nil)
		wire, _ := bld.Seal(NoProducer, compress.None, nil, 0, nil)
		change(wire)
		return append(wire, "rest"...)
	}
	for name, c := range map[string]struct {
		change func(b []byte)
		want   string // "" for none
		rest   string
	}{
		"good":            {func([]byte) {}, "", "rest"},
		"length 13":       {func(b []byte) { copy(b[8:], "\x00\x00\x00\x0d") }, "length field is 13", ""},
		"length -1":       {func(b []byte) { copy(b[8:], "\xff\xff\xff\xff") }, "length field is -1", ""},
		"length 48":       {func(b []byte) { copy(b[8:], "\x00\x00\x00\x30") }, "length field is 48", ""},
		"magic 3":         {func(b []byte) { b[posMagic] = 3 }, "message format is 3", ""},
		"magic -1":        {func(b []byte) { b[posMagic] = 255 }, "message format is -1", ""},
		"offset -1":       {func(b []byte) { copy(b, "\xff\xff\xff\xff\xff\xff\xff\xff") }, "negative", "rest"},
		"last delta -1":   {func(b []byte) { copy(b[posLastDelta:], "\xff\xff\xff\xff") }, "last offset delta is -1", "rest"},
		"offset too high": {func(b []byte) { copy(b, "\x7f\xff\xff\xff\xff\xff\xff\xff") }, "2^63-1", "rest"},
	} {
		b, rest, err := Next(batch(c.change))
		if c.want == "" {
			if err != nil || b.IsZero() || string(rest) != c.rest {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		var e *CorruptError
		if !errors.As(err, &e) || e.Next != -1 || !strings.Contains(err.Error(), c.want) || !b.IsZero() || string(rest) != c.rest {
			t.Errorf("%s: %v, rest %q; want %s", name, err, rest, c.want)
		}
	}
}

// F23: a damaged batch is one error that can be told from others and that says
// where to go on.
func TestF21_F23ADamagedBatchSaysWhereToGoOn(t *testing.T) {
	var bld Builder
	for range 3 {
		bld.Append(1, nil, []byte("value"), nil)
	}
	wire, _ := bld.Seal(NoProducer, compress.None, nil, 0, nil)
	for i := posAttributes; i < len(wire); i++ {
		damaged := bytes.Clone(wire)
		damaged[i] ^= 0x10
		b, _, err := Next(damaged)
		if err != nil {
			continue // the offsets
		}
		var e *CorruptError
		if err := b.Verify(); !errors.Is(err, ErrChecksum) || !errors.As(err, &e) || e.Next != b.NextOffset() {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
	b, _, _ := Next(wire)
	if err := b.Verify(); err != nil {
		t.Error(err)
	}
	var over *compress.LimitError
	bld.Reset(nil)
	bld.Append(1, nil, make([]byte, 1000), nil)
	wire, _ = bld.Seal(NoProducer, compress.LZ4, new(compress.Compressor), 0, nil)
	b, _, _ = Next(wire)
	if _, err := b.Payload(new(compress.Decompressor), nil, 100); !errors.As(err, &over) || over.Limit != 100 {
		t.Error(err)
	}
}

// The zero Batch can be asked for what a caller that got one may want to know.
func TestZeroBatch(t *testing.T) {
	var b Batch
	if !b.IsZero() || b.Size() != 0 || b.Bytes() != nil {
		t.Error(b)
	}
}

// F44: a batch's head and its payload are all that a Reader needs, whatever
// becomes of the bytes they came from.
func TestF44AHeadStandsForABatchWhosePayloadIsElsewhere(t *testing.T) {
	for _, codec := range codecs {
		batch, n := sampleBatch(100, codec)
		payload, err := batch.Payload(nil, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		if codec == compress.None {
			payload = bytes.Clone(payload)
		}
		var want, got []kafka.Record
		for rec, r := (kafka.Record{}), readerOf(batch, payload); r.Next(&rec); {
			want = append(want, rec)
		}
		head, size := Head(batch), batch.Size()
		clear(batch.Bytes())
		for rec, r := (kafka.Record{}), readerOf(head, payload); r.Next(&rec); {
			got = append(got, rec)
		}
		if len(want) != n || !reflect.DeepEqual(got, want) || head.Size() != size || head.Codec() != codec {
			t.Errorf("%v: %d of %d records, size %d of %d", codec, len(got), n, head.Size(), size)
		}
	}
	if !Head(Batch{}).IsZero() {
		t.Error("no batch has a head")
	}
}

func readerOf(b Batch, payload []byte) *Reader {
	r := new(Reader)
	r.Reset(b, payload)
	return r
}
