package sim

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/memnet"
	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// lanes is a client of two scripted brokers in virtual time. Broker 1 is the
// one whose lanes get stuck.
type lanes struct {
	net     *memnet.Network
	brokers *Cluster
	client  *cluster.Cluster
}

func inLanes(t *testing.T, secure bool, f func(t *testing.T, l *lanes)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		l := &lanes{net: memnet.New(3)}
		cfg := cluster.Config{Dial: l.net.Dial, Rand: rand.NewPCG(1, 1)}
		var ls []net.Listener
		cert := testCert(t)
		for _, addr := range []string{"b1:9092", "b2:9092"} {
			ln, err := l.net.Listen(addr)
			if err != nil {
				t.Fatal(err)
			}
			cfg.Bootstrap = append(cfg.Bootstrap, addr)
			if secure {
				ln = named{tls.NewListener(ln, &tls.Config{Certificates: []tls.Certificate{cert}}), addr}
			}
			ls = append(ls, ln)
		}
		if secure {
			pool := x509.NewCertPool()
			leaf, err := x509.ParseCertificate(cert.Certificate[0])
			if err != nil {
				t.Fatal(err)
			}
			pool.AddCert(leaf)
			cfg.TLS = &tls.Config{RootCAs: pool}
		}
		l.brokers = New(t, ls...)
		l.brokers.SetTopic("t", 1, 2)
		var err error
		if l.client, err = cluster.Connect(t.Context(), cfg); err != nil {
			t.Fatal(err)
		}
		defer l.client.Close()
		for id := range int32(2) { // open the general lanes
			if err := l.ask(t.Context(), id+1, general()); err != nil {
				t.Fatal(err)
			}
		}
		f(t, l)
	})
}

// named keeps the name of a wrapped listener.
type named struct {
	net.Listener
	addr string
}

func (n named) HostPort() string { return n.addr }

func (l *lanes) ask(ctx context.Context, id int32, req kmsg.Request) error {
	_, err := l.client.Broker(kafka.NodeID(id)).Request(ctx, req)
	return err
}

func general() kmsg.Request { return kmsg.NewPtrListGroupsRequest() }

func produce(bytes int) kmsg.Request {
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 1000
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = make([]byte, bytes)
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return req
}

func fetch() kmsg.Request {
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis = 100
	return req
}

func heartbeat() kmsg.Request {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group = "g"
	return req
}

// jams is the ways in which the produce lane of broker 1 gets stuck, while
// nothing else may.
var jams = []struct {
	name   string
	secure bool
	jam    func(t *testing.T, l *lanes)
}{
	{"throttle", false, func(t *testing.T, l *lanes) {
		l.brokers.Broker(1).Handle(0, func(r *Request) Answer {
			resp := r.Response().(*kmsg.ProduceResponse)
			resp.ThrottleMillis = 20_000
			return Reply(resp)
		})
		if err := l.ask(t.Context(), 1, produce(10)); err != nil {
			t.Fatal(err)
		}
	}},
	{"slow dial", false, func(_ *testing.T, l *lanes) { l.net.BlackHole("b1:9092", true) }},
	{"silent TLS peer", true, func(_ *testing.T, l *lanes) {
		l.brokers.Broker(1).OnAccept(func(int, net.Conn) End { return StopReading })
	}},
	{"zero window", false, func(_ *testing.T, l *lanes) {
		l.brokers.Broker(1).Handle(18, func(r *Request) Answer {
			r.NetConn.(*memnet.Conn).SetWindow(0)
			return r.Broker.Default(r)
		})
	}},
	{"no answer", false, func(_ *testing.T, l *lanes) {
		l.brokers.Broker(1).Handle(0, func(*Request) Answer { return Answer{} })
	}},
}

func TestT1AStuckLaneDelaysNoOther(t *testing.T) {
	for _, j := range jams {
		t.Run(j.name, func(t *testing.T) {
			inLanes(t, j.secure, func(t *testing.T, l *lanes) {
				for _, req := range []kmsg.Request{fetch(), heartbeat()} { // open these lanes beforehand
					if err := l.ask(t.Context(), 1, req); err != nil {
						t.Fatal(err)
					}
				}
				j.jam(t, l)
				stuck := make(chan error, 1)
				ctx, cancel := context.WithTimeout(t.Context(), 8*time.Second)
				defer cancel()
				go func() { stuck <- l.ask(ctx, 1, produce(1<<20)) }()
				time.Sleep(time.Second)
				select {
				case err := <-stuck:
					t.Fatalf("nothing is stuck: %v", err)
				default:
				}
				l.quick(t)
				if err := <-stuck; !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the stuck request ended with %v", err)
				}
			})
		})
	}
}

// quick asks on the other lanes of broker 1 and on lanes of broker 2.
func (l *lanes) quick(t *testing.T) {
	t.Helper()
	asks := map[string]func() error{
		"general of 1":     func() error { return l.ask(t.Context(), 1, general()) },
		"fetch of 1":       func() error { return l.ask(t.Context(), 1, fetch()) },
		"coordinator of 1": func() error { return l.ask(t.Context(), 1, heartbeat()) },
		"general of 2":     func() error { return l.ask(t.Context(), 2, general()) },
		"produce of 2":     func() error { return l.ask(t.Context(), 2, produce(10)) },
	}
	for name, ask := range asks {
		start := time.Now()
		if err := ask(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if d := time.Since(start); d >= 10*time.Millisecond {
			t.Errorf("%s took %v beside the stuck lane", name, d)
		}
	}
}

func TestT12EveryCallEndsWithItsContext(t *testing.T) {
	calls := map[string]func(ctx context.Context, l *lanes) error{
		"Broker.Request": func(ctx context.Context, l *lanes) error { return l.ask(ctx, 1, produce(1<<20)) },
		"Request":        func(ctx context.Context, l *lanes) error { _, err := l.client.Request(ctx, produce(1<<20)); return err },
		"Leader": func(ctx context.Context, l *lanes) error {
			_, err := l.client.Leader(ctx, kafka.TopicPartition{Topic: "elsewhere"})
			return err
		},
		"PartitionCount": func(ctx context.Context, l *lanes) error {
			_, err := l.client.PartitionCount(ctx, "elsewhere")
			return err
		},
		"RefreshIfStale": func(ctx context.Context, l *lanes) error {
			_, err := l.client.RefreshIfStale(ctx, "elsewhere")
			return err
		},
		"Coordinator": func(ctx context.Context, l *lanes) error {
			_, err := l.client.Coordinator(ctx, cluster.GroupCoordinator, "g")
			return err
		},
		"RequestCoordinator": func(ctx context.Context, l *lanes) error {
			_, err := l.client.RequestCoordinator(ctx, "g", heartbeat())
			return err
		},
		"CoordinatorVersions": func(ctx context.Context, l *lanes) error {
			_, _, _, err := l.client.CoordinatorVersions(ctx, "g", 12)
			return err
		},
	}
	for name, call := range calls {
		for _, cancelled := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s cancelled=%v", name, cancelled), func(t *testing.T) {
				inLanes(t, false, func(t *testing.T, l *lanes) {
					l.net.Partition("client", "") // nobody answers anything
					ctx, cancel := context.WithTimeout(t.Context(), 777*time.Millisecond)
					want := context.DeadlineExceeded
					if cancelled {
						ctx, cancel = context.WithCancel(t.Context())
						want = context.Canceled
						time.AfterFunc(777*time.Millisecond, cancel)
					}
					defer cancel()
					start := time.Now()
					err := call(ctx, l)
					if d := time.Since(start); d < 777*time.Millisecond || d > 787*time.Millisecond {
						t.Errorf("returned after %v with %v", d, err)
					}
					if !errors.Is(err, want) {
						t.Errorf("the error is %v, which is not %v", err, want)
					}
				})
			})
		}
	}
}

func TestT12ConnectEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1)
		n.Host("b1")
		n.BlackHole("b1:9092", true)
		ctx, cancel := context.WithTimeout(t.Context(), 777*time.Millisecond)
		defer cancel()
		start := time.Now()
		c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: []string{"b1:9092"}, Dial: n.Dial, Rand: rand.NewPCG(1, 1)})
		if err == nil {
			c.Close()
		}
		if d := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || d > 787*time.Millisecond {
			t.Errorf("returned after %v with %v", d, err)
		}
	})
}
