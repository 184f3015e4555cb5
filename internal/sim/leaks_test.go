package sim

import (
	"strings"
	"testing"
	"time"
)

func TestAGoroutineThatIsLeftBehindIsFound(t *testing.T) {
	release := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-release
	}()
	var out strings.Builder
	if status := noLeaks(func() int { return 0 }, time.Millisecond, &out); status != 1 {
		t.Errorf("status %d with a goroutine left", status)
	}
	if !strings.Contains(out.String(), "TestAGoroutineThatIsLeftBehindIsFound") {
		t.Errorf("the report does not show the goroutine:\n%s", &out)
	}
	close(release)
	<-ended
}

func TestAFailedRunKeepsItsStatus(t *testing.T) {
	if status := noLeaks(func() int { return 2 }, time.Millisecond, &strings.Builder{}); status != 2 {
		t.Errorf("status %d, want that of the tests", status)
	}
}
