package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// With a round trip of 100 ms, 40 batches of one partition take one round trip
// alone and eight with five on their way; one at a time they would take forty.
// A window that opens before the first success makes this fail too, by its
// first requests.
func TestP7_R37SlowRoundTripsAreOverlapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{BatchBytes: 1000, Linger: NoLinger, Compression: Uncompressed, BrokerRequests: 5})
		if _, err := p.Send(t.Context(), text("warm")); err != nil {
			t.Fatal(err)
		}
		f.latency = 100 * time.Millisecond
		f.lead(t0, 1) // another leader, which has not taken anything yet
		f.event(cluster.Event{Kind: cluster.LeaderChanged, Topic: "t", Broker: kafka.Broker{ID: 1}})
		synctest.Wait()
		sent := 0
		f.sent = func(*produceRequest) { sent++ }
		start := time.Now()
		for i := range 40 {
			if _, err := p.Append(t.Context(), kafka.Record{Topic: "t", Value: fmt.Appendf(nil, "%0900d", i)}); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		first := sent
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took > 950*time.Millisecond || took < 800*time.Millisecond {
			t.Errorf("40 batches took %v", took)
		}
		if first != 1 {
			t.Errorf("%d requests to a leader that had taken nothing", first)
		}
		for i, v := range f.values(t0)[1:] {
			if v != fmt.Sprintf("%0900d", i) {
				t.Fatalf("record %d is out of order", i)
			}
		}
	})
}

// A synchronous write that waits for linger makes this fail, and a zero value
// that does not wait for all replicas.
func TestR37_P1TheZeroValueIsSafeAndSendIsNotDelayedByLinger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		var acks []int16
		f.sent = func(r *produceRequest) { acks = append(acks, r.acks) }
		p := begin(t, f, Config{Linger: time.Hour, DeliveryTimeout: 2 * time.Hour})
		start := time.Now()
		if _, err := p.Send(t.Context(), text("x")); err != nil || time.Since(start) > 20*time.Millisecond {
			t.Errorf("%v after %v", err, time.Since(start))
		}
		if !slices.Equal(acks, []int16{acksAll}) {
			t.Errorf("acks %v", acks)
		}
	})
}

// Halves in the wrong order, a result for the whole, or room that is not given
// back make this fail, and so does a Flush that returns before the halves.
func TestP24_B085_B086ABatchThatIsTooLargeIsCutInTwo(t *testing.T) {
	for _, codec := range []Compression{Uncompressed, LZ4} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, 1)
			f.limit = 3000
			p := begin(t, f, Config{Compression: codec, Linger: time.Second, DeliveryTimeout: time.Minute})
			var receipts []Receipt
			for i := range 200 {
				receipts = append(receipts, appendText(t, p, fmt.Sprintf("%03d %s", i, noise(60, i))))
			}
			big := appendText(t, p, noise(4000, 999))
			receipts = append(receipts, appendText(t, p, "last"))
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			for i, rc := range receipts {
				if !settled(rc) {
					t.Fatalf("record %d has no result after Flush", i)
				}
				if off, err := rc.Wait(t.Context()); err != nil || off != kafka.Offset(i) {
					t.Fatalf("record %d: offset %d, %v", i, off, err)
				}
			}
			_, err := big.Wait(t.Context())
			var large *kafka.TooLargeError
			if !errors.As(err, &large) || large.Size < 4000 || large.Wire < 3000 || !errors.Is(err, kerr.MessageTooLarge) || kafka.MayHaveHappened(err) {
				t.Errorf("the record that fits nowhere: %v", err)
			}
			if got := f.values(t0); len(got) != 201 || !slices.IsSorted(got[:200]) {
				t.Errorf("%d records in the log", len(got))
			}
			time.Sleep(2 * time.Minute) // past the deadline of the whole
			if n := p.budget.used.Load(); n != 0 || p.Stats().Buffered != 0 {
				t.Errorf("%d bytes of the buffer are never given back", n)
			}
		})
	}
}

// settled reports whether a record has a result.
func settled(rc Receipt) bool {
	select {
	case <-rc.batch.done:
		return rc.batch.placed == nil || settled(rc.batch.placed[rc.index])
	default:
		return false
	}
}

// noise is text that does not shrink much.
func noise(n, seed int) string {
	var b strings.Builder
	x := uint64(seed)*2862933555777941757 + 3037000493
	for b.Len() < n {
		x = x*2862933555777941757 + 3037000493
		fmt.Fprintf(&b, "%016x", x)
	}
	return b.String()[:n]
}

// One reason for all, or none, makes this fail.
func TestP25RecordsThatAreTheCauseHaveTheirOwnReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.fault = func(_ kafka.TopicPartition, nth int) fault {
			if nth > 0 {
				return fault{}
			}
			why := "the schema has no such field"
			return fault{code: 87, reasons: []kmsg.ProduceResponseTopicPartitionErrorRecord{
				{RelativeOffset: 1, ErrorMessage: &why}, {RelativeOffset: 3},
			}}
		}
		p := begin(t, f, Config{})
		results, err := p.Send(t.Context(), text("a"), text("b"), text("c"), text("d"))
		if err == nil {
			t.Fatal("no error")
		}
		for i, res := range results {
			var rejected *RejectedError
			if !errors.As(res.Err, &rejected) || !errors.Is(res.Err, kerr.InvalidRecord) || kafka.MayHaveHappened(res.Err) {
				t.Fatalf("record %d: %v", i, res.Err)
			}
			if guilty := i == 1 || i == 3; rejected.Guilty != guilty || strings.Contains(res.Err.Error(), "schema") != (i == 1) {
				t.Errorf("record %d: %v", i, res.Err)
			}
		}
		if _, err := p.Send(t.Context(), text("next")); err != nil {
			t.Error(err) // its sequences are free
		}
		if got := f.values(t0); !slices.Equal(got, []string{"next"}) || f.asked != 1 {
			t.Errorf("the log has %q, %d identities", got, f.asked)
		}
	})
}

// A second copy of what may be there makes this fail, and so does an identity
// that nobody needs.
func TestP26WithoutIdempotence(t *testing.T) {
	lost := func(_ kafka.TopicPartition, nth int) fault {
		switch nth {
		case 0:
			return fault{code: 6}
		case 2:
			return fault{lost: true}
		}
		return fault{}
	}
	for _, c := range []struct {
		cfg  Config
		acks int16
		log  string
		err  bool // of the second record
	}{
		{Config{Durability: All}, -1, "[a b c]", true},
		{Config{Durability: Leader}, 1, "[a b c]", true},
		{Config{Durability: All, AcceptDuplicates: true}, -1, "[a b b c]", false},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, 1)
			f.fault = lost
			var acks []int16
			f.sent = func(r *produceRequest) { acks = append(acks, r.acks) }
			p := begin(t, f, c.cfg)
			for i, v := range []string{"a", "b", "c"} {
				_, err := p.Send(t.Context(), text(v))
				if failed := err != nil; failed != (c.err && i == 1) || failed && !kafka.MayHaveHappened(err) {
					t.Errorf("%v, record %s: %v", c.cfg.Durability, v, err)
				}
			}
			if got := fmt.Sprint(f.values(t0)); got != c.log || f.asked != 0 || slices.ContainsFunc(acks, func(a int16) bool { return a != c.acks }) {
				t.Errorf("%+v: the log has %v, acks %v, %d identities", c.cfg, got, acks, f.asked)
			}
		})
	}
}

// A wait for an answer that never comes makes this fail.
func TestP26WithAcks0WrittenIsAllThereIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{Durability: None})
		res, err := p.Send(t.Context(), text("a"))
		if err != nil || res[0].Offset != -1 {
			t.Errorf("%+v, %v", res, err)
		}
		if got := f.values(t0); !slices.Equal(got, []string{"a"}) || f.requests[0].Acks != 0 || f.asked != 0 {
			t.Errorf("the log has %q, acks %d, %d identities", got, f.requests[0].Acks, f.asked)
		}
	})
}

// B094 as documented at Config.MaxInFlight: with the default the order holds
// without idempotence too; with a larger window what is repeated comes later.
func TestB094RetriesKeepTheOrderUnlessTheWindowIsLarger(t *testing.T) {
	for window, want := range map[int]string{0: "[a b]", 5: "[b a]"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, 1)
			f.fault = func(_ kafka.TopicPartition, nth int) fault { return fault{code: int16(6 * max(1-nth, 0))} }
			p := begin(t, f, Config{Durability: All, MaxInFlight: window, Linger: NoLinger})
			appendText(t, p, "a")
			synctest.Wait()
			appendText(t, p, "b")
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := fmt.Sprint(f.values(t0)); got != want {
				t.Errorf("window %d: %s, want %s", window, got, want)
			}
		})
	}
}

// A record of the old topic in the new one makes this fail, and so does a topic
// that takes no more.
func TestP27ARecreatedTopicGetsNothingThatWasMeantForTheOldOne(t *testing.T) {
	for _, version := range []int16{12, 13} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, 1)
			f.version = 13
			f.describe("t", 1)
			f.version = version
			p := begin(t, f, Config{Linger: time.Second})
			if _, err := p.Send(t.Context(), text("before")); err != nil {
				t.Fatal(err)
			}
			f.mu.Lock()
			f.logs = map[kafka.TopicPartition]*fakeLog{}
			old := f.topics["t"].ID
			fresh := *f.topics["t"]
			fresh.ID = kafka.TopicID{9}
			f.topics["t"] = &fresh
			f.mu.Unlock()
			open := appendText(t, p, "open")
			synctest.Wait()
			f.event(cluster.Event{Kind: cluster.TopicRecreated, Topic: "t", OldID: old, NewID: fresh.ID})
			_, err := open.Wait(t.Context())
			var recreated *kafka.RecreatedError
			if !errors.As(err, &recreated) || recreated.Old != old || recreated.New != fresh.ID || kafka.MayHaveHappened(err) {
				t.Errorf("version %d: %v", version, err)
			}
			if _, err := p.Send(t.Context(), text("after")); err != nil {
				t.Errorf("version %d: %v", version, err)
			}
			if got := f.values(t0); !slices.Equal(got, []string{"after"}) {
				t.Errorf("version %d: the new topic has %q", version, got)
			}
			if n := p.Stats().SuspectedDuplicates; n != 0 { // its offsets begin anew
				t.Errorf("version %d: %d suspected duplicates", version, n)
			}
		})
	}
}

// What is outstanding when the topic is made anew is settled by its answer.
// Mutation: it is sent again, to the new one.
func TestP27WhatIsOutstandingIsNotSentAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.version = 13
		f.describe("t", 1)
		p := begin(t, f, Config{Linger: NoLinger})
		if _, err := p.Send(t.Context(), text("before")); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		old, fresh := f.topics["t"].ID, *f.topics["t"]
		fresh.ID = kafka.TopicID{9}
		f.hold = true
		f.fault = func(kafka.TopicPartition, int) fault { return fault{code: kerr.UnknownTopicID.Code} }
		f.mu.Unlock()
		away := appendText(t, p, "away")
		time.Sleep(time.Second)
		f.mu.Lock()
		f.logs = map[kafka.TopicPartition]*fakeLog{}
		f.topics["t"] = &fresh
		f.mu.Unlock()
		f.event(cluster.Event{Kind: cluster.TopicRecreated, Topic: "t", OldID: old, NewID: fresh.ID})
		synctest.Wait()
		f.mu.Lock()
		f.fault = func(_ kafka.TopicPartition, nth int) fault {
			if nth > 2 { // behind "before" and the first try of "away"
				return fault{}
			}
			return fault{code: kerr.UnknownTopicID.Code}
		}
		f.mu.Unlock()
		f.release()
		var recreated *kafka.RecreatedError
		if _, err := away.Wait(t.Context()); !errors.As(err, &recreated) || kafka.MayHaveHappened(err) {
			t.Errorf("%v", err)
		}
		if _, err := p.Send(t.Context(), text("after")); err != nil {
			t.Error(err)
		}
		if got := f.values(t0); !slices.Equal(got, []string{"after"}) {
			t.Errorf("the new topic has %q", got)
		}
	})
}

// The cluster map may have the new id before its event is here.
func TestP27NothingIsSentWhileTheNewsOfARecreationIsOnItsWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.version = 13
		f.describe("t", 1)
		p := begin(t, f, Config{})
		if _, err := p.Send(t.Context(), text("before")); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		f.logs = map[kafka.TopicPartition]*fakeLog{}
		old, fresh := f.topics["t"].ID, *f.topics["t"]
		fresh.ID = kafka.TopicID{9}
		f.topics["t"] = &fresh
		sent := len(f.requests)
		f.mu.Unlock()
		rc := appendText(t, p, "old")
		time.Sleep(time.Second)
		if n := len(f.requests); n != sent {
			t.Errorf("%d requests with a batch for the old topic", n-sent)
		}
		f.event(cluster.Event{Kind: cluster.TopicRecreated, Topic: "t", OldID: old, NewID: fresh.ID})
		if _, err := rc.Wait(t.Context()); err == nil || kafka.MayHaveHappened(err) {
			t.Errorf("%v", err)
		}
	})
}

// The codec of the first choice again, or a record that is lost on the way from
// one codec to the next, makes this fail.
func TestP33ACodecThatIsRefusedFallsThroughToTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.refused = compress.Zstd
		value := strings.Repeat("all work and no play ", 50)
		p := begin(t, f, Config{Compression: Zstd, Fallback: []Compression{LZ4, Uncompressed}})
		for range 3 {
			if _, err := p.Send(t.Context(), text(value)); err != nil {
				t.Fatal(err)
			}
		}
		for i, b := range f.logs[t0].batches {
			if b.Codec() != compress.LZ4 {
				t.Errorf("batch %d is in %v", i, b.Codec())
			}
		}
		if got := f.values(t0); len(got) != 3 || got[0] != value || f.seen[t0] != 4 {
			t.Errorf("%d records after %d attempts", len(got), f.seen[t0])
		}
		alone := begin(t, f, Config{Compression: Zstd})
		if _, err := alone.Send(t.Context(), text(value)); !errors.Is(err, kerr.UnsupportedCompressionType) || kafka.MayHaveHappened(err) {
			t.Errorf("without another codec: %v", err)
		}
	})
}

// zstd in a version of Produce that has none makes this fail.
func TestP31_P33TheVersionIsOneThatMayCarryTheBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		var least []int16
		f.sent = func(r *produceRequest) { least = append(least, r.MinVersion()) }
		for _, codec := range []Compression{Zstd, Snappy} {
			p := begin(t, f, Config{Compression: codec})
			if _, err := p.Send(t.Context(), text(strings.Repeat("a", 1000))); err != nil {
				t.Fatal(err)
			}
		}
		if !slices.Equal(least, []int16{zstdProduce, batchProduce}) {
			t.Errorf("versions from %v on", least)
		}
	})
}

// A loss at the broker that nobody hears of makes this fail; a batch that is
// given up, too, unless that was asked for.
func TestP17_P21_B077_R22ALossAtTheBrokerIsReported(t *testing.T) {
	for _, stop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, 1)
			f.fault = func(_ kafka.TopicPartition, nth int) fault { return fault{code: int16(45 * (nth % 2))} } // the second attempt
			var mu sync.Mutex
			var heard []error
			p := begin(t, f, Config{StopOnDataLoss: stop, Report: func(err error) {
				mu.Lock()
				defer mu.Unlock()
				heard = append(heard, err)
			}})
			_, first := p.Send(t.Context(), text("a"))
			_, second := p.Send(t.Context(), text("b"))
			_, third := p.Send(t.Context(), text("c"))
			synctest.Wait()
			var loss *kafka.DataLossError
			if len(heard) == 0 || !errors.As(heard[0], &loss) || loss.Position != 1 || p.Stats().DataLosses != int64(len(heard)) {
				t.Errorf("heard of %v, stats %+v", heard, p.Stats())
			}
			if first != nil || stop != errors.As(second, &loss) || stop != errors.As(third, &loss) || stop && kafka.MayHaveHappened(second) {
				t.Errorf("stop %v: %v, %v, %v", stop, first, second, third)
			}
			if got := fmt.Sprint(f.values(t0)); got != map[bool]string{true: "[a]", false: "[a b c]"}[stop] {
				t.Errorf("stop %v: the log has %s", stop, got)
			}
		})
	}
}

// TestP28ASendDoesNotLingerWhereItsRecordsMovedMeanwhile has the records of a
// Send go from the waiting area to their partitions before the actor hears that
// somebody waits for them.
func TestP28ASendDoesNotLingerWhereItsRecordsMovedMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := begin(t, newFake(t, 1), Config{Linger: time.Minute})
		began := time.Now()
		_, err := p.send(t.Context(), func(ctx context.Context, rs []kafka.Record, to []Receipt) ([]Receipt, error) {
			to, err := p.AppendAll(ctx, rs, to)
			synctest.Wait()
			return to, err
		}, []kafka.Record{text("a")})
		if took := time.Since(began); err != nil || took >= time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// A batch of unknown outcome that goes away with its caller's context makes this
// fail: the next one would be taken for it.
func TestB079ABatchOfUnknownOutcomeIsNotWithdrawn(t *testing.T) {
	for _, code := range []int16{7, 20} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, 1)
			f.fault = func(_ kafka.TopicPartition, nth int) fault {
				if nth < 3 {
					return fault{code: code, appended: true}
				}
				return fault{}
			}
			p := begin(t, f, Config{})
			ctx, cancel := withTimeout(t, 3*time.Millisecond)
			defer cancel()
			if _, err := p.Send(ctx, text("a")); err == nil || !kafka.MayHaveHappened(err) {
				t.Errorf("%v", err)
			}
			res, err := p.Send(t.Context(), text("b"))
			if err != nil || res[0].Offset != 1 {
				t.Errorf("%+v, %v", res, err)
			}
			if got := f.values(t0); !slices.Equal(got, []string{"a", "b"}) {
				t.Errorf("the log has %q", got)
			}
		})
	}
}

// B092. A record that is written after its caller was told that it is not makes
// this fail, and so does one of another caller that goes with it.
func TestB092_P48TheEndOfTheContextTakesUnwrittenRecordsOutOfTheQueue(t *testing.T) {
	for name, block := range map[string]func(f *fakeCluster){
		"the brokers cannot be reached": func(f *fakeCluster) {
			f.unreachable = true
		},
		"no leader":              func(f *fakeCluster) { f.lead(t0, kafka.NoNode) },
		"the topic is not there": func(f *fakeCluster) { f.mu.Lock(); f.topics = map[string]*cluster.Topic{}; f.mu.Unlock() },
		"no producer id":         func(f *fakeCluster) { f.ids = func() (int64, int16) { return 4000, 15 } },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1)
				p := begin(t, f, Config{Linger: time.Second})
				block(f)
				other := appendText(t, p, "another caller's")
				ctx, cancel := withTimeout(t, 100*time.Millisecond)
				defer cancel()
				start := time.Now()
				results, err := p.Send(ctx, text("a"), text("b"))
				if took := time.Since(start); took > 110*time.Millisecond {
					t.Errorf("Send returned after %v", took)
				}
				for _, res := range results {
					if kafka.MayHaveHappened(res.Err) || !errors.Is(res.Err, context.DeadlineExceeded) || err == nil {
						t.Errorf("%v", res.Err)
					}
				}
				last := appendText(t, p, "last")
				f.unreachable, f.ids = false, nil
				f.describe("t", 1)
				f.event(cluster.Event{Kind: cluster.LeaderChanged, Topic: "t", Broker: kafka.Broker{ID: 0}})
				for _, rc := range []Receipt{other, last} {
					if _, err := rc.Wait(t.Context()); err != nil {
						t.Error(err)
					}
				}
				want := "[another caller's last]"
				if got := fmt.Sprint(f.values(t0)); got != want {
					t.Errorf("the log has %s, want %s", got, want)
				}
				if err := p.Flush(t.Context()); err != nil || p.budget.used.Load() != 0 {
					t.Errorf("%v, %d bytes are never given back", err, p.budget.used.Load())
				}
			})
		})
	}
}

// A result that is there is told, whatever the context says.
func TestB092AnAcknowledgementWinsOverTheEndOfTheContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{})
		if _, err := p.Send(t.Context(), text("warm")); err != nil {
			t.Fatal(err)
		}
		rc := appendText(t, p, "x")
		time.Sleep(time.Second)
		ctx, cancel := withTimeout(t, 0)
		defer cancel()
		if off, err := rc.Wait(ctx); off != 1 || err != nil {
			t.Errorf("%d, %v", off, err)
		}
	})
}

// A hint that is not taken makes this fail: the metadata are as old as before.
func TestP23AHintMovesThePartitionWithoutALookup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{})
		if _, err := p.Send(t.Context(), text("a")); err != nil {
			t.Fatal(err)
		}
		f.hints, f.leaders = true, map[kafka.TopicPartition]kafka.NodeID{t0: 2}
		looks, start := f.looks, time.Now()
		if _, err := p.Send(t.Context(), text("b")); err != nil {
			t.Fatal(err)
		}
		if f.looks != looks || time.Since(start) > 4*time.Millisecond || f.nodes[len(f.nodes)-1] != 2 {
			t.Errorf("%d look-ups, %v, nodes %v", f.looks-looks, time.Since(start), f.nodes)
		}
		if got := f.values(t0); !slices.Equal(got, []string{"a", "b"}) {
			t.Errorf("the log has %q", got)
		}
	})
}

// R32. Growth that is seen only when the count is stale makes this fail, and so
// does a partition that counts only while it has a leader.
func TestP39_R32GrowthIsUsedWhenItIsHeardOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		p := begin(t, f, Config{})
		send := func(key string) int32 {
			res, err := p.Send(t.Context(), kafka.Record{Topic: "t", Key: []byte(key), Value: []byte("x")})
			if err != nil {
				t.Fatal(err)
			}
			return res[0].Partition
		}
		send("foobar")
		f.describe("t", 12)
		for i := range int32(6) { // half of them have no leader at the moment
			f.lead(kafka.TopicPartition{Topic: "t", Partition: 2 * i}, kafka.NoNode)
		}
		f.event(cluster.Event{Kind: cluster.TopicGrew, Topic: "t", Before: 2, After: 12})
		time.Sleep(10 * time.Millisecond)
		if got := send("a-little-bit-longer-string"); got != 11 {
			t.Fatalf("partition %d, want 11 of 12", got)
		}
		rc, err := p.Append(t.Context(), kafka.Record{Topic: "t", Key: []byte("foobar")})
		if err != nil {
			t.Fatal(err)
		}
		f.describe("t", 12)
		f.event(cluster.Event{Kind: cluster.LeaderChanged, Topic: "t", Partition: 6, Broker: kafka.Broker{ID: 0}})
		if res := rc.Result(t.Context()); res.Partition != 6 || res.Err != nil {
			t.Errorf("%+v: foobar belongs to partition 6 of 12", res)
		}
	})
}

// The time of the batch for all of its records makes this fail, or of none; a
// broker's time that is not told, too.
func TestP34ZeroIsTheTimeOfTheCallAndTheBrokersTimeIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{Linger: time.Minute, DeliveryTimeout: time.Hour})
		if _, err := p.Send(t.Context(), text("warm")); err != nil {
			t.Fatal(err)
		}
		began := kafka.TimestampOf(time.Now())
		appendText(t, p, "a")
		time.Sleep(1234 * time.Millisecond)
		appendText(t, p, "b")
		own := text("c")
		own.Timestamp = 99
		last, err := p.Append(t.Context(), own)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		rs := f.records(t0)[1:]
		if rs[0].Timestamp != began || rs[1].Timestamp != began+1234 || rs[2].Timestamp != 99 {
			t.Errorf("%d, %d, %d; it began at %d", rs[0].Timestamp, rs[1].Timestamp, rs[2].Timestamp, began)
		}
		if res := last.Result(t.Context()); res.Timestamp != kafka.NoTimestamp {
			t.Errorf("a time of the broker that has none: %+v", res)
		}
		f.appendTime = 4711
		if res, err := p.Send(t.Context(), text("d")); err != nil || res[0].Timestamp != 4711 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// late is a context that ends just as the result comes.
type late struct {
	context.Context
	rc Receipt
}

func (l late) Done() <-chan struct{} {
	l.rc.batch.verdict.base = 7
	close(l.rc.batch.done)
	over := make(chan struct{})
	close(over)
	return over
}

// The end of the context, where the result is there too, makes this fail.
func TestP48_B092OfTwoAtOnceTheResultWins(t *testing.T) {
	for range 100 {
		rc := Receipt{batch: &batch{tp: t0, done: make(chan struct{}), verdict: undecided()}}
		if off, err := rc.Wait(late{t.Context(), rc}); off != 7 || err != nil {
			t.Fatalf("%d, %v", off, err)
		}
	}
}

// Room that a closed batch keeps beyond its size makes this fail.
func TestP30AClosedBatchHasTheRoomItNeeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{Compression: Uncompressed})
		if _, err := p.Send(t.Context(), text("warm")); err != nil {
			t.Fatal(err)
		}
		f.mu.Lock()
		f.hold = true
		f.mu.Unlock()
		var rc Receipt
		for range 50 {
			rc = appendText(t, p, noise(500, 1))
		}
		time.Sleep(time.Second)
		if used := p.budget.used.Load(); used != int64(rc.batch.raw) || rc.batch.raw < 50*500 {
			t.Errorf("%d bytes are taken for a batch of %d", used, rc.batch.raw)
		}
		f.release()
	})
}

// B100. The caller's slices are free when Append returns: bytes that change
// later in the log make this fail, and the race detector does.
func TestB100_P35TheCallersSlicesAreItsOwnAfterAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{Linger: NoLinger, BatchBytes: 2000})
		value, key := []byte("0000"), []byte("0000")
		headers := []kafka.Header{{Key: "h", Value: []byte("0000")}}
		for i := range 2000 {
			for _, b := range [][]byte{value, key, headers[0].Value} {
				copy(b, fmt.Sprintf("%04d", i))
			}
			if _, err := p.Append(t.Context(), kafka.Record{Topic: "t", Key: key, Value: value, Headers: headers}); err != nil {
				t.Fatal(err)
			}
			headers[0] = kafka.Header{Key: "h", Value: headers[0].Value}
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, r := range f.records(t0) {
			want := fmt.Sprintf("%04d", i)
			if string(r.Value) != want || string(r.Key) != want || string(r.Headers[0].Value) != want {
				t.Fatalf("record %d: %s, %s, %s", i, r.Key, r.Value, r.Headers[0].Value)
			}
		}
	})
}

// Workers that seal one batch after the other make this fail, and more of them
// than are allowed: P32, T2.
func TestP32BatchesAreCompressedInParallelByABoundedPool(t *testing.T) {
	f := newFake(t, 8)
	p := begin(t, f, Config{Partitioner: Manual, Workers: 3, Compression: Gzip, Linger: time.Hour, DeliveryTimeout: 2 * time.Hour})
	for round := range 2 { // the first one makes the topic known
		for i := range int32(8) {
			if _, err := p.Append(t.Context(), kafka.Record{Topic: "t", Partition: i, Value: []byte(noise(1000, 1))}); err != nil {
				t.Fatal(err)
			}
		}
		if round == 0 {
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
	p.buffers.mu.Lock() // no worker gets a buffer to compress into
	done := make(chan error)
	go func() { done <- p.Flush(t.Context()) }()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		p.sealers.mu.Lock()
		running, waiting := p.sealers.running, len(p.sealers.queue)
		p.sealers.mu.Unlock()
		if running == 3 && waiting == 5 {
			break
		}
		if running > 3 || time.Now().After(deadline) {
			t.Errorf("%d workers at work, %d batches wait", running, waiting)
			break
		}
	}
	p.buffers.mu.Unlock()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
