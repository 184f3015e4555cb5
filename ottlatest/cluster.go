package ottlatest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"

	"github.com/ottla/ottla/internal/memnet"
	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrClosed is returned by calls on a Cluster that was closed. It unwraps to
// net.ErrClosed.
var ErrClosed = fmt.Errorf("ottlatest: the cluster is closed: %w", net.ErrClosed)

// TB is what New needs of a *testing.T, *testing.B or *testing.F.
type TB interface {
	Helper()
	Cleanup(func())
	Fatalf(format string, args ...any)
}

// Cluster is a running cluster. It is safe for concurrent use.
type Cluster struct {
	cfg      Config
	net      *memnet.Network // nil on loopback
	kfake    *kfake.Cluster
	streams  *streams
	pairs    pairs
	nodes    nodes
	password string        // of the cluster's own client, if users have to log in
	done     chan struct{} // closed by Close
	journal  journal
	throttle throttle
	ops      sync.WaitGroup // calls into kfake, which must not outlive it
	tasks    sync.WaitGroup // accept loops

	mu      sync.Mutex
	closed  bool
	clients uint64 // calls of ClientConfig
}

// New starts a cluster for a test, which it fails if that is not possible,
// and closes it when the test ends. In a synctest bubble use it with
// cfg.InMemory.
func New(tb TB, cfg Config) *Cluster {
	tb.Helper()
	if cfg.Journal == 0 {
		cfg.Journal = 100_000
	}
	c, err := Start(cfg)
	if err != nil {
		tb.Fatalf("%v", err)
		return nil
	}
	tb.Cleanup(func() { c.Close() })
	return c
}

// Start starts a cluster. It fails on a Config that makes no sense and where
// a port is taken. Close it.
func Start(cfg Config) (*Cluster, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Cluster{cfg: cfg, done: make(chan struct{}), password: rand.Text()}
	c.journal.limit = cfg.Journal
	if cfg.InMemory {
		c.net = memnet.New(cfg.Seed)
		c.net.SetLatency(cfg.MaxLatency/20, cfg.MaxLatency)
	}
	for i := range cfg.Brokers {
		n, err := newNode(c, kafka.NodeID(i))
		if err != nil {
			return nil, errors.Join(fmt.Errorf("ottlatest: broker %d: %w", i, err), c.Close())
		}
		c.nodes = append(c.nodes, n)
	}
	if c.kfake, err = kfake.NewCluster(options(c)...); err != nil {
		return nil, errors.Join(fmt.Errorf("ottlatest: %w", err), c.Close())
	}
	c.streams = newStreams(c)
	c.kfake.ControlKey(int16(kmsg.InitProducerID), func(req kmsg.Request) (kmsg.Response, error, bool) { //nolint:revive // kfake's form
		c.kfake.KeepControl()
		resp, handled := c.pairs.onInit(req.(*kmsg.InitProducerIDRequest))
		return resp, nil, handled
	})
	for _, n := range c.nodes {
		n.serve()
	}
	for _, topic := range slices.Sorted(maps.Keys(cfg.Topics)) {
		placer{c}.place(topic, 0)
	}
	return c, nil
}

// ownUser is the cluster's own client where users have to log in.
const ownUser = "ottlatest"

func options(c *Cluster) []kfake.Opt {
	next := 0
	opts := []kfake.Opt{
		kfake.NumBrokers(c.cfg.Brokers), kfake.ClusterID(c.cfg.ClusterID),
		kfake.DefaultNumPartitions(c.cfg.DefaultPartitions), kfake.BrokerConfigs(c.cfg.Properties),
		kfake.ListenFn(func(string, string) (net.Listener, error) { // once for each broker, in order
			next++
			return c.nodes[next-1], nil
		}),
	}
	if c.cfg.AutoCreate {
		opts = append(opts, kfake.AllowAutoTopicCreation())
	}
	for topic, n := range c.cfg.Topics {
		opts = append(opts, kfake.SeedTopics(int32(n), topic))
	}
	if len(c.cfg.Users) > 0 {
		opts = append(opts, kfake.EnableSASL(), kfake.Superuser("PLAIN", ownUser, c.password))
	}
	for _, u := range c.cfg.Users {
		opts = append(opts, kfake.Superuser(u.Mechanism, u.Name, u.Password))
	}
	return opts
}

// Bootstrap is the address of every broker, running or not: bootstrap.servers.
func (c *Cluster) Bootstrap() []string {
	out := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		out[i] = n.Addr().String()
	}
	return out
}

// Dial connects to an address of the cluster, on loopback or in memory as it
// was started. It has the type of the Dial field of a client's configuration,
// which in memory is needed and on loopback is not.
func (c *Cluster) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	if c.net == nil {
		return new(net.Dialer).DialContext(ctx, network, addr)
	}
	return c.net.Dial(ctx, network, addr)
}

// Close ends every connection and stops the brokers; what they stored is
// gone. It waits for the cluster's own goroutines and is idempotent.
func (c *Cluster) Close() error {
	c.mu.Lock()
	first := !c.closed
	c.closed = true
	c.mu.Unlock()
	if first {
		close(c.done)
		for _, n := range c.nodes {
			n.stop()
		}
		c.ops.Wait()
		if c.kfake != nil {
			c.kfake.Close()
		}
		for _, n := range c.nodes {
			n.Close()
		}
	}
	c.tasks.Wait()
	return nil
}

// begin says whether kfake may be called; if so, c.ops.Done must follow.
func (c *Cluster) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.ops.Add(1)
	return true
}
