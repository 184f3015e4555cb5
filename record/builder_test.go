package record

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// P34: headers keep their order and their doubles, names may be empty, and null
// is told from empty everywhere.
func TestP34BuilderAndReaderKeepNullAndEmptyApart(t *testing.T) {
	want := []kafka.Record{
		{Timestamp: 1000, Key: []byte("k"), Value: []byte("v")},
		{Timestamp: 999, Key: nil, Value: []byte{}},
		{Timestamp: 2000, Key: []byte{}, Value: nil, Headers: []kafka.Header{
			{Key: "a", Value: []byte("1")}, {Key: "a", Value: nil}, {Key: "", Value: []byte{}}, {Key: "b", Value: []byte("2")},
		}},
	}
	var b Builder
	for i, r := range want {
		want[i].Offset, want[i].LeaderEpoch = kafka.Offset(i), -1
		before, size := b.Len(), b.SizeOf(r.Timestamp, r.Key, r.Value, r.Headers)
		if !b.Append(r.Timestamp, r.Key, r.Value, r.Headers) {
			t.Fatal("no room")
		}
		if b.Len() != before+size {
			t.Errorf("record %d took %d bytes, SizeOf says %d", i, b.Len()-before, size)
		}
	}
	wire, _ := b.Seal(Stamp{ProducerID: 7, ProducerEpoch: 1, BaseSequence: 5, Transactional: true}, compress.None, nil, 0, nil)
	batch, rest, err := Next(wire)
	if err != nil || len(rest) != 0 {
		t.Fatal(err, rest)
	}
	got, err := all(batch, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if batch.ProducerID() != 7 || batch.ProducerEpoch() != 1 || batch.BaseSequence() != 5 || batch.LastSequence() != 7 ||
		!batch.Transactional() || batch.Control() || batch.MaxTimestamp() != 2000 || batch.FirstTimestamp() != 1000 {
		t.Errorf("header of %x", wire)
	}
}

// A record lost or damaged by the move makes this fail.
func TestP35ABuilderMovesToALargerBuffer(t *testing.T) {
	var b Builder
	b.Reset(make([]byte, 0, 128))
	b.Append(5, []byte("k"), []byte("first"), nil)
	before := b.Room()
	old := b.Move(make([]byte, 0, 512))
	if cap(old) != 128 || b.Room() != before+512-128 || b.Count() != 1 {
		t.Errorf("old buffer of %d, room %d before and %d after, %d records", cap(old), before, b.Room(), b.Count())
	}
	clear(old[:cap(old)])
	b.Append(6, nil, []byte("second"), nil)
	var same Builder
	same.Append(5, []byte("k"), []byte("first"), nil)
	same.Append(6, nil, []byte("second"), nil)
	got, _ := b.Seal(NoProducer, 0, nil, 0, nil)
	want, _ := same.Seal(NoProducer, 0, nil, 0, nil)
	if string(got) != string(want) {
		t.Errorf("%x\nwant\n%x", got, want)
	}
}
