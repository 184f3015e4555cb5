package cli

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// positionKind says how a place in a partition is named.
type positionKind uint8

const (
	fromStart  positionKind = iota
	fromEnd                 // the end, or n records before it
	fromOffset              // offset n
	fromTime                // the first record at or after a time
)

// position is a place in every partition of a topic.
type position struct {
	kind positionKind
	n    int64 // an offset, or the records before the end
	time time.Time
}

// parsePosition reads start|end|N|-N|@TIME.
func parsePosition(s string, now time.Time) (position, error) {
	switch s {
	case "start":
		return position{kind: fromStart}, nil
	case "end":
		return position{kind: fromEnd}, nil
	}
	if rest, ok := strings.CutPrefix(s, "@"); ok {
		t, err := parseTime(rest, now)
		if err != nil {
			return position{}, fmt.Errorf("%q: %w", s, err)
		}
		return position{kind: fromTime, time: t}, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	switch {
	case err == nil && n == math.MinInt64:
	case err == nil && strings.HasPrefix(s, "-"):
		return position{kind: fromEnd, n: -n}, nil
	case err == nil:
		return position{kind: fromOffset, n: n}, nil
	}
	hint := ""
	switch s {
	case "beginning", "earliest", "stored":
		hint = " (start?)"
	case "latest":
		hint = " (end?)"
	}
	return position{}, fmt.Errorf("%q: expected start, end, an offset, -N for the last N records, or @TIME%s", s, hint)
}

// parseTime reads RFC 3339, a date, milliseconds since 1970, or a duration
// from now such as -1h or -7d.
func parseTime(s string, now time.Time) (time.Time, error) {
	if t, err := time.Parse(time.RFC3339Nano, s); err == nil {
		return t, nil
	}
	if t, err := time.Parse(time.DateOnly, s); err == nil {
		return t, nil
	}
	if d, ok := parseSpan(s); ok {
		return now.Add(d), nil
	}
	if ms, err := strconv.ParseInt(s, 10, 64); err == nil && ms >= 0 && ms < 1<<53 {
		return time.UnixMilli(ms), nil
	}
	return time.Time{}, fmt.Errorf("expected RFC 3339 (2026-01-31T12:00:00Z), a date, milliseconds since 1970, or a duration back (-1h, -7d)")
}

// parseSpan reads a signed duration, with d for days beside Go's units.
func parseSpan(s string) (time.Duration, bool) {
	if s == "" || (s[0] != '-' && s[0] != '+') {
		return 0, false
	}
	if days, ok := strings.CutSuffix(s, "d"); ok {
		n, err := strconv.ParseInt(days, 10, 32)
		if err != nil || n > 36500 || n < -36500 {
			return 0, false
		}
		return time.Duration(n) * 24 * time.Hour, true
	}
	d, err := time.ParseDuration(s)
	return d, err == nil
}

// mostPartitions bounds a list of partitions.
const mostPartitions = 200_000

// parsePartitions reads 0,1,4-7 into a sorted list without doubles.
func parsePartitions(s string) ([]int32, error) {
	var list []int32
	for part := range strings.SplitSeq(s, ",") {
		first, last, isRange := strings.Cut(strings.TrimSpace(part), "-")
		lo, err := strconv.ParseUint(first, 10, 31)
		hi := lo
		if err == nil && isRange {
			hi, err = strconv.ParseUint(last, 10, 31)
		}
		if err != nil || hi < lo {
			return nil, fmt.Errorf("%q: expected partitions such as 0,1,4-7", s)
		}
		if hi-lo >= mostPartitions || len(list) >= mostPartitions {
			return nil, fmt.Errorf("%q: more than %d partitions", s, mostPartitions)
		}
		for p := lo; p <= hi; p++ {
			list = append(list, int32(p))
		}
	}
	slices.Sort(list)
	return slices.Compact(list), nil
}
