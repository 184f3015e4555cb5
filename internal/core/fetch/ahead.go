package fetch

import (
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// aheadGrowth bounds what one batch may take of the budget before it is known
// how large it is, as a multiple of its size on the wire.
const aheadGrowth = 16

// Work is a batch to be decoded before anybody asks for it (F25).
type Work struct {
	Batch record.Batch
	Limit int // bytes of its decoded form; more is not worth the room
	Room  int // bytes that it will likely have; 0 = not known
	p     *part
	state *decoding
	frame *frame
}

// decoding is a batch that is being decoded, or was.
type decoding struct {
	busy     bool
	payload  []byte // if done
	reserved int64  // of the budget: bytes of payload, or what it may come to
}

// Ahead is the next batch worth decoding: compressed, in the order of polls,
// and with room for it in the budget. OnAhead takes the result.
func (m *Machine) Ahead() (Work, bool) {
	var first *chunk
	var of *part
	best := aheadDepth
	for _, p := range m.shelf.ring {
		if best == 0 {
			break
		}
		if p.paused || p.withheld {
			continue
		}
		for depth := range min(best, len(p.queue)) {
			if c := &p.queue[depth]; c.compressed() && c.ahead == nil {
				first, of, best = c, p, depth
				break
			}
		}
	}
	if first == nil {
		return Work{}, false
	}
	wire := int64(first.batch.Size())
	free := m.cfg.Budget - m.shelf.used - m.reserved - int64(min(m.cfg.PartitionMaxBytes, m.cfg.MaxBytes))
	if free < 2*wire {
		return Work{}, false
	}
	d := &decoding{busy: true, reserved: min(free, aheadGrowth*wire)}
	first.ahead = d
	m.shelf.used += d.reserved
	first.frame.lend()
	room := min(of.room(first.batch), int(d.reserved))
	return Work{Batch: first.batch, Limit: int(d.reserved), Room: room, p: of, state: d, frame: first.frame}, true
}

// aheadDepth is how many batches of a partition are decoded before they are
// asked for.
const aheadDepth = 4

func (c *chunk) compressed() bool { return !c.batch.IsZero() && c.batch.Codec() != compress.None }

// busy reports whether the batch that is next in turn is being decoded: it is
// waited for, so that partitions keep their turns.
func (s *shelf) busy() bool {
	return len(s.ring) > 0 && s.ring[0].ready() && s.ring[0].queue[0].ahead != nil && s.ring[0].queue[0].ahead.busy
}

// OnAhead takes in what became of work. A batch that does not fit stays as it
// came, and one that cannot be read is left to whoever takes it.
func (s *shelf) OnAhead(w Work, payload []byte, err error) {
	d := w.state
	d.busy = false
	w.frame.back()
	if d.reserved == 0 { // dropped meanwhile
		return
	}
	s.discard(d)
	if err == nil {
		w.p.became(w.Batch, payload)
		d.payload, d.reserved = payload, int64(len(payload))
		s.used += d.reserved
	}
}

// room is how large the payload of a compressed batch of p will be, by the last one.
func (p *part) room(b record.Batch) int {
	if p.unpacked == 0 || b.Codec() == compress.None {
		return 0
	}
	n := int(float64(b.Size()) * p.unpacked)
	return n + n/16
}

// became notes what a batch was decompressed to.
func (p *part) became(b record.Batch, payload []byte) {
	if b.Codec() != compress.None {
		p.unpacked = min(float64(len(payload))/float64(b.Size()), mostUnpacked)
	}
}

// mostUnpacked bounds the room that is made in advance, as a multiple of the size on
// the wire.
const mostUnpacked = 16

// keep keeps what was decoded with its batch. Without compression that is the
// batch's own memory.
func (s *shelf) keep(c *chunk, payload []byte) {
	c.ahead = &decoding{payload: payload}
	if c.compressed() {
		c.ahead.reserved = int64(len(payload))
		s.used += c.ahead.reserved
	}
}

// discard gives up what was decoded, or will be.
func (s *shelf) discard(d *decoding) {
	if d != nil {
		s.used -= d.reserved
		d.reserved, d.payload = 0, nil
	}
}
