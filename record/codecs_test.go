package record

import (
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/ottla/ottla/record/compress"
)

var codecsRefused = map[string]string{
	"gzip-zeros-after-A.bin":           "bytes behind the last member are no gzip (B166)",
	"gzip-reserved-flag-A.bin":         "RFC 1952: a reader must give up on reserved header flags",
	"lz4-content-checksum-wrong-B.bin": "content checksums are read (F20), so one that is wrong is damage",
	"bomb-*":                           "over the default limit (F27)",
}

var codecsAccepted = map[string]string{
	"lz4-linked-*":              "linked blocks are read (F20)",
	"lz4-two-frames-A.bin":      "several frames are read (F20)",
	"lz4-skippable-first-A.bin": "several frames are read (F20)",
}

// F20, F27: batches whose payloads were compressed by the codecs' own
// libraries, in every legal form and in many illegal ones.
func TestF20_F22_F27ForeignPayloads(t *testing.T) {
	vs := vectors(t, "codecs")
	digests := map[string]string{"0": digest(nil)}
	for _, v := range vs {
		if v.File == "" {
			digests[v.RecordSet] = v.Expect.Batches[0].Digest
		}
	}
	used := map[string]bool{}
	for _, v := range vs {
		if v.File == "" {
			continue
		}
		t.Run(v.File, func(t *testing.T) {
			accepted := v.Java.Outcome == "accepted"
			if reason(codecsRefused, v.File, used) != "" {
				accepted = false
			}
			if reason(codecsAccepted, v.File, used) != "" {
				accepted = true
			}
			o, grew := measured(v.data, 10<<20)
			if o.err != nil {
				typed(t, o.err)
			}
			if (o.err == nil) != accepted {
				t.Fatalf("%s: accepted %v, want %v: %v", v.Note, o.err == nil, accepted, o.err)
			}
			if accepted && digest(o.recs) != digests[v.RecordSet] {
				t.Errorf("not the records of set %s", v.RecordSet)
			}
			if !strings.HasPrefix(v.File, "bomb-") && grew > memoryBound(v) {
				t.Errorf("%d bytes allocated for %d", grew, len(v.data))
			}
		})
	}
	for _, list := range []map[string]string{codecsRefused, codecsAccepted} {
		for name := range list {
			if !used[name] {
				t.Errorf("no file is called %s", name)
			}
		}
	}
}

// memoryBound is the most that reading a file may allocate in all: set C takes
// 9 MB and is copied as it grows, all others are small.
func memoryBound(v vector) uint64 {
	if v.RecordSet == "C" {
		return 48 << 20
	}
	return 8 << 20
}

// measured reads data and counts what was allocated meanwhile.
func measured(data []byte, limit int) (outcome, uint64) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	o := readBuffer(data, limit)
	runtime.ReadMemStats(&after)
	return o, after.TotalAlloc - before.TotalAlloc
}

// F27: a bomb costs memory in proportion to the limit, not to what it holds.
func TestR14_F27BombsStopAtTheLimit(t *testing.T) {
	for _, v := range vectors(t, "codecs") {
		if !strings.HasPrefix(v.File, "bomb-") {
			continue
		}
		for _, limit := range []int{1, 1 << 10, 1 << 20, 16 << 20} {
			o, grew := measured(v.data, limit)
			var over *compress.LimitError
			if !errors.As(o.err, &over) || over.Limit != limit || len(o.recs) != 0 {
				t.Errorf("%s, limit %d: %v", v.File, limit, o.err)
			}
			if most := uint64(5*limit + 2<<20); grew > most {
				t.Errorf("%s, limit %d: %d bytes allocated, more than %d", v.File, limit, grew, most)
			}
		}
	}
}
