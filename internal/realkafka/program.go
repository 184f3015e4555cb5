package realkafka

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"syscall"
)

// Program is a program that works with a cluster in a process of its own, such
// as a member of a group. It dies with the cluster at the latest. Its methods
// may be called concurrently; signals to a program that has ended do nothing.
type Program struct {
	cmd  *exec.Cmd
	done chan struct{}
	err  error // set before done is closed
}

// Launch starts a command and calls line for each line that it writes to
// stdout, in order, on a goroutine of its own.
func (c *Cluster) Launch(cmd *exec.Cmd, line func(string)) (*Program, error) {
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.SysProcAttr = childAttr(false)
	p := &Program{cmd: cmd, done: make(chan struct{})}
	started := make(chan error, 1)
	running := c.tasks.Go(func(ctx context.Context) error {
		runtime.LockOSThread() // the child dies with the thread that started it
		err := cmd.Start()
		started <- err
		if err != nil {
			return nil
		}
		defer context.AfterFunc(ctx, p.Kill)()
		lines := bufio.NewScanner(out)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			line(lines.Text())
		}
		p.err = cmd.Wait()
		close(p.done)
		return nil
	})
	if !running {
		return nil, errDown
	}
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	return p, nil
}

// Done is closed when the program has ended and all its lines were told.
func (p *Program) Done() <-chan struct{} { return p.done }

// Err waits for the end and tells how the program ended, as exec.Cmd does.
func (p *Program) Err() error {
	<-p.done
	return p.err
}

// Stop asks the program to end (SIGTERM).
func (p *Program) Stop() { p.signal(signalEnd) }

// Kill ends the program as a crash would (SIGKILL).
func (p *Program) Kill() { p.signal(signalKill) }

// Pause has the program stand still (SIGSTOP) until Resume.
func (p *Program) Pause() { p.signal(signalStop) }

// Resume lets a paused program go on (SIGCONT).
func (p *Program) Resume() { p.signal(signalResume) }

// signal sends sig; the only error is that the program has ended.
func (p *Program) signal(sig syscall.Signal) { _ = p.cmd.Process.Signal(sig) }
