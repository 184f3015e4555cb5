package conn

import (
	"sort"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// Grace is how long after its time a request is given up: an answer that
// arrives at the very instant of expiry, or that waits in the socket's buffer
// because this process was stopped, wins (C39).
const Grace = time.Millisecond

// FlightConfig is what a [Flight] needs to know.
type FlightConfig struct {
	WriteTimeout time.Duration // for one frame to be written
	Idle         time.Duration // after which the socket is not used again
}

// Outstanding is a request that was written, or is being written, and not yet
// answered.
type Outstanding[T any] struct {
	ID      int32
	Key     int16
	Version int16
	Value   T
	limit   time.Duration // for the answer
	wrote   time.Time     // when it was fully written
	oneWay  uint32        // > 0: not a request but so many in a row without an answer, beginning with ID
}

// Flight is the correlation queue of one socket together with its clocks: what
// is outstanding, in order; until when each may take; until when the broker
// wants silence (KIP-219); and when the socket has been idle too long.
//
// The clock of a request starts at the latest of its own write, the answer
// before it and the end of a throttle, so that a slow answer expires nobody
// behind it. T is the caller's handle of a request.
type Flight[T any] struct {
	cfg FlightConfig

	ring  []Outstanding[T] // power of two
	first uint32           // index of the oldest, modulo len(ring)
	n     uint32
	live  int // entries that wait for an answer
	next  int32

	answered  time.Time // of the last answer, or the end of a throttle
	throttled time.Time // nothing is to be sent before
	used      time.Time // last write or answer
	writing   bool      // the newest entry is being written
	began     time.Time // when that write began
}

// NewFlight makes the state of a socket opened at now.
func NewFlight[T any](cfg FlightConfig, now time.Time) *Flight[T] {
	return &Flight[T]{cfg: cfg, used: now}
}

// Len is how many requests wait for their answer, abandoned ones included.
func (f *Flight[T]) Len() int { return f.live }

// OnWriting takes note that the frame of a request is about to be written, and
// gives its correlation id. limit is how long the answer may take.
func (f *Flight[T]) OnWriting(now time.Time, key, version int16, limit time.Duration, v T) int32 {
	id := f.take()
	*f.push() = Outstanding[T]{ID: id, Key: key, Version: version, Value: v, limit: limit}
	f.live++
	f.writing, f.began, f.used = true, now, now
	return id
}

// OnWritingOneWay is [Flight.OnWriting] for a request that gets no answer
// (Produce with acks 0). A stray answer to it is recognised all the same.
func (f *Flight[T]) OnWritingOneWay(now time.Time) int32 {
	id := f.take()
	f.writing, f.began, f.used = true, now, now
	if f.n > 0 {
		last := f.at(f.n - 1)
		if last.oneWay > 0 && last.oneWay < 1<<30 && distance(last.ID, id) == last.oneWay {
			last.oneWay++
			return id
		}
	}
	*f.push() = Outstanding[T]{ID: id, oneWay: 1}
	return id
}

// OnWritten takes note that the frame was handed to the socket in full.
func (f *Flight[T]) OnWritten(now time.Time) {
	f.writing, f.used = false, now
	if f.n > 0 {
		if last := f.at(f.n - 1); last.oneWay == 0 {
			last.wrote = now
		}
	}
}

// OnAnswer matches the correlation id of an answer. stray is true for an
// answer to a request that wants none, which is to be dropped. The error is a
// [*kafka.ProtocolError] without an address: the socket cannot be used on.
func (f *Flight[T]) OnAnswer(now time.Time, id int32) (o Outstanding[T], stray bool, err error) {
	want := int32(-1)
	for f.n > 0 {
		head := f.at(0)
		if head.oneWay > 0 {
			if id >= 0 && distance(head.ID, id) < head.oneWay {
				return Outstanding[T]{}, true, nil
			}
			if f.live == 0 {
				break
			}
			f.pop()
			continue
		}
		if head.ID != id {
			want = head.ID
			break
		}
		o = f.pop()
		f.live--
		f.answered, f.used = retry.Later(f.answered, now), now
		return o, false, nil
	}
	what := "an answer with correlation id " + itoa(int64(id)) + " that nobody asked for"
	if want >= 0 {
		what = "an answer with correlation id " + itoa(int64(id)) + " where " + itoa(int64(want)) + " was due"
	}
	return Outstanding[T]{}, false, &kafka.ProtocolError{What: what}
}

// Find is the outstanding request with that correlation id.
func (f *Flight[T]) Find(id int32) (o Outstanding[T], ok bool) {
	if e := f.find(id); e != nil {
		return *e, true
	}
	return Outstanding[T]{}, false
}

// Abandon forgets who waits for that answer; it is still outstanding.
func (f *Flight[T]) Abandon(id int32) {
	if e := f.find(id); e != nil {
		var none T
		e.Value = none
	}
}

// find searches by halves: ids grow from one entry to the next.
func (f *Flight[T]) find(id int32) *Outstanding[T] {
	if f.n == 0 || id < 0 {
		return nil
	}
	first := f.at(0).ID
	i := uint32(sort.Search(int(f.n), func(i int) bool {
		return distance(first, f.at(uint32(i)).ID) >= distance(first, id)
	}))
	if i == f.n {
		return nil
	}
	if e := f.at(i); e.ID == id && e.oneWay == 0 {
		return e
	}
	return nil
}

// Drain empties the flight of a socket that is lost, oldest first. It gives
// false when nothing is left.
func (f *Flight[T]) Drain() (o Outstanding[T], ok bool) {
	for f.n > 0 {
		if o = f.pop(); o.oneWay == 0 {
			f.live--
			return o, true
		}
	}
	return Outstanding[T]{}, false
}

// OnThrottle takes note that the broker wants silence for d. It answers
// nothing in that time either, so outstanding clocks wait as well.
func (f *Flight[T]) OnThrottle(now time.Time, d time.Duration) {
	f.throttled = retry.Later(f.throttled, now.Add(d))
	f.answered = retry.Later(f.answered, f.throttled)
}

// Blocked is until when nothing is to be sent; ok is false if that is over.
func (f *Flight[T]) Blocked(now time.Time) (until time.Time, ok bool) {
	return f.throttled, now.Before(f.throttled)
}

// Expired reports whether a request ran out of its time: the one being
// written, or the oldest one, whose answer is due. The socket is to be closed
// then, so that a late answer reaches nobody.
func (f *Flight[T]) Expired(now time.Time) (phase kafka.Phase, id int32, ok bool) {
	if f.writing && !now.Before(f.writeEnd()) {
		return kafka.PhaseWrite, f.next - 1, true
	}
	if h := f.head(); h != nil && !h.wrote.IsZero() && !now.Before(f.answerEnd(h)) {
		return kafka.PhaseAnswer, h.ID, true
	}
	return 0, 0, false
}

// Usable reports whether a new request may go out on this socket: not if it
// has been idle for the limit or longer. A throttle is not idle time: a new
// socket would forget it.
func (f *Flight[T]) Usable(now time.Time) bool {
	return f.live > 0 || now.Before(f.idleEnd())
}

// Deadline is when Expired or Usable may next change; zero is never.
func (f *Flight[T]) Deadline() time.Time {
	var d time.Time
	if f.writing {
		d = f.writeEnd()
	}
	if h := f.head(); h != nil {
		if !h.wrote.IsZero() {
			d = retry.Earlier(d, f.answerEnd(h))
		}
	} else if !f.writing {
		d = retry.Earlier(d, f.idleEnd())
	}
	return d
}

func (f *Flight[T]) writeEnd() time.Time {
	return retry.Later(f.began, f.answered).Add(f.cfg.WriteTimeout + Grace)
}

func (f *Flight[T]) answerEnd(h *Outstanding[T]) time.Time {
	return retry.Later(h.wrote, f.answered).Add(h.limit + Grace)
}

func (f *Flight[T]) idleEnd() time.Time { return retry.Later(f.used, f.throttled).Add(f.cfg.Idle) }

// head is the oldest entry that waits for an answer.
func (f *Flight[T]) head() *Outstanding[T] {
	for i := range f.n {
		if e := f.at(i); e.oneWay == 0 {
			return e
		}
	}
	return nil
}

func (f *Flight[T]) take() int32 {
	id := f.next
	f.next = (f.next + 1) & (1<<31 - 1)
	return id
}

// distance is how many ids lie between two of them; ids wrap after 2^31-1.
func distance(from, to int32) uint32 { return uint32(to-from) & (1<<31 - 1) }

func (f *Flight[T]) at(i uint32) *Outstanding[T] {
	return &f.ring[(f.first+i)&uint32(len(f.ring)-1)]
}

func (f *Flight[T]) push() *Outstanding[T] {
	if f.n == uint32(len(f.ring)) {
		ring := make([]Outstanding[T], max(8, 2*len(f.ring)))
		for i := range f.n {
			ring[i] = *f.at(i)
		}
		f.ring, f.first = ring, 0
	}
	f.n++
	return f.at(f.n - 1)
}

func (f *Flight[T]) pop() Outstanding[T] {
	e := f.at(0)
	o := *e
	*e = Outstanding[T]{}
	f.first++
	f.n--
	return o
}

// check panics if the entries and the count of those alive disagree; tests
// call it after every step.
func (f *Flight[T]) check() {
	live := 0
	for i := range f.n {
		if f.at(i).oneWay == 0 {
			live++
		}
	}
	if live != f.live {
		panic("flight: the count of outstanding requests is wrong")
	}
}
