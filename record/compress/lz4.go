package compress

import (
	"encoding/binary"
	"slices"

	"github.com/pierrec/lz4/v4"
)

// LZ4 comes in frames: a header, blocks with their length before them, an end
// mark. This package writes one frame of independent blocks without checksums,
// as Java's client does: the batch has a checksum of its own.

const (
	lz4Magic       = 0x184d2204
	lz4Skippable   = 0x184d2a50 // and the 15 numbers after it
	lz4Version     = 0x40
	lz4Independent = 0x20
	lz4BlockSums   = 0x10
	lz4Size        = 0x08
	lz4ContentSum  = 0x04
	lz4Reserved    = 0x02
	lz4Dictionary  = 0x01
	lz4Stored      = 1 << 31 // in a block's length: not compressed

	lz4LeastCode = 4 // blocks of 64 KiB; each code above stands for four times as much
	lz4MostCode  = 6 // what this package writes: 1 MiB
	lz4Window    = 64 << 10
	lz4Ratio     = 255 // more than a block can grow
)

// lz4Max is the size of the largest block for a code in a frame's header.
func lz4Max(code byte) int { return 1 << (2*code + 8) }

func (c *Compressor) compressLZ4(dst []byte, level int, src []byte) []byte {
	code := byte(lz4LeastCode)
	for code < lz4MostCode && len(src) > lz4Max(code) {
		code++
	}
	descriptor := [2]byte{lz4Version | lz4Independent, code << 4}
	dst = binary.LittleEndian.AppendUint32(dst, lz4Magic)
	dst = append(dst, descriptor[0], descriptor[1], byte(xxh32(descriptor[:])>>8))
	for len(src) > 0 {
		block := src[:min(len(src), lz4Max(code))]
		src = src[len(block):]
		dst = c.appendLZ4Block(dst, level, block)
	}
	return append(dst, 0, 0, 0, 0)
}

// boundLZ4 counts the header, the end mark, and a length for each block.
func boundLZ4(n int) int {
	const frame = 7 + 4
	return frame + 4*(n>>16+1) + lz4.CompressBlockBound(n)
}

func (c *Compressor) appendLZ4Block(dst []byte, level int, block []byte) []byte {
	bound := lz4.CompressBlockBound(len(block))
	at := len(dst) + 4
	dst = slices.Grow(dst, 4+bound)[:at]
	n, err := c.lz4Block(dst[at:at+bound], level, block)
	if err != nil || n == 0 || n >= len(block) {
		binary.LittleEndian.PutUint32(dst[at-4:], uint32(len(block))|lz4Stored)
		return append(dst, block...)
	}
	binary.LittleEndian.PutUint32(dst[at-4:], uint32(n))
	return dst[:at+n]
}

func (c *Compressor) lz4Block(dst []byte, level int, block []byte) (int, error) {
	if level <= 1 {
		if c.lz4 == nil {
			c.lz4 = new(lz4.Compressor)
		}
		return c.lz4.CompressBlock(block, dst)
	}
	if c.lz4HC == nil {
		c.lz4HC = new(lz4.CompressorHC)
	}
	c.lz4HC.Level = 1 << level // the depth of its search
	return c.lz4HC.CompressBlock(block, dst)
}

// unlz4 reads one frame after the other, skippable ones too. What stands behind
// the last one and is not the beginning of another is ignored, as Java's reader
// does.
func unlz4(o *output, src []byte) error {
	frames := 0
	for len(src) >= 4 {
		magic := binary.LittleEndian.Uint32(src)
		var err error
		switch {
		case magic == lz4Magic:
			src, err = unlz4Frame(o, src[4:])
			frames++
		case magic&^0xf == lz4Skippable:
			src, err = skipFrame(o, src)
		case frames > 0:
			return nil
		default:
			return o.wrong("not a frame", nil)
		}
		if err != nil {
			return err
		}
	}
	if frames == 0 {
		return o.wrong("no frame", nil)
	}
	return nil
}

// skipFrame passes over a skippable frame, which lz4 and zstd share.
func skipFrame(o *output, src []byte) ([]byte, error) {
	if len(src) < 8 || int64(binary.LittleEndian.Uint32(src[4:])) > int64(len(src)-8) {
		return nil, o.wrong("a skippable frame is cut", nil)
	}
	return src[8+int(binary.LittleEndian.Uint32(src[4:])):], nil
}

// lz4Header is what the header of a frame says.
type lz4Header struct {
	flags    byte
	maxBlock int
	size     uint64 // of the content, if flags has lz4Size
}

func readLZ4Header(o *output, src []byte) (h lz4Header, rest []byte, err error) {
	n := 2
	if len(src) >= 1 && src[0]&lz4Size != 0 {
		n += 8
	}
	if len(src) < n+1 {
		return h, nil, o.wrong("a frame's header is cut", nil)
	}
	h.flags = src[0]
	code := src[1] >> 4
	switch {
	case h.flags&0xc0 != lz4Version || h.flags&lz4Reserved != 0 || src[1]&0x8f != 0 || code < lz4LeastCode:
		return h, nil, o.wrong("a frame's header has reserved bits set", nil)
	case h.flags&lz4Dictionary != 0:
		return h, nil, o.wrong("a frame needs a dictionary", nil)
	case byte(xxh32(src[:n])>>8) != src[n] && !(o.format0 && lz4OldSum(src[:n]) == src[n]):
		return h, nil, o.wrong("the checksum of a frame's header does not match", nil)
	}
	h.maxBlock = lz4Max(code)
	if h.flags&lz4Size != 0 {
		h.size = binary.LittleEndian.Uint64(src[2:])
	}
	return h, src[n+1:], nil
}

// lz4OldSum is the checksum of a frame's header that Kafka's writers of message
// format 0 made: over the magic number too.
func lz4OldSum(descriptor []byte) byte {
	b := binary.LittleEndian.AppendUint32(make([]byte, 0, 16), lz4Magic)
	return byte(xxh32(append(b, descriptor...)) >> 8)
}

// unlz4Frame reads a frame behind its magic number.
func unlz4Frame(o *output, src []byte) ([]byte, error) {
	h, src, err := readLZ4Header(o, src)
	if err != nil {
		return nil, err
	}
	start := len(o.b)
	for {
		if len(src) < 4 {
			return nil, o.wrong("a frame has no end", nil)
		}
		word := binary.LittleEndian.Uint32(src)
		src = src[4:]
		if word == 0 {
			break
		}
		if src, err = unlz4Block(o, h, src, word, start); err != nil {
			return nil, err
		}
	}
	content := o.b[start:]
	if h.flags&lz4Size != 0 && h.size != uint64(len(content)) {
		return nil, o.wrong("a frame does not have the size it claims", nil)
	}
	if h.flags&lz4ContentSum == 0 {
		return src, nil
	}
	if len(src) < 4 || binary.LittleEndian.Uint32(src) != xxh32(content) {
		return nil, o.wrong("the checksum of a frame does not match", nil)
	}
	return src[4:], nil
}

// unlz4Block reads one block, whose length word has been read. The frame's
// content begins at start of the output.
func unlz4Block(o *output, h lz4Header, src []byte, word uint32, start int) ([]byte, error) {
	n, sums := int(word&^lz4Stored), 0
	if h.flags&lz4BlockSums != 0 {
		sums = 4
	}
	if n > h.maxBlock || n+sums > len(src) {
		return nil, o.wrong("a block's length goes beyond the data or the largest block", nil)
	}
	block, rest := src[:n], src[n+sums:]
	if sums > 0 && binary.LittleEndian.Uint32(src[n:]) != xxh32(block) {
		return nil, o.wrong("the checksum of a block does not match", nil)
	}
	if word&lz4Stored != 0 {
		return rest, o.write(block)
	}
	return rest, o.lz4Block(block, h, start)
}

// lz4Block decompresses a block. It may be as long as the frame says or the
// format allows; room for less is tried first.
func (o *output) lz4Block(block []byte, h lz4Header, start int) error {
	format := min(h.maxBlock, lz4Ratio*len(block)+64)
	most := min(format, o.left())
	var dict []byte
	for try := o.firstTry(block, most); ; try = min(most, 4*try) {
		room := o.room(try)
		room = room[:min(len(room), most)]
		if h.flags&lz4Independent == 0 {
			dict = o.b[max(start, len(o.b)-lz4Window):]
		}
		n, err := lz4.UncompressBlockWithDict(block, room, dict)
		switch {
		case err == nil:
			return o.wrote(n)
		case len(room) < most:
		case most < format:
			return o.over()
		default:
			return o.wrong("damaged block", err)
		}
	}
}
