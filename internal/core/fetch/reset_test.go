package fetch

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// listed answers the ListOffsets that is out with one offset for partition 0
// of t, and returns what was asked.
func (r *rig) listed(offset kafka.Offset, code int16) kmsg.ListOffsetsRequestTopicPartition {
	r.t.Helper()
	a := take[*ListAction](r)
	r.m.OnList(r.now, a.ID, listResponse(offset, code), nil)
	r.step()
	return a.Req.Topics[0].Partitions[0]
}

func listResponse(offset kafka.Offset, code int16) *kmsg.ListOffsetsResponse {
	resp := kmsg.NewPtrListOffsetsResponse()
	rt := kmsg.NewListOffsetsResponseTopic()
	rt.Topic = "t"
	rp := kmsg.NewListOffsetsResponseTopicPartition()
	rp.ErrorCode, rp.Offset = code, int64(offset)
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	return resp
}

func starting(t testing.TB, cfg Config, s Start) *rig {
	r := newRig(t, cfg)
	r.m.Assign(map[kafka.TopicPartition]Start{tp0: s})
	r.step()
	r.settleLookups(map[string]TopicInfo{"t": info("t", 1)})
	return r
}

func TestF30StartsAreAskedByTimestamp(t *testing.T) {
	for name, c := range map[string]struct {
		s    Start
		want int64
	}{
		"zero value": {Start{}, -2}, "earliest": {Earliest(), -2}, "latest": {Latest(), -1},
		"time": {AtTime(12345), 12345}, "negative offset": {AtOffset(-7), -2}, "negative time": {AtTime(-1), -2},
	} {
		r := starting(t, testConfig(), c.s)
		if at := r.position(tp0); at != -1 {
			t.Errorf("%s: position %d before the answer", name, at)
		}
		if got := r.listed(42, 0).Timestamp; got != c.want {
			t.Errorf("%s asks for %d, want %d", name, got, c.want)
		}
		if a := take[*FetchAction](r); a.Req.Topics[0].Partitions[0].FetchOffset != 42 {
			t.Errorf("%s: fetch at %d", name, a.Req.Topics[0].Partitions[0].FetchOffset)
		}
	}
	r := starting(t, testConfig(), AtOffset(9))
	if _, ok := maybe[*ListAction](r); ok {
		t.Error("an offset needs no question")
	}
}

func TestB154ATimeWithoutARecordIsTheEndAsItIsThen(t *testing.T) {
	r := starting(t, testConfig(), AtTime(99))
	r.listed(-1, 0)
	if got := r.listed(17, 0).Timestamp; got != -1 {
		t.Errorf("asked for %d, want the latest", got)
	}
	if r.position(tp0) != 17 {
		t.Errorf("position %d", r.position(tp0))
	}
}

// 1970 is a time like others: it must not be taken for "no time". Mutation:
// list.ts > 0.
func TestB154_F30TheTimeZeroInAnEmptyLogIsItsEnd(t *testing.T) {
	r := starting(t, testConfig(), AtTime(0))
	if got := r.listed(-1, 0).Timestamp; got != 0 {
		t.Errorf("asked for %d", got)
	}
	if got := r.listed(0, 0).Timestamp; got != -1 {
		t.Errorf("asked for %d, want the latest", got)
	}
	if r.position(tp0) != 0 {
		t.Errorf("position %d", r.position(tp0))
	}
}

func TestF30ListErrorsFollowTheirDisposition(t *testing.T) {
	r := starting(t, testConfig(), Earliest())
	r.listed(0, 78)
	r.wait()
	r.listed(0, 6)
	r.settleLookups(map[string]TopicInfo{"t": info("t", 2)})
	r.wait()
	if a := take[*ListAction](r); a.Broker != 2 {
		t.Errorf("asked broker %d, the leader is 2", a.Broker)
	}
	r = starting(t, testConfig(), Earliest())
	r.listed(0, 29)
	if op := asError[*kafka.OpError](t, r.err()); op.Op != "list offsets" || op.Broker != 1 {
		t.Errorf("%v", op)
	}
	r.stopped()
}

// outOfRange is a rig whose position 50 the broker has called out of range.
func outOfRange(t testing.TB, reset Reset) *rig {
	cfg := testConfig()
	cfg.Reset = reset
	r := reading(t, cfg, 50)
	r.answer("t", partAnswer{code: 1, hw: -1, lso: -1})
	return r
}

func TestF32BelowTheLogStartReadingResumesAtTheLogStart(t *testing.T) {
	for _, policy := range []Reset{ResetNearest, ResetEarliest} {
		r := outOfRange(t, policy)
		if got := r.listed(80, 0).Timestamp; got != -2 {
			t.Errorf("%v asks for %d first", policy, got)
		}
		if r.position(tp0) != 80 {
			t.Errorf("%v: position %d, want 80", policy, r.position(tp0))
		}
		if err := r.err(); err != nil {
			t.Errorf("%v: %v", policy, err)
		}
		rs := r.m.News().Resets
		if len(rs) != 1 || rs[0].Old != 50 || rs[0].New != 80 || rs[0].TopicPartition != tp0 || rs[0].Reason == nil {
			t.Errorf("F34: %v: resets %+v", policy, rs)
		}
		take[*FetchAction](r)
	}
	r := outOfRange(t, ResetLatest)
	r.listed(99, 0)
	if r.position(tp0) != 99 {
		t.Errorf("latest: position %d", r.position(tp0))
	}
}

func TestF33AboveTheLogEndNearestTakesTheEndAndSaysWhatIsLost(t *testing.T) {
	r := outOfRange(t, ResetNearest)
	r.listed(3, 0)
	if got := r.listed(20, 0).Timestamp; got != -1 {
		t.Errorf("asked for %d", got)
	}
	e := asError[*kafka.DataLossError](t, r.err())
	if e.Position != 50 || e.Remaining != 20 || r.position(tp0) != 20 {
		t.Errorf("%v, position %d", e, r.position(tp0))
	}
	take[*FetchAction](r) // it reads on
}

func TestF33InRangeAfterAllNothingIsReset(t *testing.T) {
	r := outOfRange(t, ResetNearest)
	r.listed(3, 0)
	r.listed(60, 0)
	if r.position(tp0) != 50 || len(r.m.News().Resets) != 0 || r.err() != nil {
		t.Errorf("position %d", r.position(tp0))
	}
	if _, ok := maybe[*FetchAction](r); ok {
		t.Error("asked again at once")
	}
	r.wait()
	take[*FetchAction](r)
}

func TestF34UnderFailThePartitionStopsWithBothEnds(t *testing.T) {
	r := outOfRange(t, ResetFail)
	r.listed(60, 0)
	r.listed(70, 0)
	e := asError[*kafka.OutOfRangeError](t, r.err())
	if e.Position != 50 || e.Start != 60 || e.End != 70 {
		t.Errorf("%+v", e)
	}
	r.stopped()
}

// The questions of a reset compare with the whole log, open transactions
// included. Mutation: listRequest with the reader's isolation level.
func TestF33AResetAsksWithoutRegardToOpenTransactions(t *testing.T) {
	r := outOfRange(t, ResetNearest)
	if a := take[*ListAction](r); a.Req.IsolationLevel != 0 {
		t.Error("asked with read committed")
	}
}

// outOfRangeAgain lets a position, whose epoch is known, be compared with the
// leader's log first: that knows of no truncation, and the position is refused
// once more.
func (r *rig) outOfRangeAgain() {
	r.t.Helper()
	r.vetted(1000, 0)
	r.answer("t", partAnswer{code: 1})
}

func TestF32AResetWaitsForWhatWasReadBefore(t *testing.T) {
	r := reading(t, testConfig(), 50)
	r.answer("t", partAnswer{hw: 60, lso: 60, data: batches(data(50, 54))})
	r.answer("t", partAnswer{code: 1})
	if _, ok := maybe[*ListAction](r); ok {
		t.Fatal("the reset began before data in front of it was handed out")
	}
	wantOffsets(t, r.offsets(), 50, 51, 52, 53, 54)
	r.outOfRangeAgain()
	r.listed(80, 0)
	if rs := r.m.News().Resets; len(rs) != 1 || rs[0].Old != 55 {
		t.Errorf("%+v", rs)
	}
}

// What Poll has taken and not returned, or what a range over records is in the
// middle of, is not handed out yet either. Mutation: drained without held.
func TestF32_F47AResetWaitsUntilBatchesHaveReachedTheUser(t *testing.T) {
	begin := func(t *testing.T) (*rig, Loan) {
		r := reading(t, testConfig(), 50)
		r.answer("t", partAnswer{hw: 60, lso: 60, data: batches(data(50, 54))})
		r.answer("t", partAnswer{code: 1})
		_, l, _ := r.hold()
		r.step()
		if _, ok := maybe[*ListAction](r); ok {
			t.Fatal("the reset began while the user did not have the batch")
		}
		return r, l
	}
	t.Run("released", func(t *testing.T) {
		r, l := begin(t)
		if !l.Release() {
			t.Error("nobody is told that the reset may go on")
		}
		r.step()
		r.outOfRangeAgain()
		r.listed(80, 0)
		if !l.Current() {
			t.Error("the reset revoked what was handed out before it")
		}
		if r.position(tp0) != 80 {
			t.Errorf("position %d", r.position(tp0))
		}
	})
	t.Run("returned", func(t *testing.T) {
		r := reading(t, testConfig(), 50)
		r.answer("t", partAnswer{hw: 60, lso: 60, data: batches(data(50, 54))})
		r.answer("t", partAnswer{code: 1})
		l, _ := r.m.Take(r.now)
		for _, used := range []kafka.Offset{l.From, 53} {
			r.step()
			if _, ok := maybe[*ListAction](r); ok {
				t.Fatal("the reset began before what is left was handed out")
			}
			r.m.Return(l, used, used)
			r.check()
			l, _ = r.m.Take(r.now)
		}
		r.m.Return(l, 55, 55)
		r.step()
		r.outOfRangeAgain()
		r.listed(80, 0)
		if rs := r.m.News().Resets; len(rs) != 1 || rs[0].Old != 55 {
			t.Errorf("%+v", rs)
		}
	})
}

// A seek gives up what the user had: the reset that follows waits for nothing.
// Mutation: begin without held.
func TestF32_F38AResetAfterASeekWaitsForNoOldBatch(t *testing.T) {
	r := reading(t, testConfig(), 50)
	r.answer("t", partAnswer{hw: 60, lso: 60, data: batches(data(50, 54))})
	_, l, _ := r.hold()
	r.m.Seek(tp0, AtOffset(7))
	r.step()
	r.answer("t", partAnswer{}) // the Fetch that was out
	r.answer("t", partAnswer{code: 1})
	r.listed(80, 0)
	if l.Release() || r.position(tp0) != 80 {
		t.Errorf("position %d", r.position(tp0))
	}
}

// R39: a seek at every step of a load. Mutation: onListed without the ask's id.
func TestF35ASeekWinsOverARunningLoad(t *testing.T) {
	t.Run("R39 F38", func(t *testing.T) {
		r := starting(t, testConfig(), Latest())
		a := take[*ListAction](r)
		r.m.Seek(tp0, AtOffset(5))
		r.step()
		r.m.OnList(r.now, a.ID, listResponse(42, 0), nil)
		r.step()
		if r.position(tp0) != 5 {
			t.Errorf("position %d, the seek said 5", r.position(tp0))
		}
	})
	t.Run("seek to another time", func(t *testing.T) {
		r := starting(t, testConfig(), Latest())
		a := take[*ListAction](r)
		r.m.Seek(tp0, Earliest())
		r.step()
		r.m.OnList(r.now, a.ID, listResponse(42, 0), nil)
		r.step()
		if got := r.listed(1, 0).Timestamp; got != -2 || r.position(tp0) != 1 {
			t.Errorf("asked for %d, position %d", got, r.position(tp0))
		}
	})
	t.Run("during a reset", func(t *testing.T) {
		r := outOfRange(t, ResetNearest)
		a := take[*ListAction](r)
		r.m.Seek(tp0, AtOffset(5))
		r.step()
		r.m.OnList(r.now, a.ID, listResponse(80, 0), nil)
		r.step()
		if r.position(tp0) != 5 || len(r.m.News().Resets) != 0 {
			t.Errorf("position %d", r.position(tp0))
		}
	})
	t.Run("revoked", func(t *testing.T) {
		r := starting(t, testConfig(), Latest())
		a := take[*ListAction](r)
		r.m.Assign(nil)
		r.step()
		r.m.OnList(r.now, a.ID, listResponse(42, 0), nil)
		r.step()
		if len(r.m.Assigned()) != 0 || len(r.m.brokers) != 0 {
			t.Error("something is left")
		}
	})
	t.Run("on a paused partition", func(t *testing.T) {
		r := reading(t, testConfig(), 0)
		r.m.Pause(tp0, true)
		r.m.Seek(tp0, AtOffset(7))
		if at, _ := r.m.At(tp0); at.Position != 7 || len(r.m.Paused()) != 1 {
			t.Errorf("%+v", at)
		}
	})
}

func TestF40LagComesFromFetchAnswers(t *testing.T) {
	r := reading(t, testConfig(), 0)
	if _, ok := r.lag(tp0); ok {
		t.Error("lag known before an answer")
	}
	r.answer("t", partAnswer{hw: 20, lso: 15, data: batches(data(0, 4))})
	if lag, _ := r.lag(tp0); lag != 15 {
		t.Errorf("lag %d of what is not handed out yet, want 15", lag)
	}
	r.offsets()
	if lag, _ := r.lag(tp0); lag != 10 {
		t.Errorf("lag %d, want 10", lag)
	}
	at, _ := r.m.At(tp0)
	if at.Log != (Log{Start: 0, Stable: 15, HighWatermark: 20}) {
		t.Errorf("%+v", at.Log)
	}
	r.answer("t", partAnswer{hw: 4, lso: -1})
	if lag, ok := r.lag(tp0); !ok || lag != 0 {
		t.Errorf("lag %d below zero", lag)
	}
	cfg := testConfig()
	cfg.Isolation = ReadUncommitted
	r = reading(t, cfg, 0)
	r.answer("t", partAnswer{hw: 20, lso: 15})
	if lag, _ := r.lag(tp0); lag != 20 {
		t.Errorf("lag %d under read uncommitted, want 20", lag)
	}
}

func TestF50AMissingTopicIsWaitedForAndADeletedOneStops(t *testing.T) {
	unknown := kafka.CodeError(3, nil)
	r := newRig(t, testConfig())
	r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtOffset(0)})
	r.step()
	began, n := r.now, 0
	for r.now.Sub(began) < time.Minute {
		a := take[*LookupAction](r)
		n++
		r.m.OnTopicError(r.now, a.Topic, 3, unknown)
		r.wait()
	}
	if err := r.err(); err != nil || n > 90 {
		t.Errorf("%d lookups in a minute, error %v", n, err)
	}
	r.settleLookups(map[string]TopicInfo{"t": info("t", 1)})
	r.answer("t", partAnswer{hw: 1, lso: 1, data: batches(data(0, 0))})
	wantOffsets(t, r.offsets(), 0)

	// Deleted: the broker says so, and metadata too.
	r.answer("t", partAnswer{code: 3})
	began = r.now
	for range 100 {
		a, ok := maybe[*LookupAction](r)
		if !ok {
			break
		}
		r.m.OnTopicError(r.now, a.Topic, 3, unknown)
		if d := r.m.Deadline(r.now); !d.IsZero() {
			r.wait()
		}
	}
	if d := r.now.Sub(began); d < 5*time.Second || d > 7*time.Second {
		t.Errorf("given up after %v", d)
	}
	if op := asError[*kafka.OpError](t, r.err()); op.Topic != "t" {
		t.Errorf("%v", op)
	}
	r.stopped()
}

// A broker that does not know a partition that metadata names is believed after
// a while. Mutation: unknownTooLong that is never true.
func TestF50APartitionThatItsBrokerDoesNotKnowStopsInBoundedTime(t *testing.T) {
	for _, code := range []int16{3, 100, 103} {
		r := reading(t, testConfig(), 0)
		take[*LookupAction](r)
		began := r.now
		for range 100 {
			if _, ok := maybe[*FetchAction](r); ok {
				r.m.OnFetch(r.now, r.m.lastID, fetchAnswer("t", partAnswer{code: code}), nil)
				r.step()
			}
			r.settleLookups(map[string]TopicInfo{"t": info("t", 1)})
			if r.m.Deadline(r.now).IsZero() {
				break
			}
			r.wait()
		}
		if d := r.now.Sub(began); d < 5*time.Second || d > 7*time.Second {
			t.Errorf("code %d: given up after %v", code, d)
		}
		if op := asError[*kafka.OpError](t, r.err()); op.Op != "fetch" {
			t.Errorf("%v", op)
		}
		r.stopped()
	}
}

// Mutations: a policy that takes the log start or end instead; the time of the
// last record forgotten; back from the last record below the log start.
func TestF30_F32ResetsByTime(t *testing.T) {
	day := 24 * time.Hour
	for name, c := range map[string]struct {
		reset   Reset
		answers []kafka.Offset // to the questions in turn
		asked   []int64        // timestamps; a last one of -9 is the clock's minus a day
		want    kafka.Offset
		loss    bool
	}{
		"time":                        {ResetTime, []kafka.Offset{40}, []int64{5000}, 40, false},
		"time, none that young":       {ResetTime, []kafka.Offset{-1, 90}, []int64{5000, -1}, 90, false},
		"back":                        {ResetBack, []kafka.Offset{41}, []int64{-9}, 41, false},
		"from last, above the end":    {ResetBackFromLast, []kafka.Offset{10, 30, 25}, []int64{-2, -1, 3_600_000}, 25, true},
		"from last, nothing there":    {ResetBackFromLast, []kafka.Offset{10, 30, -1, 30}, []int64{-2, -1, 3_600_000, -1}, 30, true},
		"from last, below the start":  {ResetBackFromLast, []kafka.Offset{80}, []int64{-2}, 80, false},
		"from last, in range":         {ResetBackFromLast, []kafka.Offset{10, 70}, []int64{-2, -1}, 55, false},
		"nearest, for the comparison": {ResetNearest, []kafka.Offset{10, 30}, []int64{-2, -1}, 30, true},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig()
			cfg.Reset, cfg.ResetTime, cfg.ResetBack = c.reset, 5000, day
			r := reading(t, cfg, 50)
			b := spec{base: 50, last: 54}
			wire := b.build()
			binary.BigEndian.PutUint64(wire[35:], uint64(day.Milliseconds()+3_600_000)) // the highest timestamp
			binary.BigEndian.PutUint32(wire[12:], 0xffffffff)                           // no epoch to compare
			reseal(wire)
			r.answer("t", partAnswer{hw: 60, lso: 60, data: wire})
			wantOffsets(t, r.offsets(), 50, 51, 52, 53, 54)
			r.answer("t", partAnswer{code: 1})
			for i, o := range c.answers {
				want := c.asked[i]
				if want == -9 {
					want = r.now.Add(-day).UnixMilli()
				}
				if got := r.listed(o, 0).Timestamp; got != want {
					t.Fatalf("question %d is for %d, want %d", i, got, want)
				}
			}
			if got := r.position(tp0); got != c.want {
				t.Errorf("position %d, want %d", got, c.want)
			}
			n := r.m.News()
			var loss *kafka.DataLossError
			if errors.As(n.Err, &loss) != c.loss {
				t.Errorf("%v", n.Err)
			}
			if moved := c.want != 55; moved != (len(n.Resets) == 1) {
				t.Errorf("%+v", n.Resets)
			}
		})
	}
}
