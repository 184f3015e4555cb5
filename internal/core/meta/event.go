package meta

import (
	"github.com/ottla/ottla/kafka"
)

// Event is one change of the cluster.
type Event = kafka.Event

// eventKey tells which events are about the same thing.
type eventKey struct {
	kind      kafka.EventKind
	topic     string
	partition int32
	broker    kafka.NodeID
	addr      string
}

func keyOf(e Event) eventKey {
	k := eventKey{kind: e.Kind, topic: e.Topic, partition: e.Partition, addr: e.Addr}
	if e.Kind == kafka.BrokerAdded || e.Kind == kafka.BrokerGone {
		k.kind, k.broker = kafka.BrokerAdded, e.Broker.ID // the last of the two holds
	}
	return k
}

// Queue holds undelivered events, at most one for each subject: of several
// about the same topic, partition or broker the last stays, and growth keeps
// its first count. Its size is bounded by the size of the cluster. The zero
// value is ready.
type Queue struct {
	events []Event
	index  map[eventKey]int
}

// Add queues an event, or merges it into one that waits.
func (q *Queue) Add(e Event) {
	if q.index == nil {
		q.index = make(map[eventKey]int)
	}
	k := keyOf(e)
	if i, ok := q.index[k]; ok {
		if e.Kind == kafka.TopicGrew {
			e.Before = q.events[i].Before
		}
		if e.Kind == kafka.TopicRecreated {
			e.OldID = q.events[i].OldID
		}
		q.events[i] = e
		return
	}
	q.index[k] = len(q.events)
	q.events = append(q.events, e)
}

// Len is the number of waiting events.
func (q *Queue) Len() int { return len(q.events) }

// Take hands out the waiting events, oldest subject first, and forgets them.
func (q *Queue) Take() []Event {
	es := q.events
	q.events, q.index = nil, nil
	return es
}

// eventLog holds what changed, in order.
type eventLog []Event

func (l *eventLog) add(e Event) {
	if e.Kind != kafka.LeaderChanged {
		e.Partition = -1
	}
	*l = append(*l, e)
}

// failed tells once for each spell that a topic cannot be had.
func (l *eventLog) failed(name string, t *topicState, err error) {
	t.err = err
	if !t.failed {
		t.failed = true
		l.add(Event{Kind: kafka.TopicFailed, Topic: name, Err: err})
	}
}

// changed tells what changed between two states of a topic.
func (l *eventLog) changed(brokers map[kafka.NodeID]kafka.Broker, old, next *Topic, recreated bool) {
	before, after := old.Count(), next.Count()
	switch {
	case after == 0 || recreated:
		return
	case before == 0:
		l.add(Event{Kind: kafka.TopicFound, Topic: next.Name, After: after, NewID: next.ID})
		return
	case after > before:
		l.add(Event{Kind: kafka.TopicGrew, Topic: next.Name, Before: before, After: after})
	}
	l.leaders(brokers, old, next)
}

// leaders tells of partitions with another leader or epoch than before.
func (l *eventLog) leaders(brokers map[kafka.NodeID]kafka.Broker, old, next *Topic) {
	for i, p := range next.Partitions {
		was := Partition{Leader: kafka.NoNode, Epoch: kafka.NoEpoch}
		if i < len(old.Partitions) {
			was = old.Partitions[i]
		}
		if p.Leader >= 0 && (p.Leader != was.Leader || p.Epoch != was.Epoch) {
			l.add(Event{Kind: kafka.LeaderChanged, Topic: next.Name, Partition: int32(i), Broker: brokers[p.Leader], Epoch: p.Epoch})
		}
	}
}
