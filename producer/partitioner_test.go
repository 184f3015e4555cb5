package producer

import (
	"encoding/hex"
	"fmt"
	"os"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/ottla/ottla/kafka"
)

func table(t *testing.T, file string) (out [][]string) {
	t.Helper()
	data, err := os.ReadFile("testdata/partitioners/" + file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		out = append(out, strings.Split(strings.TrimRight(line, "\r\n"), "\t"))
	}
	return out[1:]
}

// An empty key that counts where librdkafka has none, or the other way round,
// makes this fail, and so does a null key that counts.
func TestP37LibrdkafkasRulesForKeysThatAreEmptyOrMissing(t *testing.T) {
	keys := map[string][]byte{"null": nil, "empty": {}}
	for _, r := range table(t, "keys.tsv") {
		key, err := hex.DecodeString(r[1])
		if err != nil {
			t.Fatal(err)
		}
		keys[r[0]] = key
	}
	ours := map[string]Partitioner{
		"consistent_random": CRC32, "consistent": CRC32Consistent, "murmur2_random": Murmur2, "fnv1a_random": FNV1a,
	}
	seen := map[string]int{}
	for _, r := range table(t, "librdkafka-delivered.tsv") {
		rule, ok := ours[r[0]]
		if !ok {
			continue // murmur2, fnv1a and random: a fixed partition for all without key, or no keys at all
		}
		seen[r[0]]++
		key := keys[r[2]]
		got, keyed := rule.keyed(key, int32(atoi(t, r[1])))
		random := strings.Contains(r[3], ",")
		if keyed == random || keyed && fmt.Sprint(got) != r[3] {
			t.Errorf("%s of %s, key %s %x: %d by the key %v, librdkafka used %s", r[0], r[1], r[2], key, got, keyed, r[3])
		}
	}
	for name := range ours {
		if seen[name] < 50 {
			t.Errorf("%s: %d lines", name, seen[name])
		}
	}
}

func atoi(t *testing.T, s string) (n int) {
	t.Helper()
	if _, err := fmt.Sscan(s, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// spreadOf gives how many of n records without key, or with one, came to each
// partition of a topic.
func spreadOf(t *testing.T, f *fakeCluster, cfg Config, partitions int32, n int, key func(i int) []byte) []int {
	t.Helper()
	p := begin(t, f, cfg)
	for i := range n {
		if _, err := p.Append(t.Context(), kafka.Record{Topic: "t", Key: key(i), Value: make([]byte, 100)}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	counts := make([]int, partitions)
	for i := range partitions {
		counts[i] = len(f.values(kafka.TopicPartition{Topic: "t", Partition: i}))
	}
	return counts
}

func noKey(int) []byte { return nil }

// A key that decides makes this fail, and so does a partition that is left after
// one record.
func TestP38UniformTakesNoNoteOfKeys(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Partitioner: Uniform, BatchBytes: 10_000, Compression: Uncompressed}
		one := spreadOf(t, newFake(t, 6), cfg, 6, 20, func(int) []byte { return []byte("always the same") })
		used := 0
		for _, n := range one {
			used += min(n, 1)
		}
		if used != 1 {
			t.Errorf("20 records are in %d partitions, less than a batch is in one", used)
		}
		for i, n := range spreadOf(t, newFake(t, 6), cfg, 6, 30_000, func(int) []byte { return []byte("k") }) {
			if n < 3000 || n > 7000 {
				t.Errorf("partition %d has %d of 30,000 records of one key", i, n)
			}
		}
	})
}

// A turn for a partition without a leader makes this fail, and so does one that
// is left out.
func TestP38RoundRobinTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Config{Partitioner: RoundRobin}
		if got := spreadOf(t, newFake(t, 5), cfg, 5, 1000, func(int) []byte { return []byte("k") }); fmt.Sprint(got) != "[200 200 200 200 200]" {
			t.Errorf("%v", got)
		}
		f := newFake(t, 5)
		f.lead(kafka.TopicPartition{Topic: "t", Partition: 3}, kafka.NoNode)
		if got := spreadOf(t, f, cfg, 5, 1000, noKey); got[3] != 0 || got[0]+got[1]+got[2]+got[4] != 1000 || got[1] < 200 {
			t.Errorf("without a leader of partition 3: %v", got)
		}
	})
}

// KIP-1123. Partitions of other racks, where there are some of our own, make
// this fail; so does a record that waits where there are none.
func TestP38RackAwareStaysInTheRack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFake(t, 6) // partition i is led by broker i mod 3, in rack a, b or c
		cfg := Config{Partitioner: RackAware, Rack: "b", BatchBytes: 10_000, Compression: Uncompressed}
		if got := spreadOf(t, f, cfg, 6, 5000, noKey); got[1]+got[4] != 5000 || got[1] == 0 || got[4] == 0 {
			t.Errorf("in rack b: %v", got)
		}
		cfg.Rack = "nowhere"
		got := spreadOf(t, newFake(t, 6), cfg, 6, 5000, noKey)
		for i, n := range got {
			if n == 0 {
				t.Errorf("partition %d got nothing though no leader is in the rack: %v", i, got)
			}
		}
		byKey := func(i int) []byte { return fmt.Append(nil, "key ", i) }
		want := spreadOf(t, newFake(t, 6), Config{}, 6, 500, byKey)
		cfg.Rack = "a"
		if got := spreadOf(t, newFake(t, 6), cfg, 6, 500, byKey); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("records with keys: %v, and %v without a rack", got, want)
		}
		for _, bad := range []Config{{Partitioner: RackAware}, {Rack: "a"}} {
			if _, err := start(newFake(t, 1), bad); err == nil || !strings.Contains(err.Error(), "Rack") || !strings.Contains(err.Error(), "Partitioner") {
				t.Errorf("%+v: %v", bad, err)
			}
		}
	})
}
