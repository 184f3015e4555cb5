package cli

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/benchmark"
	"github.com/ottla/ottla/record/compress"
)

// benchJob is what is measured.
type benchJob struct {
	op      string
	records int
	size    int
	codec   string
	topic   string // "" is one of its own
}

// benchResult is what a run cost. The CPU and the memory are those of this
// process, with the cluster in memory in it if there is one.
type benchResult struct {
	Op          string       `json:"op"`
	Cluster     string       `json:"cluster"` // in memory, or the bootstrap addresses
	Records     int64        `json:"records"` // requests, for request
	Bytes       int64        `json:"bytes"`   // of values
	Compression string       `json:"compression,omitempty"`
	Seconds     float64      `json:"seconds"`
	PerSecond   float64      `json:"per_second"`
	MBPerSecond float64      `json:"mb_per_second"`
	Latency     benchLatency `json:"latency_ms"`
	CPUMicros   float64      `json:"cpu_us_per_record"` // 0 where the system does not say
	Allocations float64      `json:"allocations_per_record"`
	AllocBytes  float64      `json:"allocated_bytes_per_record"`
	PeakRSS     float64      `json:"peak_rss_mb"` // 0 where the system does not say
}

// benchLatency is how long single steps took, in milliseconds.
type benchLatency struct {
	P50 float64 `json:"p50"`
	P95 float64 `json:"p95"`
	P99 float64 `json:"p99"`
	Max float64 `json:"max"`
}

func benchCommand(a *app) *cobra.Command {
	cmd := family("bench", "Measure producing, consuming or requests",
		benchOne(a, "produce", "Append records as fast as they are taken",
			"Append records as fast as they are taken, with the client's defaults: idempotent, acks all. A latency is from an append to\nits acknowledgement."),
		benchOne(a, "consume", "Read records as fast as they come",
			"Read records as fast as they come, as batch views. The topic is filled first, unless --topic names one: that is read from\nits start to its end. A latency is one poll."),
		benchOne(a, "request", "Ask for the metadata of a topic, one request after the other",
			"Ask for the metadata of a topic, one request after the other. A latency is one request and its answer."))
	cmd.Example = "  ottla bench produce\n  ottla bench request -o json"
	cmd.Long = "Measure what this client does on this machine: records a second, latencies, CPU, memory and allocations.\n\n" + benchWhere
	return cmd
}

const benchWhere = "It starts a cluster in memory, in this process, whose cost is in the figures then. With --bootstrap it uses that cluster,\n" +
	"in a topic of its own that it deletes afterwards. Figures of single runs mean little: compare medians of several."

func benchOne(a *app, op, short, long string) *cobra.Command {
	j := benchJob{op: op}
	cmd := &cobra.Command{
		Use:     op,
		Short:   short,
		Long:    long + "\n\n" + benchWhere,
		Example: fmt.Sprintf("  ottla bench %s\n  ottla bench %s -n 5000 -o json", op, op),
		Args:    takes(),
		RunE:    func(*cobra.Command, []string) error { return bench(a, j) },
	}
	f := cmd.Flags()
	if op == "request" {
		f.IntVarP(&j.records, "requests", "n", 10_000, "how many")
	} else {
		f.IntVarP(&j.records, "records", "n", 200_000, "how many; the most, with consume --topic")
		f.IntVarP(&j.size, "size", "s", 100, "bytes of a value; they compress about 1:3")
		f.StringVarP(&j.codec, "compression", "z", "none", "none, gzip, snappy, lz4, zstd")
	}
	f.StringVar(&j.topic, "topic", "", "an existing `TOPIC`, which stays")
	return outputFlag(cmd)
}

func (j *benchJob) check() error {
	if j.records < 1 {
		return usagef("-n %d: at least 1", j.records)
	}
	if j.op == "request" {
		return nil
	}
	if j.size < 1 || j.size > 900_000 {
		return usagef("-s %d: from 1 to 900000", j.size)
	}
	if _, err := compress.ParseCodec(j.codec); err != nil {
		return usagef("-z %s: none, gzip, snappy, lz4 or zstd", j.codec)
	}
	return nil
}

// bench runs a job and prints its result.
func bench(a *app, j benchJob) error {
	if err := j.check(); err != nil {
		return err
	}
	cfg, stop, err := demoCluster(a)
	if err != nil {
		return err
	}
	defer stop()
	c, err := cluster.Connect(a.stop, cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	b := &benchRun{app: a, job: j, client: &client{Cluster: c}}
	drop, err := b.makeTopic()
	if err != nil {
		return err
	}
	defer drop()
	res, err := b.measure(a.stop)
	if err != nil {
		if a.interrupted() {
			return errInterrupted
		}
		return err
	}
	res.Cluster = "in memory"
	if a.shared.bootstrap != "" {
		res.Cluster = a.shared.bootstrap
	}
	return res.print(a)
}

// benchRun is one measurement.
type benchRun struct {
	app    *app
	job    benchJob
	client *client
	topic  string
	took   []time.Duration // of steps
	bytes  int64           // of values
}

const benchPartitions = 6

// makeTopic makes the topic, and returns what removes it.
func (b *benchRun) makeTopic() (drop func(), err error) {
	if b.topic = b.job.topic; b.topic != "" {
		return func() {}, nil
	}
	b.topic = "ottla-bench-" + demoTopic()[len("ottla-demo-"):]
	return makeOwnTopic(b.app.stop, b.app, b.client, b.topic, benchPartitions)
}

// measure does the job, what comes before it apart.
func (b *benchRun) measure(ctx context.Context) (*benchResult, error) {
	work, err := b.prepare(ctx)
	if err != nil {
		return nil, err
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, began := benchmark.CPUTime(), time.Now()
	n, err := work(ctx)
	if err != nil {
		return nil, err
	}
	seconds := time.Since(began).Seconds()
	cpu = benchmark.CPUTime() - cpu
	runtime.ReadMemStats(&after)
	each := 1 / float64(max(n, 1))
	return &benchResult{
		Op: b.job.op, Records: n, Bytes: b.bytes, Compression: b.job.codec, Seconds: seconds,
		PerSecond: float64(n) / seconds, MBPerSecond: float64(b.bytes) / 1e6 / seconds, Latency: latencyOf(b.took),
		CPUMicros:   each * float64(cpu.Nanoseconds()) / 1e3,
		Allocations: each * float64(after.Mallocs-before.Mallocs), AllocBytes: each * float64(after.TotalAlloc-before.TotalAlloc),
		PeakRSS: float64(benchmark.PeakRSS()) / 1e6,
	}, nil
}

func latencyOf(took []time.Duration) benchLatency {
	if len(took) == 0 {
		return benchLatency{}
	}
	slices.Sort(took)
	at := func(percent int) float64 { return float64(took[(len(took)-1)*percent/100]) / float64(time.Millisecond) }
	return benchLatency{P50: at(50), P95: at(95), P99: at(99), Max: at(100)}
}

func (r *benchResult) print(a *app) error {
	if a.stdout.json {
		return a.stdout.document(r)
	}
	what := "record"
	if r.Op == "request" {
		what = "request"
	}
	lines := []string{
		fmt.Sprintf("%s: %s in %.2f s, %s", r.Op, count(r.Records, what), r.Seconds, r.Cluster),
		fmt.Sprintf("rate: %.0f %ss/s, %.1f MB/s", r.PerSecond, what, r.MBPerSecond),
		fmt.Sprintf("latency: p50 %.2f ms, p95 %.2f ms, p99 %.2f ms, max %.2f ms", r.Latency.P50, r.Latency.P95, r.Latency.P99, r.Latency.Max),
		fmt.Sprintf("cpu: %.3f us a %s; allocations: %.3f, %.0f bytes a %s; peak memory: %.0f MB", r.CPUMicros, what, r.Allocations, r.AllocBytes, what, r.PeakRSS),
	}
	for _, l := range lines {
		if err := a.stdout.printf("%s", l); err != nil {
			return err
		}
	}
	return nil
}
