package ottlatest

import (
	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// placer puts partition leaders where they are expected: partition p on
// broker p modulo the number of brokers, or the next one that runs.
type placer struct{ c *Cluster }

// partitions is how many partitions a topic has, 0 if there is none.
func (pl placer) partitions(topic string) int32 {
	for p := int32(0); ; p++ {
		if pl.c.Leader(topic, p) == kafka.NoNode {
			return p
		}
	}
}

// place puts the leaders of new partitions, from first on, in their places:
// kfake's choice is random. It moves those in place, too, so that the leader
// epoch of every new partition is 1.
func (pl placer) place(topic string, first int32) {
	for p := first; pl.c.Leader(topic, p) != kafka.NoNode; p++ {
		pl.moveHome(topic, p)
	}
}

// placeAstray moves only leaders that are not in their places.
func (pl placer) placeAstray(topic string) {
	for p := int32(0); ; p++ {
		switch pl.c.Leader(topic, p) {
		case kafka.NoNode:
			return
		case pl.c.nodes.nextRunning(int(p)):
		default:
			pl.moveHome(topic, p)
		}
	}
}

func (pl placer) moveHome(topic string, p int32) {
	if to := pl.c.nodes.nextRunning(int(p)); to != kafka.NoNode {
		pl.c.MoveLeader(topic, p, to) // fails only for a topic deleted meanwhile
	}
}

// createMissing creates the topics of a metadata request, so that their
// leaders are in place before the request is answered.
func (pl placer) createMissing(md *kmsg.MetadataRequest) {
	for _, t := range md.Topics {
		if t.Topic != nil && *t.Topic != "" && pl.c.Leader(*t.Topic, 0) == kafka.NoNode {
			pl.c.CreateTopic(*t.Topic, pl.c.cfg.DefaultPartitions) // where it fails, kfake says so to the client
		}
	}
}
