package ottlatest

import (
	"fmt"
	"slices"

	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// nodes is every broker; the index is the id.
type nodes []*node

func (ns nodes) stopped(id int32) bool {
	return id >= 0 && int(id) < len(ns) && !ns[id].running()
}

func (ns nodes) anyStopped() bool {
	return slices.ContainsFunc(ns, func(n *node) bool { return !n.running() })
}

// hideStopped takes stopped brokers out of the list, as the controller of a
// real cluster does once it has missed their heartbeats.
func (ns nodes) hideStopped(resp *kmsg.MetadataResponse) {
	resp.Brokers = slices.DeleteFunc(resp.Brokers, func(b kmsg.MetadataResponseBroker) bool { return ns.stopped(b.NodeID) })
	if ns.stopped(resp.ControllerID) {
		resp.ControllerID = -1
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			ns.takeOffline(&resp.Topics[i].Partitions[j])
		}
	}
}

func (ns nodes) takeOffline(p *kmsg.MetadataResponseTopicPartition) {
	p.ISR = slices.DeleteFunc(slices.Clone(p.ISR), ns.stopped)
	p.OfflineReplicas = slices.DeleteFunc(slices.Clone(p.Replicas), func(id int32) bool { return !ns.stopped(id) })
	if ns.stopped(p.Leader) {
		p.Leader, p.ErrorCode = -1, kerr.LeaderNotAvailable.Code
	}
}

// refuseStopped answers COORDINATOR_NOT_AVAILABLE for coordinators on stopped
// brokers.
func (ns nodes) refuseStopped(resp *kmsg.FindCoordinatorResponse) {
	if ns.stopped(resp.NodeID) && len(resp.Coordinators) == 0 {
		resp.NodeID, resp.Host, resp.Port, resp.ErrorCode = -1, "", -1, kerr.CoordinatorNotAvailable.Code
	}
	for i := range resp.Coordinators {
		if co := &resp.Coordinators[i]; ns.stopped(co.NodeID) {
			co.NodeID, co.Host, co.Port, co.ErrorCode = -1, "", -1, kerr.CoordinatorNotAvailable.Code
		}
	}
}

// nextRunning is the first running broker from an id on, round the ring.
func (ns nodes) nextRunning(from int) kafka.NodeID {
	for i := range ns {
		if n := ns[(from+i)%len(ns)]; n.running() {
			return n.id
		}
	}
	return kafka.NoNode
}

func (ns nodes) get(id kafka.NodeID) (*node, error) {
	if id < 0 || int(id) >= len(ns) {
		return nil, fmt.Errorf("ottlatest: no broker %d: ids go from 0 to %d", id, len(ns)-1)
	}
	return ns[id], nil
}

// must panics on an id that is no broker: in a test a wrong id is a bug.
func (ns nodes) must(id kafka.NodeID) *node {
	n, err := ns.get(id)
	if err != nil {
		panic(err)
	}
	return n
}
func (ns nodes) controller() kafka.NodeID { return kafka.NodeID(len(ns) - 1) }
