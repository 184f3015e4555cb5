package ottlatest

import (
	"crypto/tls"
	"crypto/x509"
	"math/rand/v2"

	"github.com/ottla/ottla/cluster"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

// ClientConfig is what a client of ottla needs to reach the cluster:
// bootstrap addresses, the dialler in memory, the certificates of Config.TLS
// as roots, and the first of Config.Users to log in as. In memory the client's
// randomness follows from Config.Seed and the number of earlier calls. The
// caller may change what it got.
func (c *Cluster) ClientConfig() cluster.Config {
	out := cluster.Config{Bootstrap: c.Bootstrap()}
	if c.net != nil {
		c.mu.Lock()
		c.clients++
		out.Rand = rand.NewPCG(c.cfg.Seed, c.clients)
		c.mu.Unlock()
		out.Dial = c.Dial
	}
	if c.cfg.TLS != nil {
		out.TLS = &tls.Config{RootCAs: roots(c.cfg.TLS)}
	}
	if len(c.cfg.Users) > 0 {
		out.SASL = []sasl.Mechanism{c.cfg.Users[0].mechanism()}
	}
	return out
}

// roots trusts the last certificate of every chain that the server shows.
func roots(server *tls.Config) *x509.CertPool {
	pool := x509.NewCertPool()
	for _, chain := range server.Certificates {
		if n := len(chain.Certificate); n > 0 {
			if last, err := x509.ParseCertificate(chain.Certificate[n-1]); err == nil {
				pool.AddCert(last)
			}
		}
	}
	return pool
}

func (u User) mechanism() sasl.Mechanism {
	switch u.Mechanism {
	case "SCRAM-SHA-256":
		return scram.Auth{User: u.Name, Pass: u.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: u.Name, Pass: u.Password}.AsSha512Mechanism()
	default:
		return plain.Auth{User: u.Name, Pass: u.Password}.AsMechanism()
	}
}
