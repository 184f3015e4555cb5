package model

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// oneBatch is the batch that a Produce request has for a partition: exactly
// one, and whole.
func oneBatch(data []byte) (record.Batch, int16) {
	b, rest, err := record.Next(data)
	switch {
	case err != nil || !b.IsZero() && b.Verify() != nil:
		return b, kerr.CorruptMessage.Code
	case b.IsZero() || len(rest) > 0 || b.Control():
		return b, kerr.InvalidRecord.Code
	}
	return b, 0
}

// Fate is what became of a record in the log.
type Fate uint8

// The fates of a record.
const (
	Plain     Fate = iota // of no transaction
	Committed             // of a committed transaction
	Aborted               // of an aborted one
	Open                  // of one that is not decided
)

// String is the fate in a word.
func (f Fate) String() string {
	return [...]string{"plain", "committed", "aborted", "open"}[f]
}

// Record is one record of a log.
type Record struct {
	kafka.Record
	Producer kafka.ProducerID // -1 if none
	Epoch    kafka.ProducerEpoch
	Fate     Fate
}

// Readable reports whether a consumer that reads committed records sees r once
// everything before it is decided.
func (r Record) Readable() bool { return r.Fate == Plain || r.Fate == Committed }

// Records is everything that the log of tp holds, markers left out. Keys and
// values alias the log.
func (c *Cluster) Records(tp kafka.TopicPartition) []Record {
	p := c.partition(tp)
	if p == nil {
		return nil
	}
	var out []Record
	for i, e := range p.entries {
		if e.Control() {
			continue
		}
		proto := Record{Producer: e.ProducerID(), Epoch: e.ProducerEpoch(), Fate: p.fate(i)}
		for _, r := range recordsOf(e.Batch) {
			proto.Record = r
			proto.Topic, proto.Partition = tp.Topic, tp.Partition
			out = append(out, proto)
		}
	}
	return out
}

// fate is that of the batch with index i.
func (p *partition) fate(i int) Fate {
	b := p.entries[i]
	if !b.Transactional() {
		return Plain
	}
	for _, e := range p.entries[i+1:] {
		if e.Control() && e.ProducerID() == b.ProducerID() {
			if e.commit {
				return Committed
			}
			return Aborted
		}
	}
	return Open
}

func recordsOf(b record.Batch) []kafka.Record {
	payload, err := b.Payload(nil, nil, 0)
	if err != nil {
		return nil
	}
	var out []kafka.Record
	var rd record.Reader
	rd.Reset(b, payload)
	for {
		var r kafka.Record
		if !rd.Next(&r) {
			return out
		}
		out = append(out, r)
	}
}

// Bounds is the first offset of tp, the last stable one, and the end.
func (c *Cluster) Bounds(tp kafka.TopicPartition) (start, stable, end kafka.Offset) {
	p := c.partition(tp)
	return p.start, p.stable(), p.end
}

// Compact removes the records below the last stable offset that a later one
// with the same key replaces, and those of aborted transactions. Offsets stay;
// the last batch of a producer stays without records, and markers stay.
func (c *Cluster) Compact(tp kafka.TopicPartition) {
	p := c.partition(tp)
	stable := p.stable()
	newest := map[string]kafka.Offset{}
	last := map[kafka.ProducerID]kafka.Offset{}
	for i, e := range p.entries {
		if e.Control() || e.LastOffset() >= stable {
			continue
		}
		last[e.ProducerID()] = e.BaseOffset()
		for _, r := range recordsOf(e.Batch) {
			if p.fate(i) != Aborted && r.Key != nil {
				newest[string(r.Key)] = r.Offset
			}
		}
	}
	var kept []entry
	for i, e := range p.entries {
		if e.Control() || e.LastOffset() >= stable {
			kept = append(kept, e)
			continue
		}
		var left []kafka.Record
		for _, r := range recordsOf(e.Batch) {
			if p.fate(i) != Aborted && newest[string(r.Key)] == r.Offset && r.Key != nil {
				left = append(left, r)
			}
		}
		if len(left) > 0 || last[e.ProducerID()] == e.BaseOffset() {
			e.Batch = rewritten(e.Batch, left)
			kept = append(kept, e)
		}
	}
	p.entries = kept
}
