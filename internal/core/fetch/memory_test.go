package fetch

import (
	"io"
	"testing"

	"github.com/ottla/ottla/kafka"
)

// F46: the memory of an answer is used again when the last that looks at it is
// done: here a user who has one batch of it, and a worker who decodes another,
// while a seek has dropped the rest. A Fetch that failed gives no memory back: its
// connection may still write there. Mutations: Work that does not lend; recycle
// without regard to loans.
func TestF46MemoryIsUsedAgainWhenNobodyLooksAtIt(t *testing.T) {
	r := newRig(t, testConfig())
	r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtOffset(0)})
	r.step()
	r.settleLookups(map[string]TopicInfo{"t": info("t", 1)})
	a := take[*FetchAction](r)
	resp := fetchAnswer("t", partAnswer{hw: 30, lso: 30, data: zipped(0, 3, 100)})
	r.read(a, resp)
	n := len(resp.Topics[0].Partitions[0].RecordBatches)
	first := &resp.Topics[0].Partitions[0].RecordBatches[0]
	r.m.OnFetch(r.now, a.ID, resp, nil)
	r.step()
	again := func() bool { // whether a new answer would lie where the first does
		b := a.home.take(n)
		same := &b[0] == first
		if same {
			a.home.free = append(a.home.free, b)
			a.home.bytes += cap(b)
		}
		return same
	}
	w, _ := r.m.Ahead()
	r.decode(w)
	w, worked := r.m.Ahead()
	l, took := r.m.Take(r.now)
	if !worked || !took || again() {
		t.Fatal("nothing to take or to decode, or its memory is free")
	}
	r.m.Deliver(l)
	l.Release()
	r.m.Seek(tp0, AtOffset(20))
	r.step()
	if again() {
		t.Error("the memory is free while a user and a worker look at it")
	}
	l.Free()
	if again() {
		t.Error("the memory is free while a worker looks at it")
	}
	r.decode(w)
	if !again() {
		t.Error("the memory is not used again")
	}
	f, ok := maybe[*FetchAction](r)
	if !ok {
		t.Fatal("no fetch behind the seek")
	}
	if b := f.Buffer(n); &b[0] != first {
		t.Error("the next answer lies elsewhere")
	}
	r.m.OnFetch(r.now, f.ID, nil, io.EOF)
	if again() {
		t.Error("the memory of a failed fetch is used again")
	}
}
