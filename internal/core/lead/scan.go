package lead

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// mostBatch bounds what one batch may become when it is decompressed; a record
// of the contract has some hundred bytes.
const mostBatch = 16 << 20

// Scanner reads the batches of Fetch answers. The zero value is ready. It is
// not for concurrent use.
type Scanner struct {
	dec    compress.Decompressor
	buf    []byte
	reader record.Reader
}

// Scan gives each record of one partition's answer from offset at on to f, in
// order, and returns the offset after the last whole batch: batches without a
// record to give (aborted, control, emptied by compaction) move it as well.
// Records of transactions in the answer's list of aborted ones are left out.
//
// A batch that cannot be read is an error; next is then the offset after it, never less than at,
// or at itself where its end is not known. The entries' slices are valid within
// f only.
func (s *Scanner) Scan(p *kmsg.FetchResponseTopicPartition, at kafka.Offset, f func(Entry)) (next kafka.Offset, err error) {
	aborted := newAborted(p.AbortedTransactions)
	data := p.RecordBatches
	next = at
	for {
		b, rest, err := record.Next(data)
		if err != nil {
			return next, err
		}
		if b.IsZero() {
			return next, nil
		}
		data = rest
		if err := s.batch(b, at, aborted, f); err != nil {
			return max(next, b.NextOffset()), err
		}
		next = max(next, b.NextOffset())
	}
}

func (s *Scanner) batch(b record.Batch, at kafka.Offset, aborted *aborted, f func(Entry)) error {
	passed := b.NextOffset() <= at
	if passed && !b.Control() {
		return nil
	}
	if err := b.Verify(); err != nil {
		return err
	}
	payload, err := b.Payload(&s.dec, s.buf[:0], mostBatch)
	if err != nil {
		return err
	}
	if b.Codec() != compress.None {
		s.buf = payload[:0]
	}
	if b.Control() {
		if m, err := b.Marker(payload); err == nil && m == record.Abort {
			aborted.end(b.ProducerID())
		}
		return nil
	}
	if b.Transactional() && aborted.has(b.ProducerID(), b.LastOffset()) {
		return nil
	}
	s.reader.Reset(b, payload)
	var rec kafka.Record
	for s.reader.Next(&rec) {
		if rec.Offset < at {
			continue
		}
		f(Entry{
			Offset: rec.Offset, Time: rec.Timestamp, Key: rec.Key, Value: rec.Value, Headers: rec.Headers,
			Transactional: b.Transactional(), Writer: Token{b.ProducerID(), b.ProducerEpoch()},
		})
	}
	return s.reader.Err()
}

// aborted is which producers' records are of an aborted transaction, as the
// scan moves on.
type aborted struct {
	from map[kafka.ProducerID][]kafka.Offset
}

func newAborted(list []kmsg.FetchResponseTopicPartitionAbortedTransaction) *aborted {
	a := &aborted{from: map[kafka.ProducerID][]kafka.Offset{}}
	for _, t := range list {
		id := kafka.ProducerID(t.ProducerID)
		a.from[id] = append(a.from[id], kafka.Offset(t.FirstOffset))
	}
	for _, starts := range a.from {
		slices.Sort(starts)
	}
	return a
}

func (a *aborted) has(id kafka.ProducerID, last kafka.Offset) bool {
	starts := a.from[id]
	return len(starts) > 0 && starts[0] <= last
}

func (a *aborted) end(id kafka.ProducerID) {
	if starts := a.from[id]; len(starts) > 0 {
		a.from[id] = starts[1:]
	}
}
