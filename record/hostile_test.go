package record

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// outcome is what our reader makes of a buffer.
type outcome struct {
	recs     []kafka.Record
	batches  int
	trailing int // bytes left as a cut tail
	err      error
}

// readBuffer splits a buffer and reads all of it, markers too, up to the first
// error.
func readBuffer(data []byte, limit int) (o outcome) {
	rest := data
	for {
		b, more, err := Next(rest)
		if err != nil || b.IsZero() {
			o.err, o.trailing = err, len(rest)
			return o
		}
		o.batches++
		recs, err := all(b, limit)
		o.recs = append(o.recs, recs...)
		if err == nil && b.Control() {
			err = markerOf(b)
		}
		if err != nil {
			o.err = err
			return o
		}
		rest = more
	}
}

func markerOf(b Batch) error {
	payload, err := b.Payload(new(compress.Decompressor), nil, 0)
	if err != nil {
		return err
	}
	_, err = b.Marker(payload)
	return err
}

// Where ours differs from Kafka's reader, and why. A name ends in * for all
// files that begin so.
var hostileRefused = map[string]string{
	"count-0.bin":                          "records in a batch that claims none: to drop them would be a silent skip (F23)",
	"count-0-gzip.bin":                     "records in a batch that claims none: to drop them would be a silent skip (F23)",
	"last-offset-delta--*":                 "a batch that ends before it begins: the position could not move on (F15, F23)",
	"last-offset-delta-0.bin":              "a record behind the last offset of its batch: the position would step back over it (F15, F47)",
	"last-offset-delta-1.bin":              "a record behind the last offset of its batch: the position would step back over it (F15, F47)",
	"base-offset--1.bin":                   "a negative offset is no position",
	"base-offset--3.bin":                   "a negative offset is no position",
	"base-offset--9223372036854775808.bin": "a negative offset is no position",
	"base-offset-9223372036854775807.bin":  "offsets beyond 2^63-1 wrap to negative ones",
	"base-offset-9223372036854775806.bin":  "offsets beyond 2^63-1 wrap to negative ones",
	"rec-offset-negative*":                 "offsets rise (F47)",
	"rec-offset-min*":                      "offsets rise (F47)",
	"rec-offset-repeated*":                 "offsets rise (F47)",
	"rec-offset-max*":                      "a record behind the last offset of its batch (F15, F47)",
	"rec-offset-above-last*":               "a record behind the last offset of its batch (F15, F47)",

	"rec-gzip-garbage-after.bin":         "bytes behind the last member are no gzip (B166)",
	"v0-value-length--*":                 "only -1 is null, as in Kafka's reader of keys (F22)",
	"v1-value-length--*":                 "only -1 is null, as in Kafka's reader of keys (F22)",
	"v0-value-short.bin":                 "stray bytes in a message mean that its lengths are damaged (F22)",
	"v1-value-short.bin":                 "stray bytes in a message mean that its lengths are damaged (F22)",
	"v0-gzip-inner-cut.bin":              "to drop a cut message inside of a whole one would be a silent skip (F23)",
	"v1-gzip-inner-cut.bin":              "to drop a cut message inside of a whole one would be a silent skip (F23)",
	"v0-gzip-inner-offsets-falling.bin":  "offsets rise (F47)",
	"v1-gzip-inner-offsets-falling.bin":  "offsets rise (F47)",
	"v0-gzip-inner-offsets-negative.bin": "a negative offset is no position",
}

var hostileAccepted = map[string]string{
	"batch-length-2147483647.bin":           "a batch that is not wholly present is a cut tail (F16)",
	"v0-size-2147483647.bin":                "a message that is not wholly present is a cut tail (F16)",
	"v1-size-2147483647.bin":                "a message that is not wholly present is a cut tail (F16)",
	"count-0-empty-gzip-flag.bin":           "empty compressed batches are legal (F20)",
	"count-0-empty-codec-1-append-time.bin": "empty compressed batches are legal (F20)",
	"count-0-empty-codec-2-append-time.bin": "empty compressed batches are legal (F20)",
	"count-0-empty-codec-3-append-time.bin": "empty compressed batches are legal (F20)",
}

// reason looks file up in one of the lists, and marks the entry as used.
func reason(list map[string]string, file string, used map[string]bool) string {
	for name, why := range list {
		stem, wild := strings.CutSuffix(name, "*")
		if name == file || wild && strings.HasPrefix(file, stem) {
			used[name] = true
			return why
		}
	}
	return ""
}

// F16, F21, F22, F23: hostile bytes end in a typed error or in the records that
// Kafka's reader gives, never in a panic, and cost no more memory than a small
// multiple of their size.
func TestF16_F21_F22_F23HostileBatches(t *testing.T) {
	used := map[string]bool{}
	for _, v := range vectors(t, "hostile") {
		t.Run(v.File, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			o := readBuffer(bytes.Clone(v.data), 0)
			runtime.ReadMemStats(&after)
			// The codecs' own state is some 100 KiB.
			if grew := after.TotalAlloc - before.TotalAlloc; grew > 1<<20 {
				t.Errorf("%d bytes allocated for %d bytes", grew, len(v.data))
			}
			if o.err != nil {
				typed(t, o.err)
			}
			accepted := v.Java.Outcome == "accepted"
			if reason(hostileRefused, v.File, used) != "" || reason(hostileAccepted, v.File, used) != "" {
				accepted = !accepted
			}
			if accepted != (o.err == nil) {
				t.Fatalf("%s: accepted %v, want %v: %v", v.Note, o.err == nil, accepted, o.err)
			}
			if accepted && v.Java.Outcome == "accepted" {
				sameAsJava(t, o, v.Java)
			}
		})
	}
	for _, list := range []map[string]string{hostileRefused, hostileAccepted} {
		for name := range list {
			if !used[name] {
				t.Errorf("no file is called %s", name)
			}
		}
	}
}

// typed fails unless err is one of the errors that readers are promised.
func typed(t *testing.T, err error) {
	t.Helper()
	var c *CorruptError
	if !errors.As(err, &c) {
		t.Errorf("%T is not an error of this package: %v", err, err)
	}
	if kafka.MayHaveHappened(err) {
		t.Error("a reading error claims that something may have happened")
	}
}

// sameAsJava compares record by record.
func sameAsJava(t *testing.T, o outcome, want *verdict) {
	t.Helper()
	if o.batches != len(want.Batches) || o.trailing != want.Trailing || len(o.recs) != want.Before {
		t.Fatalf("%d batches, %d records, %d bytes behind; want %d, %d, %d",
			o.batches, len(o.recs), o.trailing, len(want.Batches), want.Before, want.Trailing)
	}
	recs := o.recs
	for _, b := range want.Batches {
		for _, w := range b.Records {
			r := recs[0]
			recs = recs[1:]
			if int64(r.Offset) != w.Offset || int64(r.Timestamp) != w.Timestamp ||
				jsonBytes(r.Key) != text(w.Key) || jsonBytes(r.Value) != text(w.Value) || len(r.Headers) != len(w.Headers) {
				t.Errorf("record %+v, want %+v", r, w)
			}
			for i, h := range r.Headers {
				if jsonBytes([]byte(h.Key)) != text(w.Headers[i][0]) || jsonBytes(h.Value) != text(w.Headers[i][1]) {
					t.Errorf("header %+v, want %s", h, w.Headers[i])
				}
			}
		}
	}
}

func text(raw json.RawMessage) string {
	if raw == nil {
		return "null"
	}
	return string(raw)
}

func jsonBytes(b []byte) string {
	if b == nil {
		return "null"
	}
	return `"` + hex.EncodeToString(b) + `"`
}
