package realkafka

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/ottla/ottla/internal/task"
)

// jvm is a Java program that runs in the background.
type jvm struct {
	java string
	args []string // flags, class, and the properties file as the last one
	log  string
	dir  string
}

// start runs the program and returns its pid once it exists. Unless detached,
// it dies with this process at the latest: the goroutine that started it keeps
// its thread until the program has ended, because the system ties the child to
// the thread.
func (j jvm) start(tasks *task.Group, detached bool) (int, error) {
	log, err := os.OpenFile(j.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return 0, err
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(j.java, j.args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = j.dir, log, log
	cmd.SysProcAttr = childAttr(detached)
	started := make(chan error, 1)
	running := tasks.Go(func(context.Context) error {
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			_ = cmd.Wait() // how it ended stands in its log
		}
		return nil
	})
	if !running {
		return 0, errDown
	}
	if err := <-started; err != nil {
		return 0, fmt.Errorf("start %s: %w", j.java, err)
	}
	return cmd.Process.Pid, named(cmd.Process.Pid)
}

// named waits for the moment in which a started process gets its command line,
// by which alive knows it: the system reports the start a little before that.
func named(pid int) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	return poll(ctx, time.Millisecond, func() error {
		if p := strconv.Itoa(pid); len(commandLine(p)) == 0 && !vanished(p) {
			return fmt.Errorf("process %d has no command line", pid)
		}
		return nil
	})
}

// alive says whether the node's process runs. A pid that now belongs to
// another program does not count.
func (n *node) alive() bool { return n.Pid > 0 && n.owns(commandLine(strconv.Itoa(n.Pid))) }

// owns says whether a process with this command line is the node: its last
// argument is the node's own properties file.
func (n *node) owns(args []string) bool {
	return len(args) > 0 && args[len(args)-1] == n.config()
}

// signal sends sig to the node's process. The process is looked up first and
// checked after that, so that a pid taken over in between is never hit where
// the system has handles for processes.
func (n *node) signal(sig syscall.Signal) error {
	if n.Pid <= 0 {
		return fmt.Errorf("%s is not running", n)
	}
	p, err := os.FindProcess(n.Pid)
	if err != nil {
		return err
	}
	defer func() { _ = p.Release() }()
	if !n.alive() {
		return fmt.Errorf("%s is not running", n)
	}
	if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return fmt.Errorf("signal %s: %w", n, err)
	}
	return nil
}

// ended waits until the node's process is gone and its sockets are closed. It
// judges one reading of the command line: read twice, one that is lost in
// between looks like that of another program.
func (n *node) ended(ctx context.Context) error {
	return poll(ctx, 10*time.Millisecond, func() error {
		if n.Pid <= 0 {
			return nil
		}
		pid := strconv.Itoa(n.Pid)
		args := commandLine(pid)
		if len(args) > 0 && !n.owns(args) || len(args) == 0 && vanished(pid) {
			return nil
		}
		return fmt.Errorf("%s (pid %d) still runs", n, n.Pid)
	})
}

// errGiveUp marks an error that does not pass by waiting.
type errGiveUp struct{ error }

func (e errGiveUp) Unwrap() error { return e.error }

// poll calls f every interval until it succeeds, gives up or ctx ends, and
// then returns its last error.
func poll(ctx context.Context, every time.Duration, f func() error) error {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		err := f()
		if err == nil {
			return nil
		}
		if stop, ok := errors.AsType[errGiveUp](err); ok {
			return stop.error
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w (%w)", err, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// baseFlags make a JVM small and quick to start.
func baseFlags() []string { return []string{"-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"} }

// logFlags make every release of Kafka log to stderr in one form.
func logFlags() []string {
	const p = "-Dorg.slf4j.simpleLogger."
	return []string{
		p + "showDateTime=true", p + "dateTimeFormat=HH:mm:ss.SSS", p + "showThreadName=false", p + "showShortLogName=true",
		p + "log.org.apache.kafka.common.config=warn", p + "log.kafka.server.KafkaConfig=warn",
		p + "log.org.apache.kafka.common.utils.AppInfoParser=warn",
	}
}

// brokerJVM is the program of a broker, or of ZooKeeper, with more folders of
// classes.
func (i install) brokerJVM(n *node, more ...string) jvm {
	class, heap := "kafka.Kafka", "-Xmx512m"
	if n.ID == 0 {
		class, heap = "org.apache.zookeeper.server.quorum.QuorumPeerMain", "-Xmx128m"
	}
	args := slices.Concat([]string{heap}, baseFlags(), logFlags())
	if i.version.before(2, 0) {
		args = append(args, "-Dlog4j.configuration=file:"+filepath.Join(n.Dir, "log4j.properties"))
	}
	if archive := i.archive(); i.record {
		args = append(args, "-XX:ArchiveClassesAtExit="+archive+".new")
	} else if n.ID != 0 && exists(archive) {
		args = append(args, "-XX:SharedArchiveFile="+archive)
	}
	args = append(args, "-cp", joinPath(i.classPath(), more), class, n.config())
	return jvm{java: i.java.path, args: args, log: n.log(), dir: n.Dir}
}

// archive is the file with the classes of a broker, ready to be mapped. It
// fits one Java; another one ignores it.
func (i install) archive() string {
	return filepath.Join(i.dir, fmt.Sprintf("java%d.jsa", i.java.major))
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// lastLines returns the end of a log, for an error message.
func lastLines(log string, n int) string {
	lines := strings.Split(strings.TrimRight(log, "\n"), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}

// complaints returns the first lines of a log in which a program that ended
// says why; the orderly shutdown that follows can be longer than lastLines.
func complaints(log string) string {
	var found []string
	for line := range strings.Lines(log) {
		bad := strings.Contains(line, "ERROR") || strings.Contains(line, "FATAL") || strings.Contains(line, "Exception")
		if bad && !strings.HasPrefix(line, "\t") {
			found = append(found, strings.TrimSpace(line))
		}
		if len(found) == 3 {
			break
		}
	}
	if len(found) == 0 {
		return "it does not say why"
	}
	return strings.Join(found, "\n")
}

// paused says whether the node's process is stopped by a signal.
func (n *node) paused() bool { return n.Pid > 0 && suspended(strconv.Itoa(n.Pid)) }
