package record

import (
	"encoding/binary"
	"strconv"

	"github.com/ottla/ottla/kafka"
)

// ControlType is the kind of a marker in a control batch. Brokers may write
// kinds that this list does not have: they are skipped, like all that is not
// Abort or Commit.
type ControlType int16

// The markers of Kafka. Those from LeaderChange on stand in the log of the
// controllers only.
const (
	NoMarker       ControlType = -1 // the batch is empty: compaction removed the marker
	Abort          ControlType = 0
	Commit         ControlType = 1
	LeaderChange   ControlType = 2
	SnapshotHeader ControlType = 3
	SnapshotFooter ControlType = 4
	KRaftVersion   ControlType = 5
	KRaftVoters    ControlType = 6
)

// String is a name for the type, or its number.
func (t ControlType) String() string {
	switch t {
	case NoMarker:
		return "none"
	case Abort:
		return "abort"
	case Commit:
		return "commit"
	case LeaderChange:
		return "leader change"
	case SnapshotHeader:
		return "snapshot header"
	case SnapshotFooter:
		return "snapshot footer"
	case KRaftVersion:
		return "kraft version"
	case KRaftVoters:
		return "kraft voters"
	}
	return "control type " + strconv.Itoa(int(t))
}

// Marker is the kind of the marker that a control batch holds. payload is what
// [Batch.Payload] gave. Later versions of a marker are taken as far as this one
// is known. The error is a [*CorruptError].
func (b Batch) Marker(payload []byte) (ControlType, error) {
	if !b.Control() {
		return NoMarker, b.corrupt("it is asked for a marker, but holds data", nil)
	}
	var r Reader
	var rec kafka.Record
	r.Reset(b, payload)
	if !r.Next(&rec) {
		return NoMarker, r.Err()
	}
	if len(rec.Key) < 4 {
		return NoMarker, b.corrupt("the key of its marker is null or shorter than 4 bytes", nil)
	}
	if v := int16(binary.BigEndian.Uint16(rec.Key)); v < 0 {
		return NoMarker, b.corrupt("the version of its marker is "+strconv.Itoa(int(v)), nil)
	}
	t := ControlType(binary.BigEndian.Uint16(rec.Key[2:]))
	if t != Abort && t != Commit {
		return t, nil
	}
	if len(rec.Value) < 6 {
		return NoMarker, b.corrupt("the value of its marker is null or shorter than 6 bytes", nil)
	}
	if v := int16(binary.BigEndian.Uint16(rec.Value)); v < 0 {
		return NoMarker, b.corrupt("the version of its marker's value is "+strconv.Itoa(int(v)), nil)
	}
	return t, nil
}
