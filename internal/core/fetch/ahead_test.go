package fetch

import (
	"strconv"
	"testing"

	"github.com/ottla/ottla/kafka"

	"github.com/ottla/ottla/record/compress"
)

// zipped are batches of 10 records each, compressed, from an offset on.
func zipped(from kafka.Offset, n, size int) []byte {
	var out []byte
	for i := range n {
		base := from + kafka.Offset(10*i)
		out = append(out, spec{base: base, last: base + 9, codec: compress.LZ4, size: size}.build()...)
	}
	return out
}

// stocked is a rig with 3 compressed batches of each of two partitions, and no
// fetch out but the next.
func stocked(t *testing.T, cfg Config, size int) *rig {
	r := newRig(t, cfg)
	r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtOffset(0), tp("t", 1): AtOffset(0)})
	r.step()
	r.settleLookups(map[string]TopicInfo{"t": info("t", 1, 1)})
	r.answer("t", partAnswer{hw: 30, lso: 30, data: zipped(0, 3, size)}, partAnswer{p: 1, hw: 30, lso: 30, data: zipped(0, 3, size)})
	return r
}

func (r *rig) decode(w Work) {
	r.t.Helper()
	var d Decoder
	d.Limit = w.Limit
	payload, err := d.Decode(w.Batch, nil)
	r.m.OnAhead(w, payload, err)
	r.check()
}

// Mutations: Ahead in order of partitions; busy always false; a payload that is
// not handed on.
func TestF25WorkGoesAheadInTheOrderOfPolls(t *testing.T) {
	r := stocked(t, testConfig(), 100)
	var works []Work
	for {
		w, ok := r.m.Ahead()
		if !ok {
			break
		}
		works = append(works, w)
		r.check()
	}
	var order []kafka.Offset
	for _, w := range works {
		order = append(order, w.Batch.BaseOffset())
	}
	wantOffsets(t, order, 0, 0, 10, 10, 20, 20)
	if _, ok := r.m.Take(r.now); ok || r.m.Ready() {
		t.Fatal("a batch is handed out while it is being decoded, or another before it")
	}
	r.decode(works[1])
	if _, ok := r.m.Take(r.now); ok {
		t.Fatal("partition 1 came before its turn")
	}
	r.decode(works[0])
	for p := range int32(2) {
		l, ok := r.m.Take(r.now)
		if !ok || l.Partition != p || len(l.Payload) == 0 {
			t.Fatalf("%v %s with %d bytes", ok, l.TopicPartition, len(l.Payload))
		}
		if n := len(recordsOf(l, l.Payload)); n != 10 {
			t.Errorf("%d records", n)
		}
		r.m.Deliver(l)
		l.Release()
		r.check()
	}
	for _, w := range works[2:] {
		r.decode(w)
	}
	for range 4 {
		l, _ := r.m.Take(r.now)
		r.m.Deliver(l)
		l.Release()
	}
	r.check()
	if r.m.shelf.used != 0 {
		t.Errorf("%d bytes wait when all was handed out", r.m.shelf.used)
	}
}

// What is decoded counts against the budget; where it has no room nothing is
// decoded, and what turns out to be too large is undone and stays compressed.
// Mutations: Ahead without the look at free; OnAhead that keeps the reservation;
// Ahead that offers it again.
func TestF25_F26DecodedBytesAreOfTheBudget(t *testing.T) {
	const size = 10_000 // 100 kB a batch, of zeros
	cfg := testConfig()
	cfg.PartitionMaxBytes, cfg.MaxBytes, cfg.Budget = 10_000, 20_000, 300_000
	r := stocked(t, cfg, size)
	began, n := r.m.shelf.used, 0
	for w, ok := r.m.Ahead(); ok; w, ok = r.m.Ahead() {
		if r.m.shelf.used > cfg.Budget {
			t.Fatalf("%d bytes wait or may, of %d", r.m.shelf.used, cfg.Budget)
		}
		r.decode(w)
		n++
	}
	if r.m.shelf.used != began { // each grows beyond 16 times
		t.Errorf("%d bytes wait, %d before", r.m.shelf.used, began)
	}
	if n != 6 {
		t.Errorf("%d batches were tried, want each once", n)
	}
	l, ok := r.m.Take(r.now)
	if !ok || l.Payload != nil {
		t.Errorf("%v, %d bytes: what was undone is not taken as it came", ok, len(l.Payload))
	}
	// No room: the batches wait as they came.
	cfg.Budget = 20_000
	r = stocked(t, cfg, size)
	r.m.shelf.used += cfg.Budget
	if _, ok := r.m.Ahead(); ok {
		t.Error("work ahead beyond the budget")
	}
}

// A seek gives up what is being decoded; its result changes nothing. Mutation:
// drop without discard.
func TestF25ASeekGivesWorkUp(t *testing.T) {
	r := stocked(t, testConfig(), 100)
	w, _ := r.m.Ahead()
	r.m.Seek(tp0, AtOffset(0))
	r.m.Remove([]kafka.TopicPartition{tp("t", 1)})
	r.check()
	if r.m.shelf.used != 0 {
		t.Errorf("%d bytes wait", r.m.shelf.used)
	}
	r.decode(w)
	if r.m.shelf.used != 0 {
		t.Errorf("%d bytes wait behind the result", r.m.shelf.used)
	}
}

// Only compressed batches are worth it, and none of a paused partition.
func TestF25WhatIsNotWorkedAhead(t *testing.T) {
	r := reading(t, testConfig(), 0)
	r.answer("t", partAnswer{hw: 20, lso: 20, data: data(0, 9).build()})
	if _, ok := r.m.Ahead(); ok {
		t.Error("an uncompressed batch")
	}
	r = stocked(t, testConfig(), 100)
	r.m.Pause(tp0, true)
	r.m.Pause(tp("t", 1), true)
	if _, ok := r.m.Ahead(); ok {
		t.Error("of a paused partition")
	}
}

// A batch that cannot be read is left to whoever takes it, so that its error
// comes in order. Mutation: OnAhead that decides.
func TestF23_F25AnErrorOfWorkAheadWaitsForItsTurn(t *testing.T) {
	r := reading(t, testConfig(), 0)
	bad := zipped(10, 1, 100)
	bad[len(bad)-2] ^= 1
	reseal(bad)
	r.answer("t", partAnswer{hw: 20, lso: 20, data: append(zipped(0, 1, 100), bad...)})
	for w, ok := r.m.Ahead(); ok; w, ok = r.m.Ahead() {
		r.decode(w)
	}
	if r.err() != nil {
		t.Fatal("told before the records in front of it")
	}
	if n := len(r.offsets()); n != 10 {
		t.Errorf("%d records", n)
	}
	if e := asError[*kafka.UnreadableError](t, r.err()); e.Offset != 10 {
		t.Errorf("%v", e)
	}
}

// What was decoded for a range that left in the middle is not decoded again.
func TestF25WhatARangeLeftStaysDecoded(t *testing.T) {
	for _, codec := range []compress.Codec{compress.None, compress.Zstd} {
		r := reading(t, testConfig(), 0)
		r.answer("t", partAnswer{hw: 20, lso: 20, data: spec{last: 9, codec: codec, size: 50}.build()})
		l, _ := r.m.Take(r.now)
		l.Payload, _ = r.dec.Decode(l.Batch, nil)
		r.m.Return(l, 4, 4)
		r.check()
		l, _ = r.m.Take(r.now)
		if len(l.Payload) == 0 {
			t.Fatalf("%v: it is to be decoded again", codec)
		}
		wantOffsets(t, offsetsOf(recordsOf(l, l.Payload), tp0), 4, 5, 6, 7, 8, 9)
		r.m.Return(l, 10, 10)
		if r.m.shelf.used != 0 {
			t.Errorf("%v: %d bytes wait", codec, r.m.shelf.used)
		}
	}
}

// F43: with a limit for each partition the others get their part of a turn, and
// the next turn goes on where this one stopped. Mutations: rest always false;
// NextTurn that forgets resting.
func TestF43ALimitForEachPartition(t *testing.T) {
	cfg := testConfig()
	cfg.TurnRecords = 15
	r := newRig(t, cfg)
	r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtOffset(0), tp("t", 1): AtOffset(0)})
	r.step()
	r.settleLookups(map[string]TopicInfo{"t": info("t", 1, 1)})
	var many []byte
	for i := range kafka.Offset(5) {
		many = append(many, data(10*i, 10*i+9).build()...)
	}
	r.answer("t", partAnswer{hw: 50, lso: 50, data: many}, partAnswer{p: 1, hw: 50, lso: 50, data: data(0, 9).build()})
	for turn, want := range []string{"0 0 10", "20 30", "40", ""} {
		r.m.NextTurn()
		var got string
		for {
			recs, ok := r.pollOne()
			if !ok {
				break
			}
			if got != "" {
				got += " "
			}
			got += strconv.Itoa(int(recs[0].o))
		}
		if got != want {
			t.Errorf("turn %d gave %q, want %q", turn, got, want)
		}
	}
	if r.position(tp0) != 50 || r.position(tp("t", 1)) != 10 {
		t.Errorf("positions %d and %d", r.position(tp0), r.position(tp("t", 1)))
	}
}
