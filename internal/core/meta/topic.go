package meta

import (
	"slices"
	"time"

	"github.com/ottla/ottla/kafka"
)

// Topic and Partition are the nouns that the map is made of.
type (
	Topic     = kafka.Topic
	Partition = kafka.Partition
	Growth    = kafka.Growth
)

// Entry is a topic of a snapshot, with what brokers last said against it.
type Entry struct {
	Topic   *Topic    // nil if no broker has described it yet
	Err     error     // the code of the last answer, nil after a good one
	Missing time.Time // since when the topic is "not yet" there; zero if it is not missing
	Tracked bool      // it is kept fresh
}

// Snapshot is the cluster at one moment. It is immutable.
type Snapshot struct {
	ClusterID  string
	Controller kafka.NodeID             // kafka.NoNode if unknown
	Brokers    []kafka.Broker           // in order of their ids
	Topics     map[string]Entry         // by name
	Names      map[kafka.TopicID]string // topic names by id
}

// Broker finds a broker by its id.
func (s *Snapshot) Broker(id kafka.NodeID) (kafka.Broker, bool) {
	lo, hi := 0, len(s.Brokers)
	for lo < hi {
		mid := (lo + hi) / 2
		if s.Brokers[mid].ID < id {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo < len(s.Brokers) && s.Brokers[lo].ID == id {
		return s.Brokers[lo], true
	}
	return kafka.Broker{ID: id}, false
}

// Foreign reports whether a cluster id is that of another cluster. An unknown
// id is not.
func (s *Snapshot) Foreign(clusterID *string) bool {
	return s.ClusterID != "" && clusterID != nil && *clusterID != s.ClusterID
}

// Leader is the known leader of a partition, of any age.
func (s *Snapshot) Leader(tp kafka.TopicPartition) (kafka.Broker, kafka.LeaderEpoch, bool) {
	t := s.Topics[tp.Topic].Topic
	if t == nil || tp.Partition < 0 || int(tp.Partition) >= len(t.Partitions) {
		return kafka.Broker{ID: kafka.NoNode}, kafka.NoEpoch, false
	}
	p := t.Partitions[tp.Partition]
	b, ok := s.Broker(p.Leader)
	return b, p.Epoch, ok && p.Leader >= 0
}

// TakesHint reports whether a leader that a broker names in passing is news
// that can be used: a higher epoch, and an address.
func (s *Snapshot) TakesHint(tp kafka.TopicPartition, leader kafka.NodeID, epoch kafka.LeaderEpoch, endpoints []kafka.Broker) bool {
	t := s.Topics[tp.Topic].Topic
	if t == nil || leader < 0 || tp.Partition < 0 || int(tp.Partition) >= len(t.Partitions) || epoch <= t.Partitions[tp.Partition].Epoch {
		return false
	}
	_, known := s.Broker(leader)
	return known || slices.ContainsFunc(endpoints, func(b kafka.Broker) bool { return b.ID == leader && reachable(b) })
}

// reachable reports whether b has an id and an address.
func reachable(b kafka.Broker) bool { return b.ID >= 0 && b.Host != "" && b.Port > 0 }

// GrowthBetween is the growth from one partition count to another.
func GrowthBetween(topic string, before, after int32) Growth {
	if before <= 0 || after <= before {
		return Growth{}
	}
	return Growth{Topic: topic, Before: before, After: after, Grew: true}
}
