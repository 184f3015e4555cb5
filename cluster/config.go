package cluster

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/sasl"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// Config says how to reach a cluster. Only Bootstrap (or BootstrapControllers)
// is needed; the zero value of every other field is a safe default. [Connect]
// copies and validates it: later changes have no effect. Printing a Config shows
// no secret.
type Config struct {
	Bootstrap []string // bootstrap.servers; "host:port" or "host", which means port 9092
	ClientID  string   // client.id; "" = "ottla"; at most 32,767 bytes

	// BootstrapControllers is bootstrap.controllers, in place of Bootstrap: the
	// client talks to KRaft controllers themselves (KIP-919, from Kafka 3.7 on),
	// as for repairs while no broker serves. They are what it takes for the
	// cluster's brokers, and requests for the controller go to the active one.
	// What they do not serve (records, topic metadata, groups, transactions) is
	// kafka.ErrUnsupportedEndpointType, unsent.
	BootstrapControllers []string

	// Dial opens connections in place of a net.Dialer. If Resolve is nil it
	// gets host names and does its own look-ups.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// Resolve looks host names up in place of net.DefaultResolver.
	Resolve func(ctx context.Context, host string) ([]string, error)
	TLS     *tls.Config      // nil = plaintext; version 1.2 at least
	SASL    []sasl.Mechanism // in order of preference; empty = no authentication

	DialTimeout      time.Duration // socket.connection.setup.timeout.ms: TCP, TLS, ApiVersions and SASL together; 0 = 10 s
	RequestTimeout   time.Duration // request.timeout.ms; 0 = 30 s
	RetryTimeout     time.Duration // default.api.timeout.ms: no call without a deadline starts another attempt after it; 0 = 60 s
	IdleTimeout      time.Duration // connections.max.idle.ms; 0 = 3 min
	RetryBackoff     time.Duration // retry.backoff.ms: the first, doubled each time; 0 = 5 ms
	RetryBackoffMax  time.Duration // retry.backoff.max.ms; 0 = 1 s
	ReconnectBackoff time.Duration // reconnect.backoff.ms: the first per address, doubled up to 1 s; 0 = 50 ms
	MaxResponseBytes int           // the largest answer that is read; 0 = 100 MiB

	MetadataMaxAge   time.Duration // metadata.max.age.ms; 0 = 5 min
	RebootstrapAfter time.Duration // metadata.recovery.rebootstrap.trigger.ms; 0 = 5 min
	TopicPatience    time.Duration // how long an unknown topic is taken for one in creation; 0 = 5 s
	NoTopicCreation  bool          // inverse of allow.auto.create.topics
	Lazy             bool          // Connect contacts nobody; the first request does

	MaxVersions map[int16]int16 // highest version to use by API key; nil = as high as both sides can
	Rand        rand.Source     // math/rand/v2: jitter, order of brokers; nil = seeded by the system
	Logger      *slog.Logger    // nil = silent
	Trace       *Trace          // nil = none
	JournalSize int             // frames that protocol errors show; 0 = none
	Journal     *Journal        // keeps the last frames, in place of JournalSize; nil = none
}

// Defaults of the zero values of Config.
const (
	defaultPort             = 9092
	defaultRequestTimeout   = 30 * time.Second
	defaultRetryTimeout     = 60 * time.Second
	defaultMetadataMaxAge   = 5 * time.Minute
	defaultRebootstrapAfter = 5 * time.Minute
	defaultTopicPatience    = 5 * time.Second
)

// configError is a setting that Connect refuses.
type configError struct{ field, problem string }

func (e *configError) Error() string       { return "ottla: cluster.Config." + e.field + " " + e.problem }
func (*configError) MayHaveHappened() bool { return false }

// withDefaults is a checked copy of the configuration, with the canonical
// bootstrap addresses.
func (c Config) withDefaults() (Config, error) {
	if err := c.canonicalSeeds(); err != nil {
		return c, err
	}
	for _, d := range []struct {
		field string
		value *time.Duration
		def   time.Duration
	}{
		{"DialTimeout", &c.DialTimeout, 10 * time.Second},
		{"RequestTimeout", &c.RequestTimeout, defaultRequestTimeout},
		{"RetryTimeout", &c.RetryTimeout, defaultRetryTimeout},
		{"IdleTimeout", &c.IdleTimeout, 3 * time.Minute},
		{"RetryBackoff", &c.RetryBackoff, 5 * time.Millisecond},
		{"RetryBackoffMax", &c.RetryBackoffMax, time.Second},
		{"ReconnectBackoff", &c.ReconnectBackoff, 50 * time.Millisecond},
		{"MetadataMaxAge", &c.MetadataMaxAge, defaultMetadataMaxAge},
		{"RebootstrapAfter", &c.RebootstrapAfter, defaultRebootstrapAfter},
		{"TopicPatience", &c.TopicPatience, defaultTopicPatience},
	} {
		if *d.value < 0 {
			return c, &configError{d.field, "is negative: " + d.value.String()}
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	return c, c.check()
}

// canonicalSeeds gives the addresses to start from their canonical form.
func (c *Config) canonicalSeeds() error {
	field := "Bootstrap"
	switch {
	case len(c.Bootstrap) > 0 && c.atControllers():
		return &configError{"BootstrapControllers", "is set beside Bootstrap: a client is connected to brokers or to controllers"}
	case len(c.Bootstrap) == 0 && !c.atControllers():
		return &configError{"Bootstrap", "is empty: at least one broker address is needed"}
	case c.atControllers():
		field = "BootstrapControllers"
	}
	addrs := make([]string, 0, len(c.seeds()))
	for i, a := range c.seeds() {
		addr, err := canonical(a)
		if err != nil {
			return &configError{field + "[" + strconv.Itoa(i) + "]", fmt.Sprintf("%q: %v", a, err)}
		}
		addrs = append(addrs, addr)
	}
	if c.atControllers() {
		c.BootstrapControllers = addrs
	} else {
		c.Bootstrap = addrs
	}
	return nil
}

// check refuses what no default can mend.
func (c *Config) check() error {
	if len(c.ClientID) > math.MaxInt16 {
		return &configError{"ClientID", fmt.Sprintf("has %d bytes: Kafka's strings have at most %d", len(c.ClientID), math.MaxInt16)}
	}
	if c.MaxResponseBytes < 0 {
		return &configError{"MaxResponseBytes", "is negative"}
	}
	if c.JournalSize < 0 {
		return &configError{"JournalSize", "is negative"}
	}
	if c.RetryBackoffMax < c.RetryBackoff {
		return &configError{"RetryBackoffMax", "is below RetryBackoff: " + c.RetryBackoffMax.String() + " < " + c.RetryBackoff.String()}
	}
	for i, m := range c.SASL {
		if m == nil {
			return &configError{"SASL[" + strconv.Itoa(i) + "]", "is nil"}
		}
	}
	return nil
}

// canonical is the form of an address that keys the pool.
func canonical(addr string) (string, error) {
	host, port := addr, defaultPort
	h, p, err := net.SplitHostPort(addr)
	if err == nil {
		host = h
		if port, err = strconv.Atoi(p); err != nil || port < 1 || port > 65535 {
			return "", fmt.Errorf("%q is no port", p)
		}
	}
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	if host == "" || strings.ContainsAny(host, " /,") {
		return "", fmt.Errorf("it is not host:port")
	}
	if strings.Contains(host, ":") && net.ParseIP(strings.Split(host, "%")[0]) == nil {
		return "", fmt.Errorf("it is not host:port")
	}
	return kafka.JoinAddr(host, int32(port)), nil
}

// String names the settings without any secret: of SASL only the mechanisms,
// of TLS only whether it is on.
func (c Config) String() string {
	mechanisms := make([]string, len(c.SASL))
	for i, m := range c.SASL {
		if m != nil {
			mechanisms[i] = m.Name()
		}
	}
	seeds := "Bootstrap"
	if c.atControllers() {
		seeds = "BootstrapControllers"
	}
	return fmt.Sprintf("cluster.Config{%s: %v, ClientID: %q, TLS: %v, SASL: %v, DialTimeout: %v, RequestTimeout: %v, MetadataMaxAge: %v, NoTopicCreation: %v}",
		seeds, c.seeds(), c.ClientID, c.TLS != nil, mechanisms, c.DialTimeout, c.RequestTimeout, c.MetadataMaxAge, c.NoTopicCreation)
}

// GoString is String, so that %#v shows no secret either.
func (c Config) GoString() string { return c.String() }

// LogValue is the form for package slog, as String.
func (c Config) LogValue() slog.Value { return slog.StringValue(c.String()) }

func (c *Config) backoff() retry.Backoff {
	return retry.Backoff{Base: c.RetryBackoff, Cap: c.RetryBackoffMax}
}

// connection is the part of the configuration that connections need.
func (c *Config) connection() *netconn.Config {
	nc := &netconn.Config{
		ClientID: c.ClientID, Dial: c.Dial, Resolve: c.Resolve, TLS: c.TLS, SASL: c.SASL,
		DialTimeout: c.DialTimeout, RequestTimeout: c.RequestTimeout, IdleTimeout: c.IdleTimeout,
		MaxResponseBytes: c.MaxResponseBytes, MaxVersions: c.MaxVersions,
		ReconnectBackoff: retry.Backoff{Base: c.ReconnectBackoff}, Logger: c.Logger,
	}
	switch {
	case c.Journal != nil:
		nc.Journal = c.Journal.frames
	case c.JournalSize > 0:
		nc.Journal = netconn.NewJournal(c.JournalSize)
	}
	return nc
}
