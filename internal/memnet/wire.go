package memnet

import (
	"io"
	"sync"
	"syscall"
	"time"
)

const maxSegment = 16 << 10

// wire is what the two ends of a connection share.
type wire struct {
	mu   sync.Mutex
	half [2]half       // half[i] carries what side i writes
	wake chan struct{} // closed at the next change; nil = nobody waits
}

// half is one direction. Its wire's mutex guards it.
type half struct {
	segs    []segment
	size    int // bytes in segs
	window  int // limit of size
	latency time.Duration
	rate    int       // bytes per second, 0 = unlimited
	free    time.Time // when a limited link can take the next byte
	last    time.Time // arrival of the last segment; later ones never overtake
	cut     int64     // bytes until a reset, negative = never
	hung    bool      // Hang
	held    bool      // Partition
	dead    bool      // the reader closed: bytes go nowhere
	end     error     // what follows the segments: io.EOF or ECONNRESET
	endAt   time.Time
}

type segment struct {
	at   time.Time // when it arrives
	data []byte
}

// put queues as much of p as window and cut allow.
func (h *half) put(p []byte, now time.Time) int {
	if h.dead || h.end == syscall.ECONNRESET {
		return len(p) // nobody will read it
	}
	n := min(len(p), max(h.window-h.size, 0))
	if h.cut >= 0 {
		n = int(min(int64(n), h.cut))
		h.cut -= int64(n)
	}
	for rest := p[:n]; len(rest) > 0; {
		part := rest[:min(len(rest), maxSegment)]
		rest = rest[len(part):]
		h.segs = append(h.segs, segment{h.arrival(len(part), now), append([]byte(nil), part...)})
	}
	h.size += n
	return n
}

func (h *half) arrival(n int, now time.Time) time.Time {
	if h.rate > 0 {
		start := latest(now, h.free)
		h.free = start.Add(time.Duration(float64(n) / float64(h.rate) * float64(time.Second)))
		now = h.free
	}
	h.last = latest(now.Add(h.latency), h.last)
	return h.last
}

// take moves arrived bytes into p.
func (h *half) take(p []byte, now time.Time) int {
	n := 0
	for !h.hung && !h.held && n < len(p) && len(h.segs) > 0 && !h.segs[0].at.After(now) {
		s := &h.segs[0]
		k := copy(p[n:], s.data)
		n += k
		if s.data = s.data[k:]; len(s.data) == 0 {
			h.segs[0] = segment{}
			h.segs = h.segs[1:]
		}
	}
	h.size -= n
	return n
}

// next is when the reader should look again without being woken.
func (h *half) next() time.Time {
	switch {
	case h.hung || h.held:
		return time.Time{}
	case len(h.segs) > 0:
		return h.segs[0].at
	case h.end != nil:
		return h.endAt
	}
	return time.Time{}
}

// finish ends the direction behind what is under way.
func (h *half) finish(err error, now time.Time) {
	if h.end == syscall.ECONNRESET {
		return
	}
	h.end, h.endAt = err, latest(now.Add(h.latency), h.last)
}

// ended is the end, once it has arrived and everything before it was read.
func (h *half) ended(now time.Time) error {
	if h.end == nil || h.hung || h.held || len(h.segs) > 0 || h.endAt.After(now) {
		return nil
	}
	return h.end
}

func (h *half) wasReset(now time.Time) bool {
	return h.end == syscall.ECONNRESET && !h.hung && !h.held && !h.endAt.After(now)
}

// resetDue is when a reset will arrive, zero when none is under way.
func (h *half) resetDue() time.Time {
	if h.end != syscall.ECONNRESET || h.hung || h.held {
		return time.Time{}
	}
	return h.endAt
}

// resetLocked resets both directions at once, as a device in the middle does.
func (w *wire) resetLocked() {
	now := time.Now()
	for i := range w.half {
		w.half[i].cut = -1
		if w.half[i].end != io.EOF || !w.half[i].dead {
			w.half[i].finish(syscall.ECONNRESET, now)
		}
	}
	w.broadcastLocked()
}

func (w *wire) broadcastLocked() {
	if w.wake != nil {
		close(w.wake)
		w.wake = nil
	}
}

// waitLocked waits for a change, or for the instant until unless it is zero.
func (w *wire) waitLocked(until time.Time) {
	if w.wake == nil {
		w.wake = make(chan struct{})
	}
	ch := w.wake
	w.mu.Unlock()
	defer w.mu.Lock()
	if until.IsZero() {
		<-ch
		return
	}
	t := time.NewTimer(time.Until(until))
	defer t.Stop()
	select {
	case <-ch:
	case <-t.C:
	}
}

func passed(deadline, now time.Time) bool { return !deadline.IsZero() && !now.Before(deadline) }

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// earliest is the earlier of two instants, of which zero means never.
func earliest(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}
