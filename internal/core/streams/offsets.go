package streams

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// report is one of the two maps of offsets that a member sends: what the owner
// set, and what the broker has.
type report struct {
	set   map[TaskID]int64 // nil = unset
	sent  map[TaskID]int64
	known bool // sent is what the broker has
}

// wire is the map as the wire has it: nil keeps what the broker has.
func wire(m map[TaskID]int64) []kmsg.TaskOffset {
	out := []kmsg.TaskOffset{}
	for _, id := range slices.SortedFunc(maps.Keys(m), TaskID.Compare) {
		w := kmsg.NewTaskOffset()
		w.SubtopologyID, w.Partition, w.Offset = id.Subtopology, id.Partition, m[id]
		out = append(out, w)
	}
	return out
}

func (r *report) changed() bool { return r.set != nil && !(r.known && maps.Equal(r.set, r.sent)) }

// onSent takes over what a heartbeat that succeeded carried.
func (r *report) onSent(carried map[TaskID]int64, did bool) {
	if did {
		r.sent, r.known = carried, true
	}
}

// offsets decides when task offsets go along with a heartbeat (version 1 only).
type offsets struct {
	values, ends report
	sentAt       time.Time // of the last heartbeat that carried any and succeeded
	moves, told  uint64    // changes of the owned set, and how many of them a heartbeat with offsets followed
}

// carried are the offsets in a heartbeat that is out.
type carried struct {
	values, ends       map[TaskID]int64
	hasValues, hasEnds bool
	moves              uint64
}

// attach puts offsets into a heartbeat. due says that it is time for them.
func (o *offsets) attach(req *kmsg.StreamsGroupHeartbeatRequest, kind beatKind, due bool) carried {
	c := carried{moves: o.moves}
	switch {
	case req.Version < 1:
		return c
	case kind == joinBeat:
		c.hasValues, c.hasEnds = true, true
	case kind == steadyBeat && due:
		c.hasValues, c.hasEnds = o.values.changed(), o.ends.changed()
	}
	if c.hasValues {
		c.values = maps.Clone(o.values.set)
		req.TaskOffsets = wire(c.values)
	}
	if c.hasEnds {
		c.ends = maps.Clone(o.ends.set)
		req.TaskEndOffsets = wire(c.ends)
	}
	return c
}

func (o *offsets) onSent(c carried, at time.Time) {
	o.values.onSent(c.values, c.hasValues)
	o.ends.onSent(c.ends, c.hasEnds)
	if c.hasValues || c.hasEnds {
		o.sentAt, o.told = at, c.moves
	}
}

// forget is a failure: what the broker has is not known any more.
func (o *offsets) forget() { o.values.known, o.ends.known = false, false }

// due reports whether offsets may be sent with the next heartbeat.
func (o *offsets) due(now time.Time, s *Snapshot) bool {
	if o.moves != o.told || s.TaskOffsetInterval > 0 && !now.Before(o.sentAt.Add(s.TaskOffsetInterval)) {
		return true
	}
	return s.AcceptableRecoveryLag >= 0 && slices.ContainsFunc(s.Target.Warmup, func(id TaskID) bool {
		return o.hot(id, s.AcceptableRecoveryLag)
	})
}

// hot reports whether a warm-up has caught up.
func (o *offsets) hot(id TaskID, lag int64) bool {
	at, ok := o.values.set[id]
	end, known := o.ends.set[id]
	if !ok || !known || at == math.MaxInt64 || end == math.MaxInt64 {
		return false
	}
	return end <= at || uint64(end)-uint64(at) <= uint64(lag)
}

// OnTaskOffsets takes the offsets of tasks over: the sums of the positions in
// their changelogs, and of the ends of those. A nil map is unset: the broker
// keeps what it has. They go along with heartbeats when it is time for them.
func (m *Machine) OnTaskOffsets(values, ends map[TaskID]int64) error {
	for _, o := range []map[TaskID]int64{values, ends} {
		for _, id := range slices.SortedFunc(maps.Keys(o), TaskID.Compare) {
			if err := id.check(); err != nil {
				return err
			}
		}
	}
	m.offsets.values.set, m.offsets.ends.set = maps.Clone(values), maps.Clone(ends)
	return nil
}
