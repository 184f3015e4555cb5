package model

import (
	"encoding/binary"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// Places in the header of a batch that a rewrite changes.
const (
	posLength = 8
	posCount  = 57
	codecBits = 0x07
	afterSize = 12 // the length counts from here
)

// rewritten is a batch with some of its records only, each at its offset, as
// the log cleaner leaves it.
func rewritten(b record.Batch, left []kafka.Record) record.Batch {
	wire := append([]byte(nil), b.Bytes()[:record.HeaderSize]...)
	for _, r := range left {
		wire = appendRecord(wire, b, r)
	}
	binary.BigEndian.PutUint32(wire[posLength:], uint32(len(wire)-afterSize))
	binary.BigEndian.PutUint32(wire[posCount:], uint32(len(left)))
	flags := binary.BigEndian.Uint16(wire[posAttributes:])
	binary.BigEndian.PutUint16(wire[posAttributes:], flags&^codecBits)
	return resealed(wire)
}

func appendRecord(to []byte, b record.Batch, r kafka.Record) []byte {
	body := []byte{0}
	body = binary.AppendVarint(body, int64(r.Timestamp-b.FirstTimestamp()))
	body = binary.AppendVarint(body, int64(r.Offset-b.BaseOffset()))
	body = appendBytes(body, r.Key)
	body = appendBytes(body, r.Value)
	body = binary.AppendVarint(body, int64(len(r.Headers)))
	for _, h := range r.Headers {
		body = binary.AppendVarint(body, int64(len(h.Key)))
		body = append(body, h.Key...)
		body = appendBytes(body, h.Value)
	}
	to = binary.AppendVarint(to, int64(len(body)))
	return append(to, body...)
}

func appendBytes(to, b []byte) []byte {
	if b == nil {
		return binary.AppendVarint(to, -1)
	}
	return append(binary.AppendVarint(to, int64(len(b))), b...)
}
