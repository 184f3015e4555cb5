package fetch

import (
	"errors"
	"fmt"
	"slices"
)

// check is the Machine's invariants; tests call it after every step.
func check(m *Machine) error {
	frames := map[*frame]int{}
	var err error
	m.each(func(p *part) {
		if e := p.check(frames); e != nil && err == nil {
			err = e
		}
	})
	var used int64
	for f, refs := range frames {
		if refs > f.refs {
			return fmt.Errorf("a frame counts %d references, %d are there", f.refs, refs)
		}
		used += f.bytes
	}
	for f := range frames {
		if len(f.memory) > 0 && slices.ContainsFunc(m.shelf.spares.free, func(b []byte) bool { return &b[0] == &f.memory[0] }) {
			return errors.New("memory that is in use is to be used again")
		}
	}
	if used > m.shelf.used { // a loan holds frames too, that no queue shows
		return fmt.Errorf("%d bytes wait, %d are counted", used, m.shelf.used)
	}
	var reserved int64
	for _, b := range m.brokers {
		if b.fetch != nil {
			reserved += b.fetch.reserved
		}
	}
	if reserved != m.reserved {
		return fmt.Errorf("fetches reserve %d bytes, %d are counted", reserved, m.reserved)
	}
	for _, p := range m.shelf.ring {
		if !p.inRing {
			return fmt.Errorf("%s stands in the ring and does not know", p.tp)
		}
	}
	return err
}

func (p *part) check(frames map[*frame]int) error {
	at, buffered := p.position, int64(0)
	for i := range p.queue {
		c := &p.queue[i]
		if i > 0 && c.from != p.queue[i-1].next {
			return fmt.Errorf("%s: the queue has a hole at %d", p.tp, p.queue[i-1].next)
		}
		if i == 0 && !p.lent && c.from != at {
			return fmt.Errorf("%s: position %d, but the queue begins at %d", p.tp, at, c.from)
		}
		if c.frame != nil {
			frames[c.frame]++
		}
		if c.ahead != nil {
			frames[&frame{bytes: c.ahead.reserved, refs: 1}]++
		}
		buffered += int64(c.batch.Size())
	}
	n := len(p.queue)
	switch {
	case buffered != p.buffered:
		return fmt.Errorf("%s: %d bytes wait, %d are counted", p.tp, buffered, p.buffered)
	case n > 0 && p.queue[n-1].err == nil && p.queue[n-1].next != p.next:
		return fmt.Errorf("%s: the queue ends at %d, the next fetch is at %d", p.tp, p.queue[n-1].next, p.next)
	case n == 0 && !p.lent && p.state == stateReading && p.position != p.next:
		return fmt.Errorf("%s: nothing waits at %d, the next fetch is at %d", p.tp, p.position, p.next)
	case p.ready() && !p.inRing:
		return fmt.Errorf("%s: data waits and nobody will take it", p.tp)
	}
	return nil
}
