package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// A whole request repeated for one partition that failed makes this fail: the
// other two are seen twice. So does a request for each partition. With one
// request at a time what is ready first goes alone, the rest together.
func TestP11_P22_R26OneRequestPerBrokerAndOnlyWhatFailedGoesAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 9)
		four := kafka.TopicPartition{Topic: "t", Partition: 4}
		f.fault = func(tp kafka.TopicPartition, nth int) fault {
			if tp == four && nth < 2 {
				return fault{code: 19}
			}
			return fault{}
		}
		p := begin(t, f, Config{Partitioner: Manual, BrokerRequests: 1})
		var rs []kafka.Record
		for i := range int32(9) {
			rs = append(rs, kafka.Record{Topic: "t", Partition: i, Value: []byte("x")})
		}
		if _, err := p.Send(t.Context(), rs...); err != nil {
			t.Fatal(err)
		}
		for tp, n := range f.seen {
			if want := map[bool]int{true: 3, false: 1}[tp == four]; n != want {
				t.Errorf("%v was sent %d times", tp, n)
			}
		}
		if len(f.requests) > 8 { // two of partition 4 alone
			t.Errorf("%d requests for 9 partitions of 3 brokers", len(f.requests))
		}
		f.requests = nil
		if _, err := p.Send(t.Context(), rs...); err != nil { // with leaders and identity known
			t.Fatal(err)
		}
		if n := len(f.requests); n < 3 || n > 6 {
			t.Errorf("%d requests for 9 partitions of 3 brokers", len(f.requests))
		}
	})
}

// A result taken from an answer for another partition, or two results for one
// record, make this fail.
func TestB101AnswersForOtherPartitionsAreIgnored(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for version := int16(12); version <= 13; version++ {
			f := newFake(t, 1)
			f.version = version
			f.describe("t", 1)
			f.fault = func(_ kafka.TopicPartition, nth int) fault { return fault{wrong: nth == 0} }
			p := begin(t, f, Config{})
			res, err := p.Send(t.Context(), text("x"))
			if err != nil || res[0].Offset != 0 || len(f.values(t0)) != 1 {
				t.Errorf("version %d: %+v, %v, log %q", version, res, err, f.values(t0))
			}
			if f.seen[t0] != 2 || f.requests[0].Version != version {
				t.Errorf("sent %d times, with version %d", f.seen[t0], f.requests[0].Version)
			}
		}
	})
}

// A code -1 taken for a rejection makes this fail: the record is in the log.
func TestP12ACodeThatSaysNothingIsUnknown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.fault = func(_ kafka.TopicPartition, nth int) fault {
			switch nth {
			case 0:
				return fault{code: -1, appended: true}
			case 2:
				return fault{code: 29}
			case 4:
				return fault{code: 12345, appended: true}
			}
			return fault{}
		}
		p := begin(t, f, Config{})
		for i, c := range []struct {
			code  *kerr.Error
			doubt bool
		}{{kerr.UnknownServerError, true}, {nil, false}, {kerr.TopicAuthorizationFailed, false}, {nil, false}, {nil, true}, {nil, false}} {
			_, err := p.Send(t.Context(), text(fmt.Sprint(i)))
			var op *kafka.OpError
			switch {
			case i%2 == 1:
				if err != nil {
					t.Errorf("record %d: %v", i, err)
				}
			case !errors.As(err, &op) || op.Topic != "t" || op.Partition != 0 || op.Broker != 0:
				t.Errorf("record %d: %v says not where", i, err)
			case c.code != nil && !errors.Is(err, c.code) || kafka.MayHaveHappened(err) != c.doubt:
				t.Errorf("record %d: %v, may have happened %v", i, err, kafka.MayHaveHappened(err))
			}
		}
		if got := fmt.Sprint(f.values(t0)); got != "[0 1 3 4 5]" {
			t.Errorf("the log has %v", got)
		}
	})
}

func TestP48_B092WhatExpiresUnwrittenIsNeverWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.fault = func(kafka.TopicPartition, int) fault { return fault{unsent: time.Since(start0) < 5*time.Second} }
		p := begin(t, f, Config{DeliveryTimeout: 2 * time.Second})
		rc := appendText(t, p, "late")
		time.Sleep(1900 * time.Millisecond)
		next := appendText(t, p, "next") // it has its own deadline
		_, err := rc.Wait(t.Context())
		var late *kafka.TimeoutError
		if d := time.Since(start0); !errors.As(err, &late) || late.Phase != kafka.PhaseQueue || kafka.MayHaveHappened(err) || d != 2*time.Second {
			t.Errorf("after %v: %v", d, err)
		}
		var dial *kafka.DialError
		if !errors.As(err, &dial) {
			t.Errorf("%v does not say what went wrong", err)
		}
		if _, err := next.Wait(t.Context()); err == nil || time.Since(start0) != 3900*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(start0), err)
		}
		time.Sleep(3 * time.Second)
		if _, err := p.Send(t.Context(), text("on")); err != nil {
			t.Fatal(err)
		}
		if got := f.values(t0); !slices.Equal(got, []string{"on"}) {
			t.Errorf("the log has %q", got)
		}
	})
}

func TestP2ARefusedIdentityFailsAtOnceAndIsAskedForAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		calls := 0
		f.ids = func() (int64, int16) {
			if calls++; calls == 1 {
				return -1, 15
			}
			if calls == 2 {
				return -1, 31
			}
			return 77, 0
		}
		p := begin(t, f, Config{})
		if _, err := p.Send(t.Context(), text("a")); !errors.Is(err, kerr.ClusterAuthorizationFailed) || kafka.MayHaveHappened(err) || calls != 2 {
			t.Errorf("%d calls: %v", calls, err)
		}
		if _, err := p.Send(t.Context(), text("b")); err != nil {
			t.Errorf("%v", err)
		}
	})
}

// A sequence taken in another order than that of the log makes this fail.
func TestB074ParallelSendsAllHaveTheirOwnOffset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{Linger: NoLinger})
		var mu sync.Mutex
		offsets := map[kafka.Offset]bool{}
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				res, err := p.Send(t.Context(), text(fmt.Sprint(i)))
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				offsets[res[0].Offset] = true
				mu.Unlock()
			})
		}
		wg.Wait()
		if len(offsets) != 20 || len(f.values(t0)) != 20 {
			t.Errorf("%d offsets, %d records", len(offsets), len(f.values(t0)))
		}
	})
}

func TestP36_P38KeyedRecordsKeepTheirPartitionAndOthersStick(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 12)
		p := begin(t, f, Config{BatchBytes: 4000, Compression: Uncompressed})
		for key, want := range map[string]int32{"21": 0, "foobar": 6, "abc": 3, "user-1": 8, "": 9} {
			res, err := p.Send(t.Context(), kafka.Record{Topic: "t", Key: []byte(key), Value: []byte("v")})
			if err != nil || res[0].Partition != want {
				t.Errorf("key %q: %+v, %v", key, res, err)
			}
		}
		var receipts []Receipt
		for range 400 {
			receipts = append(receipts, appendText(t, p, strings.Repeat("x", 100)))
		}
		counts, changes := map[int32]int{}, 0
		last := int32(-1)
		for _, rc := range receipts {
			res := rc.Result(t.Context())
			if res.Err != nil {
				t.Fatal(res.Err)
			}
			counts[res.Partition]++
			if res.Partition != last {
				changes++
				last = res.Partition
			}
		}
		// 400 records of about 132 bytes as they are counted are 13 batches.
		if changes < 8 || changes > 14 || len(counts) < 5 {
			t.Errorf("%d changes of the partition, %v", changes, counts)
		}
	})
}

func TestB097APartitionThatDoesNotExistIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 100)
		p := begin(t, f, Config{Partitioner: Manual})
		for range 2 { // first from the waiting area, then at once
			for _, i := range []int32{100, 1000, -1} {
				_, err := p.Send(t.Context(), kafka.Record{Topic: "t", Partition: i, Value: []byte("x")})
				var none *NoPartitionError
				if !errors.As(err, &none) || none.Partition != i || none.Count != 100 || none.Topic != "t" || kafka.MayHaveHappened(err) {
					t.Errorf("partition %d: %v", i, err)
				}
			}
		}
		if res, err := p.Send(t.Context(), kafka.Record{Topic: "t", Partition: 99, Value: []byte("x")}); err != nil || res[0].Partition != 99 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

func TestP38ACustomPartitionerRunsUnderNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 4)
		var p *Producer
		p = begin(t, f, Config{Partition: func(r kafka.Record, n int32) int32 {
			if top := p.topics.Load().find("t"); !top.area.mu.TryLock() {
				t.Error("the waiting area is locked")
			} else {
				for _, q := range top.parts {
					if !q.mu.TryLock() {
						t.Errorf("%v is locked", q.tp)
						continue
					}
					q.mu.Unlock()
				}
				top.area.mu.Unlock()
			}
			return int32(len(r.Value)) % n
		}})
		rs := []kafka.Record{text("a"), text("bb"), text("ccc"), text("dddd"), text("eeeee")}
		for range 2 {
			res, err := p.Send(t.Context(), rs...)
			if err != nil {
				t.Fatal(err)
			}
			for i := range res {
				if want := int32(i+1) % 4; res[i].Partition != want {
					t.Errorf("%q went to %d", rs[i].Value, res[i].Partition)
				}
			}
		}
	})
}

func TestP49FlushWaitsForWhatCameBeforeAndNothingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3)
		f.latency = 10 * time.Millisecond
		f.fault = func(_ kafka.TopicPartition, nth int) fault { return fault{code: map[bool]int16{true: 19}[nth < 3]} }
		p := begin(t, f, Config{Linger: time.Hour, DeliveryTimeout: 2 * time.Hour})
		var before []Receipt
		for i := range 50 {
			rc, err := p.Append(t.Context(), kafka.Record{Topic: "t", Key: fmt.Append(nil, i), Value: []byte("x")})
			if err != nil {
				t.Fatal(err)
			}
			before = append(before, rc)
		}
		flushed := make(chan error)
		go func() { flushed <- p.Flush(t.Context()) }()
		time.Sleep(60 * time.Millisecond)
		after, err := p.Append(t.Context(), kafka.Record{Topic: "t", Key: []byte("after"), Value: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-flushed; err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		for i, rc := range before {
			if _, err := rc.Wait(ended); err != nil { // it is there, whatever the context
				t.Fatalf("record %d after Flush: %v", i, err)
			}
		}
		if _, err := after.Wait(ended); !errors.Is(err, context.Canceled) || !kafka.MayHaveHappened(err) {
			t.Errorf("the record after Flush: %v", err)
		}
	})
}

func TestP49ShutdownDeliversAndRefuses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{Linger: time.Hour, DeliveryTimeout: 2 * time.Hour})
		rc := appendText(t, p, "x")
		if err := p.Shutdown(t.Context()); err != nil {
			t.Fatal(err)
		}
		if off, err := rc.Wait(t.Context()); err != nil || off != 0 {
			t.Errorf("%d, %v", off, err)
		}
		if _, err := p.Append(t.Context(), text("y")); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("Append after Shutdown: %v", err)
		}
		f = newFake(t, 1)
		f.hold = true
		p = begin(t, f, Config{})
		rc = appendText(t, p, "x")
		time.Sleep(time.Second)
		down := make(chan error)
		go func() { down <- p.Shutdown(t.Context()) }()
		synctest.Wait()
		if _, err := p.Append(t.Context(), text("y")); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("Append during Shutdown: %v", err)
		}
		f.release()
		if err := <-down; err != nil {
			t.Error(err)
		}
		if _, err := rc.Wait(t.Context()); err != nil {
			t.Errorf("the record that Shutdown waited for: %v", err)
		}
	})
}

// Each of these holds something up for ever if Close or Shutdown waits for it.
func TestP49CloseNeverDeadlocks(t *testing.T) {
	for name, prepare := range map[string]func(*fakeCluster){
		"nothing is answered": func(f *fakeCluster) { f.hold = true },
		"no leader":           func(f *fakeCluster) { f.lead(t0, kafka.NoNode) },
		"unknown topic":       func(f *fakeCluster) { delete(f.topics, "t") },
		"no metadata":         func(f *fakeCluster) { f.lookErr = errors.New("no broker answers") },
	} {
		for _, graceful := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				f := newFake(t, 1)
				prepare(f)
				p := begin(t, f, Config{BufferBytes: 4000, BatchBytes: 1000})
				var wg sync.WaitGroup
				for range 10 { // more than the buffer holds, and receipts that nobody reads
					wg.Go(func() {
						for {
							if _, err := p.Append(t.Context(), kafka.Record{Topic: "t", Value: make([]byte, 300)}); err != nil {
								if !errors.Is(err, cluster.ErrClosed) {
									t.Errorf("%s: %v", name, err)
								}
								return
							}
						}
					})
				}
				time.Sleep(time.Second)
				began := time.Now()
				if graceful {
					ctx, cancel := context.WithTimeout(t.Context(), time.Second)
					defer cancel()
					if err := p.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
						t.Errorf("%s: %v", name, err)
					}
					began = began.Add(time.Second)
				} else {
					p.Close()
				}
				if d := time.Since(began); d > 10*time.Millisecond {
					t.Errorf("%s: closing took %v", name, d)
				}
				wg.Wait()
				if used, ahead := p.budget.used.Load(), p.ahead.Load(); used != 0 || ahead != 0 {
					t.Errorf("%s: %d bytes are not given back, %d of open buffers", name, used, ahead)
				}
				f.release()
			})
		}
	}
}

func TestB091CloseAndAppendAtTheSameTime(t *testing.T) {
	for seed := range uint64(200) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(9, seed))
			f := newFake(t, 2)
			p := begin(t, f, Config{Linger: NoLinger})
			var wg sync.WaitGroup
			for range 4 {
				delay := time.Duration(rng.IntN(3000)) * time.Microsecond
				wg.Go(func() {
					time.Sleep(delay)
					for range 5 {
						res, err := p.Send(t.Context(), text("x"))
						if err != nil && !errors.Is(err, cluster.ErrClosed) {
							t.Errorf("%+v, %v", res, err)
						}
					}
				})
			}
			time.Sleep(time.Duration(rng.IntN(6000)) * time.Microsecond)
			p.Close()
			wg.Wait()
			if err := p.Flush(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The whole: random faults, leaders that move, growth. Nothing that was
// acknowledged is missing, nothing is there twice, each key keeps its order.
// Without the doubt of lost answers, or with new sequences on a retry, this
// fails.
func TestP9_P10_P12EverythingAtOnceLosesAndDoublesNothing(t *testing.T) {
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) { chaos(t, seed) })
	}
}

func chaos(t *testing.T, seed uint64) {
	rng, faults := rand.New(rand.NewPCG(seed, 1)), rand.New(rand.NewPCG(seed, 2))
	f := newFake(t, 4)
	f.fault = func(kafka.TopicPartition, int) fault {
		return []fault{
			{lost: true}, {unsent: true}, {code: 7, appended: true}, {code: 20, appended: true}, {code: 20}, {code: 6}, {code: 19},
			{silent: true}, {wrong: true}, {code: 2}, {code: -1, appended: true}, {code: -1}, {code: 10}, {code: 3},
			{}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {}, {},
		}[faults.IntN(30)]
	}
	p := begin(t, f, Config{BatchBytes: 600, Linger: time.Duration(rng.IntN(3)) * time.Millisecond, DeliveryTimeout: time.Minute})
	type sent struct {
		key, n int
		rc     Receipt
	}
	var all []sent
	for n := range 500 {
		key := rng.IntN(10)
		rc, err := p.Append(t.Context(), kafka.Record{Topic: "t", Key: fmt.Append(nil, key), Value: fmt.Append(nil, n)})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, sent{key, n, rc})
		if rng.IntN(20) == 0 {
			f.lead(kafka.TopicPartition{Topic: "t", Partition: rng.Int32N(4)}, kafka.NodeID(rng.IntN(3)))
			time.Sleep(time.Duration(rng.IntN(5000)) * time.Microsecond)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen, last := map[string]int{}, map[string]int{}
	for part := range int32(4) {
		for _, r := range f.records(kafka.TopicPartition{Topic: "t", Partition: part}) {
			seen[string(r.Value)]++
			var n int
			fmt.Sscan(string(r.Value), &n)
			if before, ok := last[string(r.Key)]; ok && n < before {
				t.Errorf("seed %d: key %s: %d behind %d", seed, r.Key, n, before)
			}
			last[string(r.Key)] = n
		}
	}
	done := 0
	for _, s := range all {
		_, err := s.rc.Wait(t.Context())
		n := seen[fmt.Sprint(s.n)]
		switch {
		case n > 1:
			t.Errorf("seed %d: record %d is there %d times", seed, s.n, n)
		case err == nil && n == 0:
			t.Errorf("seed %d: record %d is acknowledged and lost", seed, s.n)
		case err != nil && !kafka.MayHaveHappened(err) && n > 0:
			t.Errorf("seed %d: record %d did not happen and is there: %v", seed, s.n, err)
		}
		if err == nil {
			done++
		}
	}
	if done < 100 {
		t.Errorf("seed %d: only %d of 500 done", seed, done)
	}
}

// The socket that lost an answer may still be writing the batch. Its memory
// used for the next batch makes this fail: other bytes would be on their way.
func TestC36TheMemoryOfALostBatchIsNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		type kept struct{ wire, was []byte }
		var all []kept
		f.fault = func(_ kafka.TopicPartition, nth int) fault { return fault{lost: nth%3 == 0} }
		f.sent = func(req *produceRequest) {
			wire := req.topics[0].parts[0].wire
			if f.seen[t0]%3 == 0 {
				all = append(all, kept{wire, slices.Clone(wire)})
			}
		}
		for _, codec := range []Compression{Uncompressed, Snappy} {
			p := begin(t, f, Config{Compression: codec})
			for i := range 60 {
				if _, err := p.Send(t.Context(), text(strings.Repeat(fmt.Sprint(i), 200))); err != nil {
					t.Fatal(err)
				}
			}
		}
		if len(all) < 50 {
			t.Fatalf("only %d lost answers", len(all))
		}
		for i, k := range all {
			if !slices.Equal(k.wire, k.was) {
				t.Fatalf("batch %d was overwritten", i)
			}
		}
	})
}

// A batch that was rejected, and was never in doubt, is numbered anew and sent.
// Its bytes taken for unchangeable because they were sent once (a panic), or
// sent again under the old numbers, make this fail.
func TestP13_P18_P19_B083ARejectedBatchIsNumberedAnewAndSent(t *testing.T) {
	for name, c := range map[string]struct {
		fault fault
		id    kafka.ProducerID
		epoch kafka.ProducerEpoch
	}{
		"45 forgotten":       {fault{code: 45, logStart: 100}, 4000, 1},
		"59 forgotten":       {fault{code: 59, logStart: 100}, 4000, 1},
		"47 stale epoch":     {fault{code: 47}, 4000, 1},
		"49 unknown mapping": {fault{code: 49}, 4001, 0},
	} {
		for _, codec := range []Compression{Uncompressed, Snappy} {
			t.Run(fmt.Sprint(name, codec), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					f := newFake(t, 1)
					f.fault = func(_ kafka.TopicPartition, nth int) fault {
						if nth == 1 {
							return c.fault
						}
						return fault{}
					}
					p := begin(t, f, Config{Compression: codec})
					for i := range 4 {
						if _, err := p.Send(t.Context(), text(strings.Repeat(fmt.Sprint(i), 100))); err != nil {
							t.Fatalf("record %d: %v", i, err)
						}
					}
					if got := f.values(t0); len(got) != 4 || got[1] != strings.Repeat("1", 100) {
						t.Errorf("the log has %v", got)
					}
					for i, b := range f.logs[t0].batches[1:] {
						if b.ProducerID() != c.id || b.ProducerEpoch() != c.epoch || b.BaseSequence() != int32(i) {
							t.Errorf("batch %d is %d/%d+%d", i+1, b.ProducerID(), b.ProducerEpoch(), b.BaseSequence())
						}
					}
				})
			})
		}
	}
}

// A record waits for room in the waiting area while its topic is found: what the
// same goroutine appends next must not overtake it. Mutation: an appendLocked
// that goes on in the waiting area after its wait.
func TestP30_P35ARecordThatWaitedForRoomKeepsItsPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{BufferBytes: 4 << 10, BatchBytes: 1 << 10, Compression: Uncompressed})
		var rs []kafka.Record
		for i := range 300 {
			rs = append(rs, kafka.Record{Topic: "t", Value: fmt.Appendf(nil, "%040d", i)})
		}
		if _, err := p.AppendAll(t.Context(), rs, nil); err != nil {
			t.Fatal(err)
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		for i, r := range f.records(t0) {
			if string(r.Value) != string(rs[i].Value) {
				t.Fatalf("record %d of the log is %q", i, r.Value)
			}
		}
	})
}

// The producer closes while the records of its waiting area are being placed.
// A result for a batch that was placed already makes this panic.
func TestP49CloseWhileWaitingRecordsArePlaced(t *testing.T) {
	for _, after := range []time.Duration{1, 20, 41, 60} { // ms
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, 3)
			p := begin(t, f, Config{BatchBytes: 300, Partition: func(_ kafka.Record, n int32) int32 {
				time.Sleep(time.Millisecond)
				return n - 1
			}})
			var all []Receipt
			for i := range 100 {
				all = append(all, appendText(t, p, strings.Repeat(fmt.Sprint(i%10), 40)))
			}
			time.Sleep(after * time.Millisecond)
			if err := p.Close(); err != nil {
				t.Fatal(err)
			}
			for i, rc := range all {
				if _, err := rc.Wait(t.Context()); err != nil && !errors.Is(err, cluster.ErrClosed) {
					t.Errorf("record %d: %v", i, err)
				}
			}
		})
	}
}

// Nine partitions of one broker, a request each: more requests outstanding than
// allowed, or fewer, make this fail.
func TestP7_P22BrokerRequestsBoundsWhatIsOutstanding(t *testing.T) {
	for _, n := range []int{1, 2, 5} {
		synctest.Test(t, func(t *testing.T) {
			f := newFake(t, 9)
			for i := range int32(9) {
				f.lead(kafka.TopicPartition{Topic: "t", Partition: i}, 0)
			}
			p := begin(t, f, Config{Partitioner: Manual, BrokerRequests: n, BatchBytes: 200, RequestBytes: 200, Compression: Uncompressed})
			if _, err := p.Send(t.Context(), kafka.Record{Topic: "t", Value: []byte("the identity is known")}); err != nil {
				t.Fatal(err)
			}
			f.hold = true
			for i := range int32(9) {
				r := kafka.Record{Topic: "t", Partition: i, Value: []byte(strings.Repeat("x", 100))}
				if _, err := p.Append(t.Context(), r); err != nil {
					t.Fatal(err)
				}
			}
			time.Sleep(time.Second)
			synctest.Wait()
			if len(f.held) != n {
				t.Errorf("%d requests are outstanding, want %d", len(f.held), n)
			}
			f.release()
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
		})
	}
}
