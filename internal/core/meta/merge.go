package meta

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// Verdict is what became of a Metadata answer.
type Verdict uint8

const (
	Merged          Verdict = iota // the map has it
	NoBrokers                      // it names no broker; nothing was merged
	OtherCluster                   // it comes from another cluster; nothing was merged
	MustRebootstrap                // the broker says to start again from the bootstrap addresses (129)
	Refused                        // it carries another error; nothing was merged
)

// OnAnswer ends the refresh in flight with the answer of the broker at addr,
// and merges it. The error says why nothing was merged. It keeps no part of
// resp but strings.
func (m *Map) OnAnswer(now time.Time, addr string, resp *kmsg.MetadataResponse) (Verdict, error) {
	if v, err := m.Judge(resp); v != Merged {
		m.OnFailure(now, false)
		return v, err
	}
	f := m.pace.answered(now, addr)
	m.merge(now, addr, f, resp)
	return Merged, nil
}

// Merge merges an answer to a request that the map did not ask for.
func (m *Map) Merge(now time.Time, addr string, resp *kmsg.MetadataResponse) {
	if v, _ := m.Judge(resp); v == Merged {
		m.merge(now, addr, nil, resp)
	}
}

func (m *Map) merge(now time.Time, addr string, f *Refresh, resp *kmsg.MetadataResponse) {
	if resp.ClusterID != nil {
		m.clusterID = *resp.ClusterID
	}
	m.mergeBrokers(resp)
	seen := make(map[string]bool, len(resp.Topics))
	for i := range resp.Topics {
		rt := &resp.Topics[i]
		if rt.Topic == nil || m.topics[*rt.Topic] == nil || seen[*rt.Topic] {
			continue
		}
		seen[*rt.Topic] = true
		m.mergeTopic(now, addr, *rt.Topic, rt)
	}
	if f != nil {
		m.settle(now, f, seen)
	}
	m.evict(now)
	m.snap = nil
}

// Judge says whether an answer may be merged, without doing so, and why not.
func (m *Map) Judge(resp *kmsg.MetadataResponse) (Verdict, error) {
	switch {
	case resp.ErrorCode == kerr.RebootstrapRequired.Code:
		return MustRebootstrap, kafka.CodeError(resp.ErrorCode, nil)
	case resp.ErrorCode != 0:
		return Refused, kafka.CodeError(resp.ErrorCode, nil)
	case m.Snapshot().Foreign(resp.ClusterID):
		return OtherCluster, &kafka.MismatchError{Want: m.clusterID, Found: *resp.ClusterID}
	case len(resp.Brokers) == 0:
		return NoBrokers, errNoBrokers
	}
	return Merged, nil
}

// mergeBrokers replaces the brokers by those of the answer.
func (m *Map) mergeBrokers(resp *kmsg.MetadataResponse) {
	listed := make(map[kafka.NodeID]bool, len(resp.Brokers))
	for _, rb := range resp.Brokers {
		b := kafka.Broker{ID: kafka.NodeID(rb.NodeID), Host: rb.Host, Port: rb.Port}
		if rb.Rack != nil {
			b.Rack = *rb.Rack
		}
		if b.ID < 0 || b.Host == "" || b.Port <= 0 {
			continue
		}
		listed[b.ID] = true
		m.setBroker(b)
	}
	for _, b := range m.Snapshot().Brokers {
		if !listed[b.ID] {
			m.drop(b)
		}
	}
	if id := kafka.NodeID(resp.ControllerID); listed[id] {
		m.controller = id
	} else if !listed[m.controller] {
		m.controller = kafka.NoNode
	}
	m.snap = nil
}

// drop takes a broker out of the map. Partitions that it led have no leader
// any more; topics that somebody uses are wanted again.
func (m *Map) drop(b kafka.Broker) {
	delete(m.brokers, b.ID)
	m.events.add(Event{Kind: kafka.BrokerGone, Broker: b})
	for _, name := range m.sortedTopics() {
		t := m.topics[name]
		if t.topic == nil || !slices.ContainsFunc(t.topic.Partitions, func(p Partition) bool { return p.Leader == b.ID }) {
			continue
		}
		c := *t.topic
		c.Partitions = slices.Clone(c.Partitions)
		for i := range c.Partitions {
			if c.Partitions[i].Leader == b.ID {
				c.Partitions[i].Leader = kafka.NoNode
			}
		}
		t.topic = &c
		if t.tracked {
			t.force()
		}
	}
}

// mergeTopic takes one topic of an answer.
func (m *Map) mergeTopic(now time.Time, addr, name string, rt *kmsg.MetadataResponseTopic) {
	t := m.topics[name]
	if rt.ErrorCode != 0 && notYet(rt.ErrorCode) {
		if t.isMissing(now, rt.ErrorCode, m.cfg.Patience) {
			m.events.failed(name, t, t.err)
		}
		return
	}
	if rt.ErrorCode != 0 {
		m.events.failed(name, t, kafka.CodeError(rt.ErrorCode, nil))
		return
	}
	id := kafka.TopicID(rt.TopicID)
	old := t.topic
	if old != nil && slices.Contains(t.oldIDs, id) {
		return // a broker that is behind and still shows the topic before this one
	}
	recreated := old != nil && !id.IsZero() && !old.ID.IsZero() && id != old.ID
	if recreated {
		t.oldIDs = append(t.oldIDs, old.ID)
		if len(t.oldIDs) > 8 {
			t.oldIDs = t.oldIDs[1:]
		}
		delete(m.names, old.ID)
		t.lower, t.fewer = nil, nil
		m.events.add(Event{Kind: kafka.TopicRecreated, Topic: name, OldID: old.ID, NewID: id})
		old = nil
	}
	parts, ok := m.mergePartitions(addr, t, old, rt)
	if !ok {
		m.events.failed(name, t, &kafka.ProtocolError{Addr: addr, What: "partition ids of topic " + name + " are out of range"})
		return
	}
	next := &Topic{Name: name, ID: id, Internal: rt.IsInternal, Partitions: parts, Updated: now}
	if old != nil && id.IsZero() {
		next.ID = old.ID
	}
	if !next.ID.IsZero() {
		m.names[next.ID] = name
	}
	t.err, t.missing, t.failed = nil, time.Time{}, false
	m.events.changed(m.brokers, t.topic, next, recreated)
	t.topic = next
}

// notYet holds the codes that a topic or partition has while it is being made
// or elects a leader.
func notYet(code int16) bool {
	return code == kerr.UnknownTopicOrPartition.Code || code == kerr.LeaderNotAvailable.Code ||
		code == kerr.NotLeaderForPartition.Code
}

// isMissing notes that a topic is not there (yet); its partitions stay. It
// reports whether the patience with it is over.
func (t *topicState) isMissing(now time.Time, code int16, patience time.Duration) bool {
	if t.missing.IsZero() {
		t.missing = now
	}
	t.err = kafka.CodeError(code, nil)
	return now.Sub(t.missing) >= patience
}

// mergePartitions merges the partitions of an answer into the known ones. It
// refuses ids that no topic has.
func (m *Map) mergePartitions(addr string, t *topicState, old *Topic, rt *kmsg.MetadataResponseTopic) ([]Partition, bool) {
	count := 0
	for _, rp := range rt.Partitions {
		if rp.Partition < 0 || rp.Partition >= maxPartitions {
			return nil, false
		}
		count = max(count, int(rp.Partition)+1)
	}
	if old != nil && count < len(old.Partitions) && !t.shrinks(addr, addrCount(m.brokers), old, rt, count) {
		count = len(old.Partitions)
	}
	parts := make([]Partition, count)
	for i := range parts {
		parts[i] = Partition{Leader: kafka.NoNode, Epoch: kafka.NoEpoch, Err: kafka.CodeError(kerr.UnknownTopicOrPartition.Code, nil)}
		if old != nil && i < len(old.Partitions) {
			parts[i] = old.Partitions[i]
		}
	}
	for i := range rt.Partitions {
		rp := &rt.Partitions[i]
		if int(rp.Partition) < count {
			parts[rp.Partition] = m.mergePartition(addr, t, parts[rp.Partition], rp)
		}
	}
	return parts, true
}

// mergePartition is one partition after an answer about it.
func (m *Map) mergePartition(addr string, t *topicState, p Partition, rp *kmsg.MetadataResponseTopicPartition) Partition {
	leader, epoch, code := kafka.NodeID(rp.Leader), kafka.LeaderEpoch(rp.LeaderEpoch), rp.ErrorCode
	if _, known := m.brokers[leader]; !known && code == 0 {
		code = kerr.LeaderNotAvailable.Code
	}
	if code != 0 {
		if p.Leader == kafka.NoNode {
			p.Err = kafka.CodeError(code, nil)
		}
		return p
	}
	if epoch >= 0 && epoch < p.Epoch {
		if !t.accepts(addr, addrCount(m.brokers), rp.Partition, int64(epoch)) {
			return p
		}
	} else {
		delete(t.lower, rp.Partition)
		epoch = max(epoch, p.Epoch)
	}
	return Partition{Leader: leader, Epoch: epoch}
}

// settle looks at the topics that the answered refresh asked for: those that
// the answer left out are missing, and tracked ones that still lack a leader
// stay wanted.
func (m *Map) settle(now time.Time, f *Refresh, seen map[string]bool) {
	for _, name := range f.Topics {
		t := m.topics[name]
		if t == nil {
			continue
		}
		if !seen[name] && t.isMissing(now, kerr.UnknownTopicOrPartition.Code, m.cfg.Patience) {
			m.events.failed(name, t, t.err)
		}
		if t.tracked && t.lacking() {
			t.force()
		}
	}
}

// lacking reports whether the topic is missing or a partition has no leader.
func (t *topicState) lacking() bool {
	if t.topic == nil || !t.missing.IsZero() || len(t.topic.Partitions) == 0 || t.inDoubt() {
		return true
	}
	return slices.ContainsFunc(t.topic.Partitions, func(p Partition) bool { return p.Leader == kafka.NoNode })
}

// evict drops topics that were looked at once and never kept.
func (m *Map) evict(now time.Time) {
	for _, name := range m.sortedTopics() {
		t := m.topics[name]
		if !t.tracked && t.want == nil && now.Sub(t.last) > 2*m.cfg.MaxAge {
			m.ForgetTopic(name)
		}
	}
}
