package fetch

import (
	"slices"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// TopicInfo is what metadata says of a topic. The index of Partitions is the
// partition id.
type TopicInfo struct {
	ID         kafka.TopicID // zero if unknown
	Partitions []PartitionInfo
}

// PartitionInfo names a partition's leader, kafka.NoNode if there is none.
type PartitionInfo struct {
	Leader kafka.NodeID
	Epoch  kafka.LeaderEpoch
}

// topic is a topic of the assignment.
type topic struct {
	name    string
	id      kafka.TopicID
	seen    bool    // metadata has described it
	parts   []*part // in order of their ids
	looking bool    // a Lookup is out
	attempt int
	retryAt time.Time
	unknown time.Time // since when a topic once seen is unknown to metadata
}

func (t *topic) part(id int32) *part {
	i, ok := t.find(id)
	if !ok {
		return nil
	}
	return t.parts[i]
}

func (t *topic) find(id int32) (int, bool) {
	return slices.BinarySearchFunc(t.parts, id, func(p *part, id int32) int { return int(p.tp.Partition) - int(id) })
}

// wantsLookup reports whether a partition of t needs metadata.
func (t *topic) wantsLookup() bool {
	if t.looking {
		return false
	}
	return slices.ContainsFunc(t.parts, func(p *part) bool {
		return p.state != stateFailed && (p.stale || p.leader == kafka.NoNode)
	})
}

// lookup asks for metadata if a partition needs it.
func (t *topic) lookup(now time.Time) *LookupAction {
	if !t.wantsLookup() || now.Before(t.retryAt) {
		return nil
	}
	a := &LookupAction{Topic: t.name}
	for _, p := range t.parts {
		if p.stale {
			a.Stale = append(a.Stale, p.tp.Partition)
		}
	}
	t.looking = true
	return a
}

// OnTopic takes in what metadata says of a topic: the answer to a Lookup, or a
// change that was noticed otherwise.
func (m *Machine) OnTopic(now time.Time, name string, info TopicInfo) {
	t := m.topics[name]
	if t == nil {
		return
	}
	t.looking, t.seen = false, true
	t.unknown = time.Time{}
	if !info.ID.IsZero() && info.ID != t.id {
		m.onTopicID(t, info.ID)
	}
	missing := false
	for _, p := range t.parts {
		if int(p.tp.Partition) >= len(info.Partitions) {
			missing = true
			p.leader = kafka.NoNode
			continue
		}
		pi := info.Partitions[p.tp.Partition]
		if pi.Leader != p.leader || pi.Epoch != p.epoch {
			p.follow(pi.Leader, pi.Epoch)
			m.broker(p.leader)
		}
		p.stale = false
		missing = missing || p.leader == kafka.NoNode
	}
	m.tidy()
	if !missing {
		t.attempt = 0
		return
	}
	t.attempt++ // a partition in creation, or an election: ask again, with patience
	t.retryAt = now.Add(m.cfg.Retry.Delay(t.attempt+lookupPatience, m.rng))
}

// OnHint takes a leader that an answer named and that the cluster's map took.
func (m *Machine) OnHint(h *HintAction) {
	p := m.part(h.TopicPartition)
	if p == nil || h.Epoch <= p.epoch {
		return
	}
	p.follow(h.Leader, h.Epoch)
	m.broker(h.Leader)
}

// follow takes a new leader.
func (p *part) follow(leader kafka.NodeID, epoch kafka.LeaderEpoch) {
	changed := epoch != p.epoch
	p.lead = ledBy(leader, epoch)
	p.invalidate()
	if changed {
		p.vet()
	}
}

// lookupPatience is the step of the backoff behind which metadata is asked again
// for a partition that has no leader.
const lookupPatience = 4

// onTopicID notices a topic that was deleted and created again: its offsets
// mean nothing any more, so its partitions stop.
func (m *Machine) onTopicID(t *topic, id kafka.TopicID) {
	old := t.id
	t.id = id
	delete(m.byID, old)
	m.byID[id] = t
	if old.IsZero() {
		return
	}
	for _, p := range t.parts {
		if p.state != stateFailed {
			m.fail(p, "fetch", &kafka.RecreatedError{Topic: t.name, Old: old, New: id})
		}
	}
}

// OnTopicError takes in a Lookup that failed. code is the broker's code, 0 if
// err is no broker's word.
func (m *Machine) OnTopicError(now time.Time, name string, code int16, err error) {
	t := m.topics[name]
	if t == nil {
		return
	}
	t.looking = false
	t.attempt++
	t.retryAt = now.Add(m.cfg.Retry.Delay(t.attempt, m.rng))
	if code == 0 {
		return
	}
	switch retry.Of(code) {
	case retry.Retry:
	case retry.RefreshMetadata:
		if !t.seen || code != codeUnknownTopic && code != codeUnknownTopicID { // waited for (F50)
			return
		}
		if t.unknown.IsZero() {
			t.unknown = now
		}
		if now.Sub(t.unknown) < m.cfg.UnknownTimeout {
			return
		}
		fallthrough
	default:
		for _, p := range t.parts {
			if p.state != stateFailed {
				m.stop(p, "metadata", err)
			}
		}
	}
}
