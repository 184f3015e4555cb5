package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/internal/task"
)

// watchdogName is the hidden subcommand that runs a command for `lead`: a
// process of its own, which kills the command's group when nobody has moved its
// deadline on, or when `lead` is gone.
const watchdogName = "__watchdog"

// The file descriptors of the watchdog beside the standard ones.
const (
	orderFD  = 3 // it reads watchOrder
	reportFD = 4 // it writes watchReport
)

// watchOrder is what `lead` tells the watchdog, one JSON object a line.
type watchOrder struct {
	Deadline time.Duration  `json:"deadline,omitempty"` // on bootClock
	Signal   syscall.Signal `json:"signal,omitempty"`   // for the command's group
}

// watchReport is what the watchdog tells.
type watchReport struct {
	Pid    int    `json:"pid,omitempty"`
	Failed string `json:"failed,omitempty"` // the command could not be started
	Ended  bool   `json:"ended,omitempty"`
	Code   int    `json:"code"`
	Signal int    `json:"signal,omitempty"` // that ended it
}

// childEnd is how the command ended.
type childEnd struct {
	code, signal int
	err          error // it never ran, or its watchdog went away
}

// status is the exit status as a shell has it.
func (e childEnd) status() int {
	if e.signal > 0 {
		return 128 + e.signal
	}
	return e.code
}

// watched is a command under a watchdog.
type watched struct {
	ended chan childEnd

	mu     sync.Mutex
	orders *os.File
	pid    int // of the command
}

// startWatched runs a command under a watchdog, which does not start it from
// the deadline on.
func startWatched(tasks *task.Group, argv, env []string, deadline time.Duration) (*watched, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	ordersIn, ordersOut, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	reportsIn, reportsOut, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, ordersIn.Close(), ordersOut.Close())
	}
	cmd := exec.Command(self, append([]string{watchdogName, "--"}, argv...)...)
	cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = env, os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{ordersIn, reportsOut}
	cmd.SysProcAttr = ownGroup()
	w := &watched{ended: make(chan childEnd, 1), orders: ordersOut}
	w.extend(deadline) // the pipe keeps it until the watchdog reads
	err = cmd.Start()
	ordersIn.Close()
	reportsOut.Close()
	if err != nil {
		return nil, errors.Join(err, ordersOut.Close(), reportsIn.Close())
	}
	started := make(chan error, 1)
	tasks.Go(func(context.Context) error {
		end := w.follow(bufio.NewScanner(reportsIn), started)
		_ = cmd.Wait()
		reportsIn.Close()
		ordersOut.Close()
		w.ended <- end
		return nil
	})
	return w, <-started
}

// follow reads what the watchdog reports, to its end.
func (w *watched) follow(reports *bufio.Scanner, started chan<- error) childEnd {
	begun := false
	for reports.Scan() {
		var r watchReport
		if json.Unmarshal(reports.Bytes(), &r) != nil {
			continue
		}
		switch {
		case r.Failed != "":
			started <- errors.New(r.Failed)
			return childEnd{code: statusFailed}
		case r.Pid > 0:
			w.mu.Lock()
			w.pid = r.Pid
			w.mu.Unlock()
			begun = true
			started <- nil
		case r.Ended:
			return childEnd{code: r.Code, signal: r.Signal}
		}
	}
	err := errors.New("the watchdog of the command went away; the command was killed")
	if !begun {
		started <- err
	}
	w.kill()
	return childEnd{code: statusFailed, err: err}
}

// extend moves the command's deadline on.
func (w *watched) extend(deadline time.Duration) { w.order(watchOrder{Deadline: deadline}) }

// signal sends a signal to the command's group. SIGKILL does not depend on the
// watchdog.
func (w *watched) signal(s syscall.Signal) {
	if s == syscall.SIGKILL {
		w.kill()
		return
	}
	w.order(watchOrder{Signal: s})
}

func (w *watched) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.pid > 0 {
		_ = signalGroup(w.pid, syscall.SIGKILL)
	}
}

// orderFor is how long an order may wait for room in the pipe. A watchdog that
// stands still lets it fill up, and must not keep kill waiting.
const orderFor = 10 * time.Millisecond

func (w *watched) order(o watchOrder) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.orders.SetWriteDeadline(time.Now().Add(orderFor))
	_ = json.NewEncoder(w.orders).Encode(o) // whole or not at all; without a watchdog follow kills
}

// watchdogCommand is for `lead` alone: it has no help.
func watchdogCommand() *cobra.Command {
	return &cobra.Command{
		Use: watchdogName, Hidden: true, DisableFlagParsing: true,
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 && args[0] == "--" {
				args = args[1:]
			}
			return &toldError{watchdog(args)}
		},
	}
}

// watchdog runs a command: the other end of startWatched. It has no flags and
// no cluster.
func watchdog(argv []string) int {
	orders, reports := os.NewFile(orderFD, "orders"), os.NewFile(reportFD, "reports")
	if orders == nil || reports == nil || len(argv) == 0 {
		return statusUsage
	}
	// Held by the command, they would hide from `lead` that the watchdog is gone.
	closeOnExec(orderFD)
	closeOnExec(reportFD)
	tell := json.NewEncoder(reports)
	lines := bufio.NewScanner(orders)
	var first watchOrder
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &first) != nil || bootClock() >= first.Deadline {
		_ = tell.Encode(watchReport{Failed: argv[0] + " was not started: the lease is over"})
		return statusFailed
	}
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = watchedGroup()
	adoptOrphans()
	runtime.LockOSThread() // the command is killed when the thread that started it ends
	if err := cmd.Start(); err != nil {
		_ = tell.Encode(watchReport{Failed: fmt.Sprintf("%s cannot be started: %v", argv[0], err)})
		return statusFailed
	}
	_ = tell.Encode(watchReport{Pid: cmd.Process.Pid})
	g := &guard{pid: cmd.Process.Pid, deadline: first.Deadline}
	tasks := task.New(context.Background())
	tasks.Go(func(context.Context) error { return g.obey(lines) })
	tasks.Go(func(context.Context) error { return g.watch() })
	_ = cmd.Wait()
	g.outlast()
	g.stop()
	state := cmd.ProcessState.Sys().(syscall.WaitStatus)
	end := watchReport{Ended: true, Code: cmd.ProcessState.ExitCode()}
	if state.Signaled() {
		end.Signal = int(state.Signal())
	}
	_ = tell.Encode(end)
	return statusDone
}

// How long the rest of a group may take to end after a command that ended
// unasked, and how long it is waited for after SIGKILL.
const (
	restFor = time.Second
	killFor = 10 * time.Second
)

// guard kills the group of a command at its deadline.
type guard struct {
	pid int

	mu       sync.Mutex
	deadline time.Duration
	asked    bool          // a signal was passed on
	killed   time.Duration // when, 0 = not yet
	over     bool          // the group has ended: its number may be another's
}

// obey follows orders until `lead` is gone, and kills then.
func (g *guard) obey(orders *bufio.Scanner) error {
	for orders.Scan() {
		var o watchOrder
		if json.Unmarshal(orders.Bytes(), &o) != nil {
			continue
		}
		g.mu.Lock()
		if o.Deadline > 0 {
			g.deadline = o.Deadline
		}
		if o.Signal > 0 && !g.over {
			_ = signalGroup(g.pid, o.Signal)
			g.asked = true
		}
		g.mu.Unlock()
	}
	g.kill()
	return nil
}

// watch looks at the deadline: often, as timers stand still while the machine
// sleeps and bootClock does not.
func (g *guard) watch() error {
	for {
		g.mu.Lock()
		left, over := g.deadline-bootClock(), g.over
		g.mu.Unlock()
		if over {
			return nil
		}
		if left <= 0 {
			g.kill()
			return nil
		}
		time.Sleep(min(left, 100*time.Millisecond))
	}
}

func (g *guard) kill() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.over {
		_ = signalGroup(g.pid, syscall.SIGKILL)
		g.killed = bootClock()
	}
}

// outlast waits until nobody is left in the group of a command that has ended:
// a shell ends at once of a SIGTERM that its children take their time about.
// Those that were asked to end have until `lead` or the deadline kills them.
func (g *guard) outlast() {
	since := bootClock()
	for groupLeft(g.pid) {
		now := bootClock()
		g.mu.Lock()
		asked, killed := g.asked, g.killed
		g.mu.Unlock()
		switch {
		case killed > 0 && now-killed >= killFor:
			return
		case killed == 0 && !asked && now-since >= restFor:
			g.kill()
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (g *guard) stop() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.over = true
}
