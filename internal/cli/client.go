package cli

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
	"github.com/ottla/ottla/record/compress"
)

// client is a connected cluster handle with the settings of this run.
type client struct {
	*cluster.Cluster
	settings *settings
}

// broker asks one broker.
func (c *client) broker(id int32) asker { return c.Broker(kafka.NodeID(id)) }

// admin asks about the cluster and changes it.
func (c *client) admin() *admin.Admin { return admin.New(c.Cluster) }

// withCluster connects, calls f and closes. The context of f ends with the
// first signal.
func (a *app) withCluster(f func(ctx context.Context, c *client) error) error {
	s, err := a.settings()
	if err != nil {
		return err
	}
	c, err := a.connect(s)
	if err != nil {
		return err
	}
	defer c.Close()
	return f(a.stop, c)
}

// connect makes a client. It gives up when every bootstrap address has failed
// once: somebody waits for the reason. A signal ends it.
func (a *app) connect(s *settings) (*client, error) {
	cfg, err := a.clusterConfig(s)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(a.stop, a.shared.timeout, context.DeadlineExceeded)
	defer cancel()
	ctx, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	tried := &attempts{left: slices.Concat(s.bootstrap, s.controllers), giveUp: giveUp}
	cfg.Trace = &cluster.Trace{Dialled: tried.dialled, Refreshed: tried.refreshed}
	c, err := cluster.Connect(ctx, cfg)
	if err != nil {
		if a.interrupted() {
			return nil, errInterrupted
		}
		return nil, tried.explain(err)
	}
	return &client{Cluster: c, settings: s}, nil
}

// attempts notes how the bootstrap addresses fail. It is safe for concurrent
// use.
type attempts struct {
	mu     sync.Mutex
	left   []string // guarded by mu: addresses that have not failed yet
	errs   []error  // guarded by mu: the first of each address, then those of refreshes
	rounds int      // guarded by mu: refreshes that failed
	giveUp context.CancelCauseFunc
}

// dialled notes one attempt.
func (t *attempts) dialled(addr, _ string, _ time.Duration, err error) {
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	at := slices.Index(t.left, addr)
	if at < 0 {
		return
	}
	t.left = slices.Delete(slices.Clone(t.left), at, at+1)
	t.errs = append(t.errs, err)
	if len(t.left) == 0 {
		t.giveUp(errAllFailed)
	}
}

// refreshed notes a round of questions: connections may be made and closed on
// the first request.
func (t *attempts) refreshed(_ []string, _ string, _ time.Duration, err error) {
	if err == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.rounds++; t.rounds == mostRounds {
		t.errs = append(t.errs, err)
		t.giveUp(errAllFailed)
	}
}

// mostRounds is how many failed rounds a connect makes.
const mostRounds = 3

// errAllFailed ends a connect whose addresses have all failed.
var errAllFailed = errors.New("no address answers")

// explain adds the reasons of the addresses to an error that ended the wait.
func (t *attempts) explain(err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	var dial *kafka.DialError
	switch {
	case len(t.errs) == 0 || errors.As(err, &dial):
		return err
	case errors.Is(err, errAllFailed):
		return errors.Join(t.errs...)
	}
	return errors.Join(append([]error{err}, t.errs...)...)
}

// clusterConfig is the library's form of the settings.
func (a *app) clusterConfig(s *settings) (cluster.Config, error) {
	tlsConfig, err := s.security.tlsConfig()
	if err != nil {
		return cluster.Config{}, err
	}
	a.security = s.security
	cfg := cluster.Config{
		Bootstrap: s.bootstrap, BootstrapControllers: s.controllers, ClientID: s.clientID,
		TLS: tlsConfig, SASL: s.security.mechanisms(),
		DialTimeout: s.dialTimeout, RequestTimeout: s.requestTimeout, IdleTimeout: s.idleTimeout,
		RetryTimeout: max(a.shared.timeout, s.requestTimeout),
		RetryBackoff: s.retry.first, RetryBackoffMax: s.retry.longest, ReconnectBackoff: s.reconnectBackoff,
		MetadataMaxAge: s.metadataMaxAge, NoTopicCreation: true, MaxVersions: a.maxVersions,
	}
	if s.retry.first > 0 && s.retry.longest == 0 {
		cfg.RetryBackoffMax = max(s.retry.first, time.Second)
	}
	if a.shared.verbose > 0 {
		level := slog.LevelWarn
		if a.shared.verbose > 1 {
			level = slog.LevelDebug
			cfg.Journal = a.journal
		}
		cfg.Logger = slog.New(slog.NewTextHandler(a.notes.w, &slog.HandlerOptions{Level: level}))
	}
	return cfg, nil
}

// changing is the context of a change: it goes on after the first signal, for
// --timeout.
func (a *app) changing() (context.Context, context.CancelFunc) {
	return context.WithTimeout(a.work, a.shared.timeout)
}

// producerConfig is the library's form of the settings; codec is that of -z.
func (s *settings) producerConfig(codec string) (producer.Config, error) {
	p := s.producer
	if codec != "" {
		if err := p.setCodec(codec); err != nil {
			return producer.Config{}, usagef("-z %v", err)
		}
	}
	cfg := producer.Config{
		Linger: p.linger, BatchBytes: p.batchSize, RequestBytes: p.maxRequestSize, BufferBytes: p.bufferMemory,
		DeliveryTimeout: p.deliveryTimeout, TransactionTimeout: p.transactionTimeout,
		RequestTimeout: s.requestTimeout, BrokerRequests: p.inFlight,
		RetryBackoff: s.retry.first, MaxBackoff: s.retry.longest,
	}
	if p.lingerSet && p.linger == 0 {
		cfg.Linger = producer.NoLinger
	}
	if s.retry.first > 0 && s.retry.longest == 0 {
		cfg.MaxBackoff = max(s.retry.first, time.Second)
	}
	if p.codecSet {
		cfg.Compression = map[compress.Codec]producer.Compression{
			compress.None: producer.Uncompressed, compress.Gzip: producer.Gzip, compress.Snappy: producer.Snappy,
			compress.LZ4: producer.LZ4, compress.Zstd: producer.Zstd,
		}[p.codec]
	}
	return cfg, nil
}

// consumerConfig is the library's form of the settings; isolation is that of
// --isolation. committed says whether open and aborted transactions are left
// out.
func (s *settings) consumerConfig(isolation string) (cfg consumer.Config, committed bool, err error) {
	k := s.consumer
	committed = !k.uncommitted
	if isolation != "" {
		committed = isolation == "committed"
	}
	cfg = consumer.Config{
		MaxWait: k.maxWait, MinBytes: k.minBytes, MaxBytes: k.maxBytes, PartitionMaxBytes: k.maxPartitionBytes,
		Reset: consumer.ResetFail,
	}
	if !committed {
		cfg.Isolation = consumer.ReadUncommitted
	}
	switch k.reset {
	case "earliest":
		cfg.Reset = consumer.ResetEarliest
	case "latest":
		cfg.Reset = consumer.ResetLatest
	}
	return cfg, committed, nil
}
