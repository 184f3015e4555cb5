package fetch

// frame is one answer's memory. It counts against the budget until the last
// batch in it was handed out or dropped. It may be used again once nobody looks
// at its batches any more either.
type frame struct {
	bytes int64
	refs  int // batches that wait
	loans int // batches that were taken, until Free, or are being decoded ahead

	memory []byte // of the answer, from Buffer; nil if it is left to the collector
	home   *spares
}

// spares is memory that is to be used again.
type spares struct {
	free   [][]byte
	bytes  int   // of free
	limit  int64 // of bytes
	poison bool
}

// Buffer is memory for the answer to the Fetch, which has n bytes: what an earlier
// answer no longer needs, if it is large enough. The driver reads the answer into
// it before OnFetch, or does not use it. As every method of the Machine it is not
// for concurrent use. A Fetch that closes a session has none.
func (a *FetchAction) Buffer(n int) []byte {
	if a.request == nil {
		return nil
	}
	a.request.memory = a.home.take(n)
	return a.request.memory
}

// Free tells that nobody looks at a batch that was taken any longer, after
// everything else that is done with the Loan. A driver that reads answers into
// what Buffer gives calls it once for each. It is as a method of the Machine.
func (l Loan) Free() { l.frame.back() }

// lend notes that somebody looks at a batch of the frame, until back.
func (f *frame) lend() {
	if f != nil {
		f.loans++
	}
}

func (f *frame) back() {
	if f != nil {
		f.loans--
		f.recycle()
	}
}

// mostSpare bounds the memory that is kept beside the budget, and mostFree the
// number of pieces, which are looked through one by one.
const (
	mostSpare = 12 << 20
	mostFree  = 64
)

// take gives the smallest free memory with n bytes, or new one.
func (s *spares) take(n int) []byte {
	best := -1
	for i, b := range s.free {
		if cap(b) >= n && (best < 0 || cap(b) < cap(s.free[best])) {
			best = i
		}
	}
	switch {
	case best < 0 && len(s.free) == 0: // perhaps nothing ever comes back
		return make([]byte, n)
	case best < 0:
		return make([]byte, n+n/8+64) // answers differ a little
	}
	b := s.free[best]
	last := len(s.free) - 1
	s.free[best], s.free[last] = s.free[last], nil
	s.free = s.free[:last]
	s.bytes -= cap(b)
	return b[:cap(b)]
}

// recycle gives the memory of a frame back if nobody uses it.
func (f *frame) recycle() {
	s, b := f.home, f.memory
	if b == nil || f.refs > 0 || f.loans > 0 {
		return
	}
	f.memory = nil
	if s.poison {
		for i := range b {
			b[i] = Poison
		}
	}
	if cap(b) == 0 || len(s.free) == mostFree || int64(s.bytes+cap(b)) > s.limit {
		return
	}
	s.free = append(s.free, b)
	s.bytes += cap(b)
}

// Poison is what memory that is to be used again is filled with under
// [Config.Poison].
const Poison = 0xdb
