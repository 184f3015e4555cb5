// Package election measures leader elections beside each other: ottla's, etcd's
// concurrency.Election with its server in this process, and the rule of
// client-go, which is simulated. It is a module of its own, as etcd's server is
// large, and no part of make test. With -tags kafka ottla's runs on three
// brokers of a real Kafka too, which are started for it.
//
//	cd bench/election && go test -bench . -benchtime 10x
//	cd bench/election && go test -tags kafka -bench . -benchtime 10x
package election

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"slices"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"go.etcd.io/etcd/server/v3/embed"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/model/serve"
	"github.com/ottla/ottla/leader"
)

// lease is that of every election here, in seconds.
const lease = 3

// election is one implementation.
type election interface {
	// join makes a candidate, which shares nothing with the others.
	join(b *testing.B) candidate
}

type candidate interface {
	campaign(ctx context.Context, role string) error
	resign(role string) error
	crash() // the process is gone, without a word
}

// leased is a candidate that knows when its lease ends for everybody.
type leased interface {
	left(role string) time.Duration
}

// samples are the times of a benchmark; what go test reports is their mean.
type samples []time.Duration

// median adds the median to the report, in milliseconds.
func (s samples) median(b *testing.B, unit string) {
	if len(s) == 0 {
		return
	}
	slices.Sort(s)
	b.ReportMetric(float64(s[len(s)/2].Microseconds())/1000, unit)
}

// newRole is a role that nobody had, also on brokers that outlive a benchmark.
func newRole(b *testing.B) string { return fmt.Sprint(b.Name(), "/", rand.Uint64()) }

var elections = map[string]func(b *testing.B) election{
	"ottla": newOttla,
	"etcd":  newEtcd,
}

// BenchmarkAcquire is an empty role.
func BenchmarkAcquire(b *testing.B) {
	for name, start := range elections {
		b.Run(name, func(b *testing.B) {
			c := start(b).join(b)
			must(b, c.campaign(b.Context(), newRole(b)))
			var took samples
			for b.Loop() {
				began := time.Now()
				must(b, c.campaign(b.Context(), newRole(b)))
				took = append(took, time.Since(began))
			}
			took.median(b, "ms-median")
		})
	}
}

// BenchmarkHandOver is from the call of resign to the other's leadership.
func BenchmarkHandOver(b *testing.B) {
	for name, start := range elections {
		b.Run(name, func(b *testing.B) {
			e, role := start(b), newRole(b)
			cs := [2]candidate{e.join(b), e.join(b)}
			must(b, cs[0].campaign(b.Context(), role))
			var took samples
			for b.Loop() {
				b.StopTimer()
				n := len(took)
				won := make(chan error, 1)
				go func() { won <- cs[(n+1)%2].campaign(b.Context(), role) }()
				time.Sleep(500 * time.Millisecond) // it is a candidate, and waits
				b.StartTimer()
				began := time.Now()
				must(b, cs[n%2].resign(role))
				must(b, <-won)
				took = append(took, time.Since(began))
			}
			took.median(b, "ms-median")
		})
	}
}

// BenchmarkFailOver is from a crash to the other's leadership, and where a lease
// tells, how long after its end that is. The crash happens at any time between
// two renewals.
func BenchmarkFailOver(b *testing.B) {
	for name, start := range elections {
		b.Run(name, func(b *testing.B) {
			e := start(b)
			var took, late samples
			for b.Loop() {
				b.StopTimer()
				role := newRole(b)
				holder, next := e.join(b), e.join(b)
				must(b, holder.campaign(b.Context(), role))
				won := make(chan error, 1)
				go func() { won <- next.campaign(b.Context(), role) }()
				time.Sleep(time.Second + rand.N(time.Second))
				b.StartTimer()
				var left time.Duration
				l, ok := holder.(leased)
				if ok {
					left = l.left(role)
				}
				began := time.Now()
				holder.crash()
				must(b, <-won)
				took = append(took, time.Since(began))
				if ok {
					late = append(late, time.Since(began)-left)
				}
			}
			took.median(b, "ms-median")
			late.median(b, "ms-after-lease-median")
		})
	}
	b.Run("client-go's rule, simulated", func(b *testing.B) {
		// A candidate looks at the lease every 2 s times 1 to 1.2, and takes it once
		// it has not changed for 15 s; the holder renews every 2 s. No API server.
		var sum time.Duration
		n := 0
		for b.Loop() {
			n++
			const duration, retry = 15 * time.Second, 2 * time.Second
			last := -rand.N(retry) // the last renewal, before the crash at 0
			look := last + rand.N(retry*6/5)
			seen := look // when the candidate first sees it
			for look < seen+duration {
				look += retry + rand.N(retry/5)
			}
			sum += look
		}
		b.ReportMetric(float64(sum.Milliseconds())/float64(n), "ms/failover")
	})
}

func must(b *testing.B, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// ottla runs against the model of a broker in this process, or a real Kafka,
// over loopback.
type ottla struct {
	seeds []string
	model bool // is not asked for its configuration
}

func newOttla(b *testing.B) election {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	m := model.New(model.Config{TransactionVersion: 2})
	m.CreateTopic(leader.Topic, 16)
	return &ottla{serve.Start(b, m, l).Seeds(), true}
}

type ottlaCandidate struct {
	cl    *cluster.Cluster
	e     *leader.Elector
	terms map[string]*leader.Term
}

func (o *ottla) join(b *testing.B) candidate {
	cl, err := cluster.Connect(context.Background(), cluster.Config{Bootstrap: o.seeds})
	must(b, err)
	e, err := leader.Open(cl, leader.Config{Lease: lease * time.Second, AllowUnverified: o.model})
	must(b, err)
	b.Cleanup(func() { _ = e.Close(); _ = cl.Close() })
	return &ottlaCandidate{cl, e, map[string]*leader.Term{}}
}

func (c *ottlaCandidate) campaign(ctx context.Context, role string) (err error) {
	c.terms[role], err = c.e.Campaign(ctx, role)
	return err
}

func (c *ottlaCandidate) resign(role string) error {
	return c.terms[role].Resign(context.Background())
}

// left is until the lease ends for the others: the stop margin, a sixth of it,
// after the end of the leadership itself.
func (c *ottlaCandidate) left(role string) time.Duration {
	return c.terms[role].Left() + lease*time.Second/6
}

func (c *ottlaCandidate) crash() { _ = c.cl.Close() }

// etcd is one member in this process, with its data in a temporary folder.
type etcd struct{ endpoint string }

func newEtcd(b *testing.B) election {
	cfg := embed.NewConfig()
	cfg.Dir, cfg.LogLevel = b.TempDir(), "panic"
	any := url.URL{Scheme: "http", Host: "127.0.0.1:0"}
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{any}, []url.URL{any}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{any}, []url.URL{any}
	cfg.InitialCluster = cfg.InitialClusterFromName(cfg.Name)
	s, err := embed.StartEtcd(cfg)
	must(b, err)
	b.Cleanup(s.Close)
	<-s.Server.ReadyNotify()
	return &etcd{s.Clients[0].Addr().String()}
}

type etcdCandidate struct {
	cl      *clientv3.Client
	session *concurrency.Session
	roles   map[string]*concurrency.Election
}

func (e *etcd) join(b *testing.B) candidate {
	cl, err := clientv3.New(clientv3.Config{Endpoints: []string{e.endpoint}})
	must(b, err)
	s, err := concurrency.NewSession(cl, concurrency.WithTTL(lease))
	must(b, err)
	b.Cleanup(func() { _ = cl.Close() })
	return &etcdCandidate{cl, s, map[string]*concurrency.Election{}}
}

func (c *etcdCandidate) campaign(ctx context.Context, role string) error {
	c.roles[role] = concurrency.NewElection(c.session, "/"+role)
	return c.roles[role].Campaign(ctx, "me")
}

func (c *etcdCandidate) resign(role string) error {
	return c.roles[role].Resign(context.Background())
}

func (c *etcdCandidate) crash() { c.session.Orphan() }
