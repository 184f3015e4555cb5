package producer

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
)

// lookup is a goroutine that asks the cluster about one topic. There is one per
// topic at a time; what is asked meanwhile is asked again afterwards.
type lookup struct {
	area bool    // the partitions of the topic are wanted
	of   []int32 // partitions whose leader is wanted
	next *lookup // asked since it started; nil if nothing
}

func (l *lookup) want(partition int32) {
	if partition == produce.WaitingArea {
		l.area = true
	} else {
		l.of = append(l.of, partition)
	}
}

// ask has the leader of a partition, or the partitions of a topic, looked up.
func (a *actor) ask(tp kafka.TopicPartition) {
	if l := a.lookups[tp.Topic]; l != nil {
		if l.next == nil {
			l.next = &lookup{}
		}
		l.next.want(tp.Partition)
		return
	}
	l := &lookup{}
	l.want(tp.Partition)
	a.lookup(tp.Topic, l)
}

func (a *actor) lookup(name string, l *lookup) {
	a.lookups[name] = l
	t, err := a.p.topic(name)
	if err != nil {
		return // closed
	}
	a.p.tasks.Go(func(ctx context.Context) error {
		a.p.look(ctx, t, l)
		return nil
	})
}

// look asks the cluster and reports to the actor; it runs beside it.
func (p *Producer) look(ctx context.Context, t *topic, l *lookup) {
	var leaderErr, areaErr error
	if len(l.of) > 0 { // one refresh serves all partitions of the topic
		_, leaderErr = p.seam.Leader(ctx, kafka.TopicPartition{Topic: t.name, Partition: l.of[0]})
	}
	if l.area {
		var known *cluster.Topic
		if known, areaErr = p.topicNow(ctx, t.name); areaErr == nil {
			t.place(known)
		}
	}
	p.post(func(a *actor, now time.Time) { a.onLooked(now, t, l, leaderErr, areaErr) })
}

// topicNow asks for a topic for a while only. Those who wait for it ask again,
// and know by then why it is not there.
func (p *Producer) topicNow(ctx context.Context, name string) (*cluster.Topic, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, min(p.cfg.DeliveryTimeout/4, time.Second), errNotThere)
	defer cancel()
	return p.seam.Topic(ctx, name)
}

var errNotThere error = notDone("the topic is not there yet")

func (a *actor) onLooked(now time.Time, t *topic, l *lookup, leaderErr, areaErr error) {
	delete(a.lookups, t.name)
	if areaErr != nil {
		a.m.OnLeader(now, t.area.tp, kafka.NoNode, judged(areaErr))
	}
	known, _ := a.p.seam.CachedTopic(t.name)
	for _, i := range l.of {
		a.onLeader(now, known, kafka.TopicPartition{Topic: t.name, Partition: i}, leaderErr)
	}
	if l.next != nil {
		a.lookup(t.name, l.next)
	}
}

// onLeader tells the machine what is known of the leader of a partition; err is
// the answer to somebody who asked, if there is none.
func (a *actor) onLeader(now time.Time, known *cluster.Topic, tp kafka.TopicPartition, err error) {
	if tp.Partition < known.Count() {
		p := known.Partitions[tp.Partition]
		if p.Leader != kafka.NoNode {
			a.m.OnLeader(now, tp, p.Leader, nil)
			return
		}
		if err == nil {
			err = p.Err
		}
	}
	if err == nil {
		err = &kafka.NoLeaderError{TopicPartition: tp}
	}
	a.m.OnLeader(now, tp, kafka.NoNode, judged(err))
}

// judged marks the end of the cluster handle as final.
func judged(err error) error {
	if errors.Is(err, cluster.ErrClosed) {
		return produce.Final(err)
	}
	return err
}

// onPlaced takes note that a topic's records go to its partitions from now on.
func (a *actor) onPlaced(now time.Time, t *topic, known *cluster.Topic) {
	a.m.OnPlaced(now, t.name)
	if t.id.IsZero() {
		t.id = known.ID
	}
	a.fresh.keep(t.name, known.Updated.Add(a.p.seam.MetadataMaxAge()))
	for i, p := range known.Partitions {
		if p.Leader != kafka.NoNode {
			a.m.OnLeader(now, kafka.TopicPartition{Topic: t.name, Partition: int32(i)}, p.Leader, nil)
		}
	}
}

// expireLayouts closes the way to the partitions of a topic whose count is
// older than the metadata age: the next record waits for a refresh. The cluster
// refreshes what is in use ahead of that.
func (a *actor) expireLayouts(now time.Time) {
	if a.fresh.next.IsZero() || now.Before(a.fresh.next) {
		return
	}
	a.fresh.next = time.Time{}
	for name, until := range a.fresh.until {
		if now.Before(until) {
			a.fresh.keep(name, until)
			continue
		}
		t := a.p.topics.Load().find(name)
		known, _ := a.p.seam.CachedTopic(name)
		if known != nil {
			until = known.Updated.Add(a.p.seam.MetadataMaxAge())
		}
		if now.Before(until) {
			a.fresh.keep(name, until)
			if t.grew(known) {
				a.ask(t.area.tp)
			}
			continue
		}
		t.layout.Store(nil)
		delete(a.fresh.until, name)
	}
}

// freshness says until when the layout of a topic may be used.
type freshness struct {
	until map[string]time.Time
	next  time.Time // the earliest of them, zero if there is none
}

func (f *freshness) keep(name string, until time.Time) {
	f.until[name] = until
	if f.next.IsZero() || until.Before(f.next) {
		f.next = until
	}
}

// grew reports whether known has partitions that t does not use yet.
func (t *topic) grew(known *cluster.Topic) bool {
	l := t.layout.Load()
	return l != nil && int(known.Count()) > len(l.parts)
}

// onEvents follows the changes of the cluster.
func (a *actor) onEvents(now time.Time) {
	topics := a.p.topics.Load()
	for _, e := range a.watch.Take() {
		t := topics.find(e.Topic)
		if t == nil {
			continue
		}
		switch e.Kind {
		case cluster.LeaderChanged:
			a.m.OnLeader(now, kafka.TopicPartition{Topic: e.Topic, Partition: e.Partition}, e.Broker.ID, nil)
		case cluster.TopicRecreated:
			a.onRecreated(now, t, &kafka.RecreatedError{Topic: e.Topic, Old: e.OldID, New: e.NewID})
		case cluster.TopicGrew:
			if known, _ := a.p.seam.CachedTopic(e.Topic); t.grew(known) {
				a.ask(t.area.tp)
			}
		}
	}
}

// onRecreated ends what was meant for a topic that is gone: the new one of its
// name never gets it. What is outstanding is settled by its answer.
func (a *actor) onRecreated(now time.Time, t *topic, err *kafka.RecreatedError) {
	t.id = err.New
	for _, q := range t.all() {
		q.mu.Lock()
		if q.open != nil {
			q.closeLocked()
		}
		q.mu.Unlock()
	}
	a.p.post(func(a *actor, now time.Time) { a.m.OnRecreated(now, t.name, err) }) // behind what was closed
}

// all is the partitions of t.
func (t *topic) all() []*partition {
	t.area.mu.Lock()
	defer t.area.mu.Unlock()
	return t.parts
}

// withdraw takes a batch out of the waiting area, unless it is being placed.
func (t *topic) withdraw(b *batch) bool {
	t.area.mu.Lock()
	defer t.area.mu.Unlock()
	for i, w := range t.waiting {
		if w == b {
			t.waiting = append(t.waiting[:i:i], t.waiting[i+1:]...)
			if t.area.open == b {
				t.shutLocked()
			}
			return true
		}
	}
	return false
}

// endTopics refuses further records and further topics.
func (p *Producer) endTopics(err error) {
	p.topicMu.Lock()
	p.over = err
	topics := p.topics.Load()
	p.topicMu.Unlock()
	for _, t := range topics.byName {
		t.end(err)
	}
}

// identify fetches a producer id.
func (a *actor) identify() {
	a.p.tasks.Go(func(ctx context.Context) error {
		id, epoch, err := a.p.identity(ctx)
		a.p.post(func(a *actor, now time.Time) { a.m.OnIdentity(now, id, epoch, err) })
		return nil
	})
}

// identityRequest is that of an idempotent producer without transactions. The
// timeout means nothing there; it is what Java's client sends.
func identityRequest() *kmsg.InitProducerIDRequest {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID = nil
	req.TransactionTimeoutMillis = 1<<31 - 1
	req.ProducerID, req.ProducerEpoch = -1, -1
	return req
}

func (p *Producer) identity(ctx context.Context) (kafka.ProducerID, kafka.ProducerEpoch, error) {
	resp, err := p.seam.Request(ctx, identityRequest())
	if err != nil {
		return -1, -1, judged(err)
	}
	r, ok := resp.(*kmsg.InitProducerIDResponse)
	if !ok {
		return -1, -1, errNoIdentity
	}
	if err := kafka.CodeError(r.ErrorCode, nil); err != nil {
		return -1, -1, err
	}
	if r.ProducerID < 0 || r.ProducerEpoch < 0 {
		return -1, -1, errNoIdentity
	}
	return kafka.ProducerID(r.ProducerID), kafka.ProducerEpoch(r.ProducerEpoch), nil
}

var errNoIdentity error = &kafka.ProtocolError{Addr: "the coordinator", What: "InitProducerId was answered without a producer id"}
