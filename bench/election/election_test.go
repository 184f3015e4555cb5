// Package election measures leader elections beside each other: ottla's, etcd's
// concurrency.Election with its server in this process, and the rule of
// client-go, which is simulated. It is a module of its own, as etcd's server is
// large, and no part of make test.
//
//	cd bench/election && go test -bench . -benchtime 10x
package election

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
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

var elections = map[string]func(b *testing.B) election{
	"ottla": newOttla,
	"etcd":  newEtcd,
}

// BenchmarkAcquire is an empty role.
func BenchmarkAcquire(b *testing.B) {
	for name, start := range elections {
		b.Run(name, func(b *testing.B) {
			c := start(b).join(b)
			must(b, c.campaign(b.Context(), "first"))
			n := 0
			for b.Loop() {
				n++
				must(b, c.campaign(b.Context(), fmt.Sprint("role-", n)))
			}
		})
	}
}

// BenchmarkHandOver is from the call of resign to the other's leadership.
func BenchmarkHandOver(b *testing.B) {
	for name, start := range elections {
		b.Run(name, func(b *testing.B) {
			e := start(b)
			cs := [2]candidate{e.join(b), e.join(b)}
			must(b, cs[0].campaign(b.Context(), "role"))
			n := 0
			for b.Loop() {
				b.StopTimer()
				won := make(chan error, 1)
				go func() { won <- cs[(n+1)%2].campaign(b.Context(), "role") }()
				time.Sleep(200 * time.Millisecond) // it is a candidate, and waits
				b.StartTimer()
				must(b, cs[n%2].resign("role"))
				must(b, <-won)
				n++
			}
		})
	}
}

// BenchmarkFailOver is from a crash to the other's leadership. It happens at any
// time between two renewals.
func BenchmarkFailOver(b *testing.B) {
	for name, start := range elections {
		b.Run(name, func(b *testing.B) {
			e := start(b)
			for n := 0; b.Loop(); n++ {
				b.StopTimer()
				role := fmt.Sprint("role-", n)
				holder, next := e.join(b), e.join(b)
				must(b, holder.campaign(b.Context(), role))
				won := make(chan error, 1)
				go func() { won <- next.campaign(b.Context(), role) }()
				time.Sleep(time.Second + rand.N(time.Second))
				b.StartTimer()
				holder.crash()
				must(b, <-won)
			}
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

// ottla runs against the model of a broker in this process, over loopback.
type ottla struct{ seeds []string }

func newOttla(b *testing.B) election {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	m := model.New(model.Config{TransactionVersion: 2})
	m.CreateTopic(leader.Topic, 16)
	return &ottla{serve.Start(b, m, l).Seeds()}
}

type ottlaCandidate struct {
	cl    *cluster.Cluster
	e     *leader.Elector
	terms map[string]*leader.Term
}

func (o *ottla) join(b *testing.B) candidate {
	cl, err := cluster.Connect(context.Background(), cluster.Config{Bootstrap: o.seeds})
	must(b, err)
	e, err := leader.Open(cl, leader.Config{Lease: lease * time.Second, AllowUnverified: true})
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
