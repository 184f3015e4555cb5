package fetch

import "github.com/ottla/ottla/kafka"

// Pending is the start of a partition of which somebody else is about to say
// where it begins: see [Machine.Begin]. Until then, or until a seek, it is
// neither fetched nor looked up.
func Pending() Start { return Start{kind: startPending, epoch: kafka.NoEpoch} }

// Begin starts partitions that are pending. Others stay as they are: a seek has
// the last word (F35, F38).
func (m *Machine) Begin(at map[kafka.TopicPartition]Start) {
	for tp, start := range at {
		if p := m.part(tp); p != nil && p.state == statePending {
			m.begin(p, start)
		}
	}
}

// Offset is the offset of an [AtOffset] or [AtProgress]; ok is false for others.
func (s Start) Offset() (o kafka.Offset, ok bool) { return kafka.Offset(s.at), s.kind == startOffset }
