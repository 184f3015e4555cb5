package cli

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"github.com/ottla/ottla/ottlatest"
)

// openTerminal gives both ends of a new terminal.
func openTerminal(t *testing.T) (screen, tty *os.File) {
	t.Helper()
	screen, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { screen.Close() })
	var unlock, n int32
	conn, err := screen.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	err = conn.Control(func(fd uintptr) {
		_, _, e1 := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSPTLCK, uintptr(unsafe.Pointer(&unlock)))
		_, _, e2 := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPTN, uintptr(unsafe.Pointer(&n)))
		if e1 != 0 || e2 != 0 {
			t.Errorf("%v, %v", e1, e2)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { tty.Close() })
	return screen, tty
}

// onTerminal runs the command with stdout or stderr on a terminal, and returns
// what the terminal showed and what the other stream held.
func (r run) onTerminal(t *testing.T, stream string) (shown, other string) {
	t.Helper()
	screen, tty := openTerminal(t)
	cmd := r.command(t)
	var rest bytes.Buffer
	cmd.Stdout, cmd.Stderr = io.Writer(tty), io.Writer(&rest)
	if stream == "stderr" {
		cmd.Stdout, cmd.Stderr = &rest, tty
	}
	seen := make(chan string, 1)
	go func() {
		var all bytes.Buffer
		_, _ = io.Copy(&all, screen) // ends with EIO when the last tty closes
		seen <- all.String()
	}()
	err := cmd.Run()
	tty.Close()
	shown = <-seen
	if err != nil {
		t.Errorf("ottla %v: %v: %s %s", r.args, err, shown, rest.String())
	}
	return strings.ReplaceAll(shown, "\r\n", "\n"), rest.String()
}

func TestTablesAreAlignedOnATerminal(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"a": 1, "long-name": 12}})
	list := run{args: []string{"topics", "list"}, env: append(e.env(), "TERM=xterm")}
	shown, notes := list.onTerminal(t, "stdout")
	want := "\x1b[1mNAME       PARTITIONS  REPLICAS\x1b[0m\na          1           3\nlong-name  12          3\n"
	if shown != want || notes != "" {
		t.Errorf("%q, want %q; %s", shown, want, notes)
	}
	list.env = append(list.env, "NO_COLOR=1")
	if shown, _ := list.onTerminal(t, "stdout"); shown != strings.NewReplacer("\x1b[1m", "", "\x1b[0m", "").Replace(want) {
		t.Errorf("with NO_COLOR: %q", shown)
	}
	list.args = append(list.args, "-o", "json")
	if shown, _ := list.onTerminal(t, "stdout"); !strings.HasPrefix(shown, "[\n  {\n    \"name\": \"a\",") {
		t.Errorf("JSON: %q", shown)
	}
}

func TestProgressIsOnStderrOnlyOnATerminal(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	text := strings.Repeat("some text\n", 300_000)
	produce := run{args: []string{"produce", "t"}, env: e.env(), stdin: text}
	if shown, data := produce.onTerminal(t, "stderr"); !strings.Contains(shown, " records, ") || !strings.Contains(shown, "records/s") || data != "" ||
		!strings.HasSuffix(shown, "\r\x1b[K") {
		t.Errorf("%q %q", shown, data)
	}
	consume := run{args: []string{"consume", "t", "-e"}, env: e.env()}
	shown, data := consume.onTerminal(t, "stderr")
	if data != text || !strings.Contains(shown, "records/s") {
		t.Errorf("%d bytes of %d; %q", len(data), len(text), shown)
	}
	consume.args = append(consume.args, "-q")
	if shown, _ := consume.onTerminal(t, "stderr"); shown != "" {
		t.Errorf("-q: %q", shown)
	}
}

func TestTheDemoDrawsOneScreenOnATerminal(t *testing.T) {
	t.Parallel()
	shown, notes := run{args: []string{"demo"}, env: []string{"TERM=xterm"}}.onTerminal(t, "stdout")
	if !strings.Contains(shown, "\x1b[") || !strings.Contains(shown, "ottla demo: records") || !strings.Contains(shown, "0 lost, 0 duplicated\n") || notes != "" {
		t.Errorf("%.3000q %s", shown, notes)
	}
}

func TestTheDemoInAPipe(t *testing.T) {
	t.Parallel()
	res := run{args: []string{"demo"}, env: []string{"OTTLA_BOOTSTRAP=" + deadAddr(t)}}.do(t)
	res.wantDone(t)
	if strings.Contains(res.stdout, "\x1b") || !strings.Contains(res.stdout, "connections cut\n") || !strings.Contains(res.stdout, "ok: nothing was lost") {
		t.Errorf("%s", res.stdout)
	}
}

func TestTheDemosSummaryHasItsShape(t *testing.T) {
	t.Parallel()
	res := ottla(t, "demo", "-o", "json")
	got := decode[map[string]any](t, res)
	records, _ := got["records"].(map[string]any)
	tasks, _ := got["streams"].(map[string]any)
	role, _ := got["leader"].(map[string]any)
	if role["handovers"] != 2.0 || role["fenced_writes"] != 2.0 || role["overlaps"] != 0.0 {
		t.Errorf("%s", res.stdout)
	}
	if tasks["members"] != 2.0 || tasks["tasks"] != 4.0 || tasks["double_owned"] != 0.0 {
		t.Errorf("%s", res.stdout)
	}
	if got["ok"] != true || len(got) != 5 || len(records) != 4 || records["lost"] != 0.0 || records["duplicated"] != 0.0 || records["produced"] == 0.0 || got["took_ms"] == nil {
		t.Errorf("%s", res.stdout)
	}
}

func TestADemoOnAClusterDeletesItsTopicsAlsoAfterASignal(t *testing.T) {
	t.Parallel()
	e := newEmbedded(t, ottlatest.Config{})
	p := run{args: []string{"demo", "-b", strings.Join(e.Bootstrap(), ",")}}.start(t)
	for !strings.Contains(p.line(t), "ottla-demo-") { // the demo's parts begin side by side
	}
	res := p.stop(t)
	if res.status != 130 {
		t.Errorf("%+v", res)
	}
	e.ottla("topics", "list").want(t, "")
}

// TestTheReaderOfAnIdleConsumeMayGoAway after it has read everything: no further
// write tells.
func TestTheReaderOfAnIdleConsumeMayGoAway(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	e.feed("one\n", "produce", "t").wantDone(t)
	for _, args := range [][]string{{"consume", "t"}, {"consume", "t", "-g", "g"}} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		cmd := run{args: args, env: e.env()}.command(t)
		var stderr strings.Builder
		cmd.Stdout, cmd.Stderr = w, &stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		w.Close()
		if _, err := io.ReadFull(r, make([]byte, len("one\n"))); err != nil {
			t.Fatal(err)
		}
		r.Close()
		if err := cmd.Wait(); err != nil || stderr.String() != "" {
			t.Errorf("%v: %v: %s", args, err, stderr.String())
		}
	}
}
