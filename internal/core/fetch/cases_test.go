package fetch

import (
	"errors"
	"testing"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// B127: a gap of hundreds of thousands of offsets is passed like any other.
// Mutation: an answer that does not begin at the position is dropped.
func TestB127AGapOfHundredsOfThousandsOfOffsets(t *testing.T) {
	r := reading(t, testConfig(), 99)
	r.answer("t", partAnswer{hw: 400_001, lso: 400_001, data: batches(data(99, 99))})
	r.answer("t", partAnswer{hw: 400_001, lso: 400_001, data: batches(data(400_000, 400_000))})
	wantOffsets(t, r.offsets(), 99, 400_000)
	if r.position(tp0) != 400_001 {
		t.Errorf("position %d", r.position(tp0))
	}
}

// B131, R31: whatever is there of a third batch, two are handed out and the next
// fetch is behind them, with each codec. Mutation: a fragment that is an error.
func TestB131_R31EveryCutOfTheLastBatch(t *testing.T) {
	for _, codec := range []compress.Codec{compress.None, compress.Zstd} {
		first, second := spec{last: 2, codec: codec, size: 40}.build(), spec{base: 3, last: 5, codec: codec, size: 40}.build()
		third := spec{base: 6, last: 8, codec: codec, size: 40}.build()
		for cut := range third {
			wire := append(append(append([]byte(nil), first...), second...), third[:cut]...)
			r := reading(t, testConfig(), 0)
			r.answer("t", partAnswer{hw: 9, lso: 9, data: wire})
			wantOffsets(t, r.offsets(), 0, 1, 2, 3, 4, 5)
			if err := r.err(); err != nil || r.position(tp0) != 6 {
				t.Fatalf("cut at %d: position %d, %v", cut, r.position(tp0), err)
			}
			if at := take[*FetchAction](r).Req.Topics[0].Partitions[0].FetchOffset; at != 6 {
				t.Fatalf("cut at %d: the next fetch is at %d", cut, at)
			}
		}
	}
}

// R30: an answer of which nothing is left still advances: only aborted, only a
// marker, a batch without records, a batch whose last records are gone. Mutations:
// skip without cursor; position by the last record.
func TestR30AnAnswerOfWhichNothingIsLeftAdvances(t *testing.T) {
	for name, c := range map[string]struct {
		wire    []byte
		aborted []int64
		next    kafka.Offset
		records []kafka.Offset
	}{
		"aborted":          {batches(tx(7, 0, 4), mark(record.Abort, 7, 5)), []int64{7, 0}, 6, nil},
		"a marker":         {batches(mark(record.Commit, 7, 0)), nil, 1, nil},
		"an empty batch":   {batches(spec{last: 9, empty: true}), nil, 10, nil},
		"last ones gone":   {batches(spec{last: 9, holes: 8}), nil, 10, []kafka.Offset{0, 1}},
		"empty at the end": {batches(data(0, 1), spec{base: 2, last: 9, empty: true}), nil, 10, []kafka.Offset{0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			r := reading(t, testConfig(), 0)
			r.answer("t", partAnswer{hw: c.next, lso: c.next, aborted: abortedList(c.aborted...), data: c.wire})
			if at := take[*FetchAction](r).Req.Topics[0].Partitions[0].FetchOffset; at != int64(c.next) {
				t.Errorf("the next fetch is at %d, want %d", at, c.next)
			}
			wantOffsets(t, r.offsets(), c.records...)
			if r.position(tp0) != c.next {
				t.Errorf("position %d, want %d", r.position(tp0), c.next)
			}
			if lag, ok := r.lag(tp0); lag != 0 || !ok {
				t.Errorf("lag %d %v: a healthy-looking stall", lag, ok)
			}
		})
	}
}

// R13: retention deletes what is under the position. Under every policy but latest
// and a time no record that is left is skipped; under fail nothing moves. Mutation:
// a policy that jumps to the end.
func TestR13RetentionUnderThePosition(t *testing.T) {
	for policy, want := range map[Reset]kafka.Offset{
		ResetNearest: 80, ResetEarliest: 80, ResetBackFromLast: 80, ResetLatest: 200, ResetFail: 50,
	} {
		cfg := testConfig()
		cfg.Reset = policy
		r := reading(t, cfg, 50)
		r.answer("t", partAnswer{code: 1})
		if policy == ResetLatest {
			r.listed(200, 0)
		} else {
			r.listed(80, 0)
		}
		if policy == ResetFail {
			r.listed(200, 0)
			if e := asError[*kafka.OutOfRangeError](t, r.err()); e.Start != 80 || e.End != 200 {
				t.Errorf("%v", e)
			}
		}
		if at := r.position(tp0); at != want {
			t.Errorf("%v: position %d, want %d", policy, at, want)
		}
	}
}

// T11: lag is known for every partition after one answer and at most one answer
// old, and no request but Fetch is made for it. Mutation: lag from the position of
// the fetch instead of that of the user.
func TestT11LagAtNoCost(t *testing.T) {
	r := newRig(t, testConfig())
	at := map[kafka.TopicPartition]Start{}
	for p := range int32(3) {
		at[tp("t", p)] = AtOffset(0)
	}
	r.m.Assign(at)
	r.step()
	r.settleLookups(map[string]TopicInfo{"t": info("t", 1, 1, 1)})
	for p := range int32(3) {
		if _, ok := r.lag(tp("t", p)); ok {
			t.Error("a lag before the first answer")
		}
	}
	r.answer("t", partAnswer{p: 0, hw: 10, lso: 8, data: batches(data(0, 3))}, partAnswer{p: 1, hw: 20, lso: 20}, partAnswer{p: 2, hw: 30, lso: 25})
	for p, want := range []int64{8, 20, 25} {
		if lag, ok := r.lag(tp("t", int32(p))); lag != want || !ok {
			t.Errorf("partition %d: lag %d %v, want %d", p, lag, ok, want)
		}
	}
	r.poll()
	if lag, _ := r.lag(tp0); lag != 4 {
		t.Errorf("lag %d behind 4 of 8", lag)
	}
	for _, a := range r.out {
		switch a.(type) {
		case *FetchAction, *LookupAction:
		default:
			t.Errorf("%T was asked for", a)
		}
	}
}

// The epoch of a position, which a group commits, is that of the batch before it,
// also in the middle of one. Mutations: the epoch that was before, in Deliver and in
// Return.
func TestF37TheEpochOfWhatWasHandedOut(t *testing.T) {
	r := reading(t, testConfig(), 0)
	r.answer("t", partAnswer{hw: 20, lso: 20, data: batches(spec{last: 4, epoch: 2}, spec{base: 5, last: 9, epoch: 3})})
	want := func(o kafka.Offset, e kafka.LeaderEpoch) {
		t.Helper()
		at, _ := r.m.At(tp0)
		done, _ := r.m.Finished(tp0)
		if at.Position != o || at.Epoch != e || done != (Progress{o, e}) {
			t.Errorf("at %d epoch %d, finished %+v; want %d epoch %d", at.Position, at.Epoch, done, o, e)
		}
	}
	want(0, kafka.NoEpoch)
	r.pollOne()
	r.m.Finish()
	want(5, 2)
	l, _ := r.m.Take(r.now)
	r.m.Return(l, 7, 7)
	want(7, 3)
	l, _ = r.m.Take(r.now)
	r.m.Return(l, 7, 7) // nothing of it
	want(7, 3)
}

// A reset waits for what was read before, where no epoch is known, too. Mutation:
// wantsList without drained.
func TestF32AResetWithoutEpochsWaitsToo(t *testing.T) {
	r := reading(t, testConfig(), 50)
	r.answer("t", partAnswer{hw: 60, lso: 60, data: spec{base: 50, last: 54, epoch: kafka.NoEpoch}.build()})
	r.answer("t", partAnswer{code: 1})
	if _, ok := maybe[*ListAction](r); ok {
		t.Fatal("the reset began before data in front of it was handed out")
	}
	wantOffsets(t, r.offsets(), 50, 51, 52, 53, 54)
	r.listed(80, 0)
	if r.position(tp0) != 80 {
		t.Errorf("position %d", r.position(tp0))
	}
}

// A broker that fails is doubted for what it leads, not for what it led when it was
// asked. Mutation: brokerFailed without the look at leader.
func TestF8AFailureDoubtsOnlyWhatTheBrokerLeads(t *testing.T) {
	r := newRig(t, testConfig())
	r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtOffset(0), tp("t", 1): AtOffset(0)})
	r.step()
	r.m.OnTopic(r.now, "t", info("t", 1, 1))
	r.step()
	old := take[*FetchAction](r)
	r.m.OnTopic(r.now, "t", info("t", 2, 1))
	r.step()
	r.m.OnFetch(r.now, old.ID, nil, errors.New("lost"))
	if r.m.part(tp0).stale || !r.m.part(tp("t", 1)).stale {
		t.Errorf("doubted: %v and %v, want the second", r.m.part(tp0).stale, r.m.part(tp("t", 1)).stale)
	}
}
