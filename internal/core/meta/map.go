package meta

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// Config is what a [Map] is made with. Every field must be set.
type Config struct {
	MaxAge      time.Duration // metadata.max.age.ms: a topic this old is stale
	Patience    time.Duration // how long "unknown topic" is taken for "not yet"
	Rebootstrap time.Duration // without any answer for this long, start again from the bootstrap addresses (KIP-899)
	Create      bool          // allow.auto.create.topics
	Retry       retry.Backoff // between refreshes that no broker answers
}

// Pacing of forced refreshes, of one topic and of all together.
const (
	paceMin   = 100 * time.Millisecond
	paceMax   = time.Second
	paceQuiet = 5 * time.Second // a topic whose patience is over, or that nobody waits for
	paceReset = 10 * time.Second
)

// maxPartitions bounds what a partition id in an answer can make the map
// reserve.
const maxPartitions = 1 << 20

// Map is the machine behind the cluster's metadata. Feed it wants (Want,
// InvalidateLeader, …) and the outcomes of the refreshes that Next asks for
// (OnAnswer, OnFailure); read it with Snapshot and TakeEvents.
type Map struct {
	cfg Config
	rng *rand.Rand

	clusterID  string
	controller kafka.NodeID
	brokers    map[kafka.NodeID]kafka.Broker
	topics     map[string]*topicState
	names      map[kafka.TopicID]string
	events     eventLog
	snap       *Snapshot // nil after a change

	pace schedule
}

// topicState is one topic of the map.
type topicState struct {
	topic   *Topic // nil until described
	err     error
	missing time.Time
	failed  bool // kafka.TopicFailed was told for this spell
	tracked bool // refreshed ahead of its age until forgotten

	want  *want
	last  time.Time     // when a refresh of it last went out
	delay time.Duration // the pace of its next forced refresh

	oldIDs []kafka.TopicID    // ids of topics that had the name before
	lower  map[int32]*suspect // partitions whose epoch stays lower (K12)
	fewer  *suspect           // fewer partitions than known, on brokers without ids
}

// want is a refresh that a topic waits for.
type want struct {
	forced bool
	create bool
	user   bool // somebody waits for it
}

// NewMap returns a map that knows nothing, as of now.
func NewMap(cfg Config, rng *rand.Rand, now time.Time) *Map {
	return &Map{
		cfg: cfg, rng: rng, controller: kafka.NoNode, pace: schedule{lastAnswer: now},
		brokers: make(map[kafka.NodeID]kafka.Broker),
		topics:  make(map[string]*topicState),
		names:   make(map[kafka.TopicID]string),
	}
}

// TakeEvents hands out the changes since the last call, in order.
func (m *Map) TakeEvents() []Event {
	es := m.events
	m.events = nil
	return es
}

// Snapshot is the map as it is now. Calls without a change in between return
// the same one.
func (m *Map) Snapshot() *Snapshot {
	if m.snap != nil {
		return m.snap
	}
	s := &Snapshot{
		ClusterID: m.clusterID, Controller: m.controller,
		Brokers: make([]kafka.Broker, 0, len(m.brokers)),
		Topics:  make(map[string]Entry, len(m.topics)),
		Names:   make(map[kafka.TopicID]string, len(m.names)),
	}
	for _, b := range m.brokers {
		s.Brokers = append(s.Brokers, b)
	}
	slices.SortFunc(s.Brokers, func(a, b kafka.Broker) int { return int(a.ID) - int(b.ID) })
	for name, t := range m.topics {
		s.Topics[name] = Entry{Topic: t.topic, Err: t.err, Missing: t.missing, Tracked: t.tracked}
	}
	for id, name := range m.names {
		s.Names[id] = name
	}
	m.snap = s
	return s
}

// sortedTopics are the names of all topics of the map.
func (m *Map) sortedTopics() []string {
	names := make([]string, 0, len(m.topics))
	for name := range m.topics {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

func (m *Map) topic(name string) *topicState {
	t := m.topics[name]
	if t == nil {
		t = &topicState{}
		m.topics[name] = t
	}
	return t
}

// ForgetTopic drops everything that is known of a topic. A refresh of it that
// somebody waits for still goes out, at its pace.
func (m *Map) ForgetTopic(name string) {
	t := m.topics[name]
	if t == nil {
		return
	}
	if t.topic != nil {
		delete(m.names, t.topic.ID)
	}
	delete(m.topics, name)
	if t.want != nil && t.want.user {
		m.topics[name] = &topicState{want: t.want, last: t.last, delay: t.delay}
	}
	m.snap = nil
}

// InvalidateLeader forgets the leader of one partition, keeps its epoch, and
// wants the topic refreshed. It reports false if the partition is unknown or
// has no leader to forget, or if broker is not kafka.NoNode and no longer the
// leader that failed.
func (m *Map) InvalidateLeader(tp kafka.TopicPartition, broker kafka.NodeID) bool {
	t := m.topics[tp.Topic]
	if t == nil || t.topic == nil || tp.Partition < 0 || int(tp.Partition) >= len(t.topic.Partitions) {
		return false
	}
	p := t.topic.Partitions[tp.Partition]
	if broker != kafka.NoNode && p.Leader != broker {
		return false
	}
	t.force()
	if p.Leader == kafka.NoNode {
		return false
	}
	p.Leader = kafka.NoNode
	t.topic = with(t.topic, tp.Partition, p)
	m.snap = nil
	return true
}

// DoubtLeader wants a topic refreshed if broker is still the leader of the
// partition, and keeps the leader until an answer names another.
func (m *Map) DoubtLeader(tp kafka.TopicPartition, broker kafka.NodeID) {
	t := m.topics[tp.Topic]
	if t == nil || t.topic == nil || tp.Partition < 0 || int(tp.Partition) >= len(t.topic.Partitions) {
		return
	}
	if t.topic.Partitions[tp.Partition].Leader == broker {
		t.force()
	}
}

// with is the topic with one partition replaced.
func with(t *Topic, id int32, p Partition) *Topic {
	c := *t
	c.Partitions = slices.Clone(t.Partitions)
	c.Partitions[id] = p
	return &c
}

// InvalidateController forgets the controller if it is still id, and wants a
// cluster refresh.
func (m *Map) InvalidateController(id kafka.NodeID) bool {
	if m.controller != id || id == kafka.NoNode {
		return false
	}
	m.controller = kafka.NoNode
	m.pace.clusterWant = true
	m.snap = nil
	return true
}

// OnHint takes a new leader that a broker named in its answer to another
// request (KIP-951). It is taken only with an epoch above the known one, and
// only if endpoints or the map tell where the leader is; then the endpoints
// are merged, and no other broker is touched.
func (m *Map) OnHint(tp kafka.TopicPartition, leader kafka.NodeID, epoch kafka.LeaderEpoch, endpoints []kafka.Broker) bool {
	if !m.Snapshot().TakesHint(tp, leader, epoch, endpoints) {
		return false
	}
	t := m.topics[tp.Topic]
	for _, b := range endpoints {
		if reachable(b) {
			m.setBroker(b)
		}
	}
	before := t.topic
	t.topic = with(before, tp.Partition, Partition{Leader: leader, Epoch: epoch})
	m.events.leaders(m.brokers, before, t.topic)
	m.snap = nil
	return true
}

// setBroker adds or replaces a broker and tells of it.
func (m *Map) setBroker(b kafka.Broker) {
	old, ok := m.brokers[b.ID]
	if ok && old == b {
		return
	}
	m.brokers[b.ID] = b
	m.events.add(Event{Kind: kafka.BrokerAdded, Broker: b})
	m.snap = nil
}

// Rebootstrap drops all that was learned of brokers, leaders and the
// controller; partition counts stay. Every tracked topic is wanted again.
func (m *Map) Rebootstrap(now time.Time, cause error) {
	for _, b := range m.Snapshot().Brokers {
		m.drop(b)
	}
	m.controller = kafka.NoNode
	m.pace.clusterWant = true
	m.pace.lastAnswer = now
	m.pace.sources = nil
	m.events.add(Event{Kind: kafka.Rebootstrapped, Err: cause})
	m.snap = nil
}
