package producer

import (
	"math/bits"
	"sync"
)

// spareBuffers is kept beside half of what the budget has opened.
const spareBuffers = 12 << 20

// Buffers come in powers of two.
const (
	smallestBuffer = 12 // 4 KiB
	largestBuffer  = 24 // 16 MiB
)

// buffers keeps buffers for the next batches, by size class, up to a part of
// what the budget has opened and a little more.
type buffers struct {
	budget *budget

	mu   sync.Mutex
	idle int                                          // bytes kept; guarded by mu
	free [largestBuffer - smallestBuffer + 1][][]byte // guarded by mu
}

// take is an empty buffer with room for about n bytes.
func (b *buffers) take(n int) []byte {
	class := max(bits.Len(uint(max(n, 1)-1)), smallestBuffer)
	if class > largestBuffer {
		return make([]byte, 0, n)
	}
	b.mu.Lock()
	list := &b.free[class-smallestBuffer]
	if k := len(*list); k > 0 {
		buf := (*list)[k-1]
		(*list)[k-1] = nil
		*list = (*list)[:k-1]
		b.idle -= cap(buf)
		b.mu.Unlock()
		return buf[:0]
	}
	b.mu.Unlock()
	return make([]byte, 0, 1<<class)
}

// put gives a buffer back that nobody reads or writes any more.
func (b *buffers) put(buf []byte) {
	class := bits.Len(uint(cap(buf))) - 1 // the class that it can serve in full
	if class < smallestBuffer || class > largestBuffer {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if int64(b.idle+cap(buf)) > b.budget.size()/2+spareBuffers {
		return
	}
	b.idle += cap(buf)
	list := &b.free[class-smallestBuffer]
	*list = append(*list, buf)
}
