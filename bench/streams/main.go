// Streams measures what many members of Streams groups in one process cost: the
// CPU time of that process at the default heartbeat interval, the cluster in
// memory being a process of its own.
//
//	go run ./streams -members 1000 -for 30s
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/benchmark"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/streams"
)

func main() {
	members := flag.Int("members", 1000, "how many")
	length := flag.Duration("for", 30*time.Second, "how long to measure")
	serve := flag.Bool("serve", false, "be the cluster")
	flag.Parse()
	if *serve {
		beCluster()
		return
	}
	bootstrap, stop := child()
	defer stop()
	c, err := cluster.Connect(context.Background(), cluster.Config{Bootstrap: bootstrap})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ms := join(c, *members)
	time.Sleep(10 * time.Second) // targets settle
	before, sent := benchmark.CPUTime(), heartbeats(ms)
	began := time.Now()
	time.Sleep(*length)
	took := time.Since(began)
	used, n := benchmark.CPUTime()-before, heartbeats(ms)-sent
	fmt.Printf("%d members, %d heartbeats in %.1f s: %.2f %% of a core, %.0f µs a heartbeat\n",
		len(ms), n, took.Seconds(), 100*used.Seconds()/took.Seconds(), float64(used.Microseconds())/float64(max(n, 1)))
	for _, m := range ms {
		m.Close()
	}
}

// beCluster serves until its stdin ends.
func beCluster() {
	k, err := ottlatest.Start(ottlatest.Config{Topics: map[string]int{"in": 64}, Streams: ottlatest.Streams{InitialDelay: -1}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Join(k.Bootstrap(), ","))
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	k.Close()
}

// child starts the cluster in a process of its own.
func child() (bootstrap []string, stop func()) {
	cmd := exec.Command(os.Args[0], "-serve")
	in, err := cmd.StdinPipe()
	if err != nil {
		log.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		log.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		log.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		log.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(line), ","), func() { in.Close(); _ = cmd.Wait() }
}

// join makes members of ten groups, each with an owner.
func join(c *cluster.Cluster, n int) []*streams.Member {
	ms := make([]*streams.Member, n)
	var wg sync.WaitGroup
	turns := make(chan struct{}, 16)
	for i := range ms {
		wg.Go(func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			m, err := streams.Join(context.Background(), c, streams.Config{
				Group: fmt.Sprint("g", i%10), Topology: streams.Topology{Subtopologies: []streams.Subtopology{{ID: "0", Sources: []string{"in"}}}},
			})
			if err != nil {
				log.Fatal(err)
			}
			ms[i] = m
			go func() {
				for s, err := range m.Assignments(context.Background()) {
					if err != nil {
						return
					}
					_ = m.Acknowledge(context.Background(), s, s.Target)
				}
			}()
		})
	}
	wg.Wait()
	return ms
}

func heartbeats(ms []*streams.Member) uint64 {
	var n uint64
	for _, m := range ms {
		n += m.Info().Heartbeats
	}
	return n
}
