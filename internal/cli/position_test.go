package cli

import (
	"slices"
	"strings"
	"testing"
	"time"
)

func TestPositions(t *testing.T) {
	now := time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)
	for in, want := range map[string]position{
		"start":                      {kind: fromStart},
		"end":                        {kind: fromEnd},
		"0":                          {kind: fromOffset},
		"17":                         {kind: fromOffset, n: 17},
		"-5":                         {kind: fromEnd, n: 5},
		"@1700000000123":             {kind: fromTime, time: time.UnixMilli(1700000000123)},
		"@2026-01-31T12:00:00Z":      {kind: fromTime, time: time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)},
		"@2026-01-31T12:00:00.5Z":    {kind: fromTime, time: time.Date(2026, 1, 31, 12, 0, 0, 5e8, time.UTC)},
		"@2026-01-31":                {kind: fromTime, time: time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)},
		"@-1h":                       {kind: fromTime, time: now.Add(-time.Hour)},
		"@-7d":                       {kind: fromTime, time: now.Add(-7 * 24 * time.Hour)},
		"@+10s":                      {kind: fromTime, time: now.Add(10 * time.Second)},
		"@2026-01-31T12:00:00+02:00": {kind: fromTime, time: time.Date(2026, 1, 31, 10, 0, 0, 0, time.UTC)},
	} {
		got, err := parsePosition(in, now)
		if err != nil || got.kind != want.kind || got.n != want.n || !got.time.Equal(want.time) {
			t.Errorf("%s: got %+v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "begin", "1.5", "@", "@yesterday", "@-", "@-d", "@99999999999999999999", "-9223372036854775808", "0x1", "@-99999d"} {
		if got, err := parsePosition(in, now); err == nil {
			t.Errorf("%q gave %+v", in, got)
		}
	}
	if _, err := parsePosition("earliest", now); err == nil || !strings.Contains(err.Error(), "start?") {
		t.Errorf("earliest: %v", err)
	}
}

func TestPartitionLists(t *testing.T) {
	for in, want := range map[string][]int32{"0": {0}, "0,1,4-7": {0, 1, 4, 5, 6, 7}, "3,1,3,2-3": {1, 2, 3}, " 1 , 2": {1, 2}} {
		if got, err := parsePartitions(in); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	for _, in := range []string{"", "a", "-1", "1-", "5-3", "1,,2", "0-2147483647", "2147483648"} {
		if got, err := parsePartitions(in); err == nil {
			t.Errorf("%q gave %v", in, got)
		}
	}
}

func TestNearNames(t *testing.T) {
	for _, c := range []struct {
		wanted string
		names  []string
		first  string
	}{
		{"ordres", []string{"orders", "payments"}, "orders"},
		{"order", []string{"payments", "orders.v2", "orders"}, "orders"},
		{"Orders", []string{"orders"}, "orders"},
		{"xyz", []string{"orders"}, ""},
		{"linger", []string{"linger.ms", "batch.size"}, "linger.ms"},
		{"orders", []string{"orders"}, ""},
	} {
		got := near(c.wanted, c.names)
		if c.first == "" && len(got) > 0 || c.first != "" && (len(got) == 0 || got[0] != c.first) {
			t.Errorf("%s among %v: %v", c.wanted, c.names, got)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"abcd", "abdc", 1}, {"kitten", "sitting", 3}, {strings.Repeat("a", 300), "a", 300}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("%s, %s: %d", c.a, c.b, got)
		}
	}
}
