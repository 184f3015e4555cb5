package cli

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/ottla/ottla/ottlatest"
)

func TestProduceTxIsAllOrNothing(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
	visible := func(want string) {
		t.Helper()
		e.ottla("consume", "t", "-e").want(t, want)
	}
	e.feed("a\nb\n", "produce", "t", "--tx", "id").want(t, "")
	visible("a\nb\n")
	e.feed("", "produce", "t", "--tx", "id").want(t, "")

	res := e.feed(`{"value":"lost"}`+"\nno object\n", "produce", "t", "--tx", "id", "--json")
	res.wantStatus(t, statusFailed)
	for _, want := range []string{"line 2", "the transaction is aborted"} {
		if !strings.Contains(res.stderr, want) {
			t.Errorf("stderr lacks %q:\n%s", want, res.stderr)
		}
	}
	visible("a\nb\n")

	res = e.feed(`{"value":"x","partition":0}`+"\n"+`{"value":"y"}`, "produce", "t", "--tx", "id", "--json")
	res.wantStatus(t, statusFailed)
	if !strings.Contains(res.stderr, "either all records name their partition or none does") {
		t.Errorf("stderr:\n%s", res.stderr)
	}
	visible("a\nb\n")

	res = e.feed("c\n", "produce", "t", "--tx", "id", "-p", "0", "--report")
	res.wantDone(t)
	if !strings.HasPrefix(res.stdout, "t\t0\t") {
		t.Errorf("the report is %q", res.stdout)
	}
	visible("a\nb\nc\n")
}

// The signal comes when records are written and the input is still open.
func TestProduceTxIsAbortedByASignal(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1, Topics: map[string]int{"t": 1}})
	p := run{args: []string{"produce", "t", "--tx", "id", "--report"}, env: e.env()}.start(t)
	if _, err := p.stdin.Write([]byte(strings.Repeat("v\n", 100_000))); err != nil {
		t.Fatal(err)
	}
	p.line(t) // one is written
	p.signal(t, syscall.SIGINT)
	res := p.wait(t)
	res.wantStatus(t, statusInterrupted)
	if !strings.Contains(res.stderr, "the transaction is aborted") {
		t.Errorf("stderr:\n%s", res.stderr)
	}
	e.ottla("consume", "t", "-e").want(t, "")
}

func TestProduceTxIsCheckedBesideOtherFlags(t *testing.T) {
	file := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--tx=":                "expected a transactional id",
		"--tx id --keep-going": "all or nothing",
		"--tx id --acks 1":     "do not go together",
	} {
		res := run{args: append([]string{"produce", "t", "-l", file}, strings.Fields(args)...)}.do(t)
		res.wantError(t, statusUsage, want)
	}
}
