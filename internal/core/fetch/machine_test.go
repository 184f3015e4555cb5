package fetch

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// manyParts assigns n partitions of topic t, all led by broker 1.
func manyParts(t testing.TB, cfg Config, n int) *rig {
	r := newRig(t, cfg)
	at := map[kafka.TopicPartition]Start{}
	leaders := make([]kafka.NodeID, n)
	for p := range n {
		at[tp("t", int32(p))] = AtOffset(0)
		leaders[p] = 1
	}
	r.m.Assign(at)
	r.step()
	r.settleLookups(map[string]TopicInfo{"t": info("t", leaders...)})
	return r
}

func TestF1TheNextFetchGoesOutBeforeAnythingIsTaken(t *testing.T) {
	r := reading(t, testConfig(), 0)
	r.answer("t", partAnswer{hw: 100, lso: 100, data: batches(data(0, 9))})
	a := take[*FetchAction](r)
	if got := a.Req.Topics[0].Partitions[0].FetchOffset; got != 10 {
		t.Fatalf("next fetch at %d, want 10", got)
	}
	r.step()
	if _, ok := maybe[*FetchAction](r); ok {
		t.Fatal("a second fetch to the broker is out")
	}
	if r.position(tp0) != 0 {
		t.Errorf("position %d moved before anything was handed out", r.position(tp0))
	}
}

func TestF1OneFetchPerBrokerNamesAllItsPartitions(t *testing.T) {
	r := newRig(t, testConfig())
	r.m.Assign(map[kafka.TopicPartition]Start{
		tp("a", 0): AtOffset(1), tp("a", 1): AtOffset(2), tp("b", 0): AtOffset(3), tp("b", 1): AtOffset(4)})
	r.step()
	r.settleLookups(map[string]TopicInfo{"a": info("a", 1, 2), "b": info("b", 1, 1)})
	for range 2 {
		f := take[*FetchAction](r)
		n := 0
		for _, rt := range f.Req.Topics {
			n += len(rt.Partitions)
		}
		if want := map[kafka.NodeID]int{1: 3, 2: 1}[f.Broker]; n != want {
			t.Errorf("broker %d is asked for %d partitions, want %d", f.Broker, n, want)
		}
	}
}

// B155: with room for one partition per answer each gets its turn.
func TestF5PartitionsRotateFromFetchToFetch(t *testing.T) {
	t.Run("B155", func(t *testing.T) {
		r := manyParts(t, testConfig(), 10)
		next := map[int32]kafka.Offset{}
		for range 10 {
			a := take[*FetchAction](r)
			first := a.Req.Topics[0].Partitions[0].Partition
			o := next[first]
			next[first]++
			if len(a.Req.Topics) != 1 {
				t.Fatalf("the topic is named %d times in one request", len(a.Req.Topics))
			}
			r.m.OnFetch(r.now, a.ID, fetchAnswer("t", partAnswer{p: first, hw: 99, lso: 99, data: batches(data(o, o))}), nil)
			r.step()
		}
		if len(next) != 10 {
			t.Errorf("%d of 10 partitions were served in 10 fetches", len(next))
		}
	})
	t.Run("topics stay together", func(t *testing.T) {
		var parts []*part
		for _, name := range []string{"a", "b"} {
			tt := &topic{name: name}
			for p := range int32(3) {
				parts = append(parts, &part{tp: tp(name, p), topic: tt})
			}
		}
		s := ""
		for _, p := range rotate(parts, tp("a", 1)) {
			s += " " + p.tp.String()
		}
		if s != " a-2 a-0 a-1 b-0 b-1 b-2" {
			t.Error(s)
		}
	})
}

func TestF6ABatchAboveTheLimitsIsAccepted(t *testing.T) {
	cfg := testConfig()
	cfg.PartitionMaxBytes, cfg.MaxBytes, cfg.Budget = 100, 200, 400
	r := reading(t, cfg, 0)
	a := r.answer("t", partAnswer{hw: 2, lso: 2, data: batches(spec{base: 0, last: 0, size: 5000}, data(1, 1))})
	if a.Req.MaxBytes != 200 || a.Req.Topics[0].Partitions[0].PartitionMaxBytes != 100 {
		t.Errorf("limits %d and %d", a.Req.MaxBytes, a.Req.Topics[0].Partitions[0].PartitionMaxBytes)
	}
	wantOffsets(t, r.offsets(), 0, 1)
	take[*FetchAction](r) // and it goes on
}

// B149: an answer that a seek, a revoke or a leader change overtook. Mutation:
// answer.partition without the generation.
func TestF7DataOfAnOlderGenerationIsDroppedForThatPartitionOnly(t *testing.T) {
	full := func(p int32) partAnswer {
		return partAnswer{p: p, hw: 10, lso: 10, data: batches(data(0, 9))}
	}
	for name, c := range map[string]struct {
		do   func(r *rig)
		want []kafka.Offset
	}{
		"B149 seek back": {func(r *rig) { r.m.Seek(tp0, AtOffset(0)) }, nil},
		"revoke and assign again": {func(r *rig) {
			r.m.Remove([]kafka.TopicPartition{tp0})
			r.m.Add(map[kafka.TopicPartition]Start{tp0: AtOffset(0)})
		}, nil},
		"leader change": {func(r *rig) { r.m.OnTopic(r.now, "t", info("t", 2, 1)) }, nil},
		// The broker is busy with the Fetch that is out, so nothing newer is asked
		// for. Mutation: OnTopic without invalidate.
		"leader change to a broker that is busy": {func(r *rig) {
			ti := info("t", 1, 1)
			ti.Partitions[0].Epoch++
			r.m.OnTopic(r.now, "t", ti)
		}, nil},
		"pause and resume": {func(r *rig) { r.m.Pause(tp0, true); r.m.Pause(tp0, false) },
			[]kafka.Offset{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}},
	} {
		t.Run(name, func(t *testing.T) {
			r := manyParts(t, testConfig(), 2)
			a := take[*FetchAction](r)
			c.do(r)
			r.step()
			r.m.OnFetch(r.now, a.ID, fetchAnswer("t", full(0), full(1)), nil)
			r.step()
			by := map[int32][]kafka.Offset{}
			for _, g := range r.poll() {
				by[g.tp.Partition] = append(by[g.tp.Partition], g.o)
			}
			wantOffsets(t, by[0], c.want...)
			if len(by[1]) != 10 {
				t.Errorf("the other partition lost its data: %v", by[1])
			}
		})
	}
}

func TestF7ATakenBatchIsNotHandedOutAfterASeek(t *testing.T) {
	r := reading(t, testConfig(), 0)
	r.answer("t", partAnswer{hw: 10, lso: 10, data: batches(data(0, 4), data(5, 9))})
	l, _ := r.m.Take(r.now)
	r.m.Seek(tp0, AtOffset(7))
	if r.m.Deliver(l) {
		t.Error("delivered what was fetched before the seek")
	}
	if r.position(tp0) != 7 {
		t.Errorf("position %d, want 7", r.position(tp0))
	}
	wantOffsets(t, r.offsets())
}

func TestF8AnErrorDelaysThatPartitionOnly(t *testing.T) {
	for _, code := range []int16{6, 74, 75, 78, 5, 56} {
		r := manyParts(t, testConfig(), 2)
		r.answer("t", partAnswer{p: 0, code: code}, partAnswer{p: 1, hw: 1, lso: 1, data: batches(data(0, 0))})
		a := take[*FetchAction](r)
		if n := len(a.Req.Topics[0].Partitions); n != 1 || a.Req.Topics[0].Partitions[0].Partition != 1 {
			t.Errorf("code %d: the next fetch names %d partitions", code, n)
		}
		_, looks := maybe[*LookupAction](r)
		if want := code != 75 && code != 78; looks != want {
			t.Errorf("code %d: metadata is asked: %v, want %v", code, looks, want)
		}
		if err := r.err(); err != nil {
			t.Errorf("code %d: the user sees %v", code, err)
		}
		if looks {
			r.m.OnTopic(r.now, "t", info("t", 2, 1))
		}
		r.wait()
		if b := r.brokerOf(0); looks && b != 2 {
			t.Errorf("code %d: the partition is asked for at %d, not at its new leader", code, b)
		}
		r.out = append(r.out, a)
	}
}

// brokerOf is the broker whose outstanding fetch names a partition of t.
func (r *rig) brokerOf(p int32) kafka.NodeID {
	for id, b := range r.m.brokers {
		if b.fetch == nil {
			continue
		}
		for _, q := range b.fetch.parts {
			if q.tp.Partition == p && q.fetch.id == b.fetch.id {
				return id
			}
		}
	}
	return kafka.NoNode
}

func TestF8ABrokerThatFailsIsBackedOffAndToldOnce(t *testing.T) {
	r := reading(t, testConfig(), 0)
	told := 0
	var delays []time.Duration
	for range 6 {
		a := take[*FetchAction](r)
		r.m.OnFetch(r.now, a.ID, nil, io.ErrUnexpectedEOF)
		told += len(r.m.Failures())
		r.step()
		r.settleLookups(map[string]TopicInfo{"t": info("t", 1)})
		before := r.now
		r.wait()
		delays = append(delays, r.now.Sub(before))
	}
	if told != 1 {
		t.Errorf("told %d times, want once", told)
	}
	if delays[5] < 10*delays[0] {
		t.Errorf("the backoff does not grow: %v", delays)
	}
	r.answer("t", partAnswer{hw: 1, lso: 1, data: batches(data(0, 0))})
	a := take[*FetchAction](r)
	r.m.OnFetch(r.now, a.ID, nil, io.EOF)
	if len(r.m.Failures()) != 1 {
		t.Error("a failure after a good answer is not told")
	}
}

func TestF8AFatalCodeStopsThePartitionWithOneErrorBehindItsData(t *testing.T) {
	r := reading(t, testConfig(), 0)
	r.answer("t", partAnswer{hw: 10, lso: 10, data: batches(data(0, 4))})
	r.answer("t", partAnswer{code: 29})
	if r.err() != nil {
		t.Error("told before the data in front of it")
	}
	wantOffsets(t, r.offsets(), 0, 1, 2, 3, 4)
	err := r.err()
	op := asError[*kafka.OpError](t, err)
	if !errors.Is(err, kerr.TopicAuthorizationFailed) || op.Topic != "t" || op.Partition != 0 || op.Broker != 1 {
		t.Errorf("error %v", err)
	}
	r.step()
	if _, ok := maybe[*FetchAction](r); ok || r.err() != nil || !r.m.Deadline(r.now).IsZero() {
		t.Error("the partition goes on")
	}
	r.m.Seek(tp0, AtOffset(5))
	r.step()
	take[*FetchAction](r)
}

func TestF9AnswersAreMappedByTheRequestsTopicIDs(t *testing.T) {
	r := reading(t, testConfig(), 0)
	a := take[*FetchAction](r)
	if a.Req.Topics[0].TopicID != topicID("t") || a.Req.Topics[0].Topic != "t" {
		t.Fatal("the request lacks the id or the name")
	}
	resp := fetchAnswer("zzz", partAnswer{hw: 1, lso: 1, data: batches(data(0, 0))}) // an id nobody asked for
	zero := fetchAnswer("t", partAnswer{hw: 1, lso: 1, data: batches(data(0, 0))})
	zero.Topics[0].TopicID = [16]byte{}
	zero.Topics[0].Topic = "t"
	resp.Topics = append(resp.Topics, zero.Topics...)
	r.m.OnFetch(r.now, a.ID, resp, nil)
	r.step()
	wantOffsets(t, r.offsets())
	if n := r.m.Counters.Unasked; n != 2 {
		t.Errorf("%d answers counted as unasked, want 2", n)
	}
}

func TestK9WithoutAnIDForEveryTopicTheRequestGoesByName(t *testing.T) {
	r := newRig(t, testConfig())
	r.m.Assign(map[kafka.TopicPartition]Start{tp("a", 0): AtOffset(0), tp("b", 0): AtOffset(0)})
	r.step()
	old := info("b", 1)
	old.ID = kafka.TopicID{}
	r.settleLookups(map[string]TopicInfo{"a": info("a", 1), "b": old})
	a := take[*FetchAction](r)
	if ts := a.Req.Topics; len(ts) != 2 || ts[1].TopicID != [16]byte{} || ts[1].Topic != "b" || ts[0].Topic != "a" {
		t.Errorf("%+v", ts) // the zero id has the lane send it by name
	}
	one := partAnswer{hw: 1, lso: 1, data: batches(data(0, 0))}
	resp := fetchAnswer("a", one)
	resp.Topics = append(resp.Topics, fetchAnswer("b", one).Topics...)
	resp.Version, resp.Topics[0].Topic, resp.Topics[1].Topic = 12, "a", "b"
	r.m.OnFetch(r.now, a.ID, resp, nil)
	r.step()
	if got := fmt.Sprint(r.poll()); got != "[{{a 0} 0} {{b 0} 0}]" {
		t.Error(got)
	}
}

func TestF9ARecreatedTopicStopsItsPartitionsOnce(t *testing.T) {
	for _, code := range []int16{100, 103} {
		r := reading(t, testConfig(), 7)
		r.answer("t", partAnswer{code: code})
		again := info("t", 1)
		again.ID = topicID("another")
		l := take[*LookupAction](r)
		for len(l.Stale) == 0 { // the one from the start of the rig
			l = take[*LookupAction](r)
		}
		r.m.OnTopic(r.now, "t", again)
		r.step()
		e := asError[*kafka.RecreatedError](t, r.err())
		if e.Old != topicID("t") || e.New != topicID("another") {
			t.Errorf("%v", e)
		}
		r.now = r.now.Add(time.Hour)
		r.m.OnTopic(r.now, "t", again)
		r.step()
		if _, ok := maybe[*FetchAction](r); ok || r.err() != nil {
			t.Error("it follows the new topic without being told to")
		}
		r.m.Seek(tp0, AtOffset(0))
		r.step()
		if a := take[*FetchAction](r); a.Req.Topics[0].TopicID != topicID("another") {
			t.Error("told to follow, it still asks for the old topic")
		}
	}
}

func TestF9LeaderHintsAreTakenOnlyWithAHigherEpoch(t *testing.T) {
	r := reading(t, testConfig(), 0)
	r.answer("t", partAnswer{code: 6, leader: 2, epoch: 4})
	h := take[*HintAction](r)
	if h.Leader != 2 || h.Epoch != 4 || h.TopicPartition != tp0 {
		t.Errorf("hint %+v", h)
	}
	r = reading(t, testConfig(), 0)
	take[*LookupAction](r)
	a := take[*FetchAction](r)
	r.m.OnFetch(r.now, a.ID, fetchAnswer("t", partAnswer{code: 6, leader: 2, epoch: 4}), nil)
	hint, _ := r.m.Next(r.now)
	r.m.OnHint(hint.(*HintAction))
	r.wait()
	if _, ok := maybe[*LookupAction](r); ok || r.brokerOf(0) != 2 {
		t.Errorf("a hint that was taken costs a look-up, or does not move the partition (%d)", r.brokerOf(0))
	}
	r = reading(t, testConfig(), 0)
	r.answer("t", partAnswer{code: 6, leader: 2, epoch: 3})
	if _, ok := maybe[*HintAction](r); ok {
		t.Error("a hint at the known epoch was taken")
	}
}

func TestF21AWrongChecksumIsFetchedOnceMore(t *testing.T) {
	bad := append(batches(data(0, 1)), batches(data(2, 3), data(4, 5))...)
	bad[len(data(0, 1).build())+70] ^= 1
	good := batches(data(2, 3), data(4, 5))
	t.Run("B133 good the second time", func(t *testing.T) {
		r := reading(t, testConfig(), 0)
		r.answer("t", partAnswer{hw: 6, lso: 6, data: bad})
		wantOffsets(t, r.offsets(), 0, 1)
		take[*FetchAction](r) // was out already, for offset 6
		r.m.OnFetch(r.now, r.m.lastID, fetchAnswer("t", partAnswer{hw: 6, lso: 6}), nil)
		r.waitFetch()
		r.answer("t", partAnswer{hw: 6, lso: 6, data: good})
		wantOffsets(t, r.offsets(), 2, 3, 4, 5)
		if err := r.err(); err != nil {
			t.Error(err)
		}
	})
	t.Run("F23 B133 bad again", func(t *testing.T) {
		r := reading(t, testConfig(), 0)
		r.answer("t", partAnswer{hw: 6, lso: 6, data: bad})
		wantOffsets(t, r.offsets(), 0, 1)
		take[*FetchAction](r)
		r.m.OnFetch(r.now, r.m.lastID, fetchAnswer("t", partAnswer{hw: 6, lso: 6}), nil)
		r.waitFetch()
		r.answer("t", partAnswer{hw: 6, lso: 6, data: bad[len(data(0, 1).build()):]})
		wantOffsets(t, r.offsets())
		e := asError[*kafka.UnreadableError](t, r.err())
		if e.Offset != 2 || e.Next != 4 || e.TopicPartition != tp0 || !errors.Is(e, record.ErrChecksum) {
			t.Errorf("%+v", e)
		}
		r.stopped()
		r.m.Seek(tp0, AtOffset(e.Next))
		r.step()
		r.answer("t", partAnswer{hw: 6, lso: 6, data: batches(data(4, 5))})
		wantOffsets(t, r.offsets(), 4, 5)
	})
}

// stopped asserts that nothing is asked for, now or later, and nothing told.
func (r *rig) stopped() {
	r.t.Helper()
	for range 3 {
		if a, ok := maybe[*FetchAction](r); ok {
			r.m.OnFetch(r.now, a.ID, fetchAnswer("t"), nil)
		}
		r.now = r.now.Add(time.Minute)
		r.step()
	}
	if _, ok := maybe[*FetchAction](r); ok {
		r.t.Error("a stopped partition is fetched")
	}
	if err := r.err(); err != nil {
		r.t.Errorf("told again: %v", err)
	}
}

// Mutations: chunk.err skipped in Take; Unreadable that only drops.
func TestF23AnUnreadableBatchStopsItsPartitionBehindTheDataBeforeIt(t *testing.T) {
	first := batches(data(0, 1))
	length := append(append([]byte(nil), first...), batches(data(2, 3))...)
	length[len(first)+11] = 20 // present, and shorter than a header
	count := append(append([]byte(nil), first...), batches(data(2, 3))...)
	count[len(first)+60] = 9 // more records than there are
	reseal(count[len(first):])
	packed := spec{base: 2, last: 3, size: 500, codec: compress.Gzip}.build()
	packed[61] ^= 0xff
	reseal(packed)
	packed = append(first[:len(first):len(first)], packed...)
	marker := mark(record.Abort, 7, 2).build()
	marker[len(marker)-1] ^= 1
	marker = append(first[:len(first):len(first)], marker...)
	for name, c := range map[string]struct {
		log    []byte
		next   kafka.Offset
		second bool // a checksum: told at the second time
	}{"length": {log: length, next: 3}, "count": {log: count, next: 4}, "compressed": {log: packed, next: 4},
		"marker": {log: marker, next: 3, second: true}} {
		t.Run(name, func(t *testing.T) {
			r := reading(t, testConfig(), 0)
			r.answer("t", partAnswer{hw: 6, lso: 6, data: c.log})
			wantOffsets(t, r.offsets(), 0, 1)
			if c.second {
				r.waitFetch()
				r.answer("t", partAnswer{hw: 6, lso: 6, data: c.log[len(first):]})
				wantOffsets(t, r.offsets())
			}
			e := asError[*kafka.UnreadableError](t, r.err())
			if e.Offset != 2 || e.Next != c.next {
				t.Errorf("offset %d, next %d: %v", e.Offset, e.Next, e)
			}
			if r.position(tp0) != 2 {
				t.Errorf("position %d", r.position(tp0))
			}
			r.stopped()
		})
	}
}

func TestF24AFetchReservesItsLimitAndGivesTheRestBack(t *testing.T) {
	cfg := testConfig()
	cfg.Budget, cfg.MaxBytes, cfg.PartitionMaxBytes = 10_000, 4_000, 1_000
	r := reading(t, cfg, 0)
	if r.m.reserved != 4_000 {
		t.Fatalf("reserved %d", r.m.reserved)
	}
	o := kafka.Offset(0)
	for range 100 {
		a, ok := maybe[*FetchAction](r)
		if !ok {
			break
		}
		if r.m.shelf.used+r.m.reserved > cfg.Budget {
			t.Fatalf("%d waiting and %d reserved", r.m.shelf.used, r.m.reserved)
		}
		if a.Req.MaxBytes > 4_000 || a.Req.MaxBytes < 1_000 {
			t.Fatalf("limit %d", a.Req.MaxBytes)
		}
		r.m.OnFetch(r.now, a.ID, fetchAnswer("t", partAnswer{hw: 1e6, lso: 1e6, data: batches(spec{base: o, last: o, size: 600})}), nil)
		o++
		r.step()
	}
	if r.m.shelf.used < 1_000 || r.m.shelf.used > cfg.Budget || r.m.reserved != 0 {
		t.Fatalf("with nobody polling %d bytes wait, %d reserved", r.m.shelf.used, r.m.reserved)
	}
	if got := len(r.offsets()); got != int(o) {
		t.Fatalf("%d records, want %d", got, o)
	}
	if r.m.shelf.used != 0 {
		t.Errorf("%d bytes counted with nothing waiting", r.m.shelf.used)
	}
	take[*FetchAction](r) // and it goes on
}

func TestF29PausedPartitionsKeepTheirDataUntilTheBudgetIsNeeded(t *testing.T) {
	r := manyParts(t, testConfig(), 2)
	r.answer("t", partAnswer{p: 0, hw: 9, lso: 9, data: batches(data(0, 4))}, partAnswer{p: 1, hw: 9, lso: 9})
	r.m.Pause(tp0, true)
	if len(r.m.Paused()) != 1 {
		t.Error("the pause is not listed")
	}
	wantOffsets(t, r.offsets())
	r.answer("t", partAnswer{p: 0, hw: 9, lso: 9}, partAnswer{p: 1, hw: 9, lso: 9})
	r.wait()
	a := take[*FetchAction](r)
	if n := len(a.Req.Topics[0].Partitions); n != 1 {
		t.Errorf("%d partitions fetched, one of them paused", n)
	}
	r.m.Pause(tp0, false)
	wantOffsets(t, r.offsets(), 0, 1, 2, 3, 4)

	cfg := testConfig()
	cfg.Budget, cfg.MaxBytes, cfg.PartitionMaxBytes = 3_000, 2_000, 1_000
	r = manyParts(t, cfg, 2)
	r.answer("t", partAnswer{p: 0, hw: 9, lso: 9, data: batches(spec{base: 0, last: 0, size: 2_500})})
	r.m.Pause(tp0, true)
	r.step()
	a = take[*FetchAction](r) // the other partition is not starved by the paused one
	if a.Req.Topics[0].Partitions[0].Partition != 1 {
		t.Error("the paused partition is fetched")
	}
	r.m.Pause(tp0, false)
	wantOffsets(t, r.offsets())
	if r.position(tp0) != 0 {
		t.Errorf("position %d: dropped data would be skipped", r.position(tp0))
	}
}

func TestF43PartitionsTakeTurns(t *testing.T) {
	r := manyParts(t, testConfig(), 3)
	var parts []partAnswer
	for p := range int32(3) {
		parts = append(parts, partAnswer{p: p, hw: 4, lso: 4, data: batches(data(0, 0), data(1, 1), data(2, 2), data(3, 3))})
	}
	r.answer("t", parts...)
	for range 4 {
		seen := map[int32]bool{}
		for range 3 {
			one, _ := r.pollOne()
			seen[one[0].tp.Partition] = true
		}
		if len(seen) != 3 {
			t.Fatalf("3 polls of one batch saw partitions %v", seen)
		}
	}
}

// What a range did not use of a batch comes again, and nothing else of the
// partition comes before it. Mutations: Return that drops the rest, ready without
// lent.
func TestF47WhatIsLeftOfABatchComesAgainFirst(t *testing.T) {
	r := reading(t, testConfig(), 0)
	r.answer("t", partAnswer{hw: 20, lso: 20, data: batches(data(0, 4), mark(record.Commit, 1, 5), data(6, 7))})
	used := r.m.shelf.used
	l, _ := r.m.Take(r.now)
	if _, ok := r.m.Take(r.now); ok {
		t.Fatal("a partition is handed out while a range is in the middle of it")
	}
	r.m.Return(l, 3, 3)
	r.check()
	if r.position(tp0) != 3 || r.m.shelf.used != used {
		t.Fatalf("position %d after 3 of 5 records, %d of %d bytes wait", r.position(tp0), r.m.shelf.used, used)
	}
	l, _ = r.m.Take(r.now)
	r.m.Return(l, l.From, l.From) // nothing was used
	wantOffsets(t, r.offsets(), 3, 4, 6, 7)

	r.answer("t", partAnswer{hw: 20, lso: 20, data: batches(data(8, 9))})
	l, _ = r.m.Take(r.now)
	r.m.Return(l, 10, 10)
	r.check()
	if r.position(tp0) != 10 || r.m.shelf.used != 0 {
		t.Errorf("position %d, %d bytes wait", r.position(tp0), r.m.shelf.used)
	}
}

// An error stops a partition behind what the user has: a batch that is only in
// part used keeps its rest in front of the error. Mutation: stop without held.
func TestF8_F42AnErrorWaitsForABatchThatIsHalfUsed(t *testing.T) {
	r := reading(t, testConfig(), 0)
	r.answer("t", partAnswer{hw: 20, lso: 20, data: batches(data(0, 4))})
	l, _ := r.m.Take(r.now)
	r.answer("t", partAnswer{code: 29})
	r.poll()
	if err := r.err(); err != nil {
		t.Fatalf("%v came before the records in front of it", err)
	}
	r.m.Return(l, 2, 2)
	r.check()
	wantOffsets(t, r.offsets(), 2, 3, 4)
	if asError[*kafka.OpError](t, r.err()) == nil || r.position(tp0) != 5 {
		t.Errorf("%v, position %d", r.err(), r.position(tp0))
	}

	r = reading(t, testConfig(), 0)
	r.answer("t", partAnswer{hw: 20, lso: 20, data: batches(data(0, 4))})
	l, _ = r.m.Take(r.now)
	ti := info("t", 1)
	ti.ID = topicID("another")
	r.m.OnTopic(r.now, "t", ti) // stops it at once
	r.m.Return(l, 2, 2)
	r.check()
	if r.position(tp0) != 2 || r.m.shelf.used != 0 {
		t.Errorf("position %d: whoever seeks there loses records; %d bytes wait", r.position(tp0), r.m.shelf.used)
	}
}

func TestF49AssignKeepsWhatStays(t *testing.T) {
	r := manyParts(t, testConfig(), 2)
	r.answer("t", partAnswer{p: 0, hw: 9, lso: 9, data: batches(data(0, 4))}, partAnswer{p: 1, hw: 9, lso: 9, data: batches(data(0, 4))})
	r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtOffset(77), tp("u", 0): AtOffset(5)})
	r.step()
	wantOffsets(t, r.offsets(), 0, 1, 2, 3, 4)
	if r.position(tp0) != 5 || r.position(tp("u", 0)) != 5 {
		t.Errorf("positions %d %d", r.position(tp0), r.position(tp("u", 0)))
	}
	if fmt.Sprint(r.m.Assigned()) != "[t-0 u-0]" {
		t.Error(r.m.Assigned())
	}
}

// Mutation: pace without its retryAt.
func TestB134EmptyAnswersBelowTheHighWatermarkMakeNoSpin(t *testing.T) {
	r := reading(t, testConfig(), 0)
	began, n := r.now, 0
	for r.now.Sub(began) < 10*time.Second {
		r.answer("t", partAnswer{hw: 100, lso: 100}) // at once, with nothing
		n++
		if len(r.out) == 0 || r.brokerOf(0) == kafka.NoNode {
			r.wait()
		}
	}
	if n > 60 {
		t.Errorf("%d fetches in 10 s from a broker that gives nothing", n)
	}
}

func TestF28APartitionAtItsShareLeavesRoomForTheOthers(t *testing.T) {
	cfg := testConfig()
	cfg.Budget, cfg.MaxBytes, cfg.PartitionMaxBytes = 8_000, 2_000, 500
	r := manyParts(t, cfg, 2) // a share is 500 bytes
	o := kafka.Offset(0)
	for range 10 {
		a := take[*FetchAction](r)
		named := map[int32]bool{}
		for _, rp := range a.Req.Topics[0].Partitions {
			named[rp.Partition] = true
		}
		if !named[1] {
			t.Fatal("the idle partition is left out")
		}
		if !named[0] {
			if b := r.m.part(tp0).buffered; b < 500 || b > 1_500 {
				t.Errorf("left out with %d bytes waiting", b)
			}
			return
		}
		r.m.OnFetch(r.now, a.ID, fetchAnswer("t", partAnswer{p: 0, hw: 99, lso: 99, data: batches(spec{base: o, last: o, size: 300})},
			partAnswer{p: 1}), nil)
		o++
		r.step()
	}
	t.Error("one partition takes it all")
}

// F28, an idle partition beside a full one of its broker: the Fetch for the idle one
// is held back no longer than about the time that the full one was left out for, so
// that it is asked for again by the time its data runs out. Mutation: mostBrief at
// once.
func TestF28TheWaitBesideAFullPartitionGrowsWithTheTimeItIsFull(t *testing.T) {
	cfg := testConfig()
	cfg.PartitionMaxBytes = 500
	r := manyParts(t, cfg, 2)
	full := func(o kafka.Offset) partAnswer {
		return partAnswer{p: 0, hw: 99, lso: 99, data: batches(spec{base: o, last: o, size: 300}, spec{base: o + 1, last: o + 1, size: 300})}
	}
	fetch := func(answers ...partAnswer) (waits int32) {
		a := take[*FetchAction](r)
		r.now = r.now.Add(time.Duration(a.Req.MaxWaitMillis) * time.Millisecond)
		r.m.OnFetch(r.now, a.ID, fetchAnswer("t", answers...), nil)
		r.step()
		return a.Req.MaxWaitMillis
	}
	if w := fetch(full(0), partAnswer{p: 1}); w != 500 {
		t.Errorf("wait %d ms with nobody left out", w)
	}
	for _, want := range []int32{1, 2, 4, 8, 16, 32, 50, 50} {
		if w := fetch(partAnswer{p: 1}); w != want {
			t.Errorf("wait %d ms beside a partition that is full, want %d", w, want)
		}
	}
	a := take[*FetchAction](r) // goes out while partition 0 is full
	wantOffsets(t, r.offsets(), 0, 1)
	r.m.OnFetch(r.now.Add(50*time.Millisecond), a.ID, fetchAnswer("t", partAnswer{p: 1}), nil)
	r.step()
	if w := fetch(full(2), partAnswer{p: 1}); w != 500 {
		t.Errorf("wait %d ms with nobody left out", w)
	}
	if w := fetch(partAnswer{p: 1}); w != 1 {
		t.Errorf("wait %d ms beside a partition that has just become full", w)
	}
}

// F24, T14: answers are of leastPortion while the broker is quick, grow where it is
// slow time after time and the user waits, up to what Config allows, and shrink again.
// Mutations: resize that does nothing; one that does not ask whether the user waits.
func TestF24T14AnswersGrowOnALongWay(t *testing.T) {
	cfg := testConfig()
	cfg.Budget, cfg.MaxBytes, cfg.PartitionMaxBytes = 64<<20, 16<<20, 1<<20
	r := reading(t, cfg, 0)
	o := kafka.Offset(0)
	fetch := func(took time.Duration) int32 {
		a := take[*FetchAction](r)
		r.now = r.now.Add(took)
		r.m.OnFetch(r.now, a.ID, fetchAnswer("t", partAnswer{hw: 1e6, lso: 1e6,
			data: batches(spec{base: o, last: o, size: int(a.Req.MaxBytes) - 200})}), nil)
		o++
		r.step()
		r.offsets()
		r.step()
		return a.Req.MaxBytes
	}
	for range 20 {
		if got := fetch(3 * time.Millisecond); got != leastPortion {
			t.Fatalf("%d bytes of a quick broker", got)
		}
	}
	sizes := map[int32]int{}
	for range 40 {
		sizes[fetch(400*time.Millisecond)]++
	}
	if sizes[2<<20] != slowAnswers || sizes[4<<20] != slowAnswers || sizes[8<<20] != slowAnswers || sizes[16<<20] != 16 || len(sizes) != 4 {
		t.Errorf("answers of a slow broker: %v", sizes)
	}
	for range 8 {
		fetch(time.Millisecond)
	}
	if got := fetch(time.Millisecond); got != leastPortion {
		t.Errorf("%d bytes of a broker that is quick again", got)
	}
	var b broker
	for range 3 * slowAnswers {
		b.resize(&request{reserved: leastPortion}, leastPortion, time.Second, false)
	}
	if b.portion > leastPortion {
		t.Errorf("answers grow to %d bytes though nobody waits for them", b.portion)
	}
}

// R4, second half: a marker of a later epoch is a batch like any other.
func TestF37TheEpochOfThePositionIsThatOfTheLastBatchPassed(t *testing.T) {
	r := reading(t, testConfig(), 0)
	end := mark(record.Abort, 7, 3)
	end.epoch = 6
	first, dropped := data(0, 0), tx(7, 1, 2)
	first.epoch, dropped.epoch = 4, 5
	r.answer("t", partAnswer{hw: 4, lso: 4, aborted: abortedList(7, 1), data: batches(first, dropped, end)})
	if at, _ := r.m.At(tp0); at.Epoch != kafka.NoEpoch {
		t.Errorf("epoch %d before anything was handed out", at.Epoch)
	}
	wantOffsets(t, r.offsets(), 0)
	if at, _ := r.m.At(tp0); at.Epoch != 6 {
		t.Errorf("epoch %d, want the marker's 6", at.Epoch)
	}
}

func TestF18_F23AnOldMessageThatCannotBeReadIsAnErrorAndNoSilence(t *testing.T) {
	old := make([]byte, 34)
	old[7], old[11], old[16] = 5, 21, 1 // offset 5, 21 bytes, message format 1: a byte less than it needs
	r := reading(t, testConfig(), 5)
	r.answer("t", partAnswer{hw: 9, lso: 9, data: old})
	wantOffsets(t, r.offsets())
	e := asError[*kafka.UnreadableError](t, r.err())
	if c := asError[*record.CorruptError](t, e); e.Offset != 5 || e.Next != 6 || c.Base != 5 {
		t.Errorf("%v", e)
	}
	r.stopped()
}

func TestF27ADecompressedBatchIsBounded(t *testing.T) {
	b, _, err := record.Next(spec{last: 0, size: 1 << 20, codec: compress.Gzip}.build())
	if err != nil {
		t.Fatal(err)
	}
	d := Decoder{Limit: 1 << 16}
	_, err = d.Decode(b, nil)
	if asError[*compress.LimitError](t, err) == nil {
		t.Error("no limit")
	}
	d.Limit = 2 << 20
	if payload, err := d.Decode(b, nil); err != nil || len(payload) < 1<<20 {
		t.Errorf("%d bytes, %v", len(payload), err)
	}
}

func TestF21ChecksumsAreCheckedUnlessTurnedOff(t *testing.T) {
	wire := data(0, 3).build()
	wire[len(wire)-2] ^= 1 // within a value
	b, _, err := record.Next(wire)
	if err != nil {
		t.Fatal(err)
	}
	var on Decoder
	if _, err := on.Decode(b, nil); !errors.Is(err, record.ErrChecksum) {
		t.Errorf("by default: %v", err)
	}
	if _, err := (&Decoder{NoCRC: true}).Decode(b, nil); err != nil {
		t.Errorf("turned off: %v", err)
	}
}

// What waiting does not mend is told to the user, once; partitions go on being
// tried. Mutation: brokerFailed without the two kinds.
func TestF8ARefusedLoginAndAVersionThatIsMissingAreTold(t *testing.T) {
	for _, refused := range []error{
		&kafka.OpError{Op: "Fetch", Broker: 1, Partition: -1, Err: &kafka.AuthError{Addr: "b1:9092", Mechanism: "PLAIN"}},
		&kafka.VersionError{API: 1, Name: "Fetch", BrokerMax: -1},
	} {
		r := reading(t, testConfig(), 0)
		for n := range 3 {
			a := take[*FetchAction](r)
			r.m.OnFetch(r.now, a.ID, nil, refused)
			if err := r.err(); (err != nil) != (n == 0) || n == 0 && !errors.Is(err, refused) {
				t.Errorf("failure %d: %v", n, err)
			}
			r.step()
			r.settleLookups(map[string]TopicInfo{"t": info("t", 1)})
			r.waitFetch()
		}
	}
}
