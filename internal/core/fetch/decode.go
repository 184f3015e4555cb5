package fetch

import (
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// Decoder decodes batches. It needs no Machine, so that decoding holds nobody
// up. The zero value checks checksums and bounds a decompressed batch at
// [compress.DefaultLimit]. It is not for concurrent use.
type Decoder struct {
	NoCRC bool // check.crcs off
	Limit int  // bytes of a decompressed batch

	inflate compress.Decompressor
	reader  record.Reader
}

// Decode verifies the batch, decompresses it and checks that every record can
// be read, so that whoever walks the payload later cannot fail. The payload
// aliases the batch if that is not compressed. Otherwise it lies in dst if that
// has room, and else in fresh memory.
func (d *Decoder) Decode(b record.Batch, dst []byte) ([]byte, error) {
	if !d.NoCRC {
		if err := b.Verify(); err != nil {
			return nil, err
		}
	}
	payload, err := b.Payload(&d.inflate, dst[:0], d.Limit)
	if err != nil {
		return nil, err
	}
	d.reader.Reset(b, payload)
	return payload, d.reader.Check()
}
