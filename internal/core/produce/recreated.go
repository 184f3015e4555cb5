package produce

import (
	"time"
)

// OnRecreated says that a topic was deleted and created again. What waits for
// the old one has not happened, unless it may be there; what is outstanding is
// settled by its answer, and is not sent again. The sequences of the new
// topic's partitions start under an epoch of their own.
func (m *Machine) OnRecreated(now time.Time, topic string, err error) {
	for _, p := range m.order {
		if p.tp.Topic != topic || p.waitingArea() {
			continue
		}
		for _, b := range p.queue {
			b.doomed = err
		}
		if p.begun && !m.cfg.Plain {
			p.leave()
		}
		p.acked, p.base = -1, -1
		p.evaluate(now)
	}
}
