package fetch

import (
	"testing"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// The silent failures of this file and the mutations that make their tests
// fail: aborted data handed out (walk.filter always false), committed data
// dropped (aborted.leave does nothing), order of the list trusted (no sort),
// a stall (walk.skip without moving the cursor).

func TestF10ReadCommittedDropsAbortedRecordsItself(t *testing.T) {
	log := batches(tx(7, 0, 1), data(2, 2), mark(record.Abort, 7, 3), data(4, 4))
	for _, c := range []struct {
		iso  Isolation
		want []kafka.Offset
	}{{ReadCommitted, []kafka.Offset{2, 4}}, {ReadUncommitted, []kafka.Offset{0, 1, 2, 4}}} {
		cfg := testConfig()
		cfg.Isolation = c.iso
		r := reading(t, cfg, 0)
		a := r.answer("t", partAnswer{hw: 5, lso: 5, aborted: abortedList(7, 0), data: log})
		if a.Req.IsolationLevel != c.iso.wire() {
			t.Errorf("%v is %d on the wire", c.iso, a.Req.IsolationLevel)
		}
		wantOffsets(t, r.offsets(), c.want...)
		if r.position(tp0) != 5 {
			t.Errorf("%v: position %d, want 5", c.iso, r.position(tp0))
		}
	}
	if (ReadCommitted).wire() != 1 || ReadUncommitted.wire() != 0 {
		t.Error("the levels have the wrong numbers on the wire")
	}
}

// R28: both halves of it. The mutation that drops everything of an aborted
// producer is aborted.leave doing nothing.
func TestF11AnAbortMarkerClosesTheRangeOfItsProducer(t *testing.T) {
	t.Run("R28", func(t *testing.T) {
		r := reading(t, testConfig(), 0)
		r.answer("t", partAnswer{hw: 6, lso: 6, aborted: abortedList(7, 0), data: batches(
			tx(7, 0, 1), mark(record.Abort, 7, 2), tx(7, 3, 4), mark(record.Commit, 7, 5))})
		wantOffsets(t, r.offsets(), 3, 4)
	})
	t.Run("B143", func(t *testing.T) {
		r := reading(t, testConfig(), 1)
		r.answer("t", partAnswer{hw: 10, lso: 10, aborted: abortedList(1, 4), data: batches(
			tx(1, 1, 1), mark(record.Commit, 1, 2), tx(2, 3, 3), tx(1, 4, 4), mark(record.Commit, 2, 5),
			mark(record.Abort, 1, 6), tx(1, 7, 7), tx(2, 8, 8), mark(record.Commit, 1, 9))})
		wantOffsets(t, r.offsets(), 1, 3, 7, 8)
	})
	t.Run("B142 R4", func(t *testing.T) {
		r := reading(t, testConfig(), 100)
		r.answer("t", partAnswer{hw: 400, lso: 400, aborted: abortedList(7, 300, 7, 100), data: batches(
			tx(7, 100, 101), mark(record.Abort, 7, 102), tx(7, 200, 200), mark(record.Commit, 7, 201),
			tx(7, 300, 301), mark(record.Abort, 7, 302), data(303, 303))})
		wantOffsets(t, r.offsets(), 200, 303)
	})
	t.Run("a range that began before the fetch offset holds", func(t *testing.T) {
		r := reading(t, testConfig(), 50)
		r.answer("t", partAnswer{hw: 54, lso: 54, aborted: abortedList(7, 3), data: batches(
			tx(7, 50, 51), mark(record.Abort, 7, 52), tx(7, 53, 53))})
		wantOffsets(t, r.offsets(), 53)
	})
	t.Run("only transactional batches are dropped", func(t *testing.T) {
		plain := data(1, 1).build()
		copy(plain[43:], tx(7, 0, 0).build()[43:51]) // the same producer id, without a transaction
		reseal(plain)
		r := reading(t, testConfig(), 0)
		r.answer("t", partAnswer{hw: 3, lso: 3, aborted: abortedList(7, 0), data: append(append(
			batches(tx(7, 0, 0)), plain...), batches(mark(record.Abort, 7, 2))...)})
		wantOffsets(t, r.offsets(), 1)
	})
	t.Run("a commit marker in between closes nothing", func(t *testing.T) {
		r := reading(t, testConfig(), 0)
		r.answer("t", partAnswer{hw: 4, lso: 4, aborted: abortedList(7, 0), data: batches(
			tx(7, 0, 0), mark(record.Commit, 8, 1), tx(7, 2, 2), mark(record.Abort, 7, 3))})
		wantOffsets(t, r.offsets())
	})
	t.Run("nor does one of the producer's own", func(t *testing.T) {
		r := reading(t, testConfig(), 0)
		r.answer("t", partAnswer{hw: 4, lso: 4, aborted: abortedList(7, 0), data: batches(
			tx(7, 0, 0), mark(record.Commit, 7, 1), tx(7, 2, 2), mark(record.Abort, 7, 3))})
		wantOffsets(t, r.offsets())
	})
}

// A broker that lists a million aborted producers must not hold the consumer up:
// the work is linear. Mutation: a list of open ranges that is searched from its
// beginning; then this test takes minutes.
func TestF11_F22AMillionAbortedProducersCostNoQuadraticTime(t *testing.T) {
	const n = 1 << 20
	r := reading(t, testConfig(), 0)
	list := make([]int64, 0, 2*n)
	for i := range int64(n) {
		list = append(list, i+10, 0)
	}
	r.answer("t", partAnswer{hw: 20, lso: 20, aborted: abortedList(list...), data: batches(
		spec{base: 0, last: 4, pid: 10}, spec{base: 5, last: 9, pid: n + 9}, spec{base: 10, last: 14, pid: 9})})
	wantOffsets(t, r.offsets(), 10, 11, 12, 13, 14)
}

func TestF12NothingAtOrAboveTheLastStableOffsetIsReturned(t *testing.T) {
	log := batches(data(0, 1), tx(7, 2, 3), data(4, 4))
	r := reading(t, testConfig(), 0)
	r.answer("t", partAnswer{hw: 5, lso: 2, data: log})
	wantOffsets(t, r.offsets(), 0, 1)
	if r.position(tp0) != 2 {
		t.Errorf("position %d passed the last stable offset 2", r.position(tp0))
	}
	// A broker that keeps sending what may not be seen must not make a spin.
	r.answer("t", partAnswer{hw: 5, lso: 2, data: batches(tx(7, 2, 3), data(4, 4))})
	if _, ok := maybe[*FetchAction](r); ok {
		t.Fatal("asked again at once after an answer that moved nothing")
	}
	r.wait()
	r.answer("t", partAnswer{hw: 6, lso: -1, data: batches(tx(7, 2, 3), data(4, 4), mark(record.Commit, 7, 5))})
	wantOffsets(t, r.offsets(), 2, 3, 4) // -1 is unknown and hides nothing

	// The record that stands at the last stable offset itself is hidden.
	r = reading(t, testConfig(), 0)
	r.answer("t", partAnswer{hw: 3, lso: 2, data: batches(data(0, 1), data(2, 2))})
	wantOffsets(t, r.offsets(), 0, 1)

	cfg := testConfig()
	cfg.Isolation = ReadUncommitted
	r = reading(t, cfg, 0)
	r.answer("t", partAnswer{hw: 5, lso: 2, data: log})
	wantOffsets(t, r.offsets(), 0, 1, 2, 3, 4)
}

func TestF13ControlBatchesAreNeverData(t *testing.T) {
	for _, iso := range []Isolation{ReadCommitted, ReadUncommitted} {
		cfg := testConfig()
		cfg.Isolation = iso
		r := reading(t, cfg, 0)
		r.answer("t", partAnswer{hw: 6, lso: 6, data: batches(
			tx(7, 0, 0), mark(record.Commit, 7, 1), mark(record.ControlType(99), 7, 2), tx(8, 3, 3), mark(record.Abort, 8, 4),
			spec{base: 5, last: 5, control: true, empty: true})})
		wantOffsets(t, r.offsets(), 0, 3)
		if r.position(tp0) != 6 {
			t.Errorf("position %d, want 6", r.position(tp0))
		}
	}
}

// R29: records before the position twice, or the bookkeeping skipped for them.
// Mutations: chunk.from = base offset; the walk skipping old batches before
// aborted.enter and filter.
func TestF14RecordsBelowThePositionAreDropped(t *testing.T) {
	t.Run("R29", func(t *testing.T) {
		r := reading(t, testConfig(), 5)
		r.answer("t", partAnswer{hw: 20, lso: 20, aborted: abortedList(7, 0), data: batches(
			tx(7, 0, 2), mark(record.Abort, 7, 3), tx(7, 4, 8), tx(7, 9, 9), mark(record.Commit, 7, 10))})
		wantOffsets(t, r.offsets(), 5, 6, 7, 8, 9)
	})
	t.Run("B128", func(t *testing.T) {
		r := reading(t, testConfig(), 1078831)
		r.answer("t", partAnswer{hw: 1078832, lso: 1078832, data: batches(
			spec{base: 1078820, last: 1078831, holes: 1})})
		wantOffsets(t, r.offsets())
		if r.position(tp0) != 1078832 {
			t.Errorf("position %d, want 1078832", r.position(tp0))
		}
		if err := r.err(); err != nil {
			t.Error(err)
		}
	})
	t.Run("a batch wholly below moves nothing", func(t *testing.T) {
		r := reading(t, testConfig(), 10)
		r.answer("t", partAnswer{hw: 10, lso: 10, data: batches(data(0, 3))})
		wantOffsets(t, r.offsets())
		if r.position(tp0) != 10 {
			t.Errorf("position %d, want 10", r.position(tp0))
		}
	})
}

// R30: a healthy-looking stall. Mutation: the position moves to the last
// record's offset + 1, or only with data.
func TestF15ThePositionMovesToTheBatchsLastOffsetPlusOne(t *testing.T) {
	for name, c := range map[string]struct {
		log  []byte
		list []int64
		want []kafka.Offset
	}{
		"R30 the last records were compacted away": {log: batches(spec{base: 0, last: 9, holes: 4}),
			want: []kafka.Offset{0, 1, 2, 3, 4, 5}},
		"R30 only aborted":  {log: batches(tx(7, 0, 5), tx(7, 6, 8), mark(record.Abort, 7, 9)), list: []int64{7, 0}},
		"R30 only markers":  {log: batches(mark(record.Commit, 7, 0), mark(record.Commit, 8, 9))},
		"R30 empty batches": {log: batches(spec{base: 0, last: 9, empty: true})},
		"B127 a gap":        {log: batches(data(9, 9)), want: []kafka.Offset{9}},
	} {
		t.Run(name, func(t *testing.T) {
			r := reading(t, testConfig(), 0)
			r.answer("t", partAnswer{hw: 10, lso: 10, aborted: abortedList(c.list...), data: c.log})
			next := take[*FetchAction](r)
			if got := next.Req.Topics[0].Partitions[0].FetchOffset; got != 10 {
				t.Errorf("the next fetch is at %d, want 10", got)
			}
			wantOffsets(t, r.offsets(), c.want...)
			if r.position(tp0) != 10 {
				t.Errorf("position %d, want 10", r.position(tp0))
			}
			if lag, ok := r.lag(tp0); !ok || lag != 0 {
				t.Errorf("lag %d %v, want 0", lag, ok)
			}
		})
	}
}

// R31 and B131: every cut point. Mutation: a cut tail is an error.
func TestF16ACutLastBatchEndsTheDataSilently(t *testing.T) {
	for _, codec := range []int8{0, 1, 4} {
		whole := batches(data(0, 1), data(2, 3))
		third := spec{base: 4, last: 9, size: 100, codec: compress.Codec(codec)}.build()
		for cut := range len(third) {
			r := reading(t, testConfig(), 0)
			r.answer("t", partAnswer{hw: 10, lso: 10, data: append(whole[:len(whole):len(whole)], third[:cut]...)})
			wantOffsets(t, r.offsets(), 0, 1, 2, 3)
			if err := r.err(); err != nil || r.position(tp0) != 4 {
				t.Fatalf("cut at %d: position %d, error %v", cut, r.position(tp0), err)
			}
		}
	}
}

// nextLimit is the limit of the next fetch, which waits for its backoff.
func (r *rig) nextLimit() int32 {
	r.t.Helper()
	if _, ok := maybe[*FetchAction](r); ok {
		r.t.Fatal("asked again at once for a batch that does not fit")
	}
	r.waitFetch()
	a := take[*FetchAction](r)
	r.out = append(r.out, a)
	return a.Req.Topics[0].Partitions[0].PartitionMaxBytes
}

// A fragment that does not say how large its batch is doubles the limit up to
// that of the answer, and at last the user is told. Mutations: no doubling, no
// backoff, no end.
func TestF17_B130AFragmentAloneRaisesThePartitionsLimit(t *testing.T) {
	r := reading(t, testConfig(), 0)
	fragment := partAnswer{hw: 10, lso: 10, data: data(0, 9).build()[:7]}
	for want := int32(2 << 20); want < 32<<20; want *= 2 {
		r.answer("t", fragment)
		if got := r.nextLimit(); got != want {
			t.Fatalf("limit %d, want %d", got, want)
		}
	}
	r.answer("t", fragment)
	for range cutPatience {
		if got := r.nextLimit(); got != 32<<20 {
			t.Fatalf("limit %d", got)
		}
		if err := r.err(); err != nil {
			t.Fatal(err)
		}
		r.answer("t", fragment)
	}
	if e := asError[*kafka.UnreadableError](t, r.err()); e.Offset != 0 {
		t.Errorf("%v", e)
	}
	if _, ok := maybe[*FetchAction](r); ok {
		t.Error("it spins on")
	}

	r = reading(t, testConfig(), 0)
	r.answer("t", fragment)
	r.nextLimit()
	r.answer("t", partAnswer{hw: 10, lso: 10, data: batches(data(0, 9))})
	if got := take[*FetchAction](r).Req.Topics[0].Partitions[0].PartitionMaxBytes; got != 1<<20 {
		t.Fatalf("limit %d after progress, want the configured one", got)
	}
}

// A fragment that does say it is asked for as it is, also beyond the limit of the
// answer. Mutation: no look at the length.
func TestF17_B130AFragmentSaysHowMuchToAskFor(t *testing.T) {
	for _, size := range []int{5 << 20, 40 << 20} {
		r := reading(t, testConfig(), 3)
		big := spec{base: 3, last: 3, size: size}.build()
		r.answer("t", partAnswer{hw: 10, lso: 10, data: append(data(0, 2).build(), big[:1<<20]...)}) // behind one from before the position
		if got := r.nextLimit(); int(got) != len(big) {
			t.Fatalf("limit %d, want %d", got, len(big))
		}
		r.answer("t", partAnswer{hw: 10, lso: 10, data: big})
		wantOffsets(t, r.offsets(), 3)
	}
}

// Before Fetch 3 a batch above the limit leaves nothing at all. Later versions
// leave answers empty for other reasons. Mutations: only fragments count; every
// empty answer counts.
func TestF17NothingBelowTheHighWatermarkAtOldVersions(t *testing.T) {
	for version, want := range map[int16]int32{2: 2 << 20, 3: 1 << 20} {
		r := newRig(t, testConfig())
		r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtOffset(0)})
		r.step()
		byName := info("t", 1)
		byName.ID = kafka.TopicID{}
		r.m.OnTopic(r.now, "t", byName)
		r.step()
		resp := fetchAnswer("t", partAnswer{hw: 10, lso: -1})
		resp.Version, resp.Topics[0].Topic = version, "t"
		r.m.OnFetch(r.now, take[*FetchAction](r).ID, resp, nil)
		r.step()
		if got := r.nextLimit(); got != want {
			t.Errorf("version %d: limit %d, want %d", version, got, want)
		}
	}
}
