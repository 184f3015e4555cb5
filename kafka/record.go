package kafka

import "slices"

// Header is one header of a record. Keys may repeat and may be empty; a nil
// Value is Kafka's null, an empty one is empty.
type Header struct {
	Key   string
	Value []byte
}

// Record is one record, to produce or as consumed. For Key and Value nil is
// Kafka's null and an empty slice is empty; the two are told apart both ways.
//
// A record to produce needs Topic and Value. Partition is read only by a
// partitioner that asks for it; Offset, LeaderEpoch and TimestampType are
// ignored. A consumed record's Key, Value and Headers alias the fetched bytes:
// do not write to them, and see [Record.Clone].
type Record struct {
	Topic         string
	Partition     int32
	LeaderEpoch   LeaderEpoch
	Offset        Offset
	Timestamp     Timestamp
	TimestampType TimestampType
	Key           []byte
	Value         []byte
	Headers       []Header
}

// TopicPartition is the partition the record belongs to.
func (r Record) TopicPartition() TopicPartition {
	return TopicPartition{Topic: r.Topic, Partition: r.Partition}
}

// Clone copies Key, Value and Headers, so that the record no longer keeps the
// fetched bytes alive nor depends on them.
func (r Record) Clone() Record {
	r.Key = slices.Clone(r.Key)
	r.Value = slices.Clone(r.Value)
	if r.Headers != nil {
		hs := make([]Header, len(r.Headers))
		for i, h := range r.Headers {
			hs[i] = Header{Key: string([]byte(h.Key)), Value: slices.Clone(h.Value)}
		}
		r.Headers = hs
	}
	return r
}
