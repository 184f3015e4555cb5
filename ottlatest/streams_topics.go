package ottlatest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	core "github.com/ottla/ottla/internal/core/streams"
)

// internalTopics checks the internal topics, and creates missing ones if make is
// set.
func (g *streamsGroup) internalTopics(make bool) []kmsg.StreamsGroupHeartbeatResponseStatus {
	var missing []string
	wanted := g.internalCounts()
	for _, name := range sortedKeys(wanted) {
		want := wanted[name]
		switch have := g.counts(name); {
		case have == 0:
			missing = append(missing, name)
			if make && want.partitions > 0 {
				_ = g.create(name, want.partitions, want.topic.Configs) // what fails is missing at the next look too
			}
		case want.partitions > 0 && have != want.partitions:
			text := fmt.Sprintf("Existing topic %s has different number of partitions: expected %d, found %d", name, want.partitions, have)
			return []kmsg.StreamsGroupHeartbeatResponseStatus{status(2, text)}
		}
	}
	if len(missing) > 0 {
		return []kmsg.StreamsGroupHeartbeatResponseStatus{status(3, "Internal topics "+strings.Join(missing, ", ")+" are missing.")}
	}
	return nil
}

// internalTopic is an internal topic and how many partitions it should have, 0
// while that does not follow from anything.
type internalTopic struct {
	topic      core.InternalTopic
	partitions int
}

// derivation derives the numbers of partitions of internal topics.
type derivation struct {
	plan   core.Topology
	counts func(topic string) int
	out    map[string]internalTopic
}

// internalCounts derives the numbers of partitions: of a repartition topic from
// what its writers read, of a changelog from the tasks.
func (g *streamsGroup) internalCounts() map[string]internalTopic {
	d := derivation{g.plan, g.counts, map[string]internalTopic{}}
	for _, sub := range d.plan.Subtopologies {
		for _, t := range sub.Repartitions {
			d.out[t.Name] = internalTopic{t, int(t.Partitions)}
		}
	}
	for range d.plan.Subtopologies {
		for _, sub := range d.plan.Subtopologies {
			n := d.width(sub)
			for _, sink := range sub.RepartitionSinks {
				d.raise(sink, n)
			}
		}
		d.alignCopartitions()
	}
	for _, sub := range d.plan.Subtopologies {
		for _, t := range sub.Changelogs {
			if !slices.Contains(sub.Sources, t.Name) {
				d.out[t.Name] = internalTopic{t, d.width(sub)}
			}
		}
	}
	return d.out
}

// raise gives a topic whose number is not fixed at least n partitions.
func (d *derivation) raise(name string, n int) {
	if t, ok := d.out[name]; ok && t.topic.Partitions == 0 {
		t.partitions = max(t.partitions, n)
		d.out[name] = t
	}
}

// width is how many tasks a subtopology has.
func (d *derivation) width(sub core.Subtopology) int {
	n := 0
	for _, name := range sub.Sources {
		n = max(n, d.counts(name))
	}
	for _, t := range sub.Repartitions {
		n = max(n, d.out[t.Name].partitions)
	}
	return n
}

// alignCopartitions gives repartition topics the number of the group they are in.
func (d *derivation) alignCopartitions() {
	for _, sub := range d.plan.Subtopologies {
		for _, group := range sub.CopartitionGroups {
			n := 0
			for _, name := range group {
				n = max(n, d.counts(name), d.out[name].partitions)
			}
			for _, name := range group {
				d.raise(name, n)
			}
		}
	}
}
