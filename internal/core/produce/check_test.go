package produce

import (
	"fmt"
	"slices"
)

// check reports a broken invariant. Tests call it after every step.
func (m *Machine) check() error {
	for _, p := range m.order {
		if err := p.checkPartition(); err != nil {
			return fmt.Errorf("%v: %w", p.tp, err)
		}
	}
	for _, br := range m.lanes {
		if br.outstanding < 0 || br.outstanding > m.cfg.BrokerWindow {
			return fmt.Errorf("broker %d has %d outstanding requests", br.id, br.outstanding)
		}
		for _, p := range br.ready {
			if p.line != br {
				return fmt.Errorf("%v stands in the line of broker %d without knowing", p.tp, br.id)
			}
		}
	}
	return nil
}

func (p *partition) checkPartition() error {
	for i, b := range p.queue {
		switch {
		case b.told:
			return fmt.Errorf("batch %d has its result and still waits", b.ID)
		case p.m.batches[b.ID] != b:
			return fmt.Errorf("batch %d is not in the books", b.ID)
		case b.stamped && i > 0:
			return fmt.Errorf("batch %d has sequences before those ahead of it are settled", b.ID)
		case (b.state == flying) != (p.flight == b):
			return fmt.Errorf("batch %d: state and flight differ", b.ID)
		case b.maybe && !b.stamped:
			return fmt.Errorf("batch %d may be appended and has no sequences", b.ID)
		}
	}
	if p.line != nil && !slices.Contains(p.line.ready, p) {
		return fmt.Errorf("not in the line of broker %d", p.line.id)
	}
	return nil
}
