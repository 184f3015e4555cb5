package record

import "math/bits"

// Numbers in a record are zig-zag varints, as Kafka's own reader takes them:
// at most 5 bytes for 32 bits and 10 for 64, longer forms of small numbers
// accepted, bits above the width dropped.

// uvarint32 reads a number at b[i:] and returns it with the index after it,
// which is negative if there is no valid number.
func uvarint32(b []byte, i int) (v uint32, next int) {
	for shift := 0; shift < 35; shift += 7 {
		if uint(i) >= uint(len(b)) {
			return 0, -1
		}
		c := b[i]
		i++
		v |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return v, i
		}
	}
	return 0, -1
}

// uvarint64 is uvarint32 for 64 bits.
func uvarint64(b []byte, i int) (v uint64, next int) {
	for shift := 0; shift < 70; shift += 7 {
		if uint(i) >= uint(len(b)) {
			return 0, -1
		}
		c := b[i]
		i++
		v |= uint64(c&0x7f) << shift
		if c < 0x80 {
			return v, i
		}
	}
	return 0, -1
}

// notShort is what short gives as the next index where it gives up. Any index
// that is at most 2 above it makes short give up again, so that a chain of
// calls is to be checked once.
const notShort = -4

// short reads a number of 1 or 2 bytes, as most are. It gives up on a longer
// one, and on one that stands in the last byte of b. It is small enough to be
// inlined.
func short(b []byte, i int) (v uint32, next int) {
	j := i + 1
	if uint(j) >= uint(len(b)) || i < 0 {
		return 0, notShort
	}
	c, d := uint32(b[i]), uint32(b[j])
	if c < 0x80 {
		return c, j
	}
	if d < 0x80 {
		return c&0x7f | d<<7, j + 1
	}
	return 0, notShort
}

// window is the first bytes of a record.
type window [16]byte

func unzig32(v uint32) int32 { return int32(v>>1) ^ -int32(v&1) }
func unzig64(v uint64) int64 { return int64(v>>1) ^ -int64(v&1) }

func zig32(v int32) uint32 { return uint32(v)<<1 ^ uint32(v>>31) }
func zig64(v int64) uint64 { return uint64(v)<<1 ^ uint64(v>>63) }

// uvarintLen is the number of bytes that putUvarint writes.
func uvarintLen(v uint64) int { return (9*bits.Len64(v) + 64) >> 6 }

// putUvarint writes v at b[i:], which must have room, and returns the index
// after it.
func putUvarint(b []byte, i int, v uint64) int {
	if v < 0x80 {
		b[i] = byte(v)
		return i + 1
	}
	if v < 0x4000 {
		b[i+1] = byte(v >> 7)
		b[i] = byte(v) | 0x80
		return i + 2
	}
	return putLong(b, i, v)
}

func putLong(b []byte, i int, v uint64) int {
	for ; v >= 0x80; v >>= 7 {
		b[i] = byte(v) | 0x80
		i++
	}
	b[i] = byte(v)
	return i + 1
}
