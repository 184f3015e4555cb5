package producer

import (
	"maps"
	"slices"
	"sync/atomic"
	"time"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// topic routes the records of one topic to its partitions. While the partition
// count is unknown, or older than the metadata age, they gather in the waiting
// area.
type topic struct {
	p      *Producer
	name   string
	layout atomic.Pointer[layout] // nil: the count is unknown or stale
	sticky atomic.Int32           // partition of records without key, -1 to choose one
	turns  atomic.Uint32          // for RoundRobin

	id kafka.TopicID // zero if the cluster does not say; the actor's

	area    partition // its mutex guards what follows
	waiting []*batch  // in the order in which they were opened; area.open is the last of it
	parts   []*partition
}

// topics is the topics of a producer. It never changes.
type topics struct {
	byName map[string]*topic
	only   *topic // if there is one only: it is found without the map
}

func (ts *topics) find(name string) *topic {
	if ts.only != nil && ts.only.name == name {
		return ts.only
	}
	return ts.byName[name]
}

func (ts *topics) with(t *topic) *topics {
	next := &topics{byName: make(map[string]*topic, len(ts.byName)+1)}
	maps.Copy(next.byName, ts.byName)
	next.byName[t.name] = t
	if len(next.byName) == 1 {
		next.only = t
	}
	return next
}

// layout is the partitions that records are spread over. It never changes.
type layout struct{ parts []*partition }

func newTopic(p *Producer, name string) *topic {
	t := &topic{p: p, name: name}
	t.area.p, t.area.topic = p, t
	t.area.tp = kafka.TopicPartition{Topic: name, Partition: produce.WaitingArea}
	t.sticky.Store(-1)
	return t
}

// pick chooses the partition of a record. keyless says that the record may go
// anywhere.
func (t *topic) pick(l *layout, r *kafka.Record) (q *partition, keyless bool, err error) {
	n := int32(len(l.parts))
	var i int32
	cfg := &t.p.cfg
	byKey, keyed := cfg.Partitioner.keyed(r.Key, n)
	switch {
	case cfg.Partition != nil:
		i = cfg.Partition(*r, n)
	case cfg.Partitioner == Manual:
		i = r.Partition
	case cfg.Partitioner == RoundRobin:
		i = t.turn(n)
	case keyed:
		i = byKey
	default:
		if i = t.sticky.Load(); i < 0 || i >= n {
			i = t.spread(l)
		}
		return l.parts[i], true, nil
	}
	if i < 0 || i >= n {
		return nil, false, &kafka.OpError{
			Op: "append", Broker: kafka.NoNode, Topic: t.name, Partition: i, Err: &NoPartitionError{
				TopicPartition: kafka.TopicPartition{Topic: t.name, Partition: i}, Count: n,
			},
		}
	}
	return l.parts[i], false, nil
}

// turn is the next of n partitions that has a leader, or the next if none has.
func (t *topic) turn(n int32) int32 {
	known, _ := t.p.seam.CachedTopic(t.name)
	for range n {
		i := int32(t.turns.Add(1)-1) % n
		if i >= known.Count() || known.Partitions[i].Leader != kafka.NoNode {
			return i
		}
	}
	return int32(t.turns.Add(1)-1) % n
}

// spread chooses another partition for records without key.
func (t *topic) spread(l *layout) int32 {
	waiting := make([]int32, len(l.parts))
	known, _ := t.p.seam.CachedTopic(t.name)
	for i, q := range l.parts {
		waiting[i] = q.queued.Load()
		if i < int(known.Count()) && known.Partitions[i].Leader == kafka.NoNode {
			waiting[i] = -1
		}
	}
	if t.p.cfg.Partitioner == RackAware {
		nearOnly(waiting, known, t.p.seam.Brokers(), t.p.cfg.Rack)
	}
	i := t.p.spreader.pick(waiting)
	t.sticky.Store(i)
	return i
}

// nearOnly leaves the partitions whose leader is in the rack, if there are any.
func nearOnly(waiting []int32, known *meta.Topic, brokers []kafka.Broker, rack string) {
	near := make([]bool, len(waiting))
	for i := range near {
		near[i] = waiting[i] >= 0 && int32(i) < known.Count() && slices.ContainsFunc(brokers, func(b kafka.Broker) bool {
			return b.ID == known.Partitions[i].Leader && b.Rack == rack
		})
	}
	if !slices.Contains(near, true) {
		return
	}
	for i := range waiting {
		if !near[i] {
			waiting[i] = -1
		}
	}
}

// place moves what waits to the partitions that known names, and opens the way
// for others. It may call the user's partition function, so it holds no lock
// then; it runs once at a time per topic.
func (t *topic) place(known *meta.Topic) {
	l := t.extend(known)
	for {
		t.area.mu.Lock()
		chunks := t.waiting
		t.shutLocked()
		t.waiting = nil
		if len(chunks) == 0 {
			t.layout.Store(l)
			t.p.post(func(a *actor, now time.Time) { a.onPlaced(now, t, known) })
			t.area.mu.Unlock()
			return
		}
		t.area.mu.Unlock()
		for _, b := range chunks {
			t.placeBatch(b, l)
		}
	}
}

// shutLocked closes the open batch of the waiting area.
func (t *topic) shutLocked() {
	if t.area.open != nil {
		t.area.closeLocked()
	}
}

// extend is the layout with the partitions that are new in known; a smaller
// count changes nothing.
func (t *topic) extend(known *meta.Topic) *layout {
	t.area.mu.Lock()
	defer t.area.mu.Unlock()
	t.p.budget.addPartitions(int(known.Count()) - len(t.parts))
	for i := int32(len(t.parts)); i < known.Count(); i++ {
		q := &partition{p: t.p, topic: t, tp: kafka.TopicPartition{Topic: t.name, Partition: i}, over: t.area.over}
		t.parts = append(t.parts, q)
		t.p.post(func(a *actor, _ time.Time) { a.parts[q.tp] = q })
	}
	return &layout{parts: t.parts[:len(t.parts):len(t.parts)]}
}

// placeBatch appends the records of one waiting batch to their partitions.
func (t *topic) placeBatch(b *batch, l *layout) {
	wire, _ := b.builder.Seal(record.NoProducer, 0, nil, 0, nil)
	view, _, err := record.Next(wire)
	if err != nil {
		panic("ottla: a batch of our own does not parse: " + err.Error())
	}
	var rd record.Reader
	payload, _ := view.Payload(nil, nil, len(wire))
	rd.Reset(view, payload)
	placed := make([]Receipt, 0, view.Count())
	var r kafka.Record
	for rd.Next(&r) {
		r.Topic = t.name
		if i := len(placed); i < len(b.choices) {
			r.Partition = b.choices[i]
		}
		if err := b.dropped[int32(len(placed))]; err != nil {
			placed = append(placed, failedAt(b.tp, err))
		} else {
			placed = append(placed, t.placeRecord(&r, l, b.since))
		}
		rd.Recycle()
	}
	if len(placed) != view.Count() {
		panic("ottla: a batch of our own does not parse")
	}
	t.p.buffers.put(b.builder.Release())
	t.p.budget.give(b.room)
	b.placed = placed
	close(b.done)
	t.p.post(func(a *actor, now time.Time) { a.onMoved(now, b) })
}

func (t *topic) placeRecord(r *kafka.Record, l *layout, since time.Time) Receipt {
	q, keyless, err := t.pick(l, r)
	if err != nil {
		return failed(r, err)
	}
	n := most(r) + record.HeaderSize
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.over != nil {
		return failed(r, q.over)
	}
	t.p.budget.used.Add(n) // it had its room while it waited
	rc, left, ok := q.addLocked(r, r.Timestamp, since, n)
	if !ok {
		rc, _, _ = q.addLocked(r, r.Timestamp, since, left)
	}
	if keyless && q.stickLocked(n) {
		t.sticky.Store(-1)
	}
	return rc
}

// failed is the receipt of a record that never came into a batch.
func failed(r *kafka.Record, err error) Receipt {
	b := &batch{
		tp:   kafka.TopicPartition{Topic: r.Topic, Partition: -1},
		done: make(chan struct{}), verdict: verdict{base: -1, appendTime: kafka.NoTimestamp, err: err},
	}
	close(b.done)
	return Receipt{batch: b}
}

// end refuses further records of the topic.
func (t *topic) end(err error) {
	t.area.mu.Lock()
	t.area.over = err
	parts := t.parts
	t.area.mu.Unlock()
	for _, q := range parts {
		q.end(err)
	}
}

// NoPartitionError is a record for a partition that its topic does not have.
type NoPartitionError struct {
	kafka.TopicPartition
	Count int32 // the topic's partitions
}

func (e *NoPartitionError) Error() string {
	return "ottla: " + e.TopicPartition.String() + " does not exist: the topic has partitions 0 to " + itoa(e.Count-1)
}

func (*NoPartitionError) MayHaveHappened() bool { return false }
