package streams

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
)

// LeaveMode says how a member leaves its group.
type LeaveMode uint8

const (
	LeaveAuto        LeaveMode = iota // LeaveGroup for dynamic members, LeaveTemporarily for static ones
	LeaveGroup                        // for good: the tasks move at once
	LeaveTemporarily                  // static members only: the tasks wait for it until its session ends
	Remain                            // nothing is sent: the session ends by itself
)

// String is the mode in words.
func (l LeaveMode) String() string {
	if int(l) < 4 {
		return [...]string{"auto", "leave group", "leave temporarily", "remain"}[l]
	}
	return "unknown"
}

// Endpoint is where other members of the application reach this one
// (application.server).
type Endpoint struct {
	Host string
	Port uint16
}

// Config is what a [Machine] is made with: see streams.Config for the meaning of
// the fields. [Config.Check] refuses what makes no sense; every field has its
// final value.
type Config struct {
	Group      string
	Topology   Topology // canonical
	MemberID   string
	InstanceID string
	ProcessID  string
	RackID     string
	Endpoint   *Endpoint
	Tags       map[string]string

	RebalanceTimeout time.Duration
	PollInterval     time.Duration // 0 = not watched
	MissingSources   time.Duration // < 0 = for ever
	SessionTimeout   time.Duration
	MaxRetries       int
	Backoff          retry.Backoff
	OnLeave          LeaveMode
	Offsets          map[TaskID]int64
	Describes        bool // a description of the topology can be pushed
}

// Check joins a [*ConfigError] for each thing that is wrong, the topology
// included.
func (c Config) Check() error {
	k := checker{}
	if blank(c.Group) {
		k.refuse("Group", "is empty")
	} else {
		k.text("Group", c.Group)
	}
	k.topology(c.Topology)
	k.optional("MemberID", c.MemberID)
	k.optional("InstanceID", c.InstanceID)
	k.optional("ProcessID", c.ProcessID)
	k.optional("RackID", c.RackID)
	if c.Endpoint != nil {
		k.text("Endpoint.Host", c.Endpoint.Host)
		if c.Endpoint.Port == 0 {
			k.refuse("Endpoint.Port", "is 0")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(c.Tags)) {
		k.text("Tags", key)
		if len(c.Tags[key]) > maxString {
			k.refuse("Tags", "%s has %d bytes, brokers read %d", key, len(c.Tags[key]), maxString)
		}
	}
	k.times(c)
	if c.OnLeave > Remain {
		k.refuse("OnLeave", "is unknown: %d", c.OnLeave)
	}
	if c.OnLeave == LeaveTemporarily && c.InstanceID == "" {
		k.refuse("OnLeave", "is LeaveTemporarily without an InstanceID")
	}
	k.offsets("Offsets", c.Offsets)
	return errors.Join(k.errs...)
}

func (k *checker) times(c Config) {
	if c.RebalanceTimeout < 0 || c.RebalanceTimeout > math.MaxInt32*time.Millisecond ||
		c.RebalanceTimeout > 0 && c.RebalanceTimeout < time.Millisecond {
		k.refuse("RebalanceTimeout", "must be positive and at most %v: %v", math.MaxInt32*time.Millisecond, c.RebalanceTimeout)
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{
		{"PollInterval", c.PollInterval}, {"SessionTimeout", c.SessionTimeout},
		{"MinBackoff", c.Backoff.Base}, {"MaxBackoff", c.Backoff.Cap},
	} {
		if d.value < 0 {
			k.refuse(d.field, "is negative: %v", d.value)
		}
	}
	if c.Backoff.Cap > 0 && c.Backoff.Cap < c.Backoff.Base {
		k.refuse("MaxBackoff", "is below MinBackoff: %v < %v", c.Backoff.Cap, c.Backoff.Base)
	}
}

func (k *checker) offsets(field string, m map[TaskID]int64) {
	for _, id := range slices.SortedFunc(maps.Keys(m), TaskID.Compare) {
		if err := id.check(); err != nil {
			k.refuse(field, "%s", fmt.Sprintf("has a task that makes no sense: %q %d", id.Subtopology, id.Partition))
		}
	}
}

// clone shares nothing with c.
func (c Config) clone() Config {
	c.Tags, c.Offsets = maps.Clone(c.Tags), maps.Clone(c.Offsets)
	if c.Endpoint != nil {
		e := *c.Endpoint
		c.Endpoint = &e
	}
	return c
}
