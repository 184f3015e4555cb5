package kafka

import "time"

// Topic is what a client knows of a topic. It never changes: a refresh of the
// client makes a new one.
type Topic struct {
	Name       string
	ID         TopicID     // zero on brokers without topic ids (before 2.8)
	Internal   bool        // such as __consumer_offsets
	Partitions []Partition // the index is the partition id; read only
	Updated    time.Time   // when a broker last described the topic
}

// Partition is what a client knows of one partition of a [Topic].
type Partition struct {
	Leader NodeID      // NoNode while no leader is known
	Epoch  LeaderEpoch // the highest one seen, NoEpoch if none
	Err    error       // why there is no leader, if a broker said so
}

// Count is the topic's number of partitions, whether they have a leader or
// not; 0 for a nil topic.
func (t *Topic) Count() int32 {
	if t == nil {
		return 0
	}
	return int32(len(t.Partitions))
}

// IsStale reports whether the topic is nil, never described, or last described
// at least maxAge before now.
func (t *Topic) IsStale(now time.Time, maxAge time.Duration) bool {
	return t == nil || now.Sub(t.Updated) >= maxAge
}

// Growth is a topic's number of partitions before and after a refresh. It is
// zero when nothing grew: fewer, as many, or a topic never seen before.
type Growth struct {
	Topic  string
	Before int32
	After  int32
	Grew   bool
}

// CoordinatorKind is Kafka's coordinator type in FindCoordinator.
type CoordinatorKind int8

const (
	GroupCoordinator       CoordinatorKind = 0 // by group id
	TransactionCoordinator CoordinatorKind = 1 // by transactional id
	ShareCoordinator       CoordinatorKind = 2 // by "group:topic id:partition" (KIP-932)
)

// String is the kind in one word.
func (k CoordinatorKind) String() string {
	switch k {
	case GroupCoordinator:
		return "group"
	case TransactionCoordinator:
		return "transaction"
	case ShareCoordinator:
		return "share"
	}
	return "unknown"
}
