package cli

import (
	"strings"
	"testing"

	"github.com/ottla/ottla/ottlatest"
)

func TestBenchMeasuresOnAClusterInMemory(t *testing.T) {
	for _, args := range [][]string{
		{"bench", "produce", "-n", "3000", "-z", "zstd"},
		{"bench", "consume", "-n", "3000", "-s", "50"},
		{"bench", "request", "-n", "100"},
	} {
		r := decode[benchResult](t, ottla(t, append(args, "-o", "json")...))
		want := int64(3000)
		if r.Op == "request" {
			want = 100
		}
		if r.Op != args[1] || r.Records != want || r.Cluster != "in memory" || r.Seconds <= 0 || r.PerSecond <= 0 {
			t.Errorf("%+v", r)
		}
		if l := r.Latency; l.P50 <= 0 || l.P95 < l.P50 || l.P99 < l.P95 || l.Max < l.P99 {
			t.Errorf("%s: latencies %+v", r.Op, l)
		}
		if size := map[string]int64{"produce": 100, "consume": 50}[r.Op]; r.Bytes != size*want {
			t.Errorf("%s: %d bytes of values, want %d", r.Op, r.Bytes, size*want)
		}
		if r.Allocations <= 0 || r.AllocBytes <= 0 {
			t.Errorf("%s: no allocations at all", r.Op)
		}
	}
	res := ottla(t, "bench", "produce", "-n", "1000")
	res.wantDone(t)
	for _, word := range []string{"produce: 1000 records", "records/s", "p99", "peak memory"} {
		if !strings.Contains(res.stdout, word) {
			t.Errorf("%q is not in\n%s", word, res.stdout)
		}
	}
}

// On a given cluster a topic of its own is made and deleted, and one that is
// named stays, with what was produced.
func TestBenchOnAGivenClusterLeavesNothingBehind(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"kept": 2}})
	at := strings.Join(e.Bootstrap(), ",")
	for _, op := range []string{"produce", "consume", "request"} {
		e.ottla("bench", op, "-b", at, "-n", "600").wantDone(t)
	}
	res := e.ottla("topics", "list")
	res.wantDone(t)
	if !strings.Contains(res.stdout, "kept") || strings.Contains(res.stdout, "ottla-bench") {
		t.Errorf("topics:\n%s", res.stdout)
	}
	e.ottla("bench", "produce", "-b", at, "-n", "600", "--topic", "kept").wantDone(t)
	r := decode[benchResult](t, e.ottla("bench", "consume", "-b", at, "--topic", "kept", "-o", "json"))
	if r.Records != 601 || r.Cluster != at { // with the one that a producer sends first
		t.Errorf("%d records were read at %s, want 601", r.Records, r.Cluster)
	}
}

func TestBenchRefusesWhatCannotBe(t *testing.T) {
	for _, c := range [][2]string{
		{"bench produce -n 0", "-n 0"}, {"bench consume -s 0", "-s 0"}, {"bench produce -z brotli", "-z brotli"},
		{"bench request -z lz4", "unknown"}, {"bench sleep", "sleep"}, {"bench produce extra", "extra"},
	} {
		ottla(t, strings.Fields(c[0])...).wantError(t, 2, c[1])
	}
}
