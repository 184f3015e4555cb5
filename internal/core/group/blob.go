package group

import (
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// NoGeneration is the generation of who was in no group.
const NoGeneration = kafka.NoGeneration

// Subscription is what a member tells the leader about itself in JoinGroup.
type Subscription struct {
	Topics     []string
	UserData   []byte
	Owned      []kafka.TopicPartition
	Generation int32  // in which Owned was given, NoGeneration if not told
	Rack       string // empty if none
}

// blobVersion is what is written; a reader knows higher ones by their prefix.
const blobVersion = 3

var (
	errCut     = errors.New("ottla: group: the bytes end too early")
	errVersion = errors.New("ottla: group: a negative version")
)

// Append appends the subscription as bytes of version 3.
func (s *Subscription) Append(dst []byte) []byte {
	m := kmsg.NewConsumerMemberMetadata()
	m.Version = blobVersion
	m.Topics = sorted(s.Topics)
	m.UserData = s.UserData
	m.Generation = s.Generation
	if s.Rack != "" {
		m.Rack = &s.Rack
	}
	for topic, ps := range byTopic(s.Owned) {
		m.OwnedPartitions = append(m.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: topic, Partitions: ps})
	}
	return m.AppendTo(dst)
}

// ParseSubscription reads a subscription of any version. The result does not
// alias the bytes.
func ParseSubscription(b []byte) (Subscription, error) {
	s := Subscription{Generation: NoGeneration}
	if err := checkBlob("subscription", b); err != nil {
		return s, err
	}
	m := kmsg.NewConsumerMemberMetadata()
	if err := m.ReadFrom(b); err != nil {
		return s, fmt.Errorf("ottla: group: subscription: %w", err)
	}
	s.Topics, s.UserData, s.Generation = m.Topics, m.UserData, m.Generation
	if m.Rack != nil {
		s.Rack = *m.Rack
	}
	for _, t := range m.OwnedPartitions {
		s.Owned = appendPartitions(s.Owned, t.Topic, t.Partitions)
	}
	return s, nil
}

// AppendAssignment appends the partitions of a member as bytes of version 3.
func AppendAssignment(dst []byte, tps []kafka.TopicPartition) []byte {
	m := kmsg.NewConsumerMemberAssignment()
	m.Version = blobVersion
	for topic, ps := range byTopic(tps) {
		m.Topics = append(m.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: topic, Partitions: ps})
	}
	return m.AppendTo(dst)
}

// ParseAssignment reads the partitions that a leader gave a member. No bytes
// at all are no partitions, as brokers send them to who is not in a plan.
func ParseAssignment(b []byte) ([]kafka.TopicPartition, error) {
	if len(b) == 0 {
		return nil, nil
	}
	if err := checkBlob("assignment", b); err != nil {
		return nil, err
	}
	m := kmsg.NewConsumerMemberAssignment()
	if err := m.ReadFrom(b); err != nil {
		return nil, fmt.Errorf("ottla: group: assignment: %w", err)
	}
	var tps []kafka.TopicPartition
	for _, t := range m.Topics {
		tps = appendPartitions(tps, t.Topic, t.Partitions)
	}
	return tps, nil
}

// checkBlob looks at the version in front.
func checkBlob(what string, b []byte) error {
	switch {
	case len(b) < 2:
		return fmt.Errorf("%w: %s", errCut, what)
	case b[0]&0x80 != 0:
		return fmt.Errorf("%w: %s", errVersion, what)
	}
	return nil
}

// stickyData is the user data of the assignors sticky and cooperative-sticky,
// from which leaders before version 2 of the subscription read what is owned.
func stickyData(assignor string, owned []kafka.TopicPartition, generation int32) []byte {
	switch assignor {
	case CooperativeSticky:
		return kmsgInt32(generation)
	case Sticky:
		if generation < 0 {
			return nil
		}
		m := kmsg.NewStickyMemberMetadata()
		m.Generation = generation
		for topic, ps := range byTopic(owned) {
			m.CurrentAssignment = append(m.CurrentAssignment, kmsg.StickyMemberMetadataCurrentAssignment{Topic: topic, Partitions: ps})
		}
		return m.AppendTo(nil)
	}
	return nil
}

func kmsgInt32(v int32) []byte {
	return []byte{byte(v >> 24), byte(v >> 16), byte(v >> 8), byte(v)}
}

// claim is what a member says to own, and as of when, for an assignor that
// minds. Older members say it in their user data.
func (s *Subscription) claim(assignor string) (owned []kafka.TopicPartition, generation int32) {
	owned, generation = s.Owned, s.Generation
	if generation >= 0 || len(s.UserData) == 0 {
		return owned, generation
	}
	switch assignor {
	case CooperativeSticky:
		if d := s.UserData; len(d) >= 4 {
			generation = int32(d[0])<<24 | int32(d[1])<<16 | int32(d[2])<<8 | int32(d[3])
		}
	case Sticky:
		m := kmsg.NewStickyMemberMetadata()
		if m.ReadFrom(s.UserData) != nil {
			return owned, generation
		}
		owned, generation = nil, m.Generation
		for _, t := range m.CurrentAssignment {
			owned = appendPartitions(owned, t.Topic, t.Partitions)
		}
	}
	return owned, max(generation, NoGeneration)
}

func sorted(names []string) []string {
	names = slices.Clone(names)
	slices.Sort(names)
	return names
}

// byTopic ranges over partitions by topic, in order, each in order.
func byTopic(tps []kafka.TopicPartition) func(yield func(string, []int32) bool) {
	tps = slices.Clone(tps)
	slices.SortFunc(tps, kafka.TopicPartition.Compare)
	return func(yield func(string, []int32) bool) {
		for len(tps) > 0 {
			n := 1
			for n < len(tps) && tps[n].Topic == tps[0].Topic {
				n++
			}
			ps := make([]int32, n)
			for i, tp := range tps[:n] {
				ps[i] = tp.Partition
			}
			if !yield(tps[0].Topic, ps) {
				return
			}
			tps = tps[n:]
		}
	}
}

func appendPartitions(tps []kafka.TopicPartition, topic string, ps []int32) []kafka.TopicPartition {
	for _, p := range ps {
		tps = append(tps, kafka.TopicPartition{Topic: topic, Partition: p})
	}
	return tps
}
