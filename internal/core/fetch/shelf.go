package fetch

// shelf is what was fetched and waits to be handed out.
type shelf struct {
	ring    []*part // partitions with something to take, next first (F43)
	resting []*part // those that have had their share in this turn
	turn    uint64
	used    int64 // bytes of frames that wait, and of what was decoded ahead
	spares  spares
}

// NextTurn begins a poll: partitions that had their share in the last one come
// first.
func (s *shelf) NextTurn() {
	s.turn++
	if len(s.resting) > 0 {
		s.ring = append(s.resting, s.ring...)
		s.resting = nil
	}
}

// rest takes a partition that had its share out of the turn.
func (s *shelf) rest(p *part, share int) bool {
	if p.turn != s.turn {
		p.turn, p.given = s.turn, 0
	}
	if share == 0 || p.given < share {
		return false
	}
	s.resting = append(s.resting, p)
	return true
}

// pop takes the first chunk off p's queue.
func (p *part) pop() {
	c := &p.queue[0]
	p.buffered -= int64(c.batch.Size())
	*c = chunk{}
	p.queue = p.queue[1:]
	if len(p.queue) == 0 {
		p.queue = nil
	}
}

// settle moves the position over offsets without data once everything before
// them has been handed out (F15).
func (p *part) settle() {
	for !p.lent && len(p.queue) > 0 && p.queue[0].silent() {
		p.position, p.last = p.queue[0].next, p.queue[0].epoch
		p.pop()
	}
}

// enlist puts p into the ring if there is something to take.
func (s *shelf) enlist(p *part) {
	if p.ready() && !p.inRing {
		p.inRing = true
		s.ring = append(s.ring, p)
	}
}

// drop forgets all that was fetched of p and not taken.
func (s *shelf) drop(p *part) {
	for i := range p.queue {
		s.release(p.queue[i].frame)
		s.discard(p.queue[i].ahead)
	}
	p.queue, p.buffered = nil, 0
}

// release gives the budget one chunk's hold on its frame back.
func (s *shelf) release(f *frame) {
	if f == nil {
		return
	}
	if f.refs--; f.refs == 0 {
		s.used -= f.bytes
		f.recycle()
	}
}
