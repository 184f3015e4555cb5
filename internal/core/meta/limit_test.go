package meta

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
)

// TestK6TheTimeWithoutAnAnswerIsUpAtTheLimitItself, and not a moment before.
func TestK6TheTimeWithoutAnAnswerIsUpAtTheLimitItself(t *testing.T) {
	start := time.Unix(1_700_000_000, 0)
	m := NewMap(Config{
		MaxAge: 5 * time.Minute, Patience: 5 * time.Second, Rebootstrap: 5 * time.Minute,
		Retry: retry.Backoff{Base: 5 * time.Millisecond, Cap: time.Second},
	}, rand.New(rand.NewPCG(1, 1)), start)
	if m.OnFailure(start.Add(5*time.Minute-1), false) {
		t.Error("a nanosecond too early")
	}
	if !m.OnFailure(start.Add(5*time.Minute), false) {
		t.Error("not at the limit")
	}
}
