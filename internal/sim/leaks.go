package sim

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"time"
)

// leakPatience is how long goroutines may take to end after the last test.
const leakPatience = 10 * time.Second

// NoLeaks runs the tests of a package, for its TestMain, and gives their exit
// status: 1 instead of 0 if goroutines of this module are left, whose stacks
// are then printed to stderr.
//
//	func TestMain(m *testing.M) { os.Exit(sim.NoLeaks(m.Run)) }
func NoLeaks(run func() int) int { return noLeaks(run, leakPatience, os.Stderr) }

func noLeaks(run func() int, patience time.Duration, out io.Writer) int {
	status := run()
	if status != 0 {
		return status // a failed test may have left anything
	}
	left := goroutines()
	for end := time.Now().Add(patience); len(left) > 0 && time.Now().Before(end); left = goroutines() {
		time.Sleep(10 * time.Millisecond)
	}
	if len(left) == 0 {
		return 0
	}
	fmt.Fprintf(out, "%d goroutines are left after the last test:\n\n%s\n", len(left), strings.Join(left, "\n\n"))
	return 1
}

// goroutines are the stacks of those that run code of this module, without the
// caller's own.
func goroutines() []string {
	buf := make([]byte, 1<<20)
	for {
		n := runtime.Stack(buf, true)
		if n < len(buf) {
			buf = buf[:n]
			break
		}
		buf = make([]byte, 2*len(buf))
	}
	var out []string
	for i, stack := range strings.Split(string(buf), "\n\n") {
		if i > 0 && strings.Contains(stack, "github.com/ottla/ottla") {
			out = append(out, strings.TrimSpace(stack))
		}
	}
	return out
}
