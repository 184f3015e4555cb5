// Package netconn drives connections to brokers: for every address and kind of
// traffic one lane, which is one socket with exactly one writer and one reader
// goroutine. It dials, does TLS, ApiVersions and SASL, pipelines requests,
// matches answers, and keeps the rules of package conn.
package netconn

import (
	"context"
	"crypto/tls"
	"log/slog"
	"math/rand/v2"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// Kind is a kind of traffic; every kind has a lane of its own to an address,
// so that none waits for another.
type Kind uint8

const (
	General     Kind = iota // metadata, offsets, admin
	Produce                 // Produce
	Fetch                   // Fetch; long polls
	Coordinator             // heartbeats, commits, transactions
	Join                    // JoinGroup and SyncGroup; long polls
	Follow                  // Fetch of who follows a few partitions beside the consumers; long polls
)

const kinds = 6

// String is the kind in one lower-case word.
func (k Kind) String() string {
	if k < kinds {
		return [...]string{"general", "produce", "fetch", "coordinator", "join", "follow"}[k]
	}
	return "unknown"
}

// Config is what all lanes of one client share. It must not change after the
// first [NewPeer]. A zero field takes the default that its comment names.
type Config struct {
	ClientID        string // client.id; empty = "ottla"
	SoftwareName    string // of ApiVersions (KIP-511); empty = "ottla"
	SoftwareVersion string // of ApiVersions (KIP-511); empty = the version of this module

	// Dial opens a TCP connection; nil = net.Dialer. If it is set and Resolve
	// is not, it gets the name and not an IP address.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Resolve looks a host name up; nil = net.DefaultResolver.
	Resolve func(ctx context.Context, host string) ([]string, error)
	TLS     *tls.Config      // nil = plaintext
	SASL    []sasl.Mechanism // in order of preference; empty = none

	DialTimeout      time.Duration   // TCP, TLS, ApiVersions and SASL together; 0 = 10 s
	RequestTimeout   time.Duration   // request.timeout.ms; 0 = 30 s
	IdleTimeout      time.Duration   // connections.max.idle.ms; 0 = 3 min
	MaxResponseBytes int             // the largest answer that is read; 0 = 100 MiB
	MaxVersions      map[int16]int16 // highest version by API key; nil = no cap of the user's
	ReconnectBackoff retry.Backoff   // zero = 50 ms, doubling up to 1 s

	NewRand func() *rand.Rand // jitter, one for each peer; nil = seeded by the system
	Logger  *slog.Logger      // nil = none
	Journal *Journal          // records every frame; nil = none
	Hooks   Hooks
}

// Hooks are called on goroutines of the lanes, several at once, without a lock
// held. They must not block. Nil fields are not called.
type Hooks struct {
	// Dialled tells of every finished attempt to open a socket: err is nil once
	// the socket is ready for requests.
	Dialled func(addr string, kind Kind, took time.Duration, err error)
	// Closed tells why an open socket was closed.
	Closed func(addr string, kind Kind, err error)
	// Throttled tells that a broker asked this lane to be silent for d.
	Throttled func(addr string, kind Kind, d time.Duration)
	// Mismatch tells that the broker at addr answered that it is not this node
	// of this cluster (code 129, KIP-1242). It may be another node of the same
	// cluster.
	Mismatch func(addr string, clusterID string, node kafka.NodeID)
}
