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
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// setting is what a member of any client is told.
type setting struct {
	addr, group, topic string
	session            time.Duration
	handle             func(partition int32, offset int64) // of each record
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
	fmt.Println("| what | " + strings.Join(order, " | ") + " |")
	fmt.Println("|---|" + strings.Repeat("---|", len(order)))
	for _, m := range measurements {
		results := map[string][]float64{}
		for range rounds {
			for _, client := range order { // in turn, so that other load meets all
				v, err := m.measure(ctx, client, addr)
				if err != nil {
					return fmt.Errorf("%s of %s: %w", m.rows[0], client, err)
				}
				for i, x := range v {
					row := m.rows[i]
					results[row+client] = append(results[row+client], x)
				}
			}
		}
		for _, row := range m.rows {
			fmt.Print("| ", row)
			for _, client := range order {
				fmt.Printf(" | %.4g", median(results[row+client]))
			}
			fmt.Println(" |")
		}
	}
	return plans()
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
	deadline := time.After(2 * time.Minute)
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
			return fmt.Errorf("nothing of the kind within two minutes; %d records so far", w.n)
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
