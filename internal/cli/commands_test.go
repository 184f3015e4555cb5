package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/ottlatest"
)

// embedded is a cluster for one test, and runs of the command against it.
type embedded struct {
	*ottlatest.Cluster
	t *testing.T
}

func newEmbedded(t *testing.T, cfg ottlatest.Config) *embedded {
	t.Helper()
	return &embedded{ottlatest.New(t, cfg), t}
}

func (e *embedded) env() []string {
	return []string{"OTTLA_BOOTSTRAP=" + strings.Join(e.Bootstrap(), ",")}
}

// ottla runs the command against the cluster.
func (e *embedded) ottla(args ...string) result {
	e.t.Helper()
	return run{args: args, env: e.env()}.do(e.t)
}

// feed runs the command with input.
func (e *embedded) feed(stdin string, args ...string) result {
	e.t.Helper()
	return run{args: args, env: e.env(), stdin: stdin}.do(e.t)
}

// decode reads the JSON that a run printed.
func decode[T any](t *testing.T, r result) T {
	t.Helper()
	r.wantDone(t)
	var v T
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
		t.Fatalf("%v in %s", err, r.stdout)
	}
	return v
}

func TestBrokers(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{})
	info := decode[clusterInfo](t, e.ottla("brokers", "-o", "json", "--api-versions", "--features"))
	if info.ClusterID != "ottlatest" || len(info.Brokers) != 3 || len(info.Brokers[0].APIVersions) < 20 || info.Features == nil {
		t.Errorf("%+v", info)
	}
	res := e.ottla("brokers")
	res.wantDone(t)
	controllers := 0
	for i, line := range strings.Split(strings.TrimSpace(res.stdout), "\n") {
		cells := strings.Split(line, "\t")
		if len(cells) != 4 || cells[0] != fmt.Sprint(i) || cells[1] != e.Bootstrap()[i] {
			t.Errorf("line %q", line)
		}
		if cells[3] == "controller" {
			controllers++
		}
	}
	if controllers != 1 {
		t.Errorf("%d controllers in\n%s", controllers, res.stdout)
	}
	if res := e.ottla("brokers", "--api-versions"); !strings.Contains(res.stdout, "0\t3\tMetadata\t") {
		t.Error(res.stdout)
	}
}

func TestTopicsFromCreationToDeletion(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{})
	e.ottla("topics", "create", "orders", "-p", "3", "-r", "1", "-c", "retention.ms=1000").want(t, "created orders: 3 partitions, 1 replica\n")
	e.ottla("topics", "list").want(t, "orders\t3\t1\n")
	e.ottla("topics", "create", "orders").wantError(t, 1, "orders exists already", "topics describe")
	e.ottla("topics", "config", "orders").want(t, "retention.ms\t1000\tdynamic_topic_config\n")
	e.ottla("topics", "config", "orders", "-c", "retention.ms=5000").want(t, "retention.ms\t5000\tdynamic_topic_config\n")
	e.ottla("topics", "config", "orders", "--unset", "retention.ms").want(t, "")
	e.ottla("topics", "grow", "orders", "-p", "5").want(t, "orders has 5 partitions now\n")
	e.ottla("topics", "grow", "orders", "-p", "5").wantError(t, 2, "has 5 partitions already")
	topics := decode[[]topicInfo](t, e.ottla("topics", "describe", "orders", "-o", "json"))
	if len(topics) != 1 || len(topics[0].Partitions) != 5 || topics[0].ID == "" || topics[0].Partitions[4].Leader < 0 {
		t.Errorf("%+v", topics)
	}
	e.ottla("topics", "create", "a b").wantError(t, 2, "no name of a topic")
	e.ottla("topics", "create", "x", "-c", "novalue").wantError(t, 2, "NAME=VALUE")
	e.ottla("topics", "describe", "order").wantError(t, 1, `topic "order" does not exist`, "did you mean orders?", "topics create", "--create")
	e.feed("n\n", "topics", "delete", "orders").wantStatus(t, 1)
	if res := e.feed("", "topics", "delete", "orders"); res.status != 1 || !strings.Contains(res.stderr, "[y/N] \nottla: nothing is deleted") {
		t.Errorf("%+v", res)
	}
	e.ottla("topics", "list").want(t, "orders\t5\t1\n")
	if res := e.feed("yes\n", "topics", "delete", "orders"); res.status != 0 || res.stdout != "deleted orders\n" || !strings.Contains(res.stderr, "delete orders and all records in it?") {
		t.Errorf("%+v", res)
	}
	e.ottla("topics", "list", "-o", "json").want(t, "[]\n")
	e.ottla("topics", "create", "z", "--dry-run").wantDone(t)
	e.ottla("topics", "list").want(t, "")
	e.ottla("topics", "delete", "z", "--yes").wantError(t, 1, "does not exist")
}

func TestASignalAtAQuestionIsANo(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	cmd := run{args: []string{"topics", "delete", "t"}, env: e.env()}.command(t)
	cmd.Stdin = nil
	if _, err := cmd.StdinPipe(); err != nil { // it stays open
		t.Fatal(err)
	}
	out, err := cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	question := "delete t and all records in it? [y/N] "
	if _, err := io.ReadFull(out, make([]byte, len(question))); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	rest, err := io.ReadAll(out)
	_ = cmd.Wait()
	if status := cmd.ProcessState.ExitCode(); err != nil || status != 130 || string(rest) != "\nottla: interrupted\n" {
		t.Errorf("status %d, %q, %v", status, rest, err)
	}
	e.ottla("topics", "list").want(t, "t\t1\t3\n")
}

func TestOffsets(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"events": 2}})
	e.feed("1\n2\n3\n", "produce", "events", "-p", "1", "--timestamp", "1700000000000").want(t, "")
	e.ottla("offsets", "events").want(t, "events\t0\t0\t0\t0\nevents\t1\t0\t3\t3\n")
	rows := decode[[]partitionOffsets](t, e.ottla("offsets", "events", "--at", "@2023-01-01T00:00:00Z", "-o", "json"))
	if len(rows) != 2 || rows[0].At == nil || rows[0].At.Offset != -1 || rows[1].At.Offset != 0 || rows[1].At.Timestamp != 1700000000000 {
		t.Errorf("%+v", rows)
	}
	e.ottla("offsets", "event").wantError(t, 1, "did you mean events?")
	e.ottla("offsets", "events", "--at", "noon").wantError(t, 2, "RFC 3339")
}

func TestRequests(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"events": 2}})
	type answer struct {
		Topics []struct {
			Topic      string
			Partitions []struct{ Partition, Leader int }
		}
		Brokers []struct {
			NodeID int `json:"node_id"`
		}
	}
	got := decode[answer](t, e.ottla("request", "metadata", `{"topics":[{"topic":"events"}]}`))
	if len(got.Topics) != 1 || len(got.Topics[0].Partitions) != 2 || len(got.Brokers) != 3 {
		t.Errorf("%+v", got)
	}
	if got := decode[answer](t, e.ottla("request", "3", "--broker", "1", "--version", "9")); len(got.Topics) != 1 {
		t.Errorf("%+v", got)
	}
	e.ottla("request", "Metadata", `{"topcs":[]}`).wantError(t, 2, "did you mean topics", "--schema Metadata")
	e.ottla("request", "Metadata", "--version", "99").wantError(t, 2, "up to version")
	e.ottla("request", "Metadata", "--broker", "7").wantError(t, 1, "broker 7")
	e.ottla("request", "UpdateMetadata").wantError(t, 2, "bound to one broker", "--broker ID")
	type offsets struct {
		Topics []struct {
			Partitions []struct{ Partition, Offset int }
		}
	}
	split := decode[offsets](t, e.ottla("request", "ListOffsets",
		`{"replica_id":-1,"topics":[{"topic":"events","partitions":[{"partition":0,"timestamp":-1},{"partition":1,"timestamp":-1}]}]}`))
	if len(split.Topics) != 1 || len(split.Topics[0].Partitions) != 2 {
		t.Errorf("%+v", split)
	}
}

func TestTheEmbeddedBrokerServesUntilASignal(t *testing.T) {
	b := startBroker(t)
	run{args: []string{"topics", "create", "x", "-b", b.bootstrap}}.do(t).wantDone(t)
	if res := b.stop(t); res.status != 0 || res.stderr != "" {
		t.Errorf("%+v", res)
	}
}

func TestAllExamplesRunAsTheyStand(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"events": 2}})
	e.feed("a\nb\n", "produce", "events").wantDone(t)
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range everyCommand(testRoot()) {
		for _, line := range examplesOf(c) {
			t.Run(line, func(t *testing.T) {
				t.Parallel()
				cmd := exec.Command(shell, "-c", line)
				cmd.Env = append(cleanEnv(), e.env()...)
				cmd.Env = append(cmd.Env, "PATH="+filepath.Dir(builtCommand(t))+":/usr/local/bin:/usr/bin:/bin")
				cmd.Dir = t.TempDir()
				var stderr strings.Builder
				cmd.Stderr = &stderr
				if out, err := cmd.Output(); err != nil {
					t.Errorf("%v\n%s%s", err, out, stderr.String())
				}
			})
		}
	}
}

func TestConsumeToTheEndPassesMarkersAndAbortedRecords(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	checkMarkers(t, e.env(), e.Bootstrap(), "t")
}

func TestAPositionThatRetentionPassed(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Topics: map[string]int{"t": 1}})
	e.feed("0\n1\n2\n3\n", "produce", "t").wantDone(t)
	e.ottla("request", "DeleteRecords", `{"topics":[{"topic":"t","partitions":[{"partition":0,"offset":2}]}]}`).wantDone(t)
	e.ottla("consume", "t", "-e", "-o", "1").wantError(t, 1, "t-0: offset 1 is not there", "the log holds 2 to 4", "-o 2", "-o start", "-o end")
	e.ottla("consume", "t", "-e").want(t, "2\n3\n")
}

func TestABrokerThatIsTooOldIsNamedWithBothSides(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	b := sim.NewBroker(t, l)
	b.Cluster().Update(func(c *sim.Topology) {
		c.Topics = []sim.Topic{{Name: "t", Partitions: []sim.Partition{{Leader: 1}}}}
	})
	b.RemoveVersions(int16(kmsg.IncrementalAlterConfigs))
	b.SetVersions(int16(kmsg.ListOffsets), 0, 5)
	at := []string{"-b", b.Addr()}
	ottla(t, append(at, "topics", "config", "t", "-c", "a=b")...).wantError(t, 1, "IncrementalAlterConfigs (API 44)", "does not have it", "too old")
	ottla(t, append(at, "request", "ListOffsets", "--version", "6")...).wantError(t, 1, "ListOffsets (API 2)", "versions 0 to 5", "--version")
	b.SetVersions(int16(kmsg.ListOffsets), 99, 99)
	ottla(t, append(at, "offsets", "t")...).wantError(t, 1, "ListOffsets (API 2)", "versions 99 to 99", "this client is too old")
	if n := b.Count(int16(kmsg.ListOffsets)) + b.Count(int16(kmsg.IncrementalAlterConfigs)); n != 0 {
		t.Errorf("%d requests were sent all the same", n)
	}
}
