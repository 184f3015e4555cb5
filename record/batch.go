package record

import (
	"bytes"
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
	minLength = 14 // the smallest length field of any message format: that of format 0

	attrCodec         = 0x07
	attrAppendTime    = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrHorizon       = 0x40
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// least is the smallest length field by message format.
var least = [3]int32{minLength, minLength + 8, HeaderSize - lengthEnd}

// Batch is a view of the bytes of one record batch. It is a value; it keeps
// the bytes it came from alive and never writes to them. The zero Batch is none:
// only IsZero, Size and Bytes may be called on it, and a Reader finds no record.
//
// In the message formats 0 and 1 each message is a Batch of its own, of one
// record, or of several if the message holds compressed ones. It has no
// producer, no leader epoch and no transaction, and says less of itself than
// format 2: see BaseOffset and Count.
type Batch struct{ b []byte }

// Next takes the first batch off data, which are records as a Fetch answer
// holds them, and returns it with the bytes after it.
//
// A zero Batch without an error is the end of the data: nothing is left, or a
// batch that the broker cut off at its byte limit, or what it fills an answer up
// with that it converted to an older format. A batch that is present and wrong is
// a [*CorruptError]; rest then begins after it, and is nil where its end is not
// known. Next looks at the header only: see [Batch.Verify].
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
	if length < least[magic] {
		return Batch{}, nil, headerError(data, fmt.Sprintf("its length field is %d, less than a header", length))
	}
	size := int64(length) + lengthEnd
	if size > int64(len(data)) {
		return Batch{}, nil, nil
	}
	b, rest = Batch{data[:size:size]}, data[size:]
	if what := wrongOffsets(b); what != "" {
		return Batch{}, rest, headerError(data, what)
	}
	return b, rest, nil
}

// SizeOf is the size in bytes of the first batch in data as it says itself, also
// of one that is cut off; 0 if too little of it is there, or if it is only what a
// broker fills an answer up with.
func SizeOf(data []byte) int64 {
	if len(data) < lengthEnd || int64(binary.BigEndian.Uint64(data)) < 0 {
		return 0
	}
	return max(int64(int32(binary.BigEndian.Uint32(data[posLength:]))), 0) + lengthEnd
}

func headerError(data []byte, what string) error {
	base := kafka.Offset(binary.BigEndian.Uint64(data[posBaseOffset:]))
	return &CorruptError{Base: base, Next: -1, What: what}
}

// wrongOffsets says what is wrong with the offsets that the header claims. A
// position could never move on over a batch that ends before it begins.
func wrongOffsets(b Batch) string {
	base, delta := int64At(b.b, posBaseOffset), int64(lastDelta(b))
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
	return &CorruptError{Base: kafka.Offset(int64At(b.b, posBaseOffset)), Next: b.NextOffset(), What: what, Err: err}
}

func int16At(b []byte, at int) int16 { return int16(binary.BigEndian.Uint16(b[at:])) }
func int32At(b []byte, at int) int32 { return int32(binary.BigEndian.Uint32(b[at:])) }
func int64At(b []byte, at int) int64 { return int64(binary.BigEndian.Uint64(b[at:])) }

// attributes are those of format 2, of which older ones have the lowest: what
// else stands there brokers leave as it came.
func (b Batch) attributes() byte {
	switch b.Magic() {
	case 0:
		return b.b[posOldAttributes] & attrCodec
	case 1:
		return b.b[posOldAttributes] & (attrCodec | attrAppendTime)
	}
	return b.b[posAttributes+1]
}

func (b Batch) has(attr byte) bool { return b.attributes()&attr != 0 }

func lastDelta(b Batch) int32 {
	if b.old() {
		return 0
	}
	return int32At(b.b, posLastDelta)
}

// IsZero reports whether b is no batch.
func (b Batch) IsZero() bool { return len(b.b) == 0 }

// Size is the number of bytes of the whole batch as it is on the wire.
func (b Batch) Size() int {
	if b.IsZero() {
		return 0
	}
	return int(int32At(b.b, posLength)) + lengthEnd
}

// Bytes is the whole batch. Do not write to it.
func (b Batch) Bytes() []byte { return b.b }

// Head is b without its records, in memory of its own, for who has its payload
// elsewhere: fields and a [Reader] are as before, there is nothing to verify or to
// decompress, and Bytes is not the whole. In the formats 0 and 1 it is a copy of
// it all.
func Head(b Batch) Batch {
	if b.IsZero() || b.old() {
		return Batch{bytes.Clone(b.b)}
	}
	return Batch{bytes.Clone(b.b[:HeaderSize])}
}

// Magic is the message format of the batch: 0, 1 or 2.
func (b Batch) Magic() int8 { return int8(b.b[posMagic]) }

// BaseOffset is the first offset of the batch; its first record may have been
// removed by compaction. It is -1 for compressed messages of format 0 and 1,
// which say their last offset only.
func (b Batch) BaseOffset() kafka.Offset {
	if b.wrapper() {
		return -1
	}
	return kafka.Offset(int64At(b.b, posBaseOffset))
}

// LastOffset is the last offset of the batch, whether or not a record is there.
func (b Batch) LastOffset() kafka.Offset {
	return kafka.Offset(int64At(b.b, posBaseOffset)) + kafka.Offset(lastDelta(b))
}

// NextOffset is where reading goes on after the batch, even if compaction
// removed its last records or all of them.
func (b Batch) NextOffset() kafka.Offset { return b.LastOffset() + 1 }

// LeaderEpoch is the epoch of the leader that appended the batch, -1 in the
// formats 0 and 1. The checksum does not cover it.
func (b Batch) LeaderEpoch() kafka.LeaderEpoch {
	if b.old() {
		return kafka.NoEpoch
	}
	return kafka.LeaderEpoch(int32At(b.b, posLeaderEpoch))
}

// Count is the number of records that the batch claims to hold. It is not
// checked before the records have been read: allocate nothing by it. It is -1 for
// compressed messages of format 0 and 1, which claim nothing: see CountIn.
func (b Batch) Count() int {
	switch {
	case b.wrapper():
		return -1
	case b.old():
		return 1
	}
	return int(int32At(b.b, posCount))
}

// CountIn is Count, taken from payload, which [Batch.Payload] gave, where the
// batch claims nothing.
func (b Batch) CountIn(payload []byte) int {
	if b.wrapper() {
		_, n, _ := lastMessage(payload)
		return n
	}
	return b.Count()
}

// Codec is how the records are compressed. It may be one that does not exist,
// which Payload refuses.
func (b Batch) Codec() compress.Codec { return compress.Codec(b.attributes() & attrCodec) }

// CRC is the checksum that the batch carries: CRC-32C, in the formats 0 and 1
// CRC-32.
func (b Batch) CRC() uint32 {
	if b.old() {
		return binary.BigEndian.Uint32(b.b[posOldCRC:])
	}
	return binary.BigEndian.Uint32(b.b[posCRC:])
}

// TimestampType says whose clock the records' timestamps are. In format 0 there
// are none.
func (b Batch) TimestampType() kafka.TimestampType {
	switch {
	case b.Magic() == 0:
		return kafka.NoTimeType
	case b.has(attrAppendTime):
		return kafka.LogAppendTime
	}
	return kafka.CreateTime
}

// FirstTimestamp is the time that the records' timestamps count from: that of
// the first record as the producer sent it. Where DeleteHorizon is set it holds
// that. In the formats 0 and 1 it is MaxTimestamp.
func (b Batch) FirstTimestamp() kafka.Timestamp {
	if b.old() {
		return b.MaxTimestamp()
	}
	return kafka.Timestamp(int64At(b.b, posBaseTime))
}

// MaxTimestamp is the highest timestamp of the records as the batch claims;
// with log append time it is the time of them all.
func (b Batch) MaxTimestamp() kafka.Timestamp {
	switch b.Magic() {
	case 0:
		return kafka.NoTimestamp
	case 1:
		return kafka.Timestamp(int64At(b.b, posOldTime))
	}
	return kafka.Timestamp(int64At(b.b, posMaxTime))
}

// DeleteHorizon is the time after which the log cleaner may remove tombstones
// and markers of the batch, if it has set one (KIP-534).
func (b Batch) DeleteHorizon() (kafka.Timestamp, bool) {
	if !b.has(attrHorizon) {
		return kafka.NoTimestamp, false
	}
	return b.FirstTimestamp(), true
}

// ProducerID is the id of the idempotent or transactional producer, -1 if none.
func (b Batch) ProducerID() kafka.ProducerID {
	if b.old() {
		return -1
	}
	return kafka.ProducerID(int64At(b.b, posProducerID))
}

// ProducerEpoch is the epoch of the producer, -1 if none.
func (b Batch) ProducerEpoch() kafka.ProducerEpoch {
	if b.old() {
		return -1
	}
	return kafka.ProducerEpoch(int16At(b.b, posProducerEpoch))
}

// BaseSequence is the sequence number of the batch's first offset, -1 if none.
func (b Batch) BaseSequence() int32 {
	if b.old() {
		return -1
	}
	return int32At(b.b, posBaseSequence)
}

// LastSequence is the sequence number of the batch's last offset, -1 if none.
func (b Batch) LastSequence() int32 {
	if b.BaseSequence() < 0 {
		return -1
	}
	return AddSequence(b.BaseSequence(), lastDelta(b))
}

// Transactional reports whether the batch belongs to a transaction.
func (b Batch) Transactional() bool { return b.has(attrTransactional) }

// Control reports whether the batch holds a marker instead of data; see Marker.
func (b Batch) Control() bool { return b.has(attrControl) }

// Verify compares the checksum of the batch with the one it carries. The error
// is a [*CorruptError] that unwraps to [ErrChecksum].
func (b Batch) Verify() error {
	sum := checksum
	if b.old() {
		sum = oldChecksum
	}
	if got := sum(b.b); got != b.CRC() {
		return b.corrupt(fmt.Sprintf("it carries CRC %08x, its bytes have %08x", b.CRC(), got), ErrChecksum)
	}
	return nil
}

// Payload is the batch's records, decompressed, for a [Reader]. Uncompressed ones alias the
// batch and cost nothing; others are appended to dst, up to limit bytes (0 is
// [compress.DefaultLimit]), and dst's memory is used where it suffices. With a
// nil d a Decompressor is made for the call, which costs its memory each time.
//
// The error is a [*CorruptError] around what package compress says, such as a
// [*compress.LimitError].
func (b Batch) Payload(d *compress.Decompressor, dst []byte, limit int) ([]byte, error) {
	codec := b.Codec()
	if d == nil && codec != compress.None {
		d = new(compress.Decompressor)
	}
	if b.old() {
		return messagePayload(b, d, dst, limit)
	}
	records := b.b[HeaderSize:]
	if codec == compress.None {
		return records, nil
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
