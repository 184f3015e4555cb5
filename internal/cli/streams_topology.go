package cli

import (
	"encoding/json"
	"maps"
	"os"

	"github.com/ottla/ottla/streams"
)

// topologyFile is the file of `streams join`.
type topologyFile struct {
	Epoch         int32             `json:"epoch"`
	JavaOrder     bool              `json:"java_order"`
	Subtopologies []subtopologyFile `json:"subtopologies"`
}

type subtopologyFile struct {
	ID               string      `json:"id"`
	Sources          []string    `json:"sources"`
	RepartitionSinks []string    `json:"repartition_sinks"`
	Repartitions     []topicFile `json:"repartitions"`
	Changelogs       []topicFile `json:"changelogs"`
	Copartition      [][]string  `json:"copartition"`
}

type topicFile struct {
	Name       string            `json:"name"`
	Partitions int32             `json:"partitions"`
	Replicas   int16             `json:"replicas"`
	Configs    map[string]string `json:"configs"`
}

// readTopology reads the file of a topology; an unknown field is an error.
func readTopology(path string) (streams.Topology, error) {
	f, err := os.Open(path)
	if err != nil {
		return streams.Topology{}, usagef("--topology: %v", err)
	}
	defer f.Close()
	var file topologyFile
	dec := json.NewDecoder(f)
	dec.DisallowUnknownFields()
	if err := dec.Decode(&file); err != nil {
		return streams.Topology{}, usagef("--topology %s: %v", path, err)
	}
	if dec.More() {
		return streams.Topology{}, usagef("--topology %s: something follows the topology", path)
	}
	t := streams.Topology{Epoch: file.Epoch, JavaOrder: file.JavaOrder}
	for _, s := range file.Subtopologies {
		t.Subtopologies = append(t.Subtopologies, streams.Subtopology{
			ID: s.ID, Sources: s.Sources, RepartitionSinks: s.RepartitionSinks, Repartitions: internalTopics(s.Repartitions),
			Changelogs: internalTopics(s.Changelogs), CopartitionGroups: s.Copartition,
		})
	}
	if _, err := t.Canonical(); err != nil {
		return t, usagef("--topology %s: %v", path, err)
	}
	return t, nil
}

func internalTopics(fs []topicFile) []streams.InternalTopic {
	var out []streams.InternalTopic
	for _, f := range fs {
		out = append(out, streams.InternalTopic{Name: f.Name, Partitions: f.Partitions, Replicas: f.Replicas, Configs: f.Configs})
	}
	return out
}

// topologyOf is a topology in the form of the file: no list is null. Copartition
// groups are not described by brokers.
func topologyOf(t *streams.Topology) *topologyFile {
	topics := func(ts []streams.InternalTopic) []topicFile {
		out := []topicFile{}
		for _, t := range ts {
			configs := map[string]string{}
			maps.Copy(configs, t.Configs)
			out = append(out, topicFile{t.Name, t.Partitions, t.Replicas, configs})
		}
		return out
	}
	out := &topologyFile{Epoch: t.Epoch, Subtopologies: []subtopologyFile{}}
	for _, s := range t.Subtopologies {
		out.Subtopologies = append(out.Subtopologies, subtopologyFile{
			ID: s.ID, Sources: append([]string{}, s.Sources...), RepartitionSinks: append([]string{}, s.RepartitionSinks...),
			Repartitions: topics(s.Repartitions), Changelogs: topics(s.Changelogs), Copartition: append([][]string{}, s.CopartitionGroups...),
		})
	}
	return out
}
