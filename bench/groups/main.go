// Command groups measures members of consumer groups of several clients on a real
// Kafka, one after the other in one run: from join to the first record, what a
// rebalance stops, a rolling restart, the take-over of what a killed member had,
// CPU for each record, and what a sticky plan costs.
//
//	cd bench && go run ./groups              # starts a Kafka, some five minutes
//	go run ./groups -addr 127.0.0.1:9092     # on one that is there
//
// It writes a table in Markdown to standard output.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ottla/ottla/bench/load"
)

// setting is what a member of any client is told.
type setting struct {
	addr, group, topic string
	session, heartbeat time.Duration
	handle             func(partition int32, offset int64) // of each record

	// A member in a process of its own calls counted with its CPU time when it
	// has had count records, and handle never, if count is set.
	count   int
	counted func(cpu time.Duration)
}

// member is one member of a group at work.
type member struct {
	close func() // in order: what was handled is committed
	kill  func() // as a crash would
}

// join starts members, by the name of the client.
var join = map[string]func(setting) (member, error){
	"ottla": joinOttla, "ottla KIP-848": joinOttla848, "kgo": joinKgo, "sarama": joinSarama,
}

var order = []string{"ottla", "ottla KIP-848", "kgo", "sarama"}

// addConfluent adds the client that is a program of its own.
func addConfluent(ctx context.Context) (remove func()) {
	bin, err := load.BuildConfluent(ctx, "confluent")
	if err != nil {
		fmt.Fprintln(os.Stderr, "groups: confluent-kafka-go could not be built here:", err)
		return func() {}
	}
	join["confluent"], order = joinConfluent(bin), append(order, "confluent")
	return func() { _ = os.RemoveAll(filepath.Dir(bin)) }
}

func main() {
	addr := flag.String("addr", "", "of a Kafka; empty = start one")
	rounds := flag.Int("rounds", 3, "of each measurement, of which the median counts")
	only := flag.Bool("plans", false, "measure plans only, without a Kafka")
	flag.Parse()
	if *only {
		if err := plans(); err != nil {
			fmt.Fprintln(os.Stderr, "groups:", err)
			os.Exit(1)
		}
		return
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, *addr, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "groups:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, addr string, rounds int) error {
	if addr == "" {
		const script, name = "../scripts/kafka", "bench-groups"
		out, err := exec.CommandContext(ctx, script, "up", "--name", name, "--brokers", "1", "-c", "group.consumer.session.timeout.ms=6000").Output()
		defer func() { _ = exec.Command(script, "down", name).Run() }()
		if err != nil {
			return err
		}
		fields := strings.Fields(string(out))
		addr = fields[len(fields)-1]
	}
	defer addConfluent(ctx)()
	fmt.Println("| what | " + strings.Join(order, " | ") + " |")
	fmt.Println("|---|" + strings.Repeat("---|", len(order)))
	for _, m := range measurements {
		results := map[string][]float64{}
		for range rounds {
			for _, client := range order { // in turn, so that other load meets all
				v, err := m.measure(ctx, client, addr)
				if ctx.Err() != nil {
					return ctx.Err()
				}
				if err != nil {
					fmt.Fprintf(os.Stderr, "groups: %s: %s: %v\n", client, m.rows[0], err)
					continue
				}
				fmt.Fprintf(os.Stderr, "groups: %s: %s: %.4g\n", client, m.rows[0], v)
				for i, x := range v {
					row := m.rows[i]
					results[row+client] = append(results[row+client], x)
				}
			}
		}
		for _, row := range m.rows {
			fmt.Print("| ", row)
			for _, client := range order {
				fmt.Print(" | ", cell(results[row+client], rounds))
			}
			fmt.Println(" |")
		}
	}
	return plans()
}

// cell is the median of the rounds that went well, and says how many did not.
func cell(results []float64, rounds int) string {
	switch failed := rounds - len(results); {
	case failed == rounds:
		return "failed"
	case failed > 0:
		return fmt.Sprintf("%.4g (%d of %d failed)", median(results), failed, rounds)
	default:
		return fmt.Sprintf("%.4g", median(results))
	}
}

func median(xs []float64) float64 {
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// watch is what the members of a group did, by partition.
type watch struct {
	mu   sync.Mutex
	seen []map[int64]int
	last []time.Time
	gaps []time.Duration // the longest without a record
	n    int
	more chan struct{}
}

func newWatch(partitions int) *watch {
	w := &watch{seen: make([]map[int64]int, partitions), last: make([]time.Time, partitions), gaps: make([]time.Duration, partitions), more: make(chan struct{}, 1)}
	for p := range w.seen {
		w.seen[p] = map[int64]int{}
	}
	return w
}

func (w *watch) handle(p int32, o int64) {
	now := time.Now()
	w.mu.Lock()
	w.seen[p][o]++
	if !w.last[p].IsZero() {
		w.gaps[p] = max(w.gaps[p], now.Sub(w.last[p]))
	}
	w.last[p] = now
	w.n++
	w.mu.Unlock()
	select {
	case w.more <- struct{}{}:
	default:
	}
}

// until waits until ok.
func (w *watch) until(ctx context.Context, ok func() bool) error {
	deadline := time.After(patience)
	for {
		w.mu.Lock()
		done := ok()
		w.mu.Unlock()
		if done {
			return nil
		}
		select {
		case <-w.more:
		case <-time.After(10 * time.Millisecond):
		case <-deadline:
			return fmt.Errorf("nothing of the kind within %v; %d records so far", patience, w.n)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// reset forgets the gaps so far.
func (w *watch) reset() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.gaps)
}
