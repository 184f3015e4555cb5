package compress

import (
	"encoding/binary"

	"github.com/klauspost/compress/zstd"
)

const (
	zstdMagic    = 0xfd2fb528
	zstdMaxBlock = 128 << 10
	// zstdMaxWindow is what Java's and librdkafka's readers take.
	zstdMaxWindow = 1 << 27
	// zstdSlack is room behind the output that lets the decoder copy whole
	// words.
	zstdSlack  = 64
	zstdNoSize = -1
)

func (c *Compressor) compressZstd(dst []byte, level int, src []byte) ([]byte, error) {
	l := zstd.SpeedFastest
	if level != 0 {
		l = zstd.EncoderLevelFromZstd(level)
	}
	if c.zstd == nil || c.zstdLevel != l {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(l), zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true), zstd.WithWindowSize(1<<20))
		if err != nil {
			return dst, &Error{Codec: Zstd, What: "no encoder", Err: err}
		}
		c.zstd, c.zstdLevel = e, l
	}
	return c.zstd.EncodeAll(src, dst), nil
}

// unzstd reads one frame after the other, skippable ones too.
func (d *Decompressor) unzstd(o *output, src []byte) error {
	if d.zstd == nil {
		z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecodeAllCapLimit(true),
			zstd.WithDecoderMaxMemory(1<<62), zstd.WithDecoderMaxWindow(zstdMaxWindow))
		if err != nil {
			return o.wrong("no decoder", err)
		}
		d.zstd = z
	}
	for len(src) > 0 {
		var err error
		if len(src) >= 4 && binary.LittleEndian.Uint32(src)&^0xf == lz4Skippable {
			if src, err = skipFrame(o, src); err != nil {
				return err
			}
			continue
		}
		f, err := scanZstd(o, src)
		if err != nil {
			return err
		}
		if err := d.unzstdFrame(o, f, src[:f.length]); err != nil {
			return err
		}
		src = src[f.length:]
	}
	return nil
}

// zstdFrame is what can be known of a frame without decompressing it.
type zstdFrame struct {
	length int   // bytes it takes
	size   int64 // bytes it claims to hold, zstdNoSize if it does not say
	most   int64 // bytes its blocks can hold
}

// unzstdFrame decompresses one frame. Room for a size that the frame claims is
// made at once, as its blocks can hold as much; otherwise it grows with what
// came out so far.
func (d *Decompressor) unzstdFrame(o *output, f zstdFrame, src []byte) error {
	if f.size > int64(o.left()) {
		return o.over()
	}
	most := int(min(f.most, int64(o.left())+1)) // one more, to see what is too much
	try := o.firstTry(src, most)
	if f.size != zstdNoSize {
		try = int(f.size)
	}
	for {
		room := o.room(try)
		out, err := d.zstd.DecodeAll(src, room[:0])
		if err == nil && len(out) <= len(room) {
			return o.wrote(len(out))
		}
		// The library has no error of its own for a block that did not fit.
		fits := f.size != zstdNoSize || int64(try) >= f.most || len(out)+zstdMaxBlock <= len(room)
		switch {
		case fits:
			return o.wrong("damaged", err)
		case try >= most:
			return o.over()
		}
		try = min(most, 2*len(room))
	}
}

// scanZstd reads the headers of a frame and of its blocks.
func scanZstd(o *output, src []byte) (f zstdFrame, err error) {
	var h zstd.Header
	if len(src) < 4 || binary.LittleEndian.Uint32(src) != zstdMagic {
		return f, o.wrong("not a frame", nil)
	}
	if err := h.Decode(src); err != nil {
		return f, o.wrong("damaged frame header", err)
	}
	f.size, f.length = zstdNoSize, h.HeaderSize
	for last := false; !last; {
		if len(src)-f.length < 3 {
			return f, o.wrong("a frame is cut", nil)
		}
		word := uint32(src[f.length]) | uint32(src[f.length+1])<<8 | uint32(src[f.length+2])<<16
		last = word&1 != 0
		n := int(word >> 3)
		f.length += 3
		switch word >> 1 & 3 {
		case 0: // stored
			f.most += int64(n)
		case 1: // one byte, n times
			f.most += int64(n)
			n = 1
		default:
			f.most += zstdMaxBlock
		}
		if n > len(src)-f.length {
			return f, o.wrong("a frame is cut", nil)
		}
		f.length += n
	}
	if h.HasCheckSum {
		if f.length += 4; f.length > len(src) {
			return f, o.wrong("a frame is cut", nil)
		}
	}
	if h.HasFCS {
		if h.FrameContentSize > uint64(f.most) {
			return f, o.wrong("a frame claims more bytes than its blocks can hold", nil)
		}
		f.size = int64(h.FrameContentSize)
	}
	return f, nil
}
