package leader

import (
	"context"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/benchmark"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/model/serve"
)

// onLoopback is the model of a broker in this process, over real sockets.
func onLoopback(b *testing.B, cfg ...Config) []*Elector {
	b.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	m := model.New(model.Config{TransactionVersion: 2})
	m.CreateTopic(Topic, 16)
	brokers := serve.Start(b, m, l)
	var es []*Elector
	for _, c := range cfg {
		c.AllowUnverified = true // the model is not asked for its configuration
		cl, err := cluster.Connect(context.Background(), cluster.Config{Bootstrap: brokers.Seeds()})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { cl.Close() })
		e, err := Open(cl, c)
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { e.Close() })
		es = append(es, e)
	}
	return es
}

// BenchmarkAcquire is an empty role, with the topic and its follower in place.
func BenchmarkAcquire(b *testing.B) {
	e := onLoopback(b, Config{})[0]
	if t, err := e.Campaign(context.Background(), "role"); err != nil || t.Resign(context.Background()) != nil {
		b.Fatal(err)
	}
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		role := fmt.Sprint("role-", n)
		b.StartTimer()
		if _, err := e.Campaign(context.Background(), role); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkHandOver is from the call of Resign to the next leader's Term.
func BenchmarkHandOver(b *testing.B) {
	es := onLoopback(b, Config{Member: "a"}, Config{Member: "b"})
	t, err := es[0].Campaign(context.Background(), "role")
	if err != nil {
		b.Fatal(err)
	}
	for n := 0; b.Loop(); n++ {
		b.StopTimer()
		won := make(chan *Term, 1)
		go func() {
			t, err := es[(n+1)%2].Campaign(context.Background(), "role")
			if err != nil {
				b.Error(err)
			}
			won <- t
		}()
		time.Sleep(100 * time.Millisecond) // it is registered and waits
		b.StartTimer()
		if err := t.Resign(context.Background()); err != nil {
			b.Fatal(err)
		}
		t = <-won
	}
}

// BenchmarkRoles is the share of a core that 1,000 led roles of one process
// take at a renewal every 10 s, the brokers in the same process included.
func BenchmarkRoles(b *testing.B) {
	e := onLoopback(b, Config{})[0]
	for n := range 1000 {
		if _, err := e.Campaign(context.Background(), fmt.Sprint("role-", n)); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		before, began := benchmark.CPUTime(), time.Now()
		time.Sleep(10 * time.Second)
		b.ReportMetric(float64(benchmark.CPUTime()-before)/float64(time.Since(began))*100, "%core")
	}
}
