package produce

import (
	"time"

	"github.com/ottla/ottla/kafka"
)

type broker struct {
	id          kafka.NodeID
	outstanding int
	ready       []*partition // a line; some of it may have nothing to send any more
}

type request struct {
	broker *broker
	items  []*batch
	behind bool // a batch of it follows one that is outstanding
}

func (m *Machine) broker(id kafka.NodeID) *broker {
	br := m.brokers[id]
	if br == nil {
		br = &broker{id: id}
		m.brokers[id] = br
		m.lanes = append(m.lanes, br)
	}
	return br
}

// send makes the requests that have room: one batch of every partition in the
// broker's line, up to the size of a request. Who was left out stands first in
// the next one.
func (m *Machine) send(now time.Time) {
	if m.over != nil {
		return
	}
	for _, br := range m.lanes {
		for br.outstanding < m.cfg.BrokerWindow && len(br.ready) > 0 {
			if items := m.take(br, now); len(items) > 0 {
				m.request(br, items, now)
			}
		}
	}
}

// take takes the next request's batches out of the line.
func (m *Machine) take(br *broker, now time.Time) []*batch {
	var items []*batch
	size, used := 0, 0
	for _, p := range br.ready {
		b := p.sendable(now)
		if b != nil && m.tx != nil && !m.tx.enrols.mayLeave(p.tp) {
			b = nil
		}
		if b != nil && size > 0 && size+b.size > m.cfg.RequestBytes {
			break
		}
		used++
		p.line = nil
		if b != nil {
			items = append(items, b)
			size += b.size
		}
	}
	br.ready = append(br.ready[:0], br.ready[used:]...)
	return items
}

func (m *Machine) request(br *broker, items []*batch, now time.Time) {
	m.lastReq++
	req := &request{broker: br, items: items}
	act := Send{Request: m.lastReq, Broker: br.id, Items: make([]Item, len(items))}
	for i, b := range items {
		p := b.part
		if !b.stamped {
			b.number()
		}
		act.Items[i] = Item{Batch: b.ID, Stamp: b.stamp}
		req.behind = req.behind || p.flying > 0
		b.state = flying
		p.flying++
		p.at = br
	}
	act.Behind = req.behind && !m.cfg.Plain
	m.requests[m.lastReq] = req
	br.outstanding++
	m.emit(act)
	for _, b := range items {
		b.part.maybeOffer(now)
	}
}

// landed takes an outstanding request out of the books.
func (m *Machine) landed(id RequestID) *request {
	req := m.requests[id]
	if req == nil {
		return &request{broker: &broker{id: kafka.NoNode}}
	}
	delete(m.requests, id)
	req.broker.outstanding--
	for _, b := range req.items {
		b.state = ready
		b.part.flying--
	}
	return req
}
