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
	// zstdTrust is how many times its own length a frame is trusted to hold. Room
	// for what claims more is made as the content comes.
	zstdTrust = 64
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
		frame := src[:f.length]
		if f.size > zstdTrust*int64(len(frame)) {
			frame = f.disclaim(frame)
		}
		if err := d.unzstdFrame(o, f, frame); err != nil {
			return err
		}
		src = src[f.length:]
	}
	return nil
}

// zstdFrame is what can be known of a frame without decompressing it.
type zstdFrame struct {
	length int   // bytes it takes
	header int   // those of its header
	size   int64 // bytes it claims to hold, zstdNoSize if it does not say
	most   int64 // bytes its blocks can hold
	exact  bool  // it must hold most bytes
}

// disclaim is a copy of the frame that does not say how much it holds, as the
// library makes room for all of that at once.
func (f *zstdFrame) disclaim(src []byte) []byte {
	const single, dictionary, sum = 1 << 5, 3, 1 << 2 // in the descriptor
	descriptor := src[4]
	if descriptor&dictionary != 0 { // refused anyway, without room
		return src
	}
	window := byte(17 << 3) // zstdMaxWindow
	if descriptor&single == 0 {
		window = src[5]
	}
	f.most, f.exact, f.size = f.size, true, zstdNoSize
	out := make([]byte, 0, len(src))
	out = append(out, src[:4]...)
	out = append(out, descriptor&sum, window)
	return append(out, src[f.header:]...)
}

// unzstdFrame decompresses one frame. Room for a size that the frame claims and
// is trusted with is made at once; otherwise it grows with what came out so far.
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
			if f.exact && int64(len(out)) != f.most {
				return o.wrong("a frame does not have the size it claims", nil)
			}
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
	f.size, f.length, f.header = zstdNoSize, h.HeaderSize, h.HeaderSize
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
