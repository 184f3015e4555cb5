package streams

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Wire is a canonical topology as the join carries it.
func (t Topology) Wire() *kmsg.StreamsGroupHeartbeatRequestTopology {
	out := kmsg.NewStreamsGroupHeartbeatRequestTopology()
	out.Epoch = t.Epoch
	for _, s := range t.Subtopologies {
		w := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopology()
		w.SubtopologyID = s.ID
		w.SourceTopics = slices.Clone(s.Sources)
		w.RepartitionSinkTopics = slices.Clone(s.RepartitionSinks)
		w.RepartitionSourceTopics = wireTopics(s.Repartitions)
		w.StateChangelogTopics = wireTopics(s.Changelogs)
		for _, g := range s.CopartitionGroups {
			c := kmsg.NewStreamsGroupHeartbeatRequestTopologySubtopologyCopartitionGroup()
			c.SourceTopics, c.RepartitionSourceTopics = s.indexes(g)
			w.CopartitionGroups = append(w.CopartitionGroups, c)
		}
		out.Subtopologies = append(out.Subtopologies, w)
	}
	return &out
}

func wireTopics(ts []InternalTopic) []kmsg.TopicInfo {
	var out []kmsg.TopicInfo
	for _, t := range ts {
		w := kmsg.NewTopicInfo()
		w.Topic, w.NumPartitions, w.ReplicationFactor = t.Name, t.Partitions, t.Replicas
		for _, k := range slices.Sorted(maps.Keys(t.Configs)) {
			c := kmsg.NewTopicInfoConfig()
			c.Key, c.Value = k, t.Configs[k]
			w.Configs = append(w.Configs, c)
		}
		out = append(out, w)
	}
	return out
}

// ReadTopology is the topology that a join carries. Indexes of copartition
// groups that lead nowhere are left out.
func ReadTopology(w *kmsg.StreamsGroupHeartbeatRequestTopology) Topology {
	out := Topology{Epoch: w.Epoch}
	for _, s := range w.Subtopologies {
		sub := Subtopology{
			ID: s.SubtopologyID, Sources: slices.Clone(s.SourceTopics), RepartitionSinks: slices.Clone(s.RepartitionSinkTopics),
			Repartitions: ReadTopics(s.RepartitionSourceTopics), Changelogs: ReadTopics(s.StateChangelogTopics),
		}
		for _, g := range s.CopartitionGroups {
			names := appendAt(nil, g.SourceTopics, len(sub.Sources), func(i int) string { return sub.Sources[i] })
			names = appendAt(names, g.RepartitionSourceTopics, len(sub.Repartitions), func(i int) string { return sub.Repartitions[i].Name })
			sub.CopartitionGroups = append(sub.CopartitionGroups, names)
		}
		out.Subtopologies = append(out.Subtopologies, sub)
	}
	return out
}

// appendAt appends the names at those indexes that are below n.
func appendAt(names []string, indexes []int16, n int, name func(int) string) []string {
	for _, i := range indexes {
		if i >= 0 && int(i) < n {
			names = append(names, name(int(i)))
		}
	}
	return names
}

// ReadTopics are internal topics as brokers and members write them.
func ReadTopics(ws []kmsg.TopicInfo) []InternalTopic {
	var out []InternalTopic
	for _, w := range ws {
		t := InternalTopic{Name: w.Topic, Partitions: w.NumPartitions, Replicas: w.ReplicationFactor}
		for _, c := range w.Configs {
			if t.Configs == nil {
				t.Configs = map[string]string{}
			}
			t.Configs[c.Key] = c.Value
		}
		out = append(out, t)
	}
	return out
}
