package streams

import (
	"crypto/rand"
	"encoding/hex"
	"io"
	"log/slog"
	"maps"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
	core "github.com/ottla/ottla/internal/core/streams"
)

// Config describes a member. Group and Topology are needed; the zero value of
// every other field is a safe default. [Join] copies and checks it.
type Config struct {
	Group    string   // application.id
	Topology Topology // all members of the group have the same one

	MemberID   string            // "" = a new UUID; one that was kept rejoins as the same member
	InstanceID string            // group.instance.id, each member its own; "" = a dynamic member; Kafka 4.4
	ProcessID  string            // "" = one UUID for each OS process; keep it beside stored state
	RackID     string            // client.rack; "" = not sent
	Endpoint   *Endpoint         // application.server; nil = none
	Tags       map[string]string // client.tag.*

	RebalanceTimeout time.Duration // how long an acknowledgement may take; 0 = 5 min
	PollInterval     time.Duration // max.poll.interval.ms, fed by Touch; 0 = not watched
	MissingSources   time.Duration // how long source topics may be missing; 0 = RebalanceTimeout; negative = for ever
	SessionTimeout   time.Duration // bounds single requests, and retries while the group is full or the instance id in use; 0 = 45 s

	MaxRetries int           // of Join and Heartbeat; 0 = 5; negative = none
	MinBackoff time.Duration // between retries, doubled each time; 0 = 50 ms
	MaxBackoff time.Duration // 0 = 1 s

	OnLeave     LeaveMode                  // 0 = for good for dynamic members, temporarily for static ones
	Offsets     map[TaskID]int64           // of tasks whose state lies on disk here, for the join; Kafka 4.4
	Description func() TopologyDescription // asked for if the broker wants to keep one (KIP-1331), on a goroutine of its own; nil = never
	Logger      *slog.Logger               // nil = silent
	Trace       *Trace                     // nil = none
	Rand        io.Reader                  // of ids and jitter; nil = crypto/rand
}

// Defaults of the zero values of Config.
const (
	defaultRebalanceTimeout = 5 * time.Minute
	defaultSessionTimeout   = 45 * time.Second
	defaultMaxRetries       = 5
	defaultMinBackoff       = 50 * time.Millisecond
	defaultMaxBackoff       = time.Second
)

// processID is the same for all members of this OS process: the assignor
// balances processes, and gives none two roles of one task.
var processID = newUUID(rand.Reader)

// Validate joins a [*ConfigError] for each field that makes no sense. It needs no
// connection; [Join] calls it first.
func (c Config) Validate() error { return c.machine().Check() }

// withDefaults is a copy with every field final.
func (c Config) withDefaults() Config {
	c.Tags, c.Offsets = maps.Clone(c.Tags), maps.Clone(c.Offsets)
	if c.Endpoint != nil {
		e := *c.Endpoint
		c.Endpoint = &e
	}
	if c.Rand == nil {
		c.Rand = rand.Reader
	}
	if c.MemberID == "" {
		c.MemberID = newUUID(c.Rand)
	}
	if c.ProcessID == "" {
		c.ProcessID = processID
	}
	setDefault(&c.RebalanceTimeout, defaultRebalanceTimeout)
	setDefault(&c.MissingSources, c.RebalanceTimeout)
	setDefault(&c.SessionTimeout, defaultSessionTimeout)
	setDefault(&c.MinBackoff, defaultMinBackoff)
	setDefault(&c.MaxBackoff, max(defaultMaxBackoff, c.MinBackoff))
	switch {
	case c.MaxRetries == 0:
		c.MaxRetries = defaultMaxRetries
	case c.MaxRetries < 0:
		c.MaxRetries = 0
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func setDefault(d *time.Duration, def time.Duration) {
	if *d == 0 {
		*d = def
	}
}

// machine is the part of the configuration that rules need.
func (c Config) machine() core.Config {
	return core.Config{
		Group: c.Group, Topology: c.Topology, MemberID: c.MemberID, InstanceID: c.InstanceID, ProcessID: c.ProcessID,
		RackID: c.RackID, Endpoint: c.Endpoint, Tags: c.Tags, RebalanceTimeout: c.RebalanceTimeout,
		PollInterval: c.PollInterval, MissingSources: c.MissingSources, SessionTimeout: c.SessionTimeout,
		MaxRetries: c.MaxRetries, Backoff: retry.Backoff{Base: c.MinBackoff, Cap: c.MaxBackoff},
		OnLeave: c.OnLeave, Offsets: c.Offsets, Describes: c.Description != nil,
	}
}

// newUUID is a version-4 UUID, in lower case.
func newUUID(r io.Reader) string {
	var b [16]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		_, _ = rand.Read(b[:]) // never fails
	}
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	h := hex.EncodeToString(b[:])
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}
