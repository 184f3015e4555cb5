package ottlatest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// certificate is valid in the time of a bubble, too.
func certificate(t *testing.T) (tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{
		SerialNumber: big.NewInt(1), IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC), NotAfter: time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC),
		DNSNames: []string{"b0", "b1", "b2"}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	pool.AddCert(leaf)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, pool
}

func TestTLS(t *testing.T) {
	cert, pool := certificate(t)
	cfg := Config{Topics: map[string]int{"t": 3}, TLS: &tls.Config{Certificates: []tls.Certificate{cert}}}
	everywhere(t, cfg, func(t *testing.T, c *Cluster) {
		cl := peer(t, c, kgo.Dialer(nil), tlsDialer(c, pool))
		for p := range int32(3) {
			produce(t, cl, "t", p, "secret")
			wantLog(t, c, "t", p, "secret")
		}
		if err := c.StopBroker(0); err != nil {
			t.Fatal(err)
		}
		produce(t, cl, "t", 0, "again")
		nc, err := c.Dial(t.Context(), "tcp", c.Bootstrap()[1])
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, err := exchange(nc, kmsg.NewPtrApiVersionsRequest()); err == nil {
			t.Error("a plaintext client is served")
		}
	})
}

func tlsDialer(c *Cluster, pool *x509.CertPool) kgo.Opt {
	return kgo.Dialer(func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := c.Dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		host, _, _ := net.SplitHostPort(addr)
		return tls.Client(nc, &tls.Config{RootCAs: pool, ServerName: host}), nil
	})
}

func TestUsersLogIn(t *testing.T) {
	cfg := Config{Topics: map[string]int{"t": 1}, Users: []User{
		{"PLAIN", "ann", "1"}, {"SCRAM-SHA-256", "bob", "2"}, {"SCRAM-SHA-512", "cid", "3"},
	}}
	everywhere(t, cfg, func(t *testing.T, c *Cluster) {
		for _, m := range []sasl.Mechanism{
			plain.Auth{User: "ann", Pass: "1"}.AsMechanism(),
			scram.Auth{User: "bob", Pass: "2"}.AsSha256Mechanism(),
			scram.Auth{User: "cid", Pass: "3"}.AsSha512Mechanism(),
		} {
			produce(t, peer(t, c, kgo.SASL(m)), "t", 0, m.Name())
		}
		wantLog(t, c, "t", 0, "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
		if err := c.CreateTopic("u", 1); err != nil {
			t.Error(err)
		}
	})
}

func TestARefusedLoginIsAnswered(t *testing.T) {
	everywhere(t, Config{Users: []User{{"PLAIN", "ann", "1"}}}, func(t *testing.T, c *Cluster) {
		nc, err := c.Dial(t.Context(), "tcp", c.Bootstrap()[0])
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		hs := kmsg.NewPtrSASLHandshakeRequest()
		hs.Version, hs.Mechanism = 1, "PLAIN"
		if _, err := exchange(nc, hs); err != nil {
			t.Fatal(err)
		}
		au := kmsg.NewPtrSASLAuthenticateRequest()
		au.Version, au.SASLAuthBytes = 2, []byte("\x00ann\x00wrong")
		resp, err := exchange(nc, au)
		if err != nil {
			t.Fatal(err)
		}
		got := resp.(*kmsg.SASLAuthenticateResponse)
		if got.ErrorCode != 58 || got.ErrorMessage == nil || !strings.Contains(*got.ErrorMessage, "invalid credentials") {
			t.Errorf("%+v", got)
		}
		if _, err := exchange(nc, kmsg.NewPtrApiVersionsRequest()); err == nil {
			t.Error("the connection stays open")
		}
	})
}

func TestOnlyWhoLoggedInCreatesTopics(t *testing.T) {
	everywhere(t, Config{AutoCreate: true, DefaultPartitions: 4, Users: []User{{"PLAIN", "ann", "1"}}}, func(t *testing.T, c *Cluster) {
		nc, err := c.Dial(t.Context(), "tcp", c.Bootstrap()[0])
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		md := kmsg.NewPtrMetadataRequest()
		md.Version, md.AllowAutoTopicCreation = 9, true
		md.Topics = []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("t")}}
		if _, err := exchange(nc, md); err == nil || c.Leader("t", 0) != kafka.NoNode {
			t.Errorf("a stranger is served (%v) or made a topic", err)
		}
		cl := peer(t, c, kgo.AllowAutoTopicCreation(), kgo.SASL(plain.Auth{User: "ann", Pass: "1"}.AsMechanism()))
		if err := cl.Ping(t.Context()); err != nil {
			t.Fatal(err)
		}
		produce(t, cl, "t", 3, "x")
		wantLog(t, c, "t", 3, "x")
	})
}

func TestOnlyWhoLoggedInJoinsAStreamsGroup(t *testing.T) {
	for _, user := range []User{{"PLAIN", "ann", "1"}, {"SCRAM-SHA-256", "ann", "1"}} {
		t.Run(user.Mechanism, func(t *testing.T) {
			everywhere(t, Config{Topics: map[string]int{"t": 1}, Users: []User{user}}, func(t *testing.T, c *Cluster) {
				at := c.Coordinator("g")
				nc, err := c.Dial(t.Context(), "tcp", c.Bootstrap()[at])
				if err != nil {
					t.Fatal(err)
				}
				defer nc.Close()
				join := kmsg.NewPtrStreamsGroupHeartbeatRequest()
				join.Group, join.MemberID, join.RebalanceTimeoutMillis = "g", "m", 1000
				join.ActiveTasks, join.StandbyTasks, join.WarmupTasks = []kmsg.TaskIDs{}, []kmsg.TaskIDs{}, []kmsg.TaskIDs{}
				topology := kmsg.NewStreamsGroupHeartbeatRequestTopology()
				sub := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
				sub.SubtopologyID, sub.SourceTopics = "0", []string{"t"}
				topology.Subtopologies = append(topology.Subtopologies, sub)
				join.Topology = &topology
				if _, err := exchange(nc, join); err == nil {
					t.Error("a stranger joins")
				}
				cl, err := cluster.Connect(t.Context(), c.ClientConfig())
				if err != nil {
					t.Fatal(err)
				}
				defer cl.Close()
				resp, err := cl.RequestCoordinator(t.Context(), "g", join)
				if err != nil || resp.(*kmsg.StreamsGroupHeartbeatResponse).ErrorCode != 0 {
					t.Errorf("%+v, %v", resp, err)
				}
			})
		})
	}
}
