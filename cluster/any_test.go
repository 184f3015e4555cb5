package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

func TestC54B013ClientsSpreadOverTheBootstrapAddresses(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		const clients = 300
		for i := range clients {
			cfg := r.config()
			cfg.Rand = rand.NewPCG(uint64(i), 1)
			c, err := Connect(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
		for _, b := range r.sim.Brokers() {
			if n := b.Accepted(); n < 70 || n > 130 {
				t.Errorf("broker %d got %d of %d clients", b.ID, n, clients)
			}
		}
	})
}

// TestB013ClientsWithoutASeedDiffer holds that the default of Config.Rand is no
// fixed seed: thirty clients that all begin with one of two addresses are one
// chance in 2^29.
func TestB013ClientsWithoutASeedDiffer(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		for range 30 {
			cfg := r.config()
			cfg.Rand = nil
			c, err := Connect(t.Context(), cfg)
			if err != nil {
				t.Fatal(err)
			}
			c.Close()
		}
		for _, b := range r.sim.Brokers() {
			if b.Accepted() == 0 {
				t.Errorf("no client began with broker %d", b.ID)
			}
		}
	})
}

func TestC54C1C3AnyRequestsStayOnTheOpenSocket(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		// Bootstrap by another spelling of the address that metadata names.
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"B1:9092"} })
		for range 20 {
			mustDo(t, second(c.Request(r.within(time.Minute), kmsg.NewPtrDescribeClusterRequest())))
		}
		for _, b := range r.sim.Brokers() {
			want := 0
			if b.ID == 1 {
				want = 1
			}
			if b.Accepted() != want {
				t.Errorf("broker %d accepted %d sockets, want %d", b.ID, b.Accepted(), want)
			}
		}
		if n := r.sim.Broker(1).Count(60); n != 20 {
			t.Errorf("%d requests arrived", n)
		}
	})
}

func TestC55B014TheErrorNamesEachAddressAndItsReason(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		cfg := r.config()
		cfg.Bootstrap = []string{"nowhere:9092", "b1:1"}
		start := time.Now()
		_, err := Connect(r.within(3*time.Second), cfg)
		for _, want := range []string{"nowhere:9092", "no such host", "b1:1", "connection refused"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v lacks %q", err, want)
			}
		}
		var oe *kafka.OpError
		if !errors.Is(err, syscall.ECONNREFUSED) || !errors.As(err, &oe) || kafka.MayHaveHappened(err) {
			t.Errorf("error %v", err)
		}
		if took := time.Since(start); took < 2*time.Second || took > 3010*time.Millisecond {
			t.Errorf("gave up after %v: an address may come back until the deadline", took)
		}
		if _, err := Connect(t.Context(), Config{}); err == nil || !strings.Contains(err.Error(), "Bootstrap") {
			t.Errorf("an empty list: %v", err)
		}
	})
}

func TestB014OneGoodSeedIsEnoughAndNamesAreResolvedAgain(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		cfg := r.config()
		cfg.Bootstrap = []string{"nowhere:9092", "b1:1", "b1:9092"}
		c, err := Connect(r.within(time.Minute), cfg)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	})
	inBubble(t, 1, func(t *testing.T, r *rig) {
		ips, err := r.net.Resolve(t.Context(), "b1")
		if err != nil {
			t.Fatal(err)
		}
		cfg := r.config()
		cfg.Bootstrap = []string{"late:9092"}
		go func() {
			time.Sleep(10 * time.Second)
			r.net.SetAddrs("late", ips...)
		}()
		c, err := Connect(r.within(time.Minute), cfg)
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
	})
}

func TestC57AnAddressThatIsNoBrokerFailsInConnect(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		l := r.listen("web:80")
		sim.Raw(t, l, func(_ int, c net.Conn) {
			buf := make([]byte, 1024)
			if _, err := c.Read(buf); err == nil {
				_, _ = c.Write([]byte("HTTP/1.1 400 Bad Request\r\n\r\n"))
			}
			c.Close()
		})
		cfg := r.config()
		cfg.Bootstrap = []string{"web:80"}
		start := time.Now()
		_, err := Connect(r.within(time.Minute), cfg)
		var pe *kafka.ProtocolError
		if !errors.As(err, &pe) || !strings.Contains(err.Error(), "HTTP") || !strings.Contains(err.Error(), "web:80") {
			t.Errorf("a web server: %v", err)
		}
		if time.Since(start) > time.Second {
			t.Errorf("reported after %v", time.Since(start))
		}
		cfg.Bootstrap, cfg.Lazy = []string{"nowhere:1"}, true
		c, err := Connect(t.Context(), cfg)
		if err != nil {
			t.Fatalf("a lazy client contacts nobody: %v", err)
		}
		if _, err := c.Controller(r.within(time.Second)); err == nil {
			t.Error("a lazy client found a controller nowhere")
		}
		c.Close()
	})
}

func TestC56ADeadOrStuckBrokerIsNotChosenWhileAnotherAnswers(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect()
		first := r.sim.Brokers()[0]
		for _, b := range r.sim.Brokers() {
			if b.Accepted() == 1 {
				first = b
			}
		}
		stuck := func(q *sim.Request) sim.Answer { return sim.Answer{Until: q.Done()} }
		first.Handle(3, stuck)
		first.Handle(60, stuck)
		// The first request notices, and goes elsewhere; the next do not try.
		start := time.Now()
		mustDo(t, second(c.Request(r.within(time.Minute), kmsg.NewPtrDescribeClusterRequest())))
		if took := time.Since(start); took > hedge+10*time.Millisecond {
			t.Errorf("a stuck broker held a request for %v", took)
		}
		for range 20 {
			start := time.Now()
			mustDo(t, second(c.Request(r.within(time.Minute), kmsg.NewPtrDescribeClusterRequest())))
			if took := time.Since(start); took > 10*time.Millisecond {
				t.Fatalf("a stuck broker was chosen again: %v", took)
			}
		}
		r.topic("t", 1)
		start = time.Now()
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		if took := time.Since(start); took > 10*time.Millisecond {
			t.Errorf("a refresh went to the stuck broker: %v", took)
		}
	})
}

// TestC56ADeadAddressIsNotWaitedFor while another broker answers, also where none
// has an open connection. Mutation: candidates that do not look at Failing.
func TestC56ADeadAddressIsNotWaitedFor(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := r.connect()
		r.sim.Broker(1).Handle(60, func(q *sim.Request) sim.Answer {
			return sim.Answer{Response: q.Response(), End: sim.Close}
		})
		r.sim.Broker(2).Close()
		for range 60 {
			start := time.Now()
			mustDo(t, second(c.Request(r.within(time.Minute), kmsg.NewPtrDescribeClusterRequest())))
			if took := time.Since(start); took > 100*time.Millisecond {
				t.Fatalf("a request waited %v for an address that does not answer", took)
			}
			time.Sleep(20 * time.Millisecond)
		}
	})
}

func TestC56WithEveryKnownBrokerDeadTheBootstrapAddressRecovers(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		ips, err := r.net.Resolve(t.Context(), "b1")
		if err != nil {
			t.Fatal(err)
		}
		r.net.SetAddrs("boot", ips...)
		r.topic("t", 1, 2)
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"boot:9092"} })
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		for _, b := range r.sim.Brokers() {
			b.Close()
		}
		// The cluster moves to other machines behind the bootstrap name.
		moved := sim.New(t, r.listen("m1:9092"))
		moved.Update(func(tp *sim.Topology) { tp.ClusterID = "sim" })
		moved.SetTopic("t", 1, 1)
		ips, err = r.net.Resolve(t.Context(), "m1")
		if err != nil {
			t.Fatal(err)
		}
		r.net.SetAddrs("boot", ips...)
		c.InvalidateLeader(tp("t", 1))
		if b, err := c.Leader(r.within(10*time.Second), tp("t", 1)); err != nil || b.Host != "m1" {
			t.Errorf("leader %v, %v", b, err)
		}
	})
}

func TestB055TheTargetIsChosenAnewOnEveryAttempt(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		c := r.connect()
		for _, b := range r.sim.Brokers() {
			if b.Accepted() == 1 {
				id := b.ID
				r.sim.Update(func(tp *sim.Topology) {
					tp.Controller = -1
					for i, n := range tp.Nodes {
						if n.ID == id {
							tp.Nodes = append(tp.Nodes[:i], tp.Nodes[i+1:]...)
							break
						}
					}
				})
				b.Close()
			}
		}
		start := time.Now()
		mustDo(t, second(c.Request(r.within(time.Minute), kmsg.NewPtrDescribeClusterRequest())))
		if took := time.Since(start); took > time.Second {
			t.Errorf("took %v", took)
		}
		for _, b := range r.sim.Brokers() {
			b.Close()
		}
		start = time.Now()
		_, err := c.Request(r.within(2*time.Second), kmsg.NewPtrDescribeClusterRequest())
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 2010*time.Millisecond {
			t.Errorf("with no broker left: %v after %v", err, time.Since(start))
		}
	})
}

func TestB023NothingIsLeftAfterClose(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.Broker(2).OnAccept(func(int, net.Conn) sim.End { return sim.Reset })
		for i := range 200 {
			cfg := r.config()
			cfg.Rand = rand.NewPCG(uint64(i), 3)
			cfg.Lazy = i%2 == 0
			c, err := Connect(r.within(time.Minute), cfg)
			if err != nil {
				t.Fatal(err)
			}
			if cfg.Lazy { // Close races the dial
				go c.Request(context.Background(), kmsg.NewPtrDescribeClusterRequest())
				time.Sleep(time.Duration(i) * 20 * time.Microsecond)
			}
			c.Close()
		}
		time.Sleep(time.Second)
		if n := r.net.Open(); n != 0 {
			t.Errorf("%d sockets are open", n)
		}
	})
}

func TestB025ABrokerLearnedDuringCloseIsNotDialled(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		for i := range 50 {
			r.sim.Update(func(tp *sim.Topology) { tp.Nodes = tp.Nodes[:1] })
			cfg := r.config()
			cfg.Bootstrap = cfg.Bootstrap[:1]
			c, err := Connect(r.within(time.Minute), cfg)
			if err != nil {
				t.Fatal(err)
			}
			r.sim.Update(func(tp *sim.Topology) { tp.Nodes = append(tp.Nodes[:1:1], sim.Node{ID: 2, Host: "b2", Port: 9092}) })
			go func() {
				_, _ = c.Topic(context.Background(), "x")
				_, _ = c.Broker(2).Request(context.Background(), kmsg.NewPtrDescribeClusterRequest())
			}()
			time.Sleep(time.Duration(i) * 50 * time.Microsecond)
			c.Close()
			time.Sleep(100 * time.Millisecond)
			if n := r.net.Open(); n != 0 {
				t.Fatalf("%d sockets are open after Close", n)
			}
		}
	})
}
