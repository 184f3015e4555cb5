package transcript

import (
	"strings"
	"testing"
)

func TestWhatTheMachineSaysReplacesWhatStoodThere(t *testing.T) {
	script := "# a counter\n\nadd 2\n  3\nadd 5\n"
	sum := 0
	got := play(t, script, func(cmd []string) string {
		sum += len(cmd[1])
		return strings.Repeat("x", sum)
	})
	if want := "# a counter\n\nadd 2\n  x\nadd 5\n  xx\n"; got != want {
		t.Errorf("got %q", got)
	}
	if d := diff(script, got); d != "# a counter\n\nadd 2\n-   3\n+   x" {
		t.Errorf("diff %q", d)
	}
}
