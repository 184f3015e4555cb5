package model

import (
	"crypto/sha256"
	"encoding/binary"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// AnyBroker is the node of a request that nobody refuses for having come to the
// wrong broker.
const AnyBroker kafka.NodeID = -1

// Config is what a [Cluster] starts from. Durations that are zero are Kafka's
// defaults.
type Config struct {
	Brokers            int           // node ids 1 to Brokers; 0 = 1
	TransactionVersion int16         // finalised level of transaction.version
	NoVerification     bool          // transaction.partition.verification.enable=false
	MarkerDelay        time.Duration // most that a marker takes to its partition; 0 = it is there with the answer
	MaxEpoch           int16         // highest producer epoch; 0 = 32767
	BlockSize          int64         // producer ids that a broker draws at a time; 0 = 1000
	MaxTimeout         time.Duration // transaction.max.timeout.ms; 0 = 15 min
	Sweep              time.Duration // how often transactions are looked at for their timeout; 0 = 10 s
	IDExpiration       time.Duration // transactional.id.expiration.ms; 0 = 7 d
	ProducerExpiration time.Duration // producer.id.expiration.ms; 0 = 1 d
	Rand               *rand.Rand    // for the delays of markers; nil = each takes MarkerDelay
}

func (c Config) withDefaults() Config {
	c.Brokers = max(c.Brokers, 1)
	if c.MaxEpoch == 0 {
		c.MaxEpoch = math.MaxInt16
	}
	if c.BlockSize == 0 {
		c.BlockSize = 1000
	}
	setDefault(&c.MaxTimeout, 15*time.Minute)
	setDefault(&c.Sweep, 10*time.Second)
	setDefault(&c.IDExpiration, 7*24*time.Hour)
	setDefault(&c.ProducerExpiration, 24*time.Hour)
	return c
}

func setDefault(d *time.Duration, value time.Duration) {
	if *d == 0 {
		*d = value
	}
}

// Cluster is the state of all brokers. Replicas are not modelled: what is
// appended is on all of them.
type Cluster struct {
	cfg     Config
	level   int16
	now     time.Time // zero before the first request
	coord   *coordinator
	topics  map[string]*topic
	names   map[kafka.TopicID]string
	created int
	groups  map[string]*group
	homes   map[string]kafka.NodeID // coordinators that were moved, by key
	addrs   map[kafka.NodeID]kafka.Broker
}

type topic struct {
	name  string
	id    kafka.TopicID
	parts []*partition
}

// New is a cluster without topics.
func New(cfg Config) *Cluster {
	cfg = cfg.withDefaults()
	c := &Cluster{
		cfg: cfg, level: cfg.TransactionVersion,
		topics: map[string]*topic{}, names: map[kafka.TopicID]string{}, groups: map[string]*group{},
		homes: map[string]kafka.NodeID{}, addrs: map[kafka.NodeID]kafka.Broker{},
	}
	c.coord = &coordinator{
		Cluster: c, txns: map[string]*txn{}, blocks: map[kafka.NodeID]*idBlock{}, held: map[kafka.TopicPartition]bool{},
	}
	return c
}

// SetLevel changes the finalised level of transaction.version.
func (c *Cluster) SetLevel(level int16) { c.level = level }

// Level is the finalised level of transaction.version.
func (c *Cluster) Level() int16 { return c.level }

// SetAddr says where a broker listens, for Metadata and FindCoordinator.
func (c *Cluster) SetAddr(b kafka.Broker) { c.addrs[b.ID] = b }

// CreateTopic makes a topic, or makes it anew under another id. Partition i is
// led by node 1 + i modulo the number of brokers.
func (c *Cluster) CreateTopic(name string, partitions int) {
	c.DeleteTopic(name)
	c.created++
	sum := sha256.Sum256(binary.BigEndian.AppendUint32([]byte(name), uint32(c.created)))
	t := &topic{name: name, id: kafka.TopicID(sum[:16])}
	for i := range partitions {
		tp := kafka.TopicPartition{Topic: name, Partition: int32(i)}
		t.parts = append(t.parts, newPartition(tp, kafka.NodeID(1+i%c.cfg.Brokers)))
	}
	c.topics[name], c.names[t.id] = t, name
}

// DeleteTopic removes a topic if it is there. Its open transactions end
// without it.
func (c *Cluster) DeleteTopic(name string) {
	if t := c.topics[name]; t != nil {
		delete(c.names, t.id)
		delete(c.topics, name)
	}
}

// TopicID is the id of a topic, zero if there is none of that name.
func (c *Cluster) TopicID(name string) kafka.TopicID {
	if t := c.topics[name]; t != nil {
		return t.id
	}
	return kafka.TopicID{}
}

func (c *Cluster) partition(tp kafka.TopicPartition) *partition {
	t := c.topics[tp.Topic]
	if t == nil || tp.Partition < 0 || int(tp.Partition) >= len(t.parts) {
		return nil
	}
	return t.parts[tp.Partition]
}

// MoveLeader gives a partition to another broker.
func (c *Cluster) MoveLeader(tp kafka.TopicPartition, to kafka.NodeID) {
	p := c.partition(tp)
	p.leader = to
	p.leaderEpoch++
}

// Leader is the broker that leads tp.
func (c *Cluster) Leader(tp kafka.TopicPartition) kafka.NodeID { return c.partition(tp).leader }

// Coordinator is the broker that coordinates a group or transactional id.
func (c *Cluster) Coordinator(key string) kafka.NodeID {
	if home, ok := c.homes[key]; ok {
		return home
	}
	h := fnv.New32a()
	h.Write([]byte(key))
	return kafka.NodeID(1 + h.Sum32()%uint32(c.cfg.Brokers))
}

// MoveCoordinator gives a group or transactional id to another broker, which
// reads its state from the log: nothing is lost.
func (c *Cluster) MoveCoordinator(key string, to kafka.NodeID) { c.homes[key] = to }

// HoldMarkers keeps markers from a partition until ReleaseMarkers, as a leader
// does that cannot be reached: transactions with it stay prepared.
func (c *Cluster) HoldMarkers(tp kafka.TopicPartition) { c.coord.held[tp] = true }

// ReleaseMarkers ends HoldMarkers.
func (c *Cluster) ReleaseMarkers(tp kafka.TopicPartition) { delete(c.coord.held, tp) }

// Advance lets everything happen that happens by itself until now.
func (c *Cluster) Advance(now time.Time) {
	if c.now.IsZero() {
		c.now, c.coord.sweep = now, now
	}
	for {
		at := c.Deadline()
		if at.IsZero() || at.After(now) {
			break
		}
		c.now = retry.Later(c.now, at)
		c.coord.step()
	}
	c.now = retry.Later(c.now, now)
}

// Deadline is when the next thing happens by itself; zero is never.
func (c *Cluster) Deadline() time.Time {
	var at time.Time
	for _, t := range c.coord.txns {
		at = retry.Earlier(at, c.coord.markerDue(t))
		if t.state == Ongoing {
			at = retry.Earlier(at, c.coord.timeUp(t))
		}
	}
	return at
}
