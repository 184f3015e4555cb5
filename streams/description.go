package streams

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopologyDescription describes the processors of a topology to people
// (KIP-1331): brokers keep it and understand none of it.
type TopologyDescription struct {
	Subtopologies []SubtopologyDescription
	GlobalStores  []GlobalStore
}

// SubtopologyDescription is the processors of one subtopology.
type SubtopologyDescription struct {
	ID    string
	Nodes []Node
}

// GlobalStore is a store that every process fills from a whole topic.
type GlobalStore struct{ Source, Processor Node }

// NodeType is what a Node does.
type NodeType int8

const (
	SourceNode    NodeType = iota + 1 // reads topics
	ProcessorNode                     // processes
	SinkNode                          // writes a topic
)

// Node is one processor of a topology.
type Node struct {
	Name       string
	Type       NodeType
	Topics     []string // that a source reads
	Sink       string   // that a sink writes; empty = chosen for each record
	Stores     []string // of a processor
	Successors []string
}

func (d TopologyDescription) wire() kmsg.TopologyDescription {
	out := kmsg.NewTopologyDescription()
	for _, s := range d.Subtopologies {
		w := kmsg.NewTopologyDescriptionSubtopology()
		w.SubtopologyID = s.ID
		for _, n := range s.Nodes {
			w.Nodes = append(w.Nodes, n.wire())
		}
		slices.SortFunc(w.Nodes, func(a, b kmsg.TopologyDescriptionNode) int {
			if a.Name < b.Name {
				return -1
			}
			return 1
		})
		out.Subtopologies = append(out.Subtopologies, w)
	}
	for _, g := range d.GlobalStores {
		w := kmsg.NewTopologyDescriptionGlobalStore()
		w.Source, w.Processor = g.Source.wire(), g.Processor.wire()
		out.GlobalStores = append(out.GlobalStores, w)
	}
	return out
}

func (n Node) wire() kmsg.TopologyDescriptionNode {
	w := kmsg.NewTopologyDescriptionNode()
	w.Name, w.NodeType = n.Name, int8(n.Type)
	w.SourceTopics, w.Stores, w.Successors = n.Topics, n.Stores, n.Successors
	if n.Sink != "" {
		w.SinkTopic = &n.Sink
	}
	return w
}

func readTopologyDescription(subs []kmsg.TopologyDescriptionSubtopology, globals []kmsg.TopologyDescriptionGlobalStore) TopologyDescription {
	var out TopologyDescription
	for _, w := range subs {
		s := SubtopologyDescription{ID: w.SubtopologyID}
		for i := range w.Nodes {
			s.Nodes = append(s.Nodes, readNode(&w.Nodes[i]))
		}
		out.Subtopologies = append(out.Subtopologies, s)
	}
	for i := range globals {
		out.GlobalStores = append(out.GlobalStores, GlobalStore{readNode(&globals[i].Source), readNode(&globals[i].Processor)})
	}
	return out
}

func readNode(w *kmsg.TopologyDescriptionNode) Node {
	return Node{
		Name: w.Name, Type: NodeType(w.NodeType), Topics: w.SourceTopics, Sink: deref(w.SinkTopic), Stores: w.Stores, Successors: w.Successors,
	}
}
