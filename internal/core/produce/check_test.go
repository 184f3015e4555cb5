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
	flying := 0
	for _, b := range p.queue {
		if b.state == inFlight {
			flying++
		}
		if err := p.checkBatch(b); err != nil {
			return fmt.Errorf("batch %d: %w", b.ID, err)
		}
	}
	switch {
	case flying != p.flying:
		return fmt.Errorf("%d outstanding, counted %d", flying, p.flying)
	case p.flying > p.m.cfg.Window:
		return fmt.Errorf("%d outstanding", p.flying)
	case p.line != nil && !slices.Contains(p.line.ready, p):
		return fmt.Errorf("not in the line of broker %d", p.line.id)
	case p.m.over != nil || p.m.cfg.Plain:
		return nil
	}
	return p.checkSequences()
}

const inFlight = flying

func (p *partition) checkBatch(b *batch) error {
	switch {
	case b.told != (p.m.batches[b.ID] != b):
		return fmt.Errorf("told %v, in the books %v", b.told, !b.told)
	case b.told && !b.away() && p.m.over == nil:
		return fmt.Errorf("it has its result and still waits")
	case b.maybe && !b.stamped:
		return fmt.Errorf("it may be appended and has no sequences")
	case b.away() && !b.stamped:
		return fmt.Errorf("it was sent and has no sequences")
	}
	return nil
}

// checkSequences demands that sequences rise without a hole, and that nobody
// has any behind one without.
func (p *partition) checkSequences() error {
	if p.torn {
		return nil
	}
	want := p.ident
	for i, b := range p.queue {
		switch {
		case !b.stamped:
			for _, c := range p.queue[i:] {
				if c.stamped {
					return fmt.Errorf("batch %d has sequences behind one without", c.ID)
				}
			}
			return nil
		case b.stamp != want:
			return fmt.Errorf("batch %d has %+v, want %+v", b.ID, b.stamp, want)
		}
		want = b.after()
	}
	return nil
}
