package streams

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ottla/ottla/kafka"
)

// Topology is what a group processes: its subtopologies and the topics between
// them. All members of a group must have the same one, see
// [Topology.Canonical].
type Topology struct {
	Epoch         int32 // of the topology; brokers up to 4.4 accept no higher one for a group that has one
	Subtopologies []Subtopology
	// JavaOrder writes copartition groups in the order in which Kafka Streams
	// does, so that Go and Java members can share the group. Their subtopologies
	// have the same integer ids then.
	JavaOrder bool
}

// Subtopology is a part of a topology whose tasks run by themselves.
type Subtopology struct {
	ID                string          // names its tasks
	Sources           []string        // external topics that it reads
	RepartitionSinks  []string        // internal topics that it writes for other subtopologies
	Repartitions      []InternalTopic // internal topics that it reads
	Changelogs        []InternalTopic // of its stores; Partitions is 0
	CopartitionGroups [][]string      // names of topics that it reads whose numbers of partitions have to agree
}

// InternalTopic is a topic that the broker creates for the group. Its name
// travels as it is.
type InternalTopic struct {
	Name       string
	Partitions int32             // 0 = derived from the sources
	Replicas   int16             // replication factor; 0 or -1 = the broker's default
	Configs    map[string]string // topic configs
}

// maxString is the longest string that brokers read.
const maxString = 32767

// Canonical is a checked deep copy in the order in which it is sent: everything
// sorted, so that two builds of a topology are the same bytes. The error joins a
// [*ConfigError] for each thing that no broker accepts.
func (t Topology) Canonical() (Topology, error) {
	c := checker{}
	c.topology(t)
	if len(c.errs) > 0 {
		return Topology{}, errors.Join(c.errs...)
	}
	out := Topology{Epoch: t.Epoch, JavaOrder: t.JavaOrder}
	for _, s := range t.Subtopologies {
		out.Subtopologies = append(out.Subtopologies, s.canonical())
	}
	slices.SortFunc(out.Subtopologies, func(a, b Subtopology) int { return compareText(a.ID, b.ID) })
	size := javaTableOfGroups(out.Subtopologies)
	for i := range out.Subtopologies {
		s := &out.Subtopologies[i]
		if t.JavaOrder {
			s.javaOrder(size)
		} else {
			s.sortGroups()
		}
	}
	return out, nil
}

func (s Subtopology) canonical() Subtopology {
	out := Subtopology{
		ID: s.ID, Sources: sorted(s.Sources), RepartitionSinks: sorted(s.RepartitionSinks),
		Repartitions: canonicalTopics(s.Repartitions), Changelogs: canonicalTopics(s.Changelogs),
	}
	for _, g := range s.CopartitionGroups {
		out.CopartitionGroups = append(out.CopartitionGroups, slices.Clone(g))
	}
	return out
}

func sorted(names []string) []string {
	out := slices.Clone(names)
	slices.Sort(out)
	return out
}

func canonicalTopics(ts []InternalTopic) []InternalTopic {
	var out []InternalTopic
	for _, t := range ts {
		t.Configs = maps.Clone(t.Configs)
		if t.Replicas == 0 {
			t.Replicas = -1
		}
		out = append(out, t)
	}
	slices.SortFunc(out, func(a, b InternalTopic) int { return compareText(a.Name, b.Name) })
	return out
}

func compareText(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// sortGroups orders copartition groups by their indexes: sources first, then
// repartition topics, each ascending.
func (s *Subtopology) sortGroups() {
	for _, g := range s.CopartitionGroups {
		slices.SortFunc(g, func(a, b string) int { return s.index(a) - s.index(b) })
	}
	slices.SortFunc(s.CopartitionGroups, func(a, b []string) int {
		as, ar := s.indexes(a)
		bs, br := s.indexes(b)
		if c := slices.Compare(as, bs); c != 0 {
			return c
		}
		return slices.Compare(ar, br)
	})
}

// index orders the topics that a subtopology reads: sources, then repartition
// topics.
func (s *Subtopology) index(topic string) int {
	if i := slices.Index(s.Sources, topic); i >= 0 {
		return i
	}
	return len(s.Sources) + slices.IndexFunc(s.Repartitions, func(t InternalTopic) bool { return t.Name == topic })
}

// indexes are the places of a group's topics in the sorted lists, in the order
// of the group.
func (s *Subtopology) indexes(group []string) (sources, repartitions []int16) {
	for _, name := range group {
		if i := s.index(name); i < len(s.Sources) {
			sources = append(sources, int16(i))
		} else {
			repartitions = append(repartitions, int16(i-len(s.Sources)))
		}
	}
	return sources, repartitions
}

// reads are the names of all topics that a subtopology reads.
func (s *Subtopology) reads() []string {
	out := slices.Clone(s.Sources)
	for _, t := range s.Repartitions {
		out = append(out, t.Name)
	}
	return out
}

// has reports whether a topology has a subtopology.
func (t Topology) has(id string) bool {
	return slices.ContainsFunc(t.Subtopologies, func(s Subtopology) bool { return s.ID == id })
}

// Partitions are the partitions that an active task reads: of each source and
// repartition topic of its subtopology the one with the task's number, as far as
// the topic has so many. count tells the number of partitions of a topic.
func (t Topology) Partitions(id TaskID, count func(topic string) int32) []kafka.TopicPartition {
	var out []kafka.TopicPartition
	for _, s := range t.Subtopologies {
		if s.ID != id.Subtopology {
			continue
		}
		for _, topic := range s.reads() {
			if id.Partition >= 0 && id.Partition < count(topic) {
				out = append(out, kafka.TopicPartition{Topic: topic, Partition: id.Partition})
			}
		}
	}
	slices.SortFunc(out, kafka.TopicPartition.Compare)
	return slices.Compact(out)
}

// Diff says in words what u has otherwise than t, for the error of a refused
// topology. The order of lists does not matter.
func (t Topology) Diff(u Topology) []string {
	var out []string
	if t.Epoch != u.Epoch {
		out = append(out, fmt.Sprintf("epoch %d, not %d", u.Epoch, t.Epoch))
	}
	for _, s := range t.Subtopologies {
		i := slices.IndexFunc(u.Subtopologies, func(o Subtopology) bool { return o.ID == s.ID })
		if i < 0 {
			out = append(out, "no subtopology "+s.ID)
			continue
		}
		for _, d := range s.diff(u.Subtopologies[i]) {
			out = append(out, "subtopology "+s.ID+": "+d)
		}
	}
	for _, s := range u.Subtopologies {
		if !t.has(s.ID) {
			out = append(out, "a new subtopology "+s.ID)
		}
	}
	return out
}

func (s Subtopology) diff(o Subtopology) []string {
	var out []string
	lists := func(what string, a, b []string) {
		if a, b := sorted(a), sorted(b); !slices.Equal(a, b) {
			out = append(out, fmt.Sprintf("%s %q, not %q", what, b, a))
		}
	}
	lists("sources", s.Sources, o.Sources)
	lists("repartition sinks", s.RepartitionSinks, o.RepartitionSinks)
	lists("repartition topics", describeTopics(s.Repartitions), describeTopics(o.Repartitions))
	lists("changelogs", describeTopics(s.Changelogs), describeTopics(o.Changelogs))
	lists("copartition groups", describeGroups(s.CopartitionGroups), describeGroups(o.CopartitionGroups))
	return out
}

func describeTopics(ts []InternalTopic) []string {
	var out []string
	for _, t := range canonicalTopics(ts) {
		d := fmt.Sprintf("%s partitions=%d replicas=%d", t.Name, t.Partitions, t.Replicas)
		for _, k := range slices.Sorted(maps.Keys(t.Configs)) {
			d += " " + k + "=" + t.Configs[k]
		}
		out = append(out, d)
	}
	return out
}

func describeGroups(gs [][]string) []string {
	var out []string
	for _, g := range gs {
		out = append(out, fmt.Sprint(sorted(g)))
	}
	return out
}
