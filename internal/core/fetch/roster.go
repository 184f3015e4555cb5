package fetch

import (
	"slices"
	"time"

	"github.com/ottla/ottla/kafka"
)

// roster is what is assigned and who leads it.
type roster struct {
	topics  map[string]*topic
	names   []string // of topics, sorted
	byID    map[kafka.TopicID]*topic
	parts   int // assigned partitions
	brokers map[kafka.NodeID]*broker
	ids     []kafka.NodeID // of brokers, sorted
	queued  []Action       // to be asked for next
}

func newRoster() roster {
	return roster{topics: map[string]*topic{}, byID: map[kafka.TopicID]*topic{}, brokers: map[kafka.NodeID]*broker{}}
}

// broker is what the Machine knows of one broker.
type broker struct {
	id      kafka.NodeID
	fetch   *request // the Fetch that is out
	list    *request // the ListOffsets that is out
	vet     *request // the OffsetForLeaderEpoch that is out
	session session
	served  kafka.TopicPartition // the last one that an answer had data of (F5)
	brief   time.Duration        // how long the last Fetch could wait, if others were left out
	portion int64                // bytes of an answer, if above the least
	slow    int                  // answers in a row that were full and came slowly
	attempt int                  // failures in a row
	empty   int                  // answers in a row that brought nothing and came early
	retryAt time.Time
	told    bool // the failure that goes on was reported
}

// request is one that is out.
type request struct {
	id       uint64
	parts    []*part
	session  sessionUse
	reserved int64
	sent     time.Time
	wait     time.Duration
	memory   []byte // given for its answer
}

// each calls f for every partition, in order of topic and partition.
func (r *roster) each(f func(*part)) {
	for _, name := range r.names {
		for _, p := range r.topics[name].parts {
			f(p)
		}
	}
}

// part finds an assigned partition.
func (r *roster) part(tp kafka.TopicPartition) *part {
	t := r.topics[tp.Topic]
	if t == nil {
		return nil
	}
	return t.part(tp.Partition)
}

// add makes the partition, if it is not there yet.
func (r *roster) add(tp kafka.TopicPartition) (p *part, isNew bool) {
	t := r.topics[tp.Topic]
	if t == nil {
		t = &topic{name: tp.Topic}
		r.topics[tp.Topic] = t
		i, _ := slices.BinarySearch(r.names, tp.Topic)
		r.names = slices.Insert(r.names, i, tp.Topic)
	}
	i, ok := t.find(tp.Partition)
	if ok {
		return t.parts[i], false
	}
	p = &part{tp: tp, topic: t, lead: ledBy(kafka.NoNode, kafka.NoEpoch), log: unknownLog}
	t.parts = slices.Insert(t.parts, i, p)
	r.parts++
	return p, true
}

// remove forgets the partition.
func (r *roster) remove(p *part) {
	i, _ := p.topic.find(p.tp.Partition)
	p.topic.parts = slices.Delete(p.topic.parts, i, i+1)
	r.parts--
	if len(p.topic.parts) == 0 {
		delete(r.topics, p.tp.Topic)
		delete(r.byID, p.topic.id)
		r.names = slices.DeleteFunc(r.names, func(n string) bool { return n == p.tp.Topic })
	}
}

// broker finds or makes the state of a broker.
func (r *roster) broker(id kafka.NodeID) *broker {
	b := r.brokers[id]
	if b == nil {
		b = &broker{id: id, session: session{asked: map[kafka.TopicPartition]asked{}}}
		r.brokers[id] = b
		i, _ := slices.BinarySearch(r.ids, id)
		r.ids = slices.Insert(r.ids, i, id)
	}
	return b
}

// asker finds the broker whose request of that kind has the id.
func (r *roster) asker(id uint64, kind func(*broker) *request) *broker {
	for _, n := range r.ids {
		if q := kind(r.brokers[n]); q != nil && q.id == id {
			return r.brokers[n]
		}
	}
	return nil
}

// tidy forgets brokers that serve nothing here and owe no answer.
func (r *roster) tidy() {
	serves := map[kafka.NodeID]bool{}
	r.each(func(p *part) { serves[p.leader], serves[p.replica] = true, true })
	r.ids = slices.DeleteFunc(r.ids, func(id kafka.NodeID) bool {
		b := r.brokers[id]
		idle := !serves[id] && b.fetch == nil && b.list == nil && b.vet == nil
		if idle {
			if a := b.goodbye(); a != nil {
				r.queued = append(r.queued, a)
			}
			delete(r.brokers, id)
		}
		return idle
	})
}

// Goodbyes are the requests that close all fetch sessions, for a driver that
// ends. Nothing waits for their answers.
func (r *roster) Goodbyes() (out []*FetchAction) {
	for _, id := range r.ids {
		if a := r.brokers[id].goodbye(); a != nil {
			out = append(out, a)
		}
	}
	return out
}
