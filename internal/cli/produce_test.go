package cli

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// stored lists what a partition holds, without what the broker adds.
func (e *embedded) stored(topic string, partition int32) []kafka.Record {
	e.t.Helper()
	records, err := e.Records(topic, partition)
	if err != nil {
		e.t.Fatal(err)
	}
	for i := range records {
		records[i].Offset, records[i].LeaderEpoch, records[i].TimestampType = 0, 0, 0
	}
	return records
}

func values(records []kafka.Record) []string {
	var out []string
	for _, r := range records {
		out = append(out, string(r.Value))
	}
	return out
}

func TestProduceWritesLines(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
	e.feed("a\n\nb b\nlast", "produce", "t").want(t, "")
	if diff := cmp.Diff([]string{"a", "", "b b", "last"}, values(e.stored("t", 0))); diff != "" {
		t.Error(diff)
	}
	for _, r := range e.stored("t", 0) {
		if r.Key != nil || r.Value == nil {
			t.Errorf("%+v", r)
		}
	}
}

func TestProduceShapesRecords(t *testing.T) {
	for _, c := range []struct {
		name, stdin, args string
		want              []kafka.Record
	}{
		{"keys", "k:v:w\nplain\n:v\nk:\n", "-K :", []kafka.Record{
			{Key: []byte("k"), Value: []byte("v:w")}, {Value: []byte("plain")},
			{Key: []byte{}, Value: []byte("v")}, {Key: []byte("k"), Value: []byte{}},
		}},
		{"tombstones", "k:\n\n", "-K : -Z", []kafka.Record{{Key: []byte("k")}, {}}},
		{"delimiter", `a\n;b;`, `-D ;`, []kafka.Record{{Value: []byte(`a\n`)}, {Value: []byte("b")}}},
		{"escaped delimiter", "a\x00\x1eb\x00\x1e", `-D \x00\x1e`, []kafka.Record{{Value: []byte("a")}, {Value: []byte("b")}}},
		{"tab key", "k\tv\n", `-K \t`, []kafka.Record{{Key: []byte("k"), Value: []byte("v")}}},
		{"headers", "v\n", "-H a=1 -H b=x=y -H a=", []kafka.Record{{
			Value: []byte("v"), Headers: []kafka.Header{{Key: "a", Value: []byte("1")}, {Key: "b", Value: []byte("x=y")}, {Key: "a", Value: []byte{}}},
		}}},
		{"timestamp", "v\n", "--timestamp 1234", []kafka.Record{{Value: []byte("v"), Timestamp: 1234}}},
		{"json", `{"key":"k","value":{"base64":"/w=="},"headers":[["h",null]],"timestamp":77}` + "\n" + `{"value":null}`, "--json", []kafka.Record{
			{Key: []byte("k"), Value: []byte{0xff}, Headers: []kafka.Header{{Key: "h"}}, Timestamp: 77}, {},
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
			e.feed(c.stdin, append([]string{"produce", "t"}, strings.Fields(c.args)...)...).want(t, "")
			got := e.stored("t", 0)
			for i := range got {
				got[i].Topic, got[i].Partition = "", 0
				if i < len(c.want) && c.want[i].Timestamp == 0 {
					got[i].Timestamp = 0
				}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProduceReadsFilesAndNamesTheirLines(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
	dir := t.TempDir()
	one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
	for file, text := range map[string]string{one: "1\n2", two: "3\n"} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e.feed("not read", "produce", "t", "-l", one, two).want(t, "")
	if diff := cmp.Diff([]string{"1", "2", "3"}, values(e.stored("t", 0))); diff != "" {
		t.Error(diff)
	}
	res := e.feed("", "produce", "t", "-l", filepath.Join(dir, "none"))
	if res.status != 1 || !strings.Contains(res.stderr, "no such file") {
		t.Errorf("%+v", res)
	}
	res = e.feed("", "produce", "t", "--json", "-l", two)
	if res.status != 1 || !strings.Contains(res.stderr, "ottla: "+two+":1: refused: not a record") {
		t.Errorf("%+v", res)
	}
}

func TestProduceReportsEachRecord(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 3}})
	e.feed("a\nb\n", "produce", "t", "-p", "2", "--report").want(t, "t\t2\t0\nt\t2\t1\n")
	res := e.feed("{\"value\":\"x\",\"partition\":1}\n{\"value\":\"y\",\"partition\":7}\n{\"value\":\"z\",\"partition\":0}\n", "produce", "t", "--json", "--report", "--keep-going")
	if res.status != 1 || res.stdout != "t\t1\t0\nt\t-1\t-1\nt\t0\t0\n" ||
		!strings.HasPrefix(res.stderr, "ottla: line 2: refused: topic t has no partition 7: its partitions go from 0 to 2; without \"partition\" the key decides\n") {
		t.Errorf("%+v", res)
	}
	e.feed("a", "produce", "t", "-p", "3").wantError(t, 1, "no partition 3", "0 to 2")
}

func TestProduceStopsAtARefusedRecordAndCounts(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
	long := strings.Repeat("x", 2000)
	in := "a\nb\n" + long + "\nc\n"
	res := e.feed(in, "produce", "t", "-X", "batch.size=1000")
	lines := strings.Split(res.stderr, "\n")
	if res.status != 1 || len(lines) != 3 || !strings.HasPrefix(lines[0], "ottla: line 3: refused: a record of ") ||
		!strings.Contains(lines[0], "the limit of this client is 1000 bytes") || lines[1] != "ottla: 2 records written, 1 refused, 0 unknown" {
		t.Errorf("status %d: %s", res.status, res.stderr)
	}
	if diff := cmp.Diff([]string{"a", "b"}, values(e.stored("t", 0))); diff != "" {
		t.Error(diff)
	}
	res = e.feed(in, "produce", "t", "-X", "batch.size=1000", "--keep-going")
	if res.status != 1 || !strings.HasSuffix(res.stderr, "ottla: 3 records written, 1 refused, 0 unknown\n") {
		t.Errorf("status %d: %s", res.status, res.stderr)
	}
	if diff := cmp.Diff([]string{"a", "b", "a", "b", "c"}, values(e.stored("t", 0))); diff != "" {
		t.Error(diff)
	}
	e.Fail(int16(kmsg.Produce), kerr.MessageTooLarge.Code, -1, 0)
	res = e.feed("big\n", "produce", "t")
	if res.status != 1 || !strings.Contains(res.stderr, "line 1: refused: a record of ") || !strings.Contains(res.stderr, "max.message.bytes") {
		t.Errorf("status %d: %s", res.status, res.stderr)
	}
}

// The acks of Java's default, or Java's partitions, whatever is asked for, make
// this fail.
func TestProduceAsksForTheAcksAndPartitionsThatItIsTold(t *testing.T) {
	for acks, want := range map[string]int16{"all": -1, "1": 1, "0": 0} {
		e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
		e.feed("a\nb\n", "produce", "t", "--acks", acks).want(t, "")
		waitFor(t, func() bool { return len(e.stored("t", 0)) == 2 })
		for _, r := range e.Journal(int16(kmsg.Produce)) {
			if got := r.Body.(*kmsg.ProduceRequest).Acks; got != want {
				t.Errorf("--acks %s asks for %d", acks, got)
			}
		}
	}
	for props, want := range map[string]struct {
		acks       int16
		idempotent bool
	}{
		"acks=all": {-1, true}, "acks=1": {1, false}, "acks=0": {0, false},
		"enable.idempotence=false": {-1, false}, "enable.idempotence=TRUE": {-1, true},
	} {
		e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
		e.feed("a\n", "produce", "t", "-X", props).want(t, "")
		waitFor(t, func() bool { return len(e.stored("t", 0)) == 1 })
		acks := e.Journal(int16(kmsg.Produce))[0].Body.(*kmsg.ProduceRequest).Acks
		if idempotent := len(e.Journal(int16(kmsg.InitProducerID))) > 0; acks != want.acks || idempotent != want.idempotent {
			t.Errorf("%s: acks %d, idempotent: %v", props, acks, idempotent)
		}
		if want.acks == 1 {
			e.feed("b\n", "produce", "t", "-X", props, "--acks", "all").want(t, "")
			if got := e.Journal(int16(kmsg.Produce)); got[len(got)-1].Body.(*kmsg.ProduceRequest).Acks != -1 {
				t.Error("--acks does not win over acks")
			}
		}
	}
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
	e.feed("a\n", "produce", "t", "-X", "acks=1", "-X", "enable.idempotence=true").wantError(t, statusUsage, "do not go together")
	e.feed("a\n", "produce", "t", "-X", "acks=1", "--tx", "id").wantError(t, statusUsage, "--tx needs acks=all")
	for rule, want := range map[string]int32{"murmur2": 6, "crc32": 5} { // of the key foobar and 12 partitions
		e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 12}})
		e.feed("foobar:x\n", "produce", "t", "-K", ":", "--partitioner", rule).want(t, "")
		if n := len(e.stored("t", want)); n != 1 {
			t.Errorf("--partitioner %s: %d records in partition %d", rule, n, want)
		}
	}
}

func TestProduceNeedsTheTopicOrCreate(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, AutoCreate: true, DefaultPartitions: 2, Topics: map[string]int{"orders": 1}})
	e.feed("a\n", "produce", "ordres").wantError(t, 1, `topic "ordres" does not exist (did you mean orders?)`, "--create")
	e.ottla("topics", "list").want(t, "orders\t1\t1\n")
	e.feed("a\n", "produce", "ordres", "--create").want(t, "")
	e.ottla("topics", "list").want(t, "orders\t1\t1\nordres\t2\t1\n")
}

func TestProduceRefusesFlagsThatMakeNoSense(t *testing.T) {
	for line, want := range map[string]string{
		`-D`:                       "flag needs an argument",
		`-D \q`:                    "no escape",
		`-K \`:                     "stands at the end",
		`-z lzo`:                   "none, gzip",
		`-p -1`:                    "start at 0",
		`-H novalue`:               "NAME=VALUE",
		`--timestamp -5`:           "milliseconds",
		`--json -K :`:              "do not go together",
		`--json -D ;`:              "do not go together",
		`extra`:                    "unexpected argument",
		`--acks 2`:                 "all, 1 or 0",
		`--partitioner md5`:        "crc32, crc32-consistent, fnv1a",
		`-p 0 --partitioner crc32`: "do not go together",
		`-X linger.mss=1`:          "linger.ms",
		`-X batch.size=10`:         "BatchBytes",
		`-z snappy --nosuch`:       "unknown flag",
	} {
		t.Run(line, func(t *testing.T) {
			e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
			res := e.feed("a\n", append([]string{"produce", "t"}, strings.Fields(line)...)...)
			res.wantError(t, 2, want)
			if n := len(e.stored("t", 0)); n != 0 {
				t.Errorf("%d records were written", n)
			}
		})
	}
}

func TestALostAnswerIsAnUnknownOutcome(t *testing.T) {
	t.Parallel() // it waits for most of its time
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
	e.Fail(int16(kmsg.Produce), kerr.RequestTimedOut.Code, -1, 0)
	res := e.feed("a\nb\n", "produce", "t", "-X", "delivery.timeout.ms=5000")
	if res.status != 3 || !strings.Contains(res.stderr, "line 1: it is not known whether it is written") || !strings.HasSuffix(res.stderr, "ottla: 0 records written, 0 refused, 2 unknown\n") {
		t.Errorf("%+v", res)
	}
}

func TestTheFirstSignalFinishesWhatIsInFlight(t *testing.T) {
	for _, sig := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
		p := run{args: []string{"produce", "t", "--report", "-X", "linger.ms=300"}, env: e.env()}.start(t)
		fmt.Fprint(p.stdin, "a\nb\n")
		p.line(t) // the first is written: the input is being read
		fmt.Fprint(p.stdin, "c\n")
		waitFor(t, func() bool { return len(e.stored("t", 0)) == 3 })
		p.signal(t, sig)
		res := p.wait(t)
		if res.status != 130 || !strings.Contains(res.stderr, "ottla: interrupted: 3 records written, 0 refused, 0 unknown") {
			t.Errorf("%v: %+v", sig, res)
		}
		if diff := cmp.Diff([]string{"a", "b", "c"}, values(e.stored("t", 0))); diff != "" {
			t.Error(diff)
		}
	}
}

// waitFor waits until something is true, for a minute at most.
func waitFor(t *testing.T, f func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("waited for too long")
		}
	}
}

func TestTheFirstSignalIsBoundedByTimeoutAndTheSecondEndsAtOnce(t *testing.T) {
	for name, second := range map[string]bool{"timeout": false, "second": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits for most of its time
			e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
			limit := "3s"
			if second {
				limit = "1h"
			}
			p := run{args: []string{"produce", "t", "-q"}, env: e.env()}.start(t)
			fmt.Fprint(p.stdin, "a\n")
			waitFor(t, func() bool { return len(e.stored("t", 0)) == 1 })
			p.stop(t)

			p = run{args: []string{"produce", "t", "--timeout", limit}, env: e.env()}.start(t)
			fmt.Fprint(p.stdin, "b\n")
			waitFor(t, func() bool { return len(e.stored("t", 0)) == 2 })
			lost := e.Fail(int16(kmsg.Produce), kerr.RequestTimedOut.Code, -1, 0)
			fmt.Fprint(p.stdin, "c\n")
			waitFor(t, func() bool { return lost.Hits() > 0 })
			p.signal(t, os.Interrupt)
			ended := make(chan struct{})
			if second { // again and again: two that come too close are one
				go func() {
					for ; p.cmd.Process.Signal(os.Interrupt) == nil; time.Sleep(100 * time.Millisecond) {
						select {
						case <-ended:
							return
						default:
						}
					}
				}()
			}
			res := p.wait(t)
			close(ended)
			switch {
			case second && (res.status != 130 || res.stderr != ""):
				t.Errorf("%+v", res)
			case !second && (res.status != 3 || !strings.Contains(res.stderr, "interrupted: 1 record written, 0 refused, 1 unknown")):
				t.Errorf("%+v", res)
			}
		})
	}
}

func TestARefusalOfTheBrokerStopsAnInputThatIsStillOpen(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
	e.Fail(int16(kmsg.Produce), kerr.MessageTooLarge.Code, -1, 1)
	p := run{args: []string{"produce", "t", "--report"}, env: e.env()}.start(t)
	fmt.Fprintln(p.stdin, "a")
	p.line(t) // it is written
	fmt.Fprintln(p.stdin, "b")
	res := p.wait(t) // the input is never closed
	if res.status != 1 || !strings.HasPrefix(res.stderr, "ottla: line 2: refused: ") || !strings.HasSuffix(res.stderr, "ottla: 1 record written, 1 refused, 0 unknown\n") {
		t.Errorf("%+v", res)
	}
}
