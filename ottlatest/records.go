package ottlatest

import (
	"fmt"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// Records is what the log of a partition holds, oldest first: every record
// that a broker stored, those of aborted transactions included, markers not.
// The records belong to the caller.
func (c *Cluster) Records(topic string, partition int32) ([]kafka.Record, error) {
	var out []kafka.Record
	at, err := own{c}.logStart(topic, partition)
	for err == nil {
		var data []byte
		var end int64
		data, end, err = own{c}.fetch(topic, partition, at)
		if err != nil {
			break
		}
		before := at
		if out, at, err = appendRecords(out, data, at); err != nil || at >= end || at == before {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("ottlatest: records of %s-%d: %w", topic, partition, err)
	}
	for i := range out {
		out[i].Topic, out[i].Partition = topic, partition
	}
	return out, nil
}

// appendRecords decodes what one fetch gave and says where to go on.
func appendRecords(out []kafka.Record, data []byte, at int64) ([]kafka.Record, int64, error) {
	var d compress.Decompressor
	for {
		b, rest, err := record.Next(data)
		if err != nil || b.IsZero() {
			return out, at, err
		}
		data = rest
		if err := b.Verify(); err != nil {
			return nil, 0, err
		}
		at = int64(b.NextOffset())
		if b.Control() {
			continue
		}
		payload, err := b.Payload(&d, nil, 0)
		if err != nil {
			return nil, 0, err
		}
		var r record.Reader
		var rec kafka.Record
		for r.Reset(b, payload); r.Next(&rec); {
			out = append(out, rec.Clone())
		}
		if err := r.Err(); err != nil {
			return nil, 0, err
		}
	}
}
