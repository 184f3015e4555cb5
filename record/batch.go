package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// Places of the fields in the header of a batch. What stands before posCRC's
// end is not covered by the checksum.
const (
	posBaseOffset    = 0
	posLength        = 8
	posLeaderEpoch   = 12
	posMagic         = 16
	posCRC           = 17
	posAttributes    = 21
	posLastDelta     = 23
	posBaseTime      = 27
	posMaxTime       = 35
	posProducerID    = 43
	posProducerEpoch = 51
	posBaseSequence  = 53
	posCount         = 57

	// HeaderSize is the size of a batch's header, and so of an empty batch.
	HeaderSize = 61

	lengthEnd = posLength + 4 // the length field counts what follows it
	magicEnd  = posMagic + 1
	minLength = 14 // the smallest length field of any message format

	attrCodec         = 0x07
	attrAppendTime    = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrHorizon       = 0x40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Batch is a view of the bytes of one record batch. It is a value; it keeps
// the bytes it came from alive and never writes to them. The zero Batch is none:
// only IsZero, Size and Bytes may be called on it, and a Reader finds no record.
type Batch struct{ b []byte }

// Next takes the first batch off data, which are records as a Fetch answer
// holds them, and returns it with the bytes after it.
//
// A zero Batch without an error is the end of the data: nothing is left, or a
// batch that the broker cut off at its byte limit. A batch that is present and
// wrong is a [*CorruptError], and one of message format 0 or 1 a
// [*FormatError]; rest then begins after the wrong batch, and is nil where its
// end is not known. Next looks at the header only: see [Batch.Verify].
func Next(data []byte) (b Batch, rest []byte, err error) {
	if len(data) < lengthEnd {
		return Batch{}, nil, nil
	}
	length := int32(binary.BigEndian.Uint32(data[posLength:]))
	if length < minLength {
		return Batch{}, nil, headerError(data, fmt.Sprintf("its length field is %d", length))
	}
	if len(data) < magicEnd {
		return Batch{}, nil, nil
	}
	magic := int8(data[posMagic])
	if magic < 0 || magic > 2 {
		return Batch{}, nil, headerError(data, fmt.Sprintf("its message format is %d", magic))
	}
	if magic == 2 && length < HeaderSize-lengthEnd {
		return Batch{}, nil, headerError(data, fmt.Sprintf("its length field is %d, less than a header", length))
	}
	size := int64(length) + lengthEnd
	if size > int64(len(data)) {
		return Batch{}, nil, nil
	}
	b, rest = Batch{data[:size:size]}, data[size:]
	if magic < 2 {
		return Batch{}, rest, &FormatError{Magic: magic, Offset: b.BaseOffset()}
	}
	if what := b.wrongOffsets(); what != "" {
		return Batch{}, rest, headerError(data, what)
	}
	return b, rest, nil
}

func headerError(data []byte, what string) error {
	base := kafka.Offset(binary.BigEndian.Uint64(data[posBaseOffset:]))
	return &CorruptError{Base: base, Next: -1, What: what}
}

// wrongOffsets says what is wrong with the offsets that the header claims. A
// position could never move on over a batch that ends before it begins.
func (b Batch) wrongOffsets() string {
	base, delta := int64(b.BaseOffset()), int64(b.lastDelta())
	switch {
	case base < 0:
		return "its offset is negative"
	case delta < 0:
		return fmt.Sprintf("its last offset delta is %d", delta)
	case base > math.MaxInt64-1-delta:
		return "its offsets go beyond 2^63-1"
	}
	return ""
}

// corrupt is the error for what is wrong with b.
func (b Batch) corrupt(what string, err error) error {
	return &CorruptError{Base: b.BaseOffset(), Next: b.NextOffset(), What: what, Err: err}
}

func (b Batch) i16(at int) int16 { return int16(binary.BigEndian.Uint16(b.b[at:])) }
func (b Batch) i32(at int) int32 { return int32(binary.BigEndian.Uint32(b.b[at:])) }
func (b Batch) i64(at int) int64 { return int64(binary.BigEndian.Uint64(b.b[at:])) }

func (b Batch) has(attr byte) bool { return b.b[posAttributes+1]&attr != 0 }
func (b Batch) lastDelta() int32   { return b.i32(posLastDelta) }

// IsZero reports whether b is no batch.
func (b Batch) IsZero() bool { return len(b.b) == 0 }

// Size is the number of bytes of the whole batch as it is on the wire.
func (b Batch) Size() int { return len(b.b) }

// Bytes is the whole batch. Do not write to it.
func (b Batch) Bytes() []byte { return b.b }

// BaseOffset is the first offset of the batch; its first record may have been
// removed by compaction.
func (b Batch) BaseOffset() kafka.Offset { return kafka.Offset(b.i64(posBaseOffset)) }

// LastOffset is the last offset of the batch, whether or not a record is there.
func (b Batch) LastOffset() kafka.Offset { return b.BaseOffset() + kafka.Offset(b.lastDelta()) }

// NextOffset is where reading goes on after the batch, even if compaction
// removed its last records or all of them.
func (b Batch) NextOffset() kafka.Offset { return b.LastOffset() + 1 }

// LeaderEpoch is the epoch of the leader that appended the batch. The checksum
// does not cover it.
func (b Batch) LeaderEpoch() kafka.LeaderEpoch { return kafka.LeaderEpoch(b.i32(posLeaderEpoch)) }

// Count is the number of records that the batch claims to hold. It is not
// checked before the records have been read: allocate nothing by it.
func (b Batch) Count() int { return int(b.i32(posCount)) }

// Codec is how the records are compressed. It may be one that does not exist,
// which Payload refuses.
func (b Batch) Codec() compress.Codec { return compress.Codec(b.b[posAttributes+1] & attrCodec) }

// CRC is the CRC-32C that the batch carries.
func (b Batch) CRC() uint32 { return binary.BigEndian.Uint32(b.b[posCRC:]) }

// TimestampType says whose clock the records' timestamps are.
func (b Batch) TimestampType() kafka.TimestampType {
	if b.has(attrAppendTime) {
		return kafka.LogAppendTime
	}
	return kafka.CreateTime
}

// FirstTimestamp is the time that the records' timestamps count from: that of
// the first record as the producer sent it. Where DeleteHorizon is set it holds
// that.
func (b Batch) FirstTimestamp() kafka.Timestamp { return kafka.Timestamp(b.i64(posBaseTime)) }

// MaxTimestamp is the highest timestamp of the records as the batch claims;
// with log append time it is the time of them all.
func (b Batch) MaxTimestamp() kafka.Timestamp { return kafka.Timestamp(b.i64(posMaxTime)) }

// DeleteHorizon is the time after which the log cleaner may remove tombstones
// and markers of the batch, if it has set one (KIP-534).
func (b Batch) DeleteHorizon() (kafka.Timestamp, bool) {
	if !b.has(attrHorizon) {
		return kafka.NoTimestamp, false
	}
	return b.FirstTimestamp(), true
}

// ProducerID is the id of the idempotent or transactional producer, -1 if none.
func (b Batch) ProducerID() kafka.ProducerID { return kafka.ProducerID(b.i64(posProducerID)) }

// ProducerEpoch is the epoch of the producer, -1 if none.
func (b Batch) ProducerEpoch() kafka.ProducerEpoch {
	return kafka.ProducerEpoch(b.i16(posProducerEpoch))
}

// BaseSequence is the sequence number of the batch's first offset, -1 if none.
func (b Batch) BaseSequence() int32 { return b.i32(posBaseSequence) }

// LastSequence is the sequence number of the batch's last offset, -1 if none.
func (b Batch) LastSequence() int32 {
	if b.BaseSequence() < 0 {
		return -1
	}
	return AddSequence(b.BaseSequence(), b.lastDelta())
}

// Transactional reports whether the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b.has(attrTransactional) }

// Control reports whether the batch holds a marker instead of data; see Marker.
func (b Batch) Control() bool { return b.has(attrControl) }

// Verify compares the CRC-32C of the batch with the one it carries. The error
// is a [*CorruptError] that unwraps to [ErrChecksum].
func (b Batch) Verify() error {
	if sum := checksum(b.b); sum != b.CRC() {
		return b.corrupt(fmt.Sprintf("it carries CRC %08x, its bytes have %08x", b.CRC(), sum), ErrChecksum)
	}
	return nil
}

// Payload is the batch's records, decompressed. Uncompressed ones alias the
// batch and cost nothing; others are appended to dst, up to limit bytes (0 is
// [compress.DefaultLimit]), and dst's memory is used where it suffices. With a
// nil d a Decompressor is made for the call, which costs its memory each time.
//
// The error is a [*CorruptError] around what package compress says, such as a
// [*compress.LimitError].
func (b Batch) Payload(d *compress.Decompressor, dst []byte, limit int) ([]byte, error) {
	records := b.b[HeaderSize:]
	codec := b.Codec()
	if codec == compress.None {
		return records, nil
	}
	if d == nil {
		d = new(compress.Decompressor)
	}
	start := len(dst)
	out, err := d.Decompress(dst, codec, records, limit)
	if err != nil {
		return nil, b.corrupt("its records cannot be decompressed", err)
	}
	return out[start:], nil
}

// checksum is the CRC-32C of a batch's bytes, from the attributes on.
func checksum(wire []byte) uint32 { return crc32.Checksum(wire[posAttributes:], castagnoli) }

// AddSequence is the sequence number n places after seq: after 2^31-1 comes 0.
// Neither may be negative.
func AddSequence(seq, n int32) int32 {
	return int32((uint32(seq) + uint32(n)) & math.MaxInt32)
}
