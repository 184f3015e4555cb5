package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/streams"
)

func topologyFileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "topology.json")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func event(t *testing.T, p *process) joinEvent {
	t.Helper()
	var e joinEvent
	if err := json.Unmarshal([]byte(p.line(t)), &e); err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAStreamsGroupFromItsFirstMemberToItsEnd(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"events": 2}, Streams: ottlatest.Streams{InitialDelay: -1}})
	file := topologyFileOf(t, `{"subtopologies":[{"id":"0","sources":["events"]}]}`)
	p := run{args: []string{"streams", "join", "--group", "app", "--topology", file, "-o", "json"}, env: e.env()}.start(t)
	if j := event(t, p); j.Event != "joined" || j.Group != "app" || j.Epoch < 1 {
		t.Fatalf("%+v", j)
	}
	if j := event(t, p); j.Event != "assigned" || !slices.Equal(j.Active, []string{"0_0", "0_1"}) || j.Standby == nil || j.Status == nil {
		t.Fatalf("%+v", j)
	}
	if j := event(t, p); j.Event != "acknowledged" || !slices.Equal(j.Active, []string{"0_0", "0_1"}) {
		t.Fatalf("%+v", j)
	}
	e.ottla("streams", "list").want(t, "app\tStable\n")
	got := decode[streamsGroup](t, e.ottla("streams", "describe", "app", "-o", "json"))
	if got.State != "Stable" || len(got.Members) != 1 || !slices.Equal(got.Members[0].Tasks.Active, []string{"0_0", "0_1"}) || got.Topology.Subtopologies[0].Sources[0] != "events" {
		t.Errorf("%+v", got)
	}
	e.ottla("streams", "delete", "app", "--yes").wantError(t, 1, "NON_EMPTY_GROUP")
	p.signal(t, syscall.SIGTERM)
	if j := event(t, p); j.Event != "left" {
		t.Errorf("%+v", j)
	}
	if res := p.wait(t); res.status != 130 {
		t.Errorf("%+v", res)
	}
	e.ottla("streams", "list").want(t, "app\tEmpty\n")
	e.feed("no\n", "streams", "delete", "app").wantStatus(t, 1)
	e.ottla("streams", "delete", "app", "--yes").want(t, "deleted app\n")
	e.ottla("streams", "list").want(t, "")
	e.ottla("streams", "describe", "app").wantError(t, 1, "app")
	e.ottla("streams", "delete", "app", "--yes").wantError(t, 1, "there is no streams group app")
}

func TestStreamsSubcommandsAndGroupsOfAnotherType(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"events": 1}, Streams: ottlatest.Streams{InitialDelay: -1}})
	file := topologyFileOf(t, `{"subtopologies":[{"id":"0","sources":["events"],"changelogs":[{"name":"c","replicas":1}]}]}`)
	e.ottla("consume", "events", "-g", "plain", "-e").wantDone(t)
	if got := decode[[]streamsListing](t, e.ottla("streams", "list", "-o", "json")); len(got) != 0 {
		t.Errorf("%+v", got)
	}
	for _, args := range [][]string{{"describe", "plain"}, {"describe", "plain", "-o", "json"}, {"delete", "plain", "--yes"}} {
		if res := e.ottla(append([]string{"streams"}, args...)...); res.stdout != "" {
			t.Errorf("%v prints %q", args, res.stdout)
		} else {
			res.wantError(t, 1, "there is no streams group plain")
		}
	}
	e.ottla("streams", "join", "--group", " ", "--topology", file).wantError(t, 2, "Group is empty")
	e.ottla("streams", "join", "--group", "g", "--topology", file, "--member", " ").wantError(t, 2, "MemberID is empty")
	p := run{args: []string{"streams", "join", "--group", "app", "--topology", file}, env: e.env()}.start(t)
	p.line(t)
	if got := decode[[]streamsListing](t, e.ottla("streams", "list", "-o", "json")); len(got) != 1 || got[0].Group != "app" || got[0].State == "" {
		t.Errorf("%+v", got)
	}
	if res := e.ottla("streams", "describe", "app", "-o", "json"); strings.Contains(res.stdout, "null") {
		t.Errorf("a list or map is null: %s", res.stdout)
	}
	p.stop(t)
	got := decode[map[string][]string](t, e.ottla("streams", "delete", "app", "--yes", "--internal-topics", "-o", "json"))
	if !slices.Equal(got["deleted"], []string{"app"}) {
		t.Errorf("%v", got)
	}
	e.ottla("topics", "list").want(t, "events\t1\t3\n")
}

// A member that stays in its group without an owner holds tasks back for a
// session: whatever ends the command, it leaves.
func TestAMemberLeavesWhateverEndsIt(t *testing.T) {
	for _, c := range []struct {
		name   string
		code   int8
		status int
		closed bool
	}{
		{"topics do not fit", 2, 1, false},
		{"nobody reads its output", 99, 0, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"events": 2}, Streams: ottlatest.Streams{
				InitialDelay: -1, Heartbeat: 100 * time.Millisecond,
			}})
			file := topologyFileOf(t, `{"subtopologies":[{"id":"0","sources":["events"]}]}`)
			cmd := run{args: []string{"streams", "join", "--group", "app", "--topology", file}, env: e.env()}.command(t)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewReader(out)
			for line := ""; !strings.Contains(line, "acknowledged"); {
				if line, err = lines.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			if c.closed {
				out.Close()
			}
			e.StreamsStatus("app", c.code, "something is the matter")
			if !c.closed {
				_, _ = io.Copy(io.Discard, lines)
			}
			_ = cmd.Wait()
			if got := cmd.ProcessState.ExitCode(); got != c.status || strings.Contains(stderr.String(), "something is the matter") != (c.status == 1) {
				t.Errorf("status %d; stderr:\n%s", got, stderr.String())
			}
			e.ottla("streams", "list").want(t, "app\tEmpty\n")
		})
	}
}

// Heartbeats fail more often than one call of Heartbeat bears.
func TestAcknowledgedIsToldHoweverLongItTakes(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"events": 1}, Streams: ottlatest.Streams{InitialDelay: -1}})
	away := e.Fail(88, 14, 8, 1)
	file := topologyFileOf(t, `{"subtopologies":[{"id":"0","sources":["events"]}]}`)
	p := run{args: []string{"streams", "join", "--group", "app", "--topology", file, "-o", "json"}, env: e.env()}.start(t)
	for _, want := range []string{"joined", "assigned", "acknowledged"} {
		if j := event(t, p); j.Event != want {
			t.Fatalf("%+v, want %s", j, want)
		}
	}
	if n := away.Hits(); n != 8 {
		t.Errorf("acknowledged after %d of 8 failures", n)
	}
	p.stop(t)
}

func TestStreamsUsage(t *testing.T) {
	bad := topologyFileOf(t, `{"subtopologies":[{"id":"0","sourcs":["events"]}]}`)
	empty := topologyFileOf(t, `{}`)
	good := topologyFileOf(t, `{"subtopologies":[{"id":"0","sources":["events"]}]}`)
	two := topologyFileOf(t, `{"subtopologies":[{"id":"0","sources":["events"]}]} {}`)
	ottla(t, "streams", "join").wantError(t, 2, "--group and --topology")
	ottla(t, "streams", "join", "--group", "g", "--topology", "none.json").wantError(t, 2, "none.json")
	ottla(t, "streams", "join", "--group", "g", "--topology", bad).wantError(t, 2, "sourcs")
	ottla(t, "streams", "join", "--group", "g", "--topology", empty).wantError(t, 2, "at least one")
	ottla(t, "streams", "join", "--group", "g", "--topology", two).wantError(t, 2, "something follows")
	ottla(t, "streams", "join", "--group", "g", "--topology", good, "--delay-ack", "-1s").wantError(t, 2, "--delay-ack")
	ottla(t, "streams", "join", "--group", "g", "--topology", good, "extra").wantError(t, 2, "extra")
	ottla(t, "streams", "join", "--group", "g", "--topology", good, "-o", "yaml").wantError(t, 2, "yaml")
	ottla(t, "streams", "describe").wantError(t, 2, "GROUP")
	ottla(t, "streams", "delete", "a", "b").wantError(t, 2, "unexpected argument")
	ottla(t, "streams", "list", "--nope").wantError(t, 2, "--nope")
	ottla(t, "streams").wantError(t, 2, "list, describe, delete, join")
}

func TestTheStreamsDemoCanFail(t *testing.T) {
	d := &streamsDemo{holds: map[streams.TaskID]string{}}
	a, b := streams.TaskID{Subtopology: "0"}, streams.TaskID{Subtopology: "0", Partition: 1}
	d.acknowledge("first", []streams.TaskID{a, b})
	d.acknowledge("first", []streams.TaskID{a})
	d.acknowledge("second", []streams.TaskID{b})
	if d.double != 0 || d.held("first") != 1 || d.held("second") != 1 {
		t.Errorf("%+v", d)
	}
	d.acknowledge("second", []streams.TaskID{a, b})
	if d.double != 1 {
		t.Error("a task that both hold is not counted")
	}
}
