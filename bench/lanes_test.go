package main

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/sim"
)

// client is one handle of either library, as far as this measurement needs it.
type client interface {
	request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	close()
}

type dialer func(ctx context.Context, network, addr string) (net.Conn, error)

// connect makes a client of each library for a broker.
var connect = []struct {
	name string
	to   func(b *testing.B, addr string, dial dialer) client
}{
	{"ottla", func(b *testing.B, addr string, dial dialer) client {
		c, err := cluster.Connect(b.Context(), cluster.Config{Bootstrap: []string{addr}, Dial: dial})
		if err != nil {
			b.Fatal(err)
		}
		return ottlaClient{c}
	}},
	{"kgo", func(b *testing.B, addr string, dial dialer) client {
		c, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.Dialer(dial))
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Ping(b.Context()); err != nil {
			b.Fatal(err)
		}
		return kgoClient{c}
	}},
}

type ottlaClient struct{ c *cluster.Cluster }

func (o ottlaClient) request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return o.c.Broker(1).Request(ctx, req)
}
func (o ottlaClient) close() { _ = o.c.Close() }

type kgoClient struct{ c *kgo.Client }

func (k kgoClient) request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return k.c.Broker(1).Request(ctx, req)
}
func (k kgoClient) close() { k.c.Close() }

// stuck is a way to block the produce socket of a client.
type stuck struct {
	name string
	// set prepares broker and dialer, and gives the request that gets stuck.
	set func(b *testing.B, br *sim.Broker, gate *gate) kmsg.Request
}

// gate is a dialer whose connections, from the moment it is armed on, are
// treated as a scenario wants.
type gate struct {
	tls   *tls.Config
	armed atomic.Bool
	delay time.Duration
	mute  bool
}

func (g *gate) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	var d net.Dialer
	stuck := g.armed.Swap(false)
	if stuck && g.delay > 0 {
		select {
		case <-time.After(g.delay):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	if stuck && g.mute {
		near, _ := net.Pipe() // nobody reads the other end: a TLS peer that stays silent
		c := tls.Client(near, g.tls)
		return c, c.HandshakeContext(ctx)
	}
	c, err := d.DialContext(ctx, network, addr)
	if err != nil || g.tls == nil {
		return c, err
	}
	t := tls.Client(c, g.tls)
	return t, t.HandshakeContext(ctx)
}

func produce(size int) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	req.Acks = -1
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = "t", [16]byte{1}
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = make([]byte, size)
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

var scenarios = []stuck{
	{"throttle-3s", func(_ *testing.B, br *sim.Broker, _ *gate) kmsg.Request {
		br.Handle(0, func(r *sim.Request) sim.Answer {
			resp := r.Response().(*kmsg.ProduceResponse)
			resp.ThrottleMillis = 3000
			return sim.Reply(resp)
		})
		return produce(10)
	}},
	{"dial-2s", func(_ *testing.B, _ *sim.Broker, g *gate) kmsg.Request {
		g.delay = 2 * time.Second
		g.armed.Store(true)
		return produce(10)
	}},
	{"silent-tls", func(_ *testing.B, _ *sim.Broker, g *gate) kmsg.Request {
		g.mute = true
		g.armed.Store(true)
		return produce(10)
	}},
	{"zero-window", func(_ *testing.B, br *sim.Broker, _ *gate) kmsg.Request {
		br.Handle(0, func(*sim.Request) sim.Answer { return sim.Answer{End: sim.StopReading} })
		return produce(32 << 20)
	}},
}

// patience is how long a Heartbeat may take; one that takes longer is counted
// with that.
const patience = 4 * time.Second

// BenchmarkStuckLane measures Heartbeat while the produce socket of the same
// broker is stuck (T1). The figures are of all requests of the run, in
// milliseconds.
func BenchmarkStuckLane(b *testing.B) {
	for _, sc := range scenarios {
		for _, c := range connect {
			b.Run(sc.name+"/"+c.name, func(b *testing.B) { measureBeside(b, sc, c.to) })
		}
	}
}

func measureBeside(b *testing.B, sc stuck, to func(*testing.B, string, dialer) client) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	g := &gate{}
	if sc.name == "silent-tls" {
		server, pool := certificate(b)
		l = tls.NewListener(l, server)
		g.tls = &tls.Config{RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS12}
	}
	br := sim.NewBroker(b, l)
	br.Cluster().SetTopic("t", 1)
	c := to(b, br.Addr(), g.dial)
	defer c.close()
	heartbeat := func() error {
		ctx, cancel := context.WithTimeout(b.Context(), patience)
		defer cancel()
		req := kmsg.NewPtrHeartbeatRequest()
		req.Group = "g"
		_, err := c.request(ctx, req)
		return err
	}
	if err := heartbeat(); err != nil { // opens its socket
		b.Fatal(err)
	}
	req := sc.set(b, br, g)
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan struct{})
	first := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = c.request(ctx, req)
		close(first)
		_, _ = c.request(ctx, req)
	}()
	select { // a throttled lane is stuck after its first answer, the others before
	case <-first:
	case <-time.After(100 * time.Millisecond):
	}
	var took []time.Duration
	for b.Loop() {
		took = took[:0]
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); {
			at := time.Now()
			if err := heartbeat(); err != nil && time.Since(at) < patience {
				b.Fatal(err)
			}
			took = append(took, time.Since(at))
		}
	}
	cancel()
	<-ended
	slices.Sort(took)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	b.ReportMetric(ms(took[len(took)/2]), "p50-ms")
	b.ReportMetric(ms(took[len(took)*99/100]), "p99-ms")
	b.ReportMetric(ms(took[len(took)-1]), "max-ms")
	b.ReportMetric(float64(len(took)), "requests")
}

func certificate(b *testing.B) (*tls.Config, *x509.CertPool) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true,
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		b.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		b.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(cert)
	return &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}}, pool
}
