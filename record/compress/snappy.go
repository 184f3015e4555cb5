package compress

import (
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/s2"
)

// Snappy comes in two forms: one raw block, which this package, librdkafka and
// most others write, and the framing of Java's snappy library ("xerial"): a
// header of 16 bytes, then blocks with their length before them.

const (
	xerialMagic  = "\x82SNAPPY\x00"
	xerialHeader = len(xerialMagic) + 8 // two version numbers
	// snappyRatio is more than a raw block can grow: 64 bytes from 3.
	snappyRatio = 22
)

func compressSnappy(dst, src []byte) []byte {
	start := len(dst)
	dst = slices.Grow(dst, s2.MaxEncodedLen(len(src)))
	out := s2.EncodeSnappy(dst[start:cap(dst)], src)
	return dst[:start+len(out)]
}

func unsnappy(o *output, src []byte) error {
	if len(src) < len(xerialMagic) || string(src[:len(xerialMagic)]) != xerialMagic {
		return unsnappyBlock(o, src)
	}
	for len(src) >= 4 { // fewer stray bytes are ignored, as Java's reader does
		if len(src) >= len(xerialMagic) && string(src[:len(xerialMagic)]) == xerialMagic {
			if len(src) < xerialHeader {
				return o.wrong("the header of the framing is cut", nil)
			}
			src = src[xerialHeader:]
			continue
		}
		n := int64(int32(binary.BigEndian.Uint32(src)))
		src = src[4:]
		switch {
		case n == 0 && len(src) == 0:
			return nil
		case n <= 0 || n > int64(len(src)):
			return o.wrong("the length of a block is 0 or goes beyond the data", nil)
		}
		if err := unsnappyBlock(o, src[:n]); err != nil {
			return err
		}
		src = src[n:]
	}
	return nil
}

func unsnappyBlock(o *output, src []byte) error {
	n, err := s2.DecodedLen(src)
	if err != nil {
		return o.wrong("no length in a block", err)
	}
	if n > snappyRatio*len(src) {
		return o.wrong("a block claims more bytes than it can hold", nil)
	}
	if n > o.left() {
		return o.over()
	}
	if _, err := s2.Decode(o.room(n)[:n], src); err != nil {
		return o.wrong("damaged block", err)
	}
	return o.wrote(n)
}
