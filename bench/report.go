package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/ottla/ottla/bench/load"
)

// String names a cell: place, operation, size, codec, cores.
func (c cell) String() string {
	s := c.place + " " + c.op
	if c.size > 0 {
		s += fmt.Sprintf(" %d %s", c.size, c.codec)
	}
	if c.procs != 1 {
		s += fmt.Sprintf(", %d cores", c.procs)
	}
	return s
}

// report gathers results and writes them down.
type report struct {
	options
	results map[cell]map[string][]load.Result // by the entry's label
	notes   []string
}

func newReport(o options) report {
	return report{options: o, results: map[cell]map[string][]load.Result{}}
}

func (r *report) note(s string) { r.notes = append(r.notes, s) }

func (r *report) add(c cell, e entry, res load.Result) {
	if res.Err != "" {
		r.note(fmt.Sprintf("%s, %s failed: %s.", c, e.label, strings.ReplaceAll(res.Err, "\n", " ")))
		return
	}
	if r.results[c] == nil {
		r.results[c] = map[string][]load.Result{}
	}
	r.results[c][e.label] = append(r.results[c][e.label], res)
}

// what takes a figure from a result.
type what func(load.Result) float64

func perRecord(f what) what {
	return func(r load.Result) float64 { return f(r) / float64(max(r.Records, 1)) }
}

var (
	cpuMicros = perRecord(func(r load.Result) float64 { return 1e6 * r.CPU })
	thousands = func(r load.Result) float64 { return float64(r.Records) / r.Seconds / 1e3 }
	mallocs   = perRecord(func(r load.Result) float64 { return float64(r.Mallocs) })
	allocated = perRecord(func(r load.Result) float64 { return float64(r.AllocBytes) })
	peakMB    = func(r load.Result) float64 { return float64(r.PeakRSS) / 1e6 }
	wire      = perRecord(func(r load.Result) float64 { return float64(r.Wire) })
	p50       = func(r load.Result) float64 { return 1e6 * r.P50 }
	p99       = func(r load.Result) float64 { return 1e6 * r.P99 }
)

// of is the median of a figure and its spread, (largest - smallest) / median; ok
// is false without a result.
func (r *report) of(c cell, label string, f what) (median, spread float64, ok bool) {
	var xs []float64
	for _, res := range r.results[c][label] {
		xs = append(xs, f(res))
	}
	if len(xs) == 0 {
		return 0, 0, false
	}
	slices.Sort(xs)
	median = xs[len(xs)/2]
	if len(xs)%2 == 0 {
		median = (median + xs[len(xs)/2-1]) / 2
	}
	if median > 0 {
		spread = (xs[len(xs)-1] - xs[0]) / median
	}
	return median, spread, true
}

const begin, end = "<!-- bench: written by the harness, begin -->", "<!-- bench: end -->"

// write puts the tables between the markers of a file, or on standard output.
func (r *report) write(file string) error {
	var b bytes.Buffer
	r.render(&b)
	if file == "" {
		_, err := os.Stdout.Write(b.Bytes())
		return err
	}
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, ok := bytes.Cut(old, []byte(begin))
	_, after, ok2 := bytes.Cut(rest, []byte(end))
	if !ok || !ok2 {
		return errors.New(file + " has no block to write to, between " + begin + " and " + end)
	}
	whole := slices.Concat(before, []byte(begin+"\n\n"), b.Bytes(), []byte("\n"+end), after)
	return os.WriteFile(file, whole, 0o644)
}

func (r *report) render(b *bytes.Buffer) {
	r.conditions(b)
	for _, place := range []string{"canned", "real"} {
		for _, op := range []string{"consume", "produce"} {
			cells := r.cells(place, op)
			if len(cells) == 0 {
				continue
			}
			on := "on a canned broker"
			if place == "real" {
				on = "on Kafka " + kafkaVersion
			}
			fmt.Fprintf(b, "\n### %s, %s\n", strings.ToUpper(op[:1])+op[1:], on)
			r.table(b, "CPU of the client, microseconds a record", cells, cpuMicros, 3)
			r.table(b, "Thousands of records a second", cells, thousands, 0)
			r.table(b, "Heap allocations a record", cells, mallocs, 3)
			r.table(b, "Bytes allocated a record", cells, allocated, 0)
			r.table(b, "Peak memory of the process, MB", cells, peakMB, 0)
			if op == "consume" {
				r.table(b, "Bytes received a record", cells, wire, 1)
			}
		}
	}
	r.requests(b)
	r.goals(b)
	for i, n := range r.notes {
		if i == 0 {
			fmt.Fprintf(b, "\n### Notes\n\n")
		}
		fmt.Fprintf(b, "- %s\n", n)
	}
}

// cells are those with results, in the order of the plan.
func (r *report) cells(place, op string) (cells []cell) {
	for _, c := range plan(r.options) {
		if c.place == place && c.op == op && r.results[c] != nil {
			cells = append(cells, c)
		}
	}
	return cells
}

// table writes a row for each cell and a column for each client.
func (r *report) table(b *bytes.Buffer, title string, cells []cell, f what, digits int) {
	var labels []string
	for _, e := range entries[cells[0].op] {
		if slices.ContainsFunc(cells, func(c cell) bool { m, _, ok := r.of(c, e.label, f); return ok && m > 0 }) {
			labels = append(labels, e.label)
		}
	}
	if len(labels) == 0 {
		return
	}
	fmt.Fprintf(b, "\n| %s | %s |\n|---|%s\n", title, strings.Join(labels, " | "), strings.Repeat("---|", len(labels)))
	for _, c := range cells {
		fmt.Fprintf(b, "| %d B %s", c.size, c.codec)
		if c.procs > 1 {
			fmt.Fprintf(b, ", %d cores", c.procs)
		}
		for _, l := range labels {
			m, spread, ok := r.of(c, l, f)
			switch {
			case !ok:
				b.WriteString(" | ")
			case r.rounds > 1 && spread >= 0.01:
				fmt.Fprintf(b, " | %.*f ±%.0f %%", digits, m, 50*spread)
			default:
				fmt.Fprintf(b, " | %.*f", digits, m)
			}
		}
		b.WriteString(" |\n")
	}
}

func (r *report) requests(b *bytes.Buffer) {
	var rows []string
	for _, op := range []string{"metadata", "heartbeat"} {
		for _, c := range r.cells("canned", op) {
			for _, e := range entries[op] {
				cpu, _, ok := r.of(c, e.label, cpuMicros)
				if !ok {
					continue
				}
				half, _, _ := r.of(c, e.label, p50)
				most, _, _ := r.of(c, e.label, p99)
				n, _, _ := r.of(c, e.label, mallocs)
				rows = append(rows, fmt.Sprintf("| %s, %s | %.0f | %.0f | %.1f | %.1f |\n", op, e.label, half, most, cpu, n))
			}
		}
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "\n### One request and its answer, in a closed loop\n\n| | p50, us | p99, us | CPU, us | allocations |\n|---|---|---|---|---|\n%s", strings.Join(rows, ""))
}

// conditions say what the figures are of.
func (r *report) conditions(b *bytes.Buffer) {
	fmt.Fprintf(b, "Taken %s on %s, %d cores, %s/%s, %s. Medians of %d rounds, of %d for the clients that are neither ottla\nnor kgo; ± is half of what lies between the smallest and the largest, in percent of the median.\n",
		time.Now().UTC().Format("2006-01-02"), cpuModel(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), r.rounds, min(2, r.rounds))
	fmt.Fprintf(b, "Clients: ottla (this tree), %s.\n", strings.Join(versions(), ", "))
	pin := "Nothing is pinned to a core: taskset is missing."
	if canPin() {
		pin = fmt.Sprintf("The client is pinned to core %d with GOMAXPROCS=1 (rows with more cores: not pinned), the broker to core %d.", clientCore, brokerCore)
	}
	fmt.Fprintf(b, "%s\nThe machine's load when the run ended was %s.\n", pin, load1())
}

func cpuModel() string {
	out, _ := os.ReadFile("/proc/cpuinfo")
	for line := range strings.Lines(string(out)) {
		if name, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(v)
		}
	}
	return "an unknown processor"
}

func load1() string {
	out, _ := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(out)); len(f) > 0 {
		return f[0]
	}
	return "unknown"
}

// versions are those of the peers.
func versions() (vs []string) {
	info, _ := debug.ReadBuildInfo()
	peers := map[string]string{
		"github.com/twmb/franz-go": "kgo", "github.com/IBM/sarama": "sarama", "github.com/segmentio/kafka-go": "kafka-go",
	}
	for _, d := range info.Deps {
		if name := peers[d.Path]; name != "" {
			vs = append(vs, name+" "+strings.TrimPrefix(d.Version, "v"))
		}
	}
	cmd := exec.Command("go", "list", "-m", "-f", "{{.Version}}", "github.com/confluentinc/confluent-kafka-go/v2")
	cmd.Dir = "confluent"
	if out, err := cmd.Output(); err == nil {
		vs = append(vs, "confluent-kafka-go "+strings.TrimPrefix(strings.TrimSpace(string(out)), "v"))
	}
	return vs
}
