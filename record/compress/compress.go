package compress

import (
	"bytes"
	"io"
	"math"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Compressor compresses batches, one at a time. The zero value is ready; it is
// not for concurrent use. It keeps the memory of the codecs it has been used
// with, each for its last level; at the default level that is 0.8 MiB for gzip,
// 0.2 MiB for lz4, 2.7 MiB for zstd and none for snappy.
type Compressor struct {
	gzip      *gzip.Writer
	gzipLevel int
	gzipOut   appender
	lz4       *lz4.Compressor
	lz4HC     *lz4.CompressorHC
	zstd      *zstd.Encoder
	zstdLevel zstd.EncoderLevel
}

// Compress appends src, compressed with codec, to dst and returns it. Level 0 is
// the codec's fastest; a level beyond [Codec.Levels] is taken as the nearest of
// them. The error is an [*Error]: the codec does not exist, or src is too long
// for it (4 GiB).
func (c *Compressor) Compress(dst []byte, codec Codec, level int, src []byte) ([]byte, error) {
	if int64(len(src)) > math.MaxUint32 {
		return dst, &Error{Codec: codec, What: "more than 4 GiB to compress"}
	}
	lo, hi := codec.Levels()
	if level != 0 {
		level = min(max(level, lo), hi)
	}
	switch codec {
	case None:
		return append(dst, src...), nil
	case Gzip:
		return c.compressGzip(dst, level, src)
	case Snappy:
		return compressSnappy(dst, src), nil
	case LZ4:
		return c.compressLZ4(dst, level, src), nil
	case Zstd:
		return c.compressZstd(dst, level, src)
	}
	return dst, &Error{Codec: codec, What: "no such codec"}
}

// Bound is the most that Compress appends to dst for n bytes, and the room that
// it wants there: with less it may allocate another array, even if the result
// would have fitted.
func (c Codec) Bound(n int) int {
	switch c {
	case Gzip:
		return n + n>>10 + 64 // stored blocks of 64 KiB, less where it flushes
	case Snappy:
		return s2.MaxEncodedLen(n)
	case LZ4:
		return boundLZ4(n)
	case Zstd:
		return n + n>>10 + 64 // stored blocks of 128 KiB
	}
	return n
}

// Decompressor decompresses batches, one at a time. The zero value is ready;
// it is not for concurrent use. It keeps the memory of the codecs it has been
// used with: less than 0.1 MiB for gzip, 0.4 MiB for zstd, none for the others.
type Decompressor struct {
	gzip *gzip.Reader
	zstd *zstd.Decoder
	src  bytes.Reader // what gzip reads from
}

// Decompress appends the decompressed src to dst and returns it. It appends
// limit bytes at most, 0 is [DefaultLimit]; dst's memory is used where it
// suffices. No bytes at all are an empty batch in every codec.
//
// The error is a [*LimitError] or, if src is not what codec writes, an
// [*Error]; dst is returned as it was then, but what it has room for may be
// overwritten.
func (d *Decompressor) Decompress(dst []byte, codec Codec, src []byte, limit int) ([]byte, error) {
	return d.decompress(dst, codec, src, limit, false)
}

// DecompressFormat0 is Decompress for messages of format 0: Kafka's writers of
// that format took the checksum of an lz4 frame's header over the magic number
// too, which is right here as well.
func (d *Decompressor) DecompressFormat0(dst []byte, codec Codec, src []byte, limit int) ([]byte, error) {
	return d.decompress(dst, codec, src, limit, true)
}

func (d *Decompressor) decompress(dst []byte, codec Codec, src []byte, limit int, format0 bool) ([]byte, error) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	o := output{b: dst, start: len(dst), codec: codec, limit: min(limit, math.MaxInt-len(dst)), format0: format0}
	var err error
	switch {
	case !codec.Valid():
		err = o.wrong("no such codec", nil)
	case codec == None:
		err = o.write(src)
	case len(src) == 0:
	case codec == Gzip:
		err = d.gunzip(&o, src)
	case codec == Snappy:
		err = unsnappy(&o, src)
	case codec == LZ4:
		err = unlz4(&o, src)
	case codec == Zstd:
		err = d.unzstd(&o, src)
	}
	if err != nil {
		return dst, err
	}
	return o.b, nil
}

// output is where decompressed bytes go.
type output struct {
	b     []byte
	start int // length of b before the first of them
	codec Codec
	limit int // bytes behind start

	format0 bool // of a message of format 0
}

// left is the number of bytes that may still be written.
func (o *output) left() int { return o.limit - (len(o.b) - o.start) }

// room makes room for n more bytes. The result is what is behind len(o.b), n
// bytes or more. Memory grows twofold, but not beyond the limit without need,
// and with some slack, in which decoders may copy whole words.
func (o *output) room(n int) []byte {
	const slack = 64
	if need := len(o.b) + n; need > cap(o.b) {
		b := make([]byte, len(o.b), slack+max(need, min(2*cap(o.b), o.start+o.limit)))
		copy(b, o.b)
		o.b = b
	}
	return o.b[len(o.b):cap(o.b)]
}

// firstTry is how much room to try first for what src may decompress to, at
// most bytes: what is there, or a usual multiple of src.
func (o *output) firstTry(src []byte, most int) int {
	if free := cap(o.b) - len(o.b); free > len(src) {
		return min(most, free)
	}
	return min(most, max(128<<10, 4*len(src)))
}

// wrote takes the next n bytes of room as written.
func (o *output) wrote(n int) error {
	if n > o.left() {
		return o.over()
	}
	o.b = o.b[:len(o.b)+n]
	return nil
}

func (o *output) write(p []byte) error {
	if len(p) > o.left() {
		return o.over()
	}
	copy(o.room(len(p)), p)
	return o.wrote(len(p))
}

func (o *output) over() error { return &LimitError{Codec: o.codec, Limit: o.limit} }

func (o *output) wrong(what string, err error) error {
	return &Error{Codec: o.codec, What: what, Err: err}
}

// readAll reads r to its end, in steps that grow with what has come.
func (o *output) readAll(r io.Reader) error {
	for {
		const step = 512
		room := o.room(min(step, o.left()+1))
		room = room[:min(len(room), o.left()+1)] // one more, to see what is too much
		n, err := r.Read(room)
		if over := o.wrote(n); over != nil {
			return over
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return o.wrong("damaged", err)
		}
	}
}

// appender is an io.Writer onto a slice.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}
