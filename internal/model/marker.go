package model

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// marker is the end of a transaction on its way to one partition.
type marker struct {
	to     kafka.TopicPartition
	id     kafka.ProducerID
	epoch  kafka.ProducerEpoch
	commit bool
	due    time.Time
}

// Places in the header of a batch, and the flags of a marker.
const (
	posCRC         = 17
	posAttributes  = 21 // what the checksum covers begins here
	flagsOfAMarker = 0x30
)

// markerBatch is the control batch of a marker.
func markerBatch(m marker, ts kafka.Timestamp) record.Batch {
	kind := uint16(0)
	if m.commit {
		kind = 1
	}
	key := binary.BigEndian.AppendUint16([]byte{0, 0}, kind)
	value := make([]byte, 6) // version and coordinator epoch
	var b record.Builder
	b.Append(ts, key, value, nil)
	stamp := record.Stamp{ProducerID: m.id, ProducerEpoch: m.epoch, BaseSequence: -1}
	wire, _ := b.Seal(stamp, 0, nil, 0, nil)
	binary.BigEndian.PutUint16(wire[posAttributes:], flagsOfAMarker)
	return resealed(wire)
}

// resealed is a batch whose checksum fits its bytes again.
func resealed(wire []byte) record.Batch {
	sum := crc32.Checksum(wire[posAttributes:], crc32.MakeTable(crc32.Castagnoli))
	binary.BigEndian.PutUint32(wire[posCRC:], sum)
	b, _, _ := record.Next(wire)
	return b
}

// markerDue is when the next marker of t is written; zero is never.
func (c *coordinator) markerDue(t *txn) time.Time {
	var at time.Time
	for _, m := range t.markers {
		if !c.held[m.to] {
			at = retry.Earlier(at, m.due)
		}
	}
	return at
}

// writeMarkers writes the markers of t that are due, and completes it with the
// last of them.
func (c *coordinator) writeMarkers(t *txn) {
	var left []marker
	for _, m := range t.markers {
		if c.held[m.to] || m.due.After(c.now) {
			left = append(left, m)
			continue
		}
		c.deliver(m)
	}
	t.markers = left
	if len(left) == 0 {
		c.complete(t)
	}
}

func (c *coordinator) deliver(m marker) {
	if g, ok := offsetsOf(m.to); ok {
		c.group(g).end(m.id, m.commit)
		return
	}
	if p := c.partition(m.to); p != nil { // else the topic is gone: nothing to mark
		p.mark(c.now, m)
	}
}

func (c *coordinator) delay() time.Duration {
	d := c.cfg.MarkerDelay
	if d > 0 && c.cfg.Rand != nil {
		d = time.Duration(c.cfg.Rand.Int64N(int64(d)))
	}
	return d
}
