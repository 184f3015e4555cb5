package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// A message of format 0 or 1 is: offset (8 bytes), length (4), CRC-32 (4), format
// (1), attributes (1), in format 1 a timestamp (8), key and value with their
// lengths (4) before them. A message that is compressed, a wrapper, holds a set of
// uncompressed ones as its value, and has the offset of the last of them. Within
// it, offsets count from the first message in format 1, and are those of the log
// in format 0.
const (
	posOldCRC        = 12
	posOldAttributes = 17
	posOldTime       = 18
)

// old reports whether the batch is a message of format 0 or 1.
func (b Batch) old() bool { return len(b.b) > 0 && b.b[posMagic] < 2 }

// wrapper reports whether the batch is a compressed message of format 0 or 1.
func (b Batch) wrapper() bool { return b.old() && b.Codec() != compress.None }

func oldChecksum(message []byte) uint32 { return crc32.ChecksumIEEE(message[posMagic:]) }

// messagePayload is the payload of a message: a message set, which is the message
// itself if it is not compressed.
func messagePayload(b Batch, d *compress.Decompressor, dst []byte, limit int) ([]byte, error) {
	codec := b.Codec()
	if codec == compress.None {
		return b.b, nil
	}
	if codec > compress.LZ4 {
		return nil, b.corrupt(fmt.Sprintf("message format %d has no codec %d", b.Magic(), codec), nil)
	}
	_, value, what := oldFields(b.b)
	if what == "" && len(value) == 0 {
		what = "nothing is in it"
	}
	if what != "" {
		return nil, b.corrupt("a compressed message: "+what, nil)
	}
	decompress := d.Decompress
	if b.Magic() == 0 {
		decompress = d.DecompressFormat0
	}
	start := len(dst)
	out, err := decompress(dst, codec, value, limit)
	if err != nil {
		return nil, b.corrupt("its records cannot be decompressed", err)
	}
	return out[start:], nil
}

// oldFields is the key and the value of a message, which has the length of its
// format at least, or what is wrong with it.
func oldFields(m []byte) (key, value []byte, what string) {
	at := lengthEnd + int(least[m[posMagic]]) - 8
	key, at = oldField(m, at)
	if at < 0 {
		return nil, nil, "its key goes beyond it"
	}
	value, at = oldField(m, at)
	if at < 0 {
		return nil, nil, "its value goes beyond it"
	}
	if at != len(m) {
		return nil, nil, "its length is not that of its fields"
	}
	return key, value, ""
}

// oldField reads a byte string with its length, -1 for null, before it. The next
// index is negative if there is none.
func oldField(m []byte, at int) (f []byte, next int) {
	if at < 0 || len(m)-at < 4 {
		return nil, -1
	}
	n := int(int32(binary.BigEndian.Uint32(m[at:])))
	at += 4
	switch {
	case n == -1:
		return nil, at
	case n < 0 || n > len(m)-at:
		return nil, -1
	}
	return m[at : at+n : at+n], at + n
}

// nextMessage takes the first message off a set, or says what is wrong with it.
func nextMessage(set []byte) (m, rest []byte, what string) {
	if len(set) <= posMagic {
		return nil, nil, "it is cut"
	}
	if set[posMagic] > 1 {
		return nil, nil, fmt.Sprintf("its format is %d", int8(set[posMagic]))
	}
	n := int32(binary.BigEndian.Uint32(set[posLength:]))
	if n < least[set[posMagic]] || int64(n) > int64(len(set)-lengthEnd) {
		return nil, nil, "its length is less than a header or goes beyond the set"
	}
	end := lengthEnd + int(n)
	return set[:end:end], set[end:], ""
}

// lastMessage is the offset of the last message of a set, as it stands there, or
// what is wrong with the set. n is the number of good messages before that.
func lastMessage(set []byte) (offset int64, n int, what string) {
	if len(set) == 0 {
		return 0, 0, "there is none"
	}
	for len(set) > 0 {
		m, rest, what := nextMessage(set)
		if what != "" {
			return 0, n, what
		}
		offset, set = int64(binary.BigEndian.Uint64(m)), rest
		n++
	}
	return offset, n, ""
}

// resetOld is Reset for message sets.
func (r *Reader) resetOld(b Batch, set []byte) {
	*r = Reader{
		slab: r.slab, buf: set, batch: b, last: -1, max: int64(b.LastOffset()),
		kind: b.TimestampType(), epoch: kafka.NoEpoch, time: int64(b.MaxTimestamp()),
	}
	if !b.wrapper() {
		return
	}
	last, n, what := lastMessage(set)
	if b.Magic() == 1 {
		r.base = r.max - last
	}
	switch {
	case what != "":
		r.failOld(n, what)
	case last < 0 || r.base < 0:
		r.failOld(n-1, "its offset does not fit that of the message around it")
	}
}

// nextOld is Next for message sets.
func (r *Reader) nextOld(rec *kafka.Record) bool {
	if r.err != nil || r.pos == len(r.buf) {
		return false
	}
	m, _, what := nextMessage(r.buf[r.pos:])
	if what != "" {
		return r.failOld(r.read(), what)
	}
	inside := Batch{m}
	if r.batch.wrapper() {
		if inside.wrapper() {
			return r.failOld(r.read(), "it is compressed again")
		}
		if oldChecksum(m) != inside.CRC() {
			r.failOld(r.read(), "it is damaged")
			r.err.(*CorruptError).Err = ErrChecksum
			return false
		}
	}
	offset := int64At(inside.b, posBaseOffset)
	if offset > r.max-r.base || offset+r.base <= r.last {
		return r.failOld(r.read(), "its offset is not between that of the one before it and the end of the set")
	}
	offset += r.base
	key, value, what := oldFields(m)
	if what != "" {
		return r.failOld(r.read(), what)
	}
	r.pos += len(m)
	r.last = offset
	rec.Offset, rec.Key, rec.Value, rec.Timestamp = kafka.Offset(offset), key, value, inside.MaxTimestamp()
	if r.kind == kafka.LogAppendTime {
		rec.Timestamp = kafka.Timestamp(r.time)
	}
	return true
}

// read is the number of messages before the present one.
func (r *Reader) read() int {
	_, n, _ := lastMessage(r.buf[:r.pos])
	return n
}

// failOld ends the walk at a wrong message, behind n good ones.
func (r *Reader) failOld(n int, what string) bool {
	r.err = r.batch.corrupt(fmt.Sprintf("message %d in it: %s", n+1, what), nil)
	return false
}
