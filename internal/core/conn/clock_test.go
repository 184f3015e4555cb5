package conn

import (
	"strings"
	"testing"
	"time"
)

// begin is where the clock of every transcript starts.
var begin = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

// at is the time of a command like "+1.5s", an offset from begin.
func at(t *testing.T, s string) time.Time {
	t.Helper()
	d, err := time.ParseDuration(strings.TrimPrefix(s, "+"))
	if err != nil {
		t.Fatal(err)
	}
	return begin.Add(d)
}

// since is a time as an offset from begin, "never" for none.
func since(when time.Time) string {
	if when.IsZero() {
		return "never"
	}
	return "+" + when.Sub(begin).String()
}
