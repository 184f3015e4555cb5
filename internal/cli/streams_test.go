package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"

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
	e.ottla("streams", "delete", "app", "--yes").want(t, "")
	e.ottla("streams", "list").want(t, "")
	e.ottla("streams", "describe", "app").wantError(t, 1, "app")
}

func TestStreamsUsage(t *testing.T) {
	bad := topologyFileOf(t, `{"subtopologies":[{"id":"0","sourcs":["events"]}]}`)
	empty := topologyFileOf(t, `{}`)
	ottla(t, "streams", "join").wantError(t, 2, "--group and --topology")
	ottla(t, "streams", "join", "--group", "g", "--topology", "none.json").wantError(t, 2, "none.json")
	ottla(t, "streams", "join", "--group", "g", "--topology", bad).wantError(t, 2, "sourcs")
	ottla(t, "streams", "join", "--group", "g", "--topology", empty).wantError(t, 2, "at least one")
	ottla(t, "streams", "delete", "g").wantError(t, 2, "--yes")
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
