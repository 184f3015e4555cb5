package fetch

import (
	"slices"

	"github.com/ottla/ottla/kafka"
)

// Assign replaces the assignment. Partitions that stay keep their positions and
// what was fetched of them.
func (m *Machine) Assign(at map[kafka.TopicPartition]Start) {
	var gone []kafka.TopicPartition
	m.each(func(p *part) {
		if _, ok := at[p.tp]; !ok {
			gone = append(gone, p.tp)
		}
	})
	m.Remove(gone)
	m.Add(at)
}

// Add assigns more partitions. Those that are assigned already stay as they
// are.
func (m *Machine) Add(at map[kafka.TopicPartition]Start) {
	tps := make([]kafka.TopicPartition, 0, len(at))
	for tp := range at {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, kafka.TopicPartition.Compare)
	for _, tp := range tps {
		if p, isNew := m.add(tp); isNew {
			m.begin(p, at[tp])
		}
	}
}

// Remove takes partitions out of the assignment. Nothing of them is handed out
// after it.
func (m *Machine) Remove(tps []kafka.TopicPartition) {
	for _, tp := range tps {
		p := m.part(tp)
		if p == nil {
			continue
		}
		p.invalidate()
		m.shelf.drop(p)
		p.cut++
		p.state = stateFailed // for whoever still holds it
		m.remove(p)
	}
	m.tidy()
}

// Seek moves the position of a partition, whatever state it is in, and reports
// whether the partition is assigned. A partition that had stopped reads on.
func (m *Machine) Seek(tp kafka.TopicPartition, to Start) bool {
	p := m.part(tp)
	if p == nil {
		return false
	}
	m.begin(p, to)
	return true
}

// begin starts reading p anew.
func (m *Machine) begin(p *part, at Start) {
	p.invalidate()
	m.shelf.drop(p)
	p.cut++
	p.lent, p.held, p.owes = false, 0, false
	p.corrupt, p.last = -1, at.past()
	p.attempt, p.limit = 0, 0
	p.tail, p.vetting = at.past(), vetting{passed: -1}
	if at.kind == startPending {
		p.state, p.position, p.next = statePending, -1, -1
		return
	}
	ts, asks := at.timestamp()
	if asks {
		p.state, p.list = stateListing, listing{ts: ts}
		p.position, p.next = -1, -1
		return
	}
	p.moveTo(kafka.Offset(at.at))
	p.vet()
}

// Pause stops fetching and handing out of a partition, or lets it go on. What
// was fetched is kept. It reports whether the partition is assigned.
func (m *Machine) Pause(tp kafka.TopicPartition, paused bool) bool {
	p := m.part(tp)
	if p == nil {
		return false
	}
	p.paused = paused
	m.shelf.enlist(p)
	return true
}

// Paused lists the paused partitions.
func (r *roster) Paused() []kafka.TopicPartition {
	var tps []kafka.TopicPartition
	r.each(func(p *part) {
		if p.paused {
			tps = append(tps, p.tp)
		}
	})
	return tps
}

// Assigned lists the assigned partitions.
func (r *roster) Assigned() []kafka.TopicPartition {
	tps := make([]kafka.TopicPartition, 0, r.parts)
	r.each(func(p *part) { tps = append(tps, p.tp) })
	return tps
}

// At is where a partition stands.
type At struct {
	Position kafka.Offset      // next offset to hand out, -1 while that is being asked for
	Epoch    kafka.LeaderEpoch // of the last batch passed, kafka.NoEpoch if none
	Log      Log
	Lag      int64 // offsets between the position and the end that the isolation level shows
	HasLag   bool  // there was an answer to tell it
	Stopped  bool  // by an error, until a seek
}

// At tells where a partition stands; ok is false if it is not assigned.
func (m *Machine) At(tp kafka.TopicPartition) (at At, ok bool) {
	p := m.part(tp)
	if p == nil {
		return At{}, false
	}
	at = At{Position: p.position, Epoch: p.last, Log: p.log, Stopped: p.state == stateFailed}
	end := p.log.HighWatermark
	if m.cfg.Isolation == ReadCommitted && p.log.Stable >= 0 {
		end = p.log.Stable
	}
	if end >= 0 && p.position >= 0 {
		at.Lag, at.HasLag = int64(max(end-p.position, 0)), true
	}
	return at, true
}
