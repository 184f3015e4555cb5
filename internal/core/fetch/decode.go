package fetch

import (
	"github.com/ottla/ottla/kafka"
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
	scratch kafka.Record
}

// Decode verifies the batch, decompresses it and checks that every record can
// be read, so that whoever walks the payload later cannot fail. The payload
// aliases the batch if that is not compressed, and is fresh memory otherwise.
func (d *Decoder) Decode(b record.Batch) ([]byte, error) {
	if !d.NoCRC {
		if err := b.Verify(); err != nil {
			return nil, err
		}
	}
	payload, err := b.Payload(&d.inflate, nil, d.Limit)
	if err != nil {
		return nil, err
	}
	d.reader.Reset(b, payload)
	for d.reader.Next(&d.scratch) {
		d.reader.Recycle()
	}
	d.scratch = kafka.Record{}
	return payload, d.reader.Err()
}
