package producer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

var t0 = kafka.TopicPartition{Topic: "t", Partition: 0}

func text(s string) kafka.Record { return kafka.Record{Topic: "t", Value: []byte(s)} }

// begin starts a producer on f that the test's end closes.
func begin(t *testing.T, f *fakeCluster, cfg Config) *Producer {
	t.Helper()
	p, err := start(f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func appendText(t *testing.T, p *Producer, s string) Receipt {
	t.Helper()
	rc, err := p.Append(t.Context(), text(s))
	if err != nil {
		t.Fatalf("Append(%q): %v", s, err)
	}
	return rc
}

func TestP2_P3_P35RecordsGetConsecutiveOffsets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{})
		var receipts []Receipt
		for i := range 1000 {
			receipts = append(receipts, appendText(t, p, fmt.Sprint(i)))
		}
		for i, rc := range receipts {
			off, err := rc.Wait(t.Context())
			if err != nil || off != kafka.Offset(i) {
				t.Fatalf("record %d: offset %d, %v", i, off, err)
			}
		}
		for i, v := range f.values(t0) {
			if v != fmt.Sprint(i) {
				t.Fatalf("record %d of the log is %q", i, v)
			}
		}
		if f.asked != 1 {
			t.Errorf("%d identities", f.asked)
		}
	})
}

func TestP35ACallersSlicesAreFreeAfterAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, known := range []bool{true, false} { // also in the waiting area
			f := newFake(t, 1)
			p := begin(t, f, Config{})
			if known {
				if _, err := p.Send(t.Context(), text("first")); err != nil {
					t.Fatal(err)
				}
			}
			key, value, header := []byte("key"), []byte("value"), []byte("head")
			rc, err := p.Append(t.Context(), kafka.Record{
				Topic: "t", Key: key, Value: value, Headers: []kafka.Header{{Key: "h", Value: header}, {Key: "h"}},
			})
			if err != nil {
				t.Fatal(err)
			}
			for _, s := range [][]byte{key, value, header} {
				clear(s)
			}
			if _, err := rc.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
			rs := f.records(t0)
			r := rs[len(rs)-1]
			if string(r.Key) != "key" || string(r.Value) != "value" || len(r.Headers) != 2 ||
				string(r.Headers[0].Value) != "head" || r.Headers[1].Value != nil {
				t.Errorf("known %v: the log has %q %q %q", known, r.Key, r.Value, r.Headers)
			}
		}
	})
}

func TestP34NullAndEmptyAreToldApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{})
		in := []kafka.Record{
			{Topic: "t"}, {Topic: "t", Key: []byte{}, Value: []byte{}}, {Topic: "t", Key: []byte("k"), Value: nil, Timestamp: 5},
			{Topic: "t", Headers: []kafka.Header{{Key: "", Value: []byte{}}, {Key: "a"}, {Key: "a", Value: []byte("x")}}},
		}
		before := kafka.TimestampOf(time.Now())
		if _, err := p.Send(t.Context(), in...); err != nil {
			t.Fatal(err)
		}
		for i, r := range f.records(t0) {
			want := in[i]
			if (r.Key == nil) != (want.Key == nil) || (r.Value == nil) != (want.Value == nil) || len(r.Headers) != len(want.Headers) {
				t.Errorf("record %d: %#v", i, r)
			}
			for k, h := range want.Headers {
				if r.Headers[k].Key != h.Key || (r.Headers[k].Value == nil) != (h.Value == nil) {
					t.Errorf("record %d, header %d: %#v", i, k, r.Headers[k])
				}
			}
			if want.Timestamp == 0 && r.Timestamp != before || want.Timestamp != 0 && r.Timestamp != want.Timestamp {
				t.Errorf("record %d: timestamp %d", i, r.Timestamp)
			}
		}
	})
}

// A lost answer that is not followed by the same bytes makes this fail: with
// other sequences the records are in the log twice, without a second try they
// have no offset.
func TestP6_P12LostAnswersAreFollowedByTheSameBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.fault = func(_ kafka.TopicPartition, nth int) fault {
			switch nth % 5 {
			case 0:
				return fault{lost: true} // appended, answer lost
			case 1:
				return fault{unsent: true}
			case 2:
				return fault{code: 20, appended: true}
			case 3:
				return fault{silent: true}
			}
			return fault{}
		}
		p := begin(t, f, Config{})
		for i := range 20 {
			res, err := p.Send(t.Context(), text(fmt.Sprint(i)))
			if err != nil || res[0].Offset != kafka.Offset(i) {
				t.Fatalf("record %d: %v, %v", i, res, err)
			}
		}
		if got := f.values(t0); len(got) != 20 {
			t.Errorf("the log has %d records: %v", len(got), got)
		}
	})
}

// R1: giving up a batch that may be appended without leaving its epoch makes
// this fail: the second record is refused, or taken for the first.
func TestP14_R1_B073AGivenUpBatchIsNeverMistakenForTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.fault = func(_ kafka.TopicPartition, nth int) fault {
			return fault{lost: nth < 1000 && time.Since(start0) < 11*time.Second}
		}
		p := begin(t, f, Config{DeliveryTimeout: 10 * time.Second})
		res, err := p.Send(t.Context(), text("first"))
		var late *kafka.TimeoutError
		if !errors.As(err, &late) || !kafka.MayHaveHappened(err) {
			t.Fatalf("the first record: %v, %v", res, err)
		}
		time.Sleep(2 * time.Second)
		res, err = p.Send(t.Context(), text("other"))
		if err != nil || res[0].Offset != 1 {
			t.Fatalf("the second record: %v, %v", res, err)
		}
		if got := f.values(t0); !slices.Equal(got, []string{"first", "other"}) {
			t.Errorf("the log has %q", got)
		}
	})
}

// start0 is when every bubble begins.
var start0 = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func TestP23_P8_B098LeadersMoveAndOrderHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		p := begin(t, f, Config{})
		stop := make(chan struct{})
		done := make(chan struct{})
		go func() {
			defer close(done)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				case <-time.After(5 * time.Millisecond):
					f.lead(t0, kafka.NodeID(i%3))
				}
			}
		}()
		var receipts []Receipt
		for i := range 300 {
			receipts = append(receipts, appendText(t, p, fmt.Sprint(i)))
			time.Sleep(300 * time.Microsecond)
		}
		for _, rc := range receipts {
			if _, err := rc.Wait(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		close(stop)
		<-done
		var all int
		for part := range int32(2) {
			last := -1
			for _, v := range f.values(kafka.TopicPartition{Topic: "t", Partition: part}) {
				var n int
				fmt.Sscan(v, &n)
				if n <= last {
					t.Fatalf("partition %d: %d behind %d", part, n, last)
				}
				last = n
				all++
			}
		}
		if all != 300 {
			t.Errorf("%d records in the logs", all)
		}
	})
}

func TestP23_B088APartitionWithoutLeaderIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 3)
		for i := range int32(3) {
			f.lead(kafka.TopicPartition{Topic: "t", Partition: i}, kafka.NoNode)
		}
		p := begin(t, f, Config{})
		rc, err := p.Append(t.Context(), kafka.Record{Topic: "t", Key: []byte("abc"), Value: []byte("x")})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		for i := range int32(3) {
			f.lead(kafka.TopicPartition{Topic: "t", Partition: i}, 1)
		}
		want := int32(479470107 % 3) // of the full count, whoever has a leader
		if res := rc.Result(t.Context()); res.Err != nil || res.Partition != want {
			t.Fatalf("%+v, want partition %d", res, want)
		}
	})
}

func TestP23_B089AnUnknownTopicEndsWithTheDeadlineAndItsReason(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 0)
		p := begin(t, f, Config{DeliveryTimeout: 3 * time.Second})
		began := time.Now()
		rc := appendText(t, p, "x")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := rc.Wait(ctx)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Second {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		_, err = rc.Wait(t.Context())
		if time.Since(began) != 3*time.Second || !errors.Is(err, kerr.UnknownTopicOrPartition) || kafka.MayHaveHappened(err) {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
		f.lookErr = kafka.CodeError(29, nil)
		began = time.Now()
		_, err = p.Send(t.Context(), text("y"))
		if !errors.Is(err, kerr.TopicAuthorizationFailed) || time.Since(began) > 100*time.Millisecond {
			t.Errorf("after %v: %v", time.Since(began), err)
		}
	})
}

func TestP35_P39StaleCountsAreWaitedForAndGrowthIsUsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		f.maxAge = time.Minute
		p := begin(t, f, Config{})
		if _, err := p.Send(t.Context(), text("a")); err != nil {
			t.Fatal(err)
		}
		looks := f.looks
		time.Sleep(59 * time.Second)
		if _, err := p.Send(t.Context(), text("b")); err != nil || f.looks != looks {
			t.Fatalf("%v; %d look-ups within the age", err, f.looks-looks)
		}
		time.Sleep(2 * time.Second)
		f.mu.Lock()
		grown := *f.topics["t"]
		for range 3 {
			grown.Partitions = append(grown.Partitions, topicPartition(1))
		}
		f.topics["t"] = &grown
		f.mu.Unlock()
		// "abc" belongs to partition 3 of 4, and to 0 of 1: a stale count sends it there.
		res, err := p.Send(t.Context(), kafka.Record{Topic: "t", Key: []byte("abc"), Value: []byte("c")})
		if err != nil || res[0].Partition != 3 {
			t.Fatalf("%+v, %v", res, err)
		}
		f.describe("t", 2) // fewer: ignored
		f.event(cluster.Event{Kind: cluster.TopicGrew, Topic: "t"})
		time.Sleep(time.Second)
		res, err = p.Send(t.Context(), kafka.Record{Topic: "t", Key: []byte("user-1"), Value: []byte("d")})
		if want := int32(1404122828 % 4); res[0].Partition != want {
			t.Fatalf("%+v, %v; want partition %d", res, err, want)
		}
	})
}

func TestP29TooLargeRecordsAreRefusedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{BatchBytes: 1000})
		if _, err := p.Send(t.Context(), text("small")); err != nil {
			t.Fatal(err)
		}
		rc := appendText(t, p, "before")
		_, err := p.Append(t.Context(), text(strings.Repeat("x", 1000)))
		var large *kafka.TooLargeError
		if !errors.As(err, &large) || large.Limit != 1000 || large.Size <= 1000 || large.Size > 1080 || kafka.MayHaveHappened(err) {
			t.Fatalf("%v", err)
		}
		after := appendText(t, p, "after")
		for _, rc := range []Receipt{rc, after} {
			if _, err := rc.Wait(t.Context()); err != nil {
				t.Error(err)
			}
		}
		n := len(f.requests)
		fits, err := p.Send(t.Context(), text(strings.Repeat("x", 1000-61-9)))
		if err != nil {
			t.Errorf("a record that just fits: %v, %v", fits, err)
		}
		if n != 2 {
			t.Errorf("%d requests: a refused record closed the batch", n)
		}
	})
}

func TestP28LingerRunsFromTheFirstRecordAndEndsEarly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 1)
		p := begin(t, f, Config{Linger: time.Second, BatchBytes: 2000, BufferBytes: 4000, Compression: Uncompressed})
		if _, err := p.Send(t.Context(), text("warm")); err != nil { // R37: a synchronous write is not delayed
			t.Fatal(err)
		}
		if d := time.Since(start0); d > 20*time.Millisecond {
			t.Errorf("Send took %v", d)
		}
		took := func(what string, want time.Duration, f func() []Receipt) {
			t.Helper()
			began := time.Now()
			for _, rc := range f() {
				if _, err := rc.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if d := time.Since(began); d < want || d > want+10*time.Millisecond {
				t.Errorf("%s: %v, want %v", what, d, want)
			}
		}
		took("two records", time.Second, func() []Receipt {
			a := appendText(t, p, "a")
			time.Sleep(time.Second / 2)
			return []Receipt{a, appendText(t, p, "b")}
		})
		took("flush", 0, func() []Receipt {
			a := appendText(t, p, "a")
			if err := p.Flush(t.Context()); err != nil {
				t.Fatal(err)
			}
			return []Receipt{a}
		})
		took("a full batch", 0, func() []Receipt {
			a := appendText(t, p, strings.Repeat("x", 1500))
			b := appendText(t, p, strings.Repeat("y", 1500))
			_ = b
			return []Receipt{a}
		})
		took("a full buffer", 0, func() []Receipt {
			var rs []Receipt
			for range 10 {
				rs = append(rs, appendText(t, p, strings.Repeat("x", 1500)))
			}
			return rs[:8]
		})
	})
}

func TestP1_P49TheZeroConfigIsSafeAndNonsenseIsRefused(t *testing.T) {
	cfg, err := Config{}.withDefaults()
	if err != nil || cfg.Durability != Idempotent || cfg.Linger != 5*time.Millisecond || cfg.BatchBytes != 1_000_012 ||
		cfg.RequestBytes != 16<<20 || cfg.BufferBytes != 64<<20 || cfg.DeliveryTimeout != 120*time.Second ||
		cfg.Compression.codec().String() != "snappy" || cfg.BrokerRequests != 5 {
		t.Errorf("%+v, %v", cfg, err)
	}
	pick := func(kafka.Record, int32) int32 { return 0 }
	for _, c := range []struct {
		cfg  Config
		says []string
	}{
		{Config{Durability: 9}, []string{"Durability"}},
		{Config{Compression: 99}, []string{"Compression"}},
		{Config{Partitioner: 99}, []string{"Partitioner"}},
		{Config{Partitioner: Manual, Partition: pick}, []string{"Partitioner", "Partition "}},
		{Config{BatchBytes: 61}, []string{"BatchBytes"}},
		{Config{BatchBytes: -1}, []string{"BatchBytes"}},
		{Config{BatchBytes: 2000, RequestBytes: 1000}, []string{"BatchBytes", "RequestBytes"}},
		{Config{BatchBytes: 2000, BufferBytes: 1000}, []string{"BatchBytes", "BufferBytes"}},
		{Config{Linger: time.Minute, DeliveryTimeout: time.Second}, []string{"Linger", "DeliveryTimeout"}},
		{Config{RetryBackoff: time.Minute}, []string{"RetryBackoff", "MaxBackoff"}},
		{Config{Linger: -2}, []string{"Linger"}},
		{Config{Compression: Uncompressed, CompressionLevel: 3}, []string{"CompressionLevel", "Compression"}},
		{Config{Compression: Gzip, CompressionLevel: 10}, []string{"CompressionLevel", "Gzip"}},
		{Config{CompressionLevel: 1}, []string{"CompressionLevel", "DefaultCompression"}},
		{Config{Workers: -1}, []string{"Workers"}},
		{Config{MaxInFlight: 6}, []string{"MaxInFlight", "Idempotent"}},
		{Config{AcceptDuplicates: true}, []string{"AcceptDuplicates", "Idempotent"}},
		{Config{Durability: All, StopOnDataLoss: true}, []string{"StopOnDataLoss", "Durability"}},
		{Config{Fallback: []Compression{99}}, []string{"Fallback"}},
	} {
		_, err := start(newFake(t, 1), c.cfg)
		for _, word := range c.says {
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%+v: %v does not name %s", c.cfg, err, word)
			}
		}
	}
}

func TestP49_B091AfterCloseEverythingIsErrClosedAndHonest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 2)
		f.hold = true
		p := begin(t, f, Config{Partitioner: Manual})
		out := appendText(t, p, "out")
		time.Sleep(time.Second) // it is outstanding
		waiting := appendText(t, p, "waiting")
		open, err := p.Append(t.Context(), kafka.Record{Topic: "t", Partition: 1, Value: []byte("open")})
		if err != nil {
			t.Fatal(err)
		}
		area, err := p.Append(t.Context(), kafka.Record{Topic: "unknown", Value: []byte("area")})
		if err != nil {
			t.Fatal(err)
		}
		p.Close()
		p.Close()
		for name, c := range map[string]struct {
			rc    Receipt
			doubt bool
		}{"out": {out, true}, "waiting": {waiting, false}, "open": {open, false}, "area": {area, false}} {
			_, err := c.rc.Wait(t.Context())
			if !errors.Is(err, net.ErrClosed) || kafka.MayHaveHappened(err) != c.doubt {
				t.Errorf("%s: %v (may have happened: %v)", name, err, kafka.MayHaveHappened(err))
			}
		}
		if _, err := p.Append(t.Context(), text("late")); !errors.Is(err, cluster.ErrClosed) {
			t.Errorf("Append after Close: %v", err)
		}
		if err := p.Flush(t.Context()); err != nil {
			t.Errorf("Flush after Close: %v", err)
		}
		f.release()
	})
}
