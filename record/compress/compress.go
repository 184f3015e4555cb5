package compress

import "math"

// Compressor compresses batches, one at a time. The zero value is ready; it is
// not for concurrent use. Its memory grows with the codecs and levels it is
// used with.
type Compressor struct{}

// Compress appends src, compressed, to dst. Level 0 is the default.
func (c *Compressor) Compress(dst []byte, codec Codec, level int, src []byte) ([]byte, error) {
	switch codec {
	case None:
		return append(dst, src...), nil
	}
	return dst, &Error{Codec: codec, What: "not there yet"}
}

// Decompressor decompresses batches, one at a time. The zero value is ready;
// it is not for concurrent use.
type Decompressor struct{}

// Decompress appends the decompressed src to dst, limit bytes at most; 0 is
// DefaultLimit.
func (d *Decompressor) Decompress(dst []byte, codec Codec, src []byte, limit int) ([]byte, error) {
	if limit <= 0 {
		limit = DefaultLimit
	}
	limit = min(limit, math.MaxInt-len(dst))
	switch codec {
	case None:
		if len(src) > limit {
			return dst, &LimitError{Codec: codec, Limit: limit}
		}
		return append(dst, src...), nil
	}
	return dst, &Error{Codec: codec, What: "not there yet"}
}
