package lead

import (
	"encoding/binary"
	"hash/crc32"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// sealed is a batch of records at an offset. txn < 0 is a plain batch.
func sealed(off kafka.Offset, pid kafka.ProducerID, txn bool, codec compress.Codec, values ...string) []byte {
	var b record.Builder
	b.Reset(nil)
	for _, v := range values {
		b.Append(1, []byte("k"), []byte(v), nil)
	}
	wire, _ := b.Seal(record.Stamp{ProducerID: pid, Transactional: txn}, codec, nil, 0, nil)
	binary.BigEndian.PutUint64(wire, uint64(off))
	return wire
}

// marker is a control batch of one record.
func marker(off kafka.Offset, pid kafka.ProducerID, commit bool) []byte {
	kind := byte(0)
	if commit {
		kind = 1
	}
	var b record.Builder
	b.Reset(nil)
	b.Append(1, []byte{0, 0, 0, kind}, []byte{0, 0, 0, 0, 0, 0}, nil)
	wire, _ := b.Seal(record.Stamp{ProducerID: pid, Transactional: true, BaseSequence: -1}, compress.None, nil, 0, nil)
	binary.BigEndian.PutUint64(wire, uint64(off))
	wire[22] |= 0x20 // attributes: control
	binary.BigEndian.PutUint32(wire[17:], crc32.Checksum(wire[21:], crc32.MakeTable(crc32.Castagnoli)))
	return wire
}

// seen is what a scan gives: the offsets of the records, and where it ended.
func seen(t *testing.T, p kmsg.FetchResponseTopicPartition, at kafka.Offset) ([]kafka.Offset, kafka.Offset, error) {
	t.Helper()
	var s Scanner
	var got []kafka.Offset
	next, err := s.Scan(&p, at, func(e Entry) { got = append(got, e.Offset) })
	return got, next, err
}

func answer(batches ...[]byte) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	for _, b := range batches {
		p.RecordBatches = append(p.RecordBatches, b...)
	}
	return p
}

func TestE2ThePositionComesFromBatchEndsAndAbortedRecordsAreInvisible(t *testing.T) {
	p := answer(
		sealed(10, 1, true, compress.None, "a", "b"), marker(12, 1, true),
		sealed(13, 2, true, compress.Zstd, "c"), sealed(14, 1, true, compress.None, "d"), marker(15, 2, false),
		sealed(16, 2, true, compress.Snappy, "e"), marker(17, 1, false), marker(18, 2, true), sealed(19, 3, false, compress.None, "f"),
	)
	for _, a := range [][2]int64{{2, 13}, {1, 14}} {
		tx := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		tx.ProducerID, tx.FirstOffset = a[0], a[1]
		p.AbortedTransactions = append(p.AbortedTransactions, tx)
	}
	got, next, err := seen(t, p, 10)
	if d := cmp.Diff([]kafka.Offset{10, 11, 16, 19}, got); d != "" || next != 20 || err != nil {
		t.Errorf("%s; next %d, want 20; %v", d, next, err)
	}
	got, next, err = seen(t, p, 11)
	if d := cmp.Diff([]kafka.Offset{11, 16, 19}, got); d != "" || next != 20 || err != nil {
		t.Errorf("from 11: %s; next %d; %v", d, next, err)
	}
	only := answer(sealed(30, 2, true, compress.None, "x"), marker(31, 2, false))
	only.AbortedTransactions = p.AbortedTransactions[:1]
	if got, next, err := seen(t, only, 30); len(got) != 0 || next != 32 || err != nil {
		t.Errorf("an answer of aborted records alone: %v, next %d, %v; the position must move to 32", got, next, err)
	}
	cut := answer(sealed(5, 1, true, compress.None, "a"), sealed(6, 1, true, compress.None, "b")[:40])
	if got, next, err := seen(t, cut, 5); len(got) != 1 || next != 6 || err != nil {
		t.Errorf("a cut tail: %v, next %d, %v", got, next, err)
	}
	bad := sealed(5, 1, true, compress.None, "abc")
	bad[len(bad)-1] ^= 1
	if _, _, err := seen(t, answer(bad), 5); err == nil {
		t.Error("a batch with a wrong checksum is believed")
	}
}

func TestA12TheBatchsOwnPairComesWithEachRecord(t *testing.T) {
	p := answer(sealed(1, 7, true, compress.None, "a"), sealed(2, 8, false, compress.LZ4, "b"))
	var s Scanner
	var got []Entry
	if _, err := s.Scan(&p, 0, func(e Entry) {
		got = append(got, Entry{Offset: e.Offset, Transactional: e.Transactional, Writer: e.Writer})
	}); err != nil {
		t.Fatal(err)
	}
	want := []Entry{{Offset: 1, Transactional: true, Writer: Token{7, 0}}, {Offset: 2, Writer: Token{8, 0}}}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func FuzzScan(f *testing.F) {
	f.Add(append(sealed(10, 1, true, compress.None, "a", "b"), marker(12, 1, false)...), int64(10))
	f.Add(sealed(3, 1, false, compress.Zstd, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), int64(0))
	f.Fuzz(func(t *testing.T, data []byte, at int64) {
		p := kmsg.NewFetchResponseTopicPartition()
		p.RecordBatches = data
		var s Scanner
		next, _ := s.Scan(&p, kafka.Offset(at), func(e Entry) {
			if e.Offset < kafka.Offset(at) {
				t.Errorf("record %d is before %d", e.Offset, at)
			}
			_, _ = DecodeKey(e.Key)
			_, _ = DecodeLease(e.Value)
		})
		if next < kafka.Offset(at) {
			t.Errorf("the position went back from %d to %d", at, next)
		}
	})
}
