package consumer

import (
	"sync"

	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/record/compress"
)

// buffers is the memory of decompressed batches with Config.ReuseBuffers, and who
// has the memory of answers.
type buffers struct {
	reuse  bool
	poison bool // overwrite what is recycled

	mu    sync.Mutex
	inUse [][]byte // guarded by mu: of batches that the user has until the next poll
	free  [][]byte // guarded by mu

	loans []fetch.Loan // guarded by actor.mu: what was taken since the last poll
}

// lends reports whether the user gets the memory of the answer that a batch came
// in: until the next poll, or for ever if nothing is reused and the batch was not
// compressed. Otherwise the next answer may be read into it as soon as the batch
// is decoded.
func (b *buffers) lends(l fetch.Loan) bool { return b.reuse || l.Batch.Codec() == compress.None }

// takenLocked notes that a batch was taken.
func (b *buffers) takenLocked(l fetch.Loan) {
	switch {
	case b.reuse:
		b.loans = append(b.loans, l)
	case !b.lends(l):
		l.Free() // its memory stays until it is delivered in any case
	}
}

// maxFree and maxFreeSize bound what is kept for later.
const (
	maxFree     = 32
	maxFreeSize = 4 << 20
)

// spare is memory to decompress into: some that is used again, or new one with the
// room that is likely needed, nil if that is not known.
func (b *buffers) spare(room int) []byte {
	if !b.reuse && room > 0 {
		return make([]byte, 0, room)
	}
	if !b.reuse {
		return nil
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	n := len(b.free)
	if n == 0 {
		return nil
	}
	buf := b.free[n-1]
	b.free = b.free[:n-1]
	return buf
}

// given notes that a batch has reached the user, who has it until the next poll.
func (b *buffers) given(batch Batch) {
	if b.reuse && batch.Codec() != compress.None {
		b.mu.Lock()
		b.inUse = append(b.inUse, batch.payload)
		b.mu.Unlock()
	}
}

// recycleLocked takes back what the user had since the last poll.
func (b *buffers) recycleLocked() {
	for i := range b.loans {
		b.loans[i].Free()
	}
	clear(b.loans)
	b.loans = b.loans[:0]
	b.mu.Lock()
	defer b.mu.Unlock()
	for i, buf := range b.inUse {
		if b.poison {
			for k := range buf {
				buf[k] = 0xdb
			}
		}
		if len(b.free) < maxFree && cap(buf) <= maxFreeSize {
			b.free = append(b.free, buf[:0])
		}
		b.inUse[i] = nil
	}
	b.inUse = b.inUse[:0]
}
