package record

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// Builder encodes records into the bytes of one open batch. The zero value is
// ready to use. It is not for concurrent use.
//
// The caller's slices are copied by Append and free afterwards. Append allocates
// only where the buffer is too small.
type Builder struct {
	// Limit is the most bytes that Len may reach; 0 is the limit of the
	// format, 2 GiB. The caller may set it at any time.
	Limit int

	buf   []byte // all of the buffer; nil until the first Append
	n     int    // bytes of buf in use: the header, not yet written, and records
	count int32
	next  int32 // offset delta of the next record
	base  int64 // timestamp of the first record
	max   int64 // highest timestamp
}

// Reset drops what the Builder holds and begins an empty batch in buf, whose
// contents do not matter and which belongs to the Builder until Release. buf may
// be nil.
func (b *Builder) Reset(buf []byte) {
	*b = Builder{Limit: b.Limit, buf: buf[:cap(buf)]}
}

// Release gives the buffer of the Builder back to the caller, and leaves the
// Builder empty and without one. A sealed batch that was not compressed lies in
// that buffer.
func (b *Builder) Release() []byte {
	buf := b.buf[:b.n]
	b.Reset(nil)
	return buf
}

// Room is how many bytes can be appended without a larger buffer.
func (b *Builder) Room() int { return len(b.buf) - max(b.n, HeaderSize) }

// Move goes on in a larger buffer and gives the old one back to the caller.
// buf is as for Reset, and must have room for what is there.
func (b *Builder) Move(buf []byte) []byte {
	old := b.buf[:b.n]
	b.buf = buf[:cap(buf)]
	copy(b.buf[:b.n], old)
	return old
}

// Count is the number of records appended since Reset.
func (b *Builder) Count() int { return int(b.count) }

// Len is the size that the batch has on the wire if it is not compressed, its
// header included.
func (b *Builder) Len() int { return max(b.n, HeaderSize) }

// FirstTimestamp is the timestamp of the first record, 0 without one.
func (b *Builder) FirstTimestamp() kafka.Timestamp { return kafka.Timestamp(b.base) }

// MaxTimestamp is the highest timestamp appended, 0 without a record.
func (b *Builder) MaxTimestamp() kafka.Timestamp { return kafka.Timestamp(b.max) }

// Append encodes one record behind the others and reports whether it fitted
// into Limit. If not, nothing has changed. A nil key or value is null; the
// timestamp is taken as it is.
func (b *Builder) Append(ts kafka.Timestamp, key, value []byte, headers []kafka.Header) bool {
	return b.appendAt(b.next, ts, key, value, headers)
}

// SizeOf is the number of bytes by which Append would make the batch longer.
func (b *Builder) SizeOf(ts kafka.Timestamp, key, value []byte, headers []kafka.Header) int {
	body := bodySize(b.sinceBase(ts), b.next, key, value) + headersSize(headers)
	return uvarintLen(uint64(body)<<1) + body
}

// limit is the most bytes the batch may have.
func (b *Builder) limit() int {
	const most = math.MaxInt32 - HeaderSize
	if b.Limit <= 0 {
		return most
	}
	return min(b.Limit, most)
}

// appendAt is Append with the offset delta of the record.
func (b *Builder) appendAt(delta int32, ts kafka.Timestamp, key, value []byte, headers []kafka.Header) bool {
	time := b.sinceBase(ts)
	body := bodySize(time, delta, key, value)
	if len(headers) == 0 {
		body++
	} else {
		body += headersSize(headers)
	}
	at := max(b.n, HeaderSize)
	end := at + uvarintLen(uint64(body)<<1) + body
	if end > b.limit() || delta < 0 {
		return false
	}
	if end > len(b.buf) {
		b.grow(end)
	}
	buf := b.buf[:end]
	i := putUvarint(buf, at, uint64(body)<<1)
	buf[i] = 0
	i = putUvarint(buf, i+1, zig64(time))
	i = putUvarint(buf, i, uint64(zig32(delta)))
	i = putField(buf, i, key)
	i = putField(buf, i, value)
	if len(headers) == 0 {
		buf[i] = 0
	} else {
		putHeaders(buf, i, headers)
	}
	if b.count == 0 {
		b.base, b.max = int64(ts), int64(ts)
	}
	b.max = max(b.max, int64(ts))
	b.n, b.next = end, delta+1
	b.count++
	return true
}

// grow makes the buffer end bytes long or longer.
func (b *Builder) grow(end int) {
	buf := slices.Grow(b.buf[:b.n], end-b.n)
	b.buf = buf[:cap(buf)]
}

// sinceBase is the timestamp delta of a record that is appended next.
func (b *Builder) sinceBase(ts kafka.Timestamp) int64 {
	if b.count == 0 {
		return 0
	}
	return int64(ts) - b.base
}

// bodySize is the size of a record without its headers and its length.
func bodySize(time int64, delta int32, key, value []byte) int {
	return 1 + uvarintLen(zig64(time)) + uvarintLen(uint64(zig32(delta))) + fieldSize(key) + fieldSize(value)
}

// fieldSize is the size of a byte string with its length. A length of 0 and one
// of -1, which is null, take a byte.
func fieldSize(f []byte) int { return uvarintLen(uint64(len(f))<<1) + len(f) }

func headersSize(headers []kafka.Header) int {
	if len(headers) == 0 {
		return 1
	}
	n := uvarintLen(uint64(len(headers)) << 1)
	for i := range headers {
		h := &headers[i]
		n += uvarintLen(uint64(len(h.Key))<<1) + len(h.Key) + fieldSize(h.Value)
	}
	return n
}

// putField writes a byte string with its length before it at buf[i:].
func putField(buf []byte, i int, f []byte) int {
	if f == nil {
		buf[i] = 1 // -1
		return i + 1
	}
	i = putUvarint(buf, i, uint64(len(f))<<1)
	return i + copy(buf[i:], f)
}

func putHeaders(buf []byte, i int, headers []kafka.Header) {
	i = putUvarint(buf, i, uint64(len(headers))<<1)
	for k := range headers {
		h := &headers[k]
		i = putUvarint(buf, i, uint64(len(h.Key))<<1)
		i += copy(buf[i:], h.Key)
		i = putField(buf, i, h.Value)
	}
}

// Stamp is what a batch says about its producer. A producer without identity
// is [NoProducer].
type Stamp struct {
	ProducerID    kafka.ProducerID
	ProducerEpoch kafka.ProducerEpoch
	BaseSequence  int32 // of the first record; the others follow, 0 after 2^31-1
	Transactional bool
}

// NoProducer is the Stamp of a producer that is not idempotent.
var NoProducer = Stamp{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}

// Seal closes the batch and returns its bytes, ready for a Produce request. The
// records are compressed with codec at level (see [compress.Compressor]) and
// appended to dst. c and dst may be nil: where they are needed they are then made
// for the call. A batch that would not become smaller stays uncompressed: it then lies in the Builder's own buffer,
// and dst is not used, which compressed tells.
//
// After Seal only Release, Reset and the accessors may be called. The bytes do
// not change unless the caller re-uses the buffer they lie in. Without a record
// wire is nil.
func (b *Builder) Seal(s Stamp, codec compress.Codec, c *compress.Compressor, level int, dst []byte) (wire []byte, compressed bool) {
	if b.count == 0 {
		return nil, false
	}
	if codec != compress.None {
		wire, compressed = b.compress(codec, c, level, dst)
	}
	if !compressed {
		wire, codec = b.buf[:b.n:b.n], compress.None
	}
	b.putHeader(wire, int16(codec))
	stamp(wire, s)
	return wire, compressed
}

// compress appends a header's room and the compressed records to dst.
func (b *Builder) compress(codec compress.Codec, c *compress.Compressor, level int, dst []byte) ([]byte, bool) {
	if c == nil {
		c = new(compress.Compressor)
	}
	start := len(dst)
	dst = slices.Grow(dst, HeaderSize)[:start+HeaderSize]
	dst, err := c.Compress(dst, codec, level, b.buf[HeaderSize:b.n])
	if err != nil || len(dst)-start >= b.n {
		return nil, false
	}
	return dst[start:], true
}

// putHeader writes all of the header but what stamp writes.
func (b *Builder) putHeader(wire []byte, attributes int16) {
	binary.BigEndian.PutUint64(wire[posBaseOffset:], 0)
	binary.BigEndian.PutUint32(wire[posLength:], uint32(len(wire)-lengthEnd))
	binary.BigEndian.PutUint32(wire[posLeaderEpoch:], math.MaxUint32) // -1: the broker fills it in
	wire[posMagic] = 2
	binary.BigEndian.PutUint16(wire[posAttributes:], uint16(attributes))
	binary.BigEndian.PutUint32(wire[posLastDelta:], uint32(b.next-1))
	binary.BigEndian.PutUint64(wire[posBaseTime:], uint64(b.base))
	binary.BigEndian.PutUint64(wire[posMaxTime:], uint64(b.max))
	binary.BigEndian.PutUint32(wire[posCount:], uint32(b.count))
}

// stamp writes the producer's fields and the checksum.
func stamp(wire []byte, s Stamp) {
	wire[posAttributes+1] &^= attrTransactional
	if s.Transactional {
		wire[posAttributes+1] |= attrTransactional
	}
	binary.BigEndian.PutUint64(wire[posProducerID:], uint64(s.ProducerID))
	binary.BigEndian.PutUint16(wire[posProducerEpoch:], uint16(s.ProducerEpoch))
	binary.BigEndian.PutUint32(wire[posBaseSequence:], uint32(s.BaseSequence))
	binary.BigEndian.PutUint32(wire[posCRC:], checksum(wire))
}
