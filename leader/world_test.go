package leader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// world is a model of a cluster that the Electors of a test reach each by a
// link of its own, in virtual time.
type world struct {
	start    time.Time
	versions map[int16]int16 // highest, by key

	mu       sync.Mutex
	m        *model.Cluster
	changed  chan struct{} // closed with the next change
	rng      *rand.Rand
	late     []lateCopy
	loss     int // in a thousand requests: never arrives
	mute     int // the answer is lost
	again    int // a copy comes again later
	unverify bool
	mints    []mint
	owners   map[lead.Token]owner // who was given a pair
	problems []string
	deny     map[int16]int16 // code by key, for everybody
	onSend   func(l *link, req kmsg.Request)
	topics   int // made
}

type lateCopy struct {
	at   time.Time
	node kafka.NodeID
	req  kmsg.Request
}

// owner is who was given a pair by the coordinator, and how many were given
// before.
type owner struct {
	name string
	nth  int
}

// mint is an epoch that was taken at the coordinator.
type mint struct {
	at     time.Time
	id     string
	member string
	code   int16
	pair   lead.Token
}

func newWorld(seed uint64, cfg model.Config) *world {
	rng := rand.New(rand.NewPCG(seed, 7))
	if cfg.Brokers == 0 {
		cfg.Brokers = 3
	}
	cfg.Rand = rand.New(rand.NewPCG(seed, 8))
	w := &world{start: time.Now(), m: model.New(cfg), changed: make(chan struct{}), rng: rng, versions: map[int16]int16{}, owners: map[lead.Token]owner{}}
	for id := range cfg.Brokers {
		w.m.SetAddr(kafka.Broker{ID: kafka.NodeID(id + 1), Host: fmt.Sprintf("b%d", id+1), Port: 9092})
	}
	resp := w.m.Handle(time.Now(), model.AnyBroker, kmsg.NewPtrApiVersionsRequest()).(*kmsg.ApiVersionsResponse)
	for _, k := range resp.ApiKeys {
		w.versions[k.ApiKey] = k.MaxVersion
	}
	return w
}

// with gives f the model at the present time.
func (w *world) with(f func(m *model.Cluster)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked()
	f(w.m)
	w.wakeLocked()
}

func (w *world) problem(format string, args ...any) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.problems = append(w.problems, fmt.Sprintf("%v: ", time.Since(w.start))+fmt.Sprintf(format, args...))
}

func (w *world) advanceLocked() {
	now := time.Now()
	for len(w.late) > 0 && !w.late[0].at.After(now) {
		c := w.late[0]
		w.late = w.late[1:]
		w.m.Handle(c.at, c.node, c.req)
	}
	w.m.Advance(now)
}

func (w *world) wakeLocked() {
	close(w.changed)
	w.changed = make(chan struct{})
}

// link is one process's way to the cluster, and its clock. While it is paused
// the process does nothing: whatever it would do next waits.
type link struct {
	w    *world
	name string
	skew time.Duration

	// Faults of a test; set while nothing is under way.
	drop   func(req kmsg.Request) bool  // the answer is lost
	answer func(req kmsg.Request) int16 // a code in place of an answer, without effect
	before func(req kmsg.Request)
	edit   func(req kmsg.Request, resp kmsg.Response)

	mu     sync.Mutex
	paused chan struct{}
	slept  time.Duration        // that the machine was suspended: only the clock of now tells
	cut    bool                 // nothing arrives
	only   func(key int16) bool // of a cut: these requests alone; nil = all
}

func (w *world) link(name string) *link { return &link{w: w, name: name} }

func (l *link) pause() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused == nil {
		l.paused = make(chan struct{})
	}
}

func (l *link) resume() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.paused != nil {
		close(l.paused)
		l.paused = nil
	}
}

func (l *link) setCut(cut bool, only func(key int16) bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut, l.only = cut, only
}

// live returns once the process is not paused.
func (l *link) live() {
	for {
		l.mu.Lock()
		ch := l.paused
		l.mu.Unlock()
		if ch == nil {
			return
		}
		<-ch
	}
}

// set changes the faults.
func (l *link) set(f func(l *link)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(l)
}

func (l *link) now() lead.Now {
	l.live()
	l.mu.Lock()
	defer l.mu.Unlock()
	return lead.Now{Local: time.Since(l.w.start) + l.slept, Wall: kafka.TimestampOf(time.Now().Add(l.skew))}
}

func (l *link) severed(key int16) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.cut && (l.only == nil || l.only(key))
}

// open makes an Elector on the link.
func (l *link) open(cfg Config) (*Elector, error) {
	cfg.Member, cfg.now = l.name, l.now
	return Open(l, cfg)
}

func (l *link) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	return l.RequestBroker(ctx, model.AnyBroker, req, -1)
}

// lostError is a request without an answer.
type lostError struct{ cause error }

func (e *lostError) Error() string       { return "no answer: " + e.cause.Error() }
func (e *lostError) Unwrap() error       { return e.cause }
func (*lostError) MayHaveHappened() bool { return true }

func (l *link) RequestBroker(ctx context.Context, id kafka.NodeID, req kmsg.Request, maxVersion int16) (kmsg.Response, error) {
	l.live()
	v, ok := l.w.versions[req.Key()]
	if !ok {
		v = req.MaxVersion()
	}
	if maxVersion >= 0 {
		v = min(v, maxVersion)
	}
	req.SetVersion(v)
	fate := l.w.fate(l, req)
	hang := func() (kmsg.Response, error) {
		<-ctx.Done()
		l.live()
		return nil, &lostError{context.Cause(ctx)}
	}
	if fate.wait(ctx) != nil || l.severed(req.Key()) || fate.lost {
		return hang()
	}
	l.mu.Lock()
	before, answer, drop, edit := l.before, l.answer, l.drop, l.edit
	l.mu.Unlock()
	if before != nil {
		before(req)
	}
	if answer != nil {
		if code := answer(req); code != 0 {
			return refusal(req, code), nil
		}
	}
	resp := l.w.handle(ctx, l, id, req)
	if edit != nil && resp != nil {
		edit(req, resp)
	}
	if drop != nil && drop(req) {
		return hang()
	}
	if fate.again > 0 {
		l.w.later(id, req, fate.again)
	}
	if fate.wait(ctx) != nil || l.severed(req.Key()) || fate.mute || resp == nil {
		return hang()
	}
	l.live()
	return resp, nil
}

// refusal is an answer with a code in every place.
func refusal(req kmsg.Request, code int16) kmsg.Response {
	resp := req.ResponseKind()
	switch q := req.(type) {
	case *kmsg.InitProducerIDRequest:
		resp.(*kmsg.InitProducerIDResponse).ErrorCode = code
	case *kmsg.EndTxnRequest:
		resp.(*kmsg.EndTxnResponse).ErrorCode = code
	case *kmsg.FindCoordinatorRequest:
		c := kmsg.NewFindCoordinatorResponseCoordinator()
		c.ErrorCode = code
		resp.(*kmsg.FindCoordinatorResponse).Coordinators = append(resp.(*kmsg.FindCoordinatorResponse).Coordinators, c)
	case *kmsg.MetadataRequest:
		t := kmsg.NewMetadataResponseTopic()
		t.Topic, t.ErrorCode = q.Topics[0].Topic, code
		resp.(*kmsg.MetadataResponse).Topics = append(resp.(*kmsg.MetadataResponse).Topics, t)
	case *kmsg.AddPartitionsToTxnRequest:
		t, p := kmsg.NewAddPartitionsToTxnResponseTopic(), kmsg.NewAddPartitionsToTxnResponseTopicPartition()
		p.Partition, p.ErrorCode = q.Topics[0].Partitions[0], code
		t.Topic, t.Partitions = q.Topics[0].Topic, append(t.Partitions, p)
		resp.(*kmsg.AddPartitionsToTxnResponse).Topics = append(resp.(*kmsg.AddPartitionsToTxnResponse).Topics, t)
	case *kmsg.ProduceRequest:
		t, p := kmsg.NewProduceResponseTopic(), kmsg.NewProduceResponseTopicPartition()
		p.Partition, p.ErrorCode = q.Topics[0].Partitions[0].Partition, code
		t.Topic, t.Partitions = q.Topics[0].Topic, append(t.Partitions, p)
		resp.(*kmsg.ProduceResponse).Topics = append(resp.(*kmsg.ProduceResponse).Topics, t)
	case *kmsg.ListOffsetsRequest:
		t, p := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
		p.Partition, p.ErrorCode = q.Topics[0].Partitions[0].Partition, code
		t.Topic, t.Partitions = q.Topics[0].Topic, append(t.Partitions, p)
		resp.(*kmsg.ListOffsetsResponse).Topics = append(resp.(*kmsg.ListOffsetsResponse).Topics, t)
	case *kmsg.FetchRequest:
		t, p := kmsg.NewFetchResponseTopic(), kmsg.NewFetchResponseTopicPartition()
		p.Partition, p.ErrorCode = q.Topics[0].Partitions[0].Partition, code
		t.Topic, t.TopicID, t.Partitions = q.Topics[0].Topic, q.Topics[0].TopicID, append(t.Partitions, p)
		resp.(*kmsg.FetchResponse).Topics = append(resp.(*kmsg.FetchResponse).Topics, t)
	}
	return resp
}

// fate is what happens to one request.
type fate struct {
	delay      time.Duration // each way
	lost, mute bool
	again      time.Duration
}

func (f fate) wait(ctx context.Context) error { return task.Sleep(ctx, f.delay) }

func (w *world) fate(l *link, req kmsg.Request) fate {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.onSend != nil {
		w.onSend(l, req)
	}
	f := fate{delay: 100*time.Microsecond + time.Duration(w.rng.Int64N(int64(2*time.Millisecond)))}
	switch req.Key() {
	case 0, 22, 24, 26: // what writes leases and registrations
		f.lost = w.rng.IntN(1000) < w.loss
		f.mute = w.rng.IntN(1000) < w.mute
		if w.rng.IntN(1000) < w.again {
			f.again = time.Duration(w.rng.Int64N(int64(4 * time.Second)))
		}
	}
	return f
}

func (w *world) later(id kafka.NodeID, req kmsg.Request, after time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = append(w.late, lateCopy{time.Now().Add(after), id, req})
	slices.SortStableFunc(w.late, func(a, b lateCopy) int { return a.at.Compare(b.at) })
}

func (w *world) handle(ctx context.Context, l *link, id kafka.NodeID, req kmsg.Request) kmsg.Response {
	if f, ok := req.(*kmsg.FetchRequest); ok {
		return w.fetch(ctx, id, f)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.advanceLocked()
	if r := w.ownLocked(req); r != nil {
		return r
	}
	resp := w.m.Handle(time.Now(), id, req)
	if r, ok := resp.(*kmsg.InitProducerIDResponse); ok {
		q := req.(*kmsg.InitProducerIDRequest)
		pair := lead.Token{ID: kafka.ProducerID(r.ProducerID), Epoch: kafka.ProducerEpoch(r.ProducerEpoch)}
		if q.TransactionalID != nil && r.ErrorCode == 0 {
			w.givenLocked(l, pair)
		}
		if q.TransactionalID != nil && q.ProducerID < 0 {
			w.mints = append(w.mints, mint{time.Now(), *q.TransactionalID, l.name, r.ErrorCode, pair})
		}
	}
	if r, ok := resp.(*kmsg.EndTxnResponse); ok && r.ErrorCode == 0 && r.Version >= 5 {
		w.givenLocked(l, lead.Token{ID: kafka.ProducerID(r.ProducerID), Epoch: kafka.ProducerEpoch(r.ProducerEpoch)})
	}
	w.wakeLocked()
	return resp
}

// givenLocked notes the first who was given a pair.
func (w *world) givenLocked(l *link, pair lead.Token) {
	if _, known := w.owners[pair]; !known {
		w.owners[pair] = owner{l.name, len(w.owners) + 1}
	}
}

// ownLocked answers what the model leaves to others, and what is denied.
func (w *world) ownLocked(req kmsg.Request) kmsg.Response {
	switch req := req.(type) {
	case *kmsg.CreateTopicsRequest:
		resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
		rt := kmsg.NewCreateTopicsResponseTopic()
		rt.Topic = req.Topics[0].Topic
		if w.m.TopicID(rt.Topic) != (kafka.TopicID{}) {
			rt.ErrorCode = 36
		} else {
			w.m.CreateTopic(rt.Topic, int(req.Topics[0].NumPartitions))
			w.topics++
		}
		resp.Topics = append(resp.Topics, rt)
		return resp
	case *kmsg.DescribeConfigsRequest:
		resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
		r := kmsg.NewDescribeConfigsResponseResource()
		r.ResourceType, r.ResourceName, r.ErrorCode = req.Resources[0].ResourceType, req.Resources[0].ResourceName, w.deny[req.Key()]
		c := kmsg.NewDescribeConfigsResponseResourceConfig()
		c.Name, c.Value = verification, kmsg.StringPtr(fmt.Sprint(!w.unverify))
		r.Configs = append(r.Configs, c)
		resp.Resources = append(resp.Resources, r)
		return resp
	}
	return nil
}

// fetch waits for records as a broker does.
func (w *world) fetch(ctx context.Context, id kafka.NodeID, f *kmsg.FetchRequest) kmsg.Response {
	end := time.Now().Add(time.Duration(f.MaxWaitMillis) * time.Millisecond)
	for {
		w.mu.Lock()
		w.advanceLocked()
		resp := w.m.Handle(time.Now(), id, f).(*kmsg.FetchResponse)
		changed, next := w.changed, w.m.Deadline()
		if len(w.late) > 0 && (next.IsZero() || w.late[0].at.Before(next)) {
			next = w.late[0].at
		}
		w.mu.Unlock()
		left := time.Until(end)
		if left <= 0 || said(resp) {
			return resp
		}
		if !next.IsZero() {
			left = min(left, max(time.Until(next), time.Microsecond))
		}
		timer := time.NewTimer(left)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
		timer.Stop()
	}
}

func said(resp *kmsg.FetchResponse) bool {
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			if p.ErrorCode != 0 || len(p.RecordBatches) > 0 {
				return true
			}
		}
	}
	return resp.ErrorCode != 0
}

// placeOf is the partition of a role in a topic of 16.
func placeOf(role string) kafka.TopicPartition {
	e := &topic{first: &layout{leaders: make([]kafka.NodeID, 16)}}
	p, _ := e.partitionOf(role)
	return kafka.TopicPartition{Topic: Topic, Partition: p}
}

// writtenLease is a lease, or its tombstone, as the model's log has it.
type writtenLease struct {
	model.Record
	lease  lead.Lease
	gone   bool
	term   int64 // of the record, by its header; of a grant its offset
	grant  bool
	writer lead.Token
}

// leases are the leases of a role that are committed, or whose commit is on its
// way to the partition, oldest first.
func leases(m *model.Cluster, role string) []writtenLease {
	tx, _ := m.Transaction(role)
	decided := tx.State == model.PrepareCommit
	var out []writtenLease
	for _, r := range m.Records(placeOf(role)) {
		k, err := lead.DecodeKey(r.Key)
		if err != nil || k.Kind != lead.KindLease || k.Role != role || r.Fate != model.Committed && (r.Fate != model.Open || !decided) {
			continue
		}
		w := writtenLease{Record: r, gone: r.Value == nil, term: -1, writer: lead.Token{ID: r.Producer, Epoch: r.Epoch}}
		if !w.gone {
			w.lease, _ = lead.DecodeLease(r.Value)
			f := lead.NewFold(role, time.Second)
			_, _ = f.Apply(k, lead.Entry{Offset: r.Offset, Key: r.Key, Value: r.Value, Headers: r.Headers, Transactional: true}, lead.Now{}, false)
			h, _ := f.Lease()
			w.term, w.grant = int64(h.Term), h.Term == r.Offset
		}
		out = append(out, w)
	}
	return out
}
