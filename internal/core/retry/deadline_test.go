package retry

import (
	"testing"
	"time"
)

func TestZeroIsNoDeadline(t *testing.T) {
	early := time.Unix(1, 0)
	late := early.Add(time.Second)
	for _, c := range []struct{ a, b, earlier, later time.Time }{
		{early, late, early, late}, {late, early, early, late}, {early, early, early, early},
		{time.Time{}, late, late, late}, {late, time.Time{}, late, late}, {},
	} {
		if got := Earlier(c.a, c.b); !got.Equal(c.earlier) {
			t.Errorf("Earlier(%v, %v) = %v", c.a, c.b, got)
		}
		if got := Later(c.a, c.b); !got.Equal(c.later) {
			t.Errorf("Later(%v, %v) = %v", c.a, c.b, got)
		}
	}
}
