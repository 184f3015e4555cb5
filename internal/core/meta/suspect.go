package meta

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// suspect is a step back that answers keep showing: a lower leader epoch, or
// fewer partitions. A broker that is behind shows one for a moment; a topic
// recreated on brokers without topic ids shows it for good.
type suspect struct {
	value   int64
	times   int
	sources []string // the brokers that showed it
}

// again notes one more answer and reports whether the step back is real:
// three answers agree, from different brokers as far as there are several.
// Where brokers are listed that do not answer, ten answers of two brokers do.
func (s *suspect) again(addr string, value int64, brokers int) bool {
	if s.value != value {
		*s = suspect{value: value}
	}
	s.times++
	if !slices.Contains(s.sources, addr) {
		s.sources = append(s.sources, addr)
	}
	return s.times >= suspectAnswers && len(s.sources) >= min(suspectAnswers, brokers) ||
		s.times >= suspectLong && len(s.sources) >= 2
}

const (
	suspectAnswers = 3
	suspectLong    = 10
)

// inDoubt reports whether answers show a step back that is not accepted yet.
func (t *topicState) inDoubt() bool { return len(t.lower) > 0 || t.fewer != nil }

// accepts reports whether a lower leader epoch of a partition is to be
// believed.
func (t *topicState) accepts(addr string, brokers int, partition int32, epoch int64) bool {
	s := t.lower[partition]
	if s == nil {
		s = &suspect{}
		if t.lower == nil {
			t.lower = make(map[int32]*suspect)
		}
		t.lower[partition] = s
	}
	if !s.again(addr, epoch, brokers) {
		return false
	}
	delete(t.lower, partition)
	return true
}

// shrinks reports whether a topic with fewer partitions than before is to be
// believed. Where topics have ids it never is: a smaller topic would have
// another id. A list with holes is a list that is behind.
func (t *topicState) shrinks(addr string, brokers int, old *Topic, rt *kmsg.MetadataResponseTopic, count int) bool {
	if !old.ID.IsZero() || len(rt.Partitions) < count {
		t.fewer = nil
		return false
	}
	if t.fewer == nil {
		t.fewer = &suspect{}
	}
	if !t.fewer.again(addr, int64(count), brokers) {
		return false
	}
	t.fewer = nil
	return true
}

// addrCount is how many different addresses the brokers have.
func addrCount(brokers map[kafka.NodeID]kafka.Broker) int {
	as := make(map[string]bool, len(brokers))
	for _, b := range brokers {
		as[b.Addr()] = true
	}
	return len(as)
}
