package leader

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/kafka"
)

// Topic is the topic that every member of every language uses. It is created
// on first use.
const Topic = "__coordination_state"

// Kafka is what the package needs of a client. A *cluster.Cluster (*ottla.Client)
// is one; for other clients an adapter of a few lines is enough.
type Kafka interface {
	// Request sends a request to a broker that its kind is for: any one, or
	// the controller for CreateTopics.
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	// RequestBroker sends a request to one broker, at a version of at most
	// maxVersion (-1 is no bound), and does not repeat it on its own once it
	// may have been read, unless the broker recognises a repetition. Errors
	// that say MayHaveHappened() bool are believed (see kafka.MayHaveHappened).
	RequestBroker(ctx context.Context, id kafka.NodeID, req kmsg.Request, maxVersion int16) (kmsg.Response, error)
}

// Config says how a process takes part. The zero value is a safe default for
// every field; Open copies and checks it.
type Config struct {
	// Member is the id of this process among the candidates, 1 to 249 bytes of
	// UTF-8. Empty = a new one for each Elector, which is what to use: a
	// restarted process is a new candidate.
	Member string

	Lease      time.Duration // how long a lease lasts without renewal; 0 = 30 s
	Renew      time.Duration // from one renewal to the next, best a third of Lease; 0 = 10 s, with another Lease a third of it
	Stagger    time.Duration // between the challenges of two standbys; 0 = 5 s, with another Lease a sixth of it
	StopMargin time.Duration // leading stops so long before the lease ends; 0 = a sixth of Lease, negative = none
	MaxSkew    time.Duration // how far clocks of two machines may be apart, for a newcomer's first wait; 0 = 5 s, negative = none

	// Delay is how much longer than others this process waits before it
	// challenges; its priority.
	Delay time.Duration
	// FenceSet names further transactional ids that a new leader takes over
	// before it leads, so that producers of theirs under earlier leaders are
	// fenced (see Term.Fenced). They must be the same in every candidate.
	FenceSet []string
	// TakeOver lets a process take a live lease that carries its own member id
	// but is not its own. By default it waits for the lease to end, and gives
	// up with ErrDuplicateMember if the lease is renewed.
	TakeOver bool
	// RosterTTL leaves candidates that registered longer ago out of this
	// process's rank; 0 = never. Needs Reregister in every candidate, at less
	// than half of it.
	RosterTTL  time.Duration
	Reregister time.Duration // how often a standby registers anew; 0 = never

	// Address is told to observers, for people.
	Address string

	// The topic is created with these; what exists is taken as it is.
	Partitions  int32 // 0 = 16
	Replication int16 // 0 = 3

	// AllowUnverified leads on brokers that do not verify transactions when
	// they append (transaction.partition.verification.enable, Kafka 3.6): there
	// a deposed leader's records may be committed by its successor.
	AllowUnverified bool
	// AllowNewTopic leads although the topic is new and the role was led
	// before: terms then begin again below the earlier ones.
	AllowNewTopic bool

	RequestTimeout time.Duration // of one request; 0 = 30 s
	FetchWait      time.Duration // of the long poll that follows a partition; 0 = 500 ms

	OnEvent func(Event)  // called one after the other, on a goroutine for it; nil = none
	Logger  *slog.Logger // nil = silent

	// now reads both clocks; nil = the system's.
	now func() lead.Now
}

// look is how often leaders look at the clock, beside their timers: a tenth of the
// stop margin, within bounds.
func (c *Config) look() time.Duration {
	return min(max(c.StopMargin/10, 100*time.Millisecond), time.Second)
}

// withDefaults fills in and checks a copy.
func (c Config) withDefaults() (Config, error) {
	if c.Member == "" {
		c.Member = "ottla-" + hex.EncodeToString(random(8))
	}
	fill(&c.Renew, c.Lease/3, 10*time.Second)
	fill(&c.Stagger, c.Lease/6, 5*time.Second)
	fill(&c.Lease, 0, 30*time.Second)
	fill(&c.StopMargin, c.Lease/6, 0)
	fill(&c.MaxSkew, 0, 5*time.Second)
	fill(&c.RequestTimeout, 0, 30*time.Second)
	fill(&c.FetchWait, 0, 500*time.Millisecond)
	c.StopMargin, c.MaxSkew = max(c.StopMargin, 0), max(c.MaxSkew, 0)
	c.Partitions, c.Replication = cmp.Or(c.Partitions, 16), cmp.Or(c.Replication, 3)
	c.FenceSet = slices.Clone(c.FenceSet)
	if c.now == nil {
		c.now = systemClock()
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, c.check()
}

func fill(d *time.Duration, derived, value time.Duration) {
	if *d == 0 {
		*d = cmp.Or(derived, value)
	}
}

func (c *Config) check() error {
	if err := lead.CheckMember(c.Member); err != nil {
		return invalid("%v", err)
	}
	if err := c.timing().Check(); err != nil {
		return invalid("%v", err)
	}
	for _, d := range []time.Duration{c.RequestTimeout, c.FetchWait, c.Delay, c.RosterTTL, c.Reregister} {
		if d < 0 || d > math.MaxInt32*time.Millisecond {
			return invalid("a duration of %v is not between 0 and %v", d, math.MaxInt32*time.Millisecond)
		}
	}
	if c.FetchWait < time.Millisecond {
		return invalid("fetch wait %v is below a millisecond", c.FetchWait)
	}
	if c.RosterTTL > 0 && (c.Reregister == 0 || c.Reregister > c.RosterTTL/2) {
		return invalid("with a roster TTL of %v candidates must register anew at less than half of it, not every %v", c.RosterTTL, c.Reregister)
	}
	if c.Partitions < 1 || c.Replication < 1 {
		return invalid("%d partitions with %d replicas cannot be created", c.Partitions, c.Replication)
	}
	for i, id := range c.FenceSet {
		if id == "" || slices.Contains(c.FenceSet[:i], id) {
			return invalid("the fence set names %q twice, or not at all", id)
		}
	}
	return nil
}

func (c *Config) timing() lead.Timing {
	return lead.Timing{Lease: c.Lease, Renew: c.Renew, Stagger: c.Stagger, Margin: c.StopMargin, Skew: c.MaxSkew}
}

// transactionTimeout is the lease, within what brokers take by default
// (transaction.max.timeout.ms).
func (c *Config) transactionTimeout() int32 {
	return int32(min(max(c.Lease, 2*time.Second), 15*time.Minute).Milliseconds())
}

func invalid(format string, args ...any) error {
	return &Error{Kind: ErrInvalidConfig, Err: fmt.Errorf(format, args...)}
}

// random are n bytes that no other process has.
func random(n int) []byte {
	b := make([]byte, n)
	rand.Read(b) //nolint:errcheck // it never fails
	return b
}
