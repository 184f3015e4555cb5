// Package load is what the measured clients have in common: the job that one
// process does, the payload, and what is measured of it.
package load

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"runtime/pprof"
	"slices"
	"time"

	"github.com/ottla/ottla/internal/benchmark"
)

// Job is the work of one process.
type Job struct {
	Client  string // as in the table of clients
	Op      string // consume, produce, fill, metadata, heartbeat
	Size    int    // of a value, bytes
	Codec   string // none, lz4, zstd, snappy
	Records int    // to consume or produce, or requests to make
	Addr    string
	Topic   string
	Parts   int32
}

// Result is what a job cost.
type Result struct {
	Job
	Records    int     // done; at least Job.Records
	Seconds    float64 // of wall-clock time
	CPU        float64 // seconds of processor time, of user and system
	Mallocs    uint64  // heap objects
	AllocBytes uint64
	PeakRSS    int64   // bytes, of the process from its start
	Wire       int64   // bytes received by all sockets, 0 if the client does not say
	P50, P99   float64 // seconds of one request
	Err        string
}

// Measured is the part of a job that counts, made ready by a client. It
// reports how many records it did.
type Measured func(ctx context.Context, r *Result) (records int, err error)

// Client makes a job ready: connections, assignments. What it does does not
// count.
type Client func(ctx context.Context, j Job) (Measured, error)

// Main does the job that the first argument holds as JSON, and writes the
// result to standard output.
func Main(clients map[string]Client) {
	var r Result
	if err := json.Unmarshal([]byte(os.Args[1]), &r.Job); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if err := r.do(clients[r.Client]); err != nil {
		r.Err = err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(r)
}

func (r *Result) do(c Client) error {
	if c == nil {
		return fmt.Errorf("no client is called %q", r.Client)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	m, err := c(ctx, r.Job)
	if err != nil {
		return err
	}
	if file := os.Getenv("BENCH_PROFILE"); file != "" {
		stop, err := profile(file)
		if err != nil {
			return err
		}
		defer stop()
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	cpu, start := benchmark.CPUTime(), time.Now()
	r.Records, err = m(ctx, r)
	r.Seconds = time.Since(start).Seconds()
	r.CPU = (benchmark.CPUTime() - cpu).Seconds()
	runtime.ReadMemStats(&after)
	if file := os.Getenv("BENCH_HEAP"); file != "" {
		if err := heapProfile(file); err != nil {
			return err
		}
	}
	r.Mallocs, r.AllocBytes = after.Mallocs-before.Mallocs, after.TotalAlloc-before.TotalAlloc
	r.PeakRSS = benchmark.PeakRSS()
	return err
}

// profile writes a CPU profile of the measured part to file.
func profile(file string) (stop func(), err error) {
	f, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(f); err != nil {
		return nil, err
	}
	return func() { pprof.StopCPUProfile(); _ = f.Close() }, nil
}

// heapProfile writes what was allocated since the process began to file. Set
// GODEBUG=memprofilerate=1 to have all of it.
func heapProfile(file string) error {
	f, err := os.Create(file)
	if err != nil {
		return err
	}
	defer f.Close()
	runtime.GC()
	runtime.GC()
	return pprof.Lookup("allocs").WriteTo(f, 0)
}

// Requests does f n times, one after the other, and notes how long they took.
func Requests(ctx context.Context, r *Result, n int, f func(context.Context) error) (int, error) {
	took := make([]time.Duration, n)
	for i := range took {
		start := time.Now()
		if err := f(ctx); err != nil {
			return i, err
		}
		took[i] = time.Since(start)
	}
	slices.Sort(took)
	r.P50, r.P99 = took[n/2].Seconds(), took[n*99/100].Seconds()
	return n, nil
}
