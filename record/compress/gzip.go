package compress

import (
	"encoding/binary"

	"github.com/klauspost/compress/gzip"
)

// gzipFastest is the default level: half the time of gzip's own default for a
// tenth more bytes.
const gzipFastest = gzip.BestSpeed

func (c *Compressor) compressGzip(dst []byte, level int, src []byte) ([]byte, error) {
	if level == 0 {
		level = gzipFastest
	}
	c.gzipOut.b = dst
	defer func() { c.gzipOut.b = nil }()
	if c.gzip == nil || c.gzipLevel != level {
		w, err := gzip.NewWriterLevel(&c.gzipOut, level)
		if err != nil {
			return dst, &Error{Codec: Gzip, What: "no such level", Err: err}
		}
		c.gzip, c.gzipLevel = w, level
	} else {
		c.gzip.Reset(&c.gzipOut)
	}
	_, err := c.gzip.Write(src)
	if err == nil {
		err = c.gzip.Close()
	}
	if err != nil {
		return dst, &Error{Codec: Gzip, What: "cannot be compressed", Err: err}
	}
	return c.gzipOut.b, nil
}

// gunzip reads one member after the other, to the end of src.
func (d *Decompressor) gunzip(o *output, src []byte) error {
	if len(src) >= 4 { // the length of the last member is a hint
		hint := int64(binary.LittleEndian.Uint32(src[len(src)-4:]))
		o.room(int(min(hint, 16*int64(len(src)), int64(o.limit))))
	}
	d.src.Reset(src)
	defer d.src.Reset(nil)
	for d.src.Len() > 0 {
		if err := d.nextMember(); err != nil {
			return o.wrong("no member, or the header of one is damaged", err)
		}
		if err := o.readAll(d.gzip); err != nil {
			return err
		}
	}
	return nil
}

// nextMember reads the header of the next member.
func (d *Decompressor) nextMember() (err error) {
	if d.gzip == nil {
		d.gzip, err = gzip.NewReader(&d.src)
	} else {
		err = d.gzip.Reset(&d.src)
	}
	if err == nil {
		d.gzip.Multistream(false)
	}
	return err
}
