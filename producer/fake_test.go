package producer

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// fakeCluster is a cluster without sockets: what it is sent goes through the
// wire form of Produce into logs with Kafka's rules for sequences. Faults are a
// function per batch.
type fakeCluster struct {
	tb          testing.TB
	latency     time.Duration
	maxAge      time.Duration
	version     int16
	hints       bool                                         // answers with code 6 name the leader
	appendTime  kafka.Timestamp                              // of answers; 0 = none
	unreachable bool                                         // nothing is written
	limit       int                                          // of a batch on the wire; 0 = none
	refused     compress.Codec                               // answered with 76; None = none
	fault       func(tp kafka.TopicPartition, nth int) fault // nil = none
	ids         func() (id int64, code int16)                // nil = 4000, 4001, …
	sent        func(*produceRequest)                        // sees each request; may be nil

	mu       sync.Mutex
	topics   map[string]*cluster.Topic             // what the metadata say; replaced whole
	leaders  map[kafka.TopicPartition]kafka.NodeID // where they are not as the metadata say
	lookErr  error
	logs     map[kafka.TopicPartition]*fakeLog
	seen     map[kafka.TopicPartition]int // Produce attempts
	requests []*kmsg.ProduceRequest       // without their records
	nodes    []kafka.NodeID               // of requests
	asked    int                          // InitProducerId requests
	looks    int                          // Topic and Leader calls that waited
	held     []func()                     // answers that wait for release
	lines    map[kafka.NodeID][]func()    // answers that wait for their time, by broker
	turn     sync.Mutex                   // held while one of them is given
	hold     bool
	now      []cluster.Event
	ready    chan struct{}
}

// fault is what happens to one batch at the broker.
type fault struct {
	code     int16 // answered in place of success
	appended bool  // all the same
	lost     bool  // the whole request gets no answer
	unsent   bool  // the request is not written
	silent   bool  // the answer leaves the partition out
	wrong    bool  // the answer is for another partition
	logStart int64
	reasons  []kmsg.ProduceResponseTopicPartitionErrorRecord
}

type fakeLog struct {
	batches []record.Batch // with offsets
	end     kafka.Offset
	states  map[kafka.ProducerID]*fakeState
}

type fakeState struct {
	epoch kafka.ProducerEpoch
	last  []record.Batch
}

func newFake(tb testing.TB, partitions int32) *fakeCluster {
	f := &fakeCluster{
		tb: tb, maxAge: 5 * time.Minute, version: 12, latency: time.Millisecond,
		topics: map[string]*cluster.Topic{}, logs: map[kafka.TopicPartition]*fakeLog{},
		seen: map[kafka.TopicPartition]int{}, ready: make(chan struct{}, 1),
	}
	if partitions > 0 {
		f.describe("t", partitions)
	}
	return f
}

// describe sets what the metadata say of a topic: partition i is led by broker
// i mod 3.
func (f *fakeCluster) describe(name string, partitions int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &cluster.Topic{Name: name, Updated: time.Now()}
	if f.version >= idsProduce {
		t.ID = kafka.TopicID{1, byte(len(name))}
	}
	for i := range partitions {
		t.Partitions = append(t.Partitions, topicPartition(kafka.NodeID(i%3)))
	}
	f.topics[name] = t
}

// lead moves the leader of one partition.
func (f *fakeCluster) lead(tp kafka.TopicPartition, node kafka.NodeID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := *f.topics[tp.Topic]
	t.Partitions = slices.Clone(t.Partitions)
	t.Partitions[tp.Partition] = topicPartition(node)
	f.topics[tp.Topic] = &t
}

// Brokers are in racks a, b and c.
func (f *fakeCluster) Brokers() []kafka.Broker {
	return []kafka.Broker{{ID: 0, Rack: "a"}, {ID: 1, Rack: "b"}, {ID: 2, Rack: "c"}}
}

func (f *fakeCluster) MetadataMaxAge() time.Duration { return f.maxAge }
func (f *fakeCluster) NewRand() *rand.Rand           { return rand.New(rand.NewPCG(1, 2)) }
func (f *fakeCluster) changes() watch                { return f }
func (f *fakeCluster) closed() bool                  { return false }
func (f *fakeCluster) Ready() <-chan struct{}        { return f.ready }
func (f *fakeCluster) Close()                        {}

func (f *fakeCluster) Take() []cluster.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	es := f.now
	f.now = nil
	return es
}

func (f *fakeCluster) event(e cluster.Event) {
	f.mu.Lock()
	f.now = append(f.now, e)
	f.mu.Unlock()
	select {
	case f.ready <- struct{}{}:
	default:
	}
}

func (f *fakeCluster) CachedTopic(name string) (*cluster.Topic, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.topics[name]
	return t, t != nil
}

// look waits as a refresh of the metadata does.
func (f *fakeCluster) look(ctx context.Context) error {
	t := time.NewTimer(f.latency)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.looks++
	return f.lookErr
}

func (f *fakeCluster) Topic(ctx context.Context, name string) (*cluster.Topic, error) {
	if t, ok := f.CachedTopic(name); ok && !t.IsStale(time.Now(), f.maxAge) {
		return t, nil
	}
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.topics[name] == nil {
		return nil, kafka.CodeError(3, nil)
	}
	t := *f.topics[name]
	t.Updated = time.Now()
	f.topics[name] = &t
	return &t, nil
}

func (f *fakeCluster) Leader(ctx context.Context, tp kafka.TopicPartition) (kafka.Broker, error) {
	if err := f.look(ctx); err != nil {
		return kafka.Broker{ID: kafka.NoNode}, err
	}
	t, ok := f.CachedTopic(tp.Topic)
	if !ok {
		return kafka.Broker{ID: kafka.NoNode}, kafka.CodeError(3, nil)
	}
	if n := t.Partitions[tp.Partition].Leader; n >= 0 {
		return kafka.Broker{ID: n}, nil
	}
	return kafka.Broker{ID: kafka.NoNode}, &kafka.NoLeaderError{TopicPartition: tp}
}

func (f *fakeCluster) InvalidateLeader(kafka.TopicPartition) {}

func (f *fakeCluster) LearnLeader(tp kafka.TopicPartition, leader kafka.NodeID, _ kafka.LeaderEpoch, _ []kafka.Broker) bool {
	if f.hints {
		f.lead(tp, leader)
	}
	return f.hints
}

func (f *fakeCluster) Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	if _, ok := req.(*kmsg.InitProducerIDRequest); !ok {
		return nil, fmt.Errorf("unexpected request %T", req)
	}
	if err := f.look(ctx); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	resp := kmsg.NewPtrInitProducerIDResponse()
	resp.ProducerID = int64(4000 + f.asked)
	resp.ProducerEpoch = 0
	f.asked++
	if f.ids != nil {
		resp.ProducerID, resp.ErrorCode = f.ids()
	}
	return resp, nil
}

func (f *fakeCluster) produce(ctx context.Context, at kafka.NodeID, req *produceRequest, done func(kmsg.Response, error)) {
	req.SetVersion(min(f.version, req.MaxVersion()))
	body := req.AppendTo(nil)
	answer := func() {
		if ctx.Err() != nil {
			done(nil, &kafka.TimeoutError{Name: "Produce", Phase: kafka.PhaseAnswer, Err: context.Cause(ctx)})
			return
		}
		resp, err := f.handle(at, req, body)
		if req.acks == acksNone {
			resp = nil
		}
		done(resp, err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.sent != nil {
		f.sent(req)
	}
	if f.hold {
		f.held = append(f.held, answer)
		return
	}
	if f.lines == nil {
		f.lines = map[kafka.NodeID][]func(){}
	}
	f.lines[at] = append(f.lines[at], answer)
	time.AfterFunc(f.latency, func() { f.next(at) })
}

// next answers the oldest request of a broker: one connection keeps the order.
func (f *fakeCluster) next(at kafka.NodeID) {
	f.turn.Lock()
	defer f.turn.Unlock()
	f.mu.Lock()
	answer := f.lines[at][0]
	f.lines[at] = f.lines[at][1:]
	f.mu.Unlock()
	answer()
}

// release lets held requests reach the broker.
func (f *fakeCluster) release() {
	f.mu.Lock()
	held := f.held
	f.held, f.hold = nil, false
	f.mu.Unlock()
	for _, answer := range held {
		answer()
	}
}

func (f *fakeCluster) handle(at kafka.NodeID, req *produceRequest, body []byte) (kmsg.Response, error) {
	got := kmsg.NewPtrProduceRequest()
	got.SetVersion(req.version)
	if err := got.ReadFrom(body); err != nil {
		f.tb.Errorf("Produce does not parse: %v", err)
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests, f.nodes = append(f.requests, got), append(f.nodes, at)
	faults, unsent := f.faults(req)
	unsent = unsent || f.unreachable
	if unsent { // no part of the request, then
		return nil, &kafka.DialError{Addr: "b:1", Err: io.EOF}
	}
	resp := req.ResponseKind().(*kmsg.ProduceResponse)
	var lost error
	for i := range got.Topics {
		t := &got.Topics[i]
		out := kmsg.NewProduceResponseTopic()
		out.Topic, out.TopicID = t.Topic, t.TopicID
		name := t.Topic
		if req.version >= idsProduce {
			name = req.topics[i].name
		}
		for _, p := range t.Partitions {
			tp := kafka.TopicPartition{Topic: name, Partition: p.Partition}
			ans, err := f.one(at, tp, p.Records, faults[tp])
			if err != nil {
				lost = err
			}
			if ans != nil {
				out.Partitions = append(out.Partitions, *ans)
			}
		}
		resp.Topics = append(resp.Topics, out)
	}
	return resp, lost
}

// faults draws the faults of a request's batches.
func (f *fakeCluster) faults(req *produceRequest) (map[kafka.TopicPartition]fault, bool) {
	out, unsent := map[kafka.TopicPartition]fault{}, false
	for _, t := range req.topics {
		for _, p := range t.parts {
			tp := kafka.TopicPartition{Topic: t.name, Partition: p.partition}
			if f.fault != nil {
				out[tp] = f.fault(tp, f.seen[tp])
			}
			f.seen[tp]++
			unsent = unsent || out[tp].unsent
		}
	}
	return out, unsent
}

func (f *fakeCluster) one(at kafka.NodeID, tp kafka.TopicPartition, wire []byte, ft fault) (*kmsg.ProduceResponseTopicPartition, error) {
	ans := kmsg.NewProduceResponseTopicPartition()
	ans.Partition, ans.LogStartOffset = tp.Partition, ft.logStart
	ans.ErrorCode, ans.BaseOffset, ans.ErrorRecords = ft.code, -1, ft.reasons
	t := f.topics[tp.Topic]
	b, _, _ := record.Next(slices.Clone(wire))
	switch {
	case f.limit > 0 && len(wire) > f.limit && ft.code == 0:
		ans.ErrorCode = 10
	case f.refused != compress.None && b.Codec() == f.refused:
		ans.ErrorCode = 76
	case t == nil || int(tp.Partition) >= len(t.Partitions) || f.leaderOf(tp) != at:
		ans.ErrorCode = 6
		if f.hints {
			ans.CurrentLeader.LeaderID, ans.CurrentLeader.LeaderEpoch = int32(f.leaderOf(tp)), 7
		}
	case ft.code == 0 || ft.appended:
		code, base := f.append(tp, wire)
		if ft.code == 0 {
			ans.ErrorCode, ans.BaseOffset = code, int64(base)
			if f.appendTime != 0 {
				ans.LogAppendTime = int64(f.appendTime)
			}
		}
	}
	switch {
	case ft.lost:
		return nil, &kafka.ConnError{Name: "Produce", Written: 7, Err: io.EOF}
	case ft.silent:
		return nil, nil
	case ft.wrong:
		ans.Partition += 100
	}
	return &ans, nil
}

// leaderOf is the real leader of a partition, whatever the metadata say.
func (f *fakeCluster) leaderOf(tp kafka.TopicPartition) kafka.NodeID {
	if n, ok := f.leaders[tp]; ok {
		return n
	}
	return f.topics[tp.Topic].Partitions[tp.Partition].Leader
}

// append follows the rules of Kafka's ProducerStateManager.
func (f *fakeCluster) append(tp kafka.TopicPartition, wire []byte) (int16, kafka.Offset) {
	b, rest, err := record.Next(slices.Clone(wire))
	if err != nil || len(rest) > 0 || b.IsZero() || b.Verify() != nil {
		f.tb.Errorf("a batch for %v is damaged: %v", tp, err)
		return 2, -1
	}
	l := f.logs[tp]
	if l == nil {
		l = &fakeLog{states: map[kafka.ProducerID]*fakeState{}}
		f.logs[tp] = l
	}
	st := l.states[b.ProducerID()]
	switch {
	case b.ProducerID() < 0:
		st = &fakeState{}
	case st == nil:
		st = &fakeState{epoch: b.ProducerEpoch()}
		l.states[b.ProducerID()] = st
	case b.ProducerEpoch() < st.epoch:
		return 47, -1
	case b.ProducerEpoch() > st.epoch:
		if b.BaseSequence() != 0 {
			return 45, -1
		}
		*st = fakeState{epoch: b.ProducerEpoch()}
	default:
		for _, old := range st.last {
			if old.BaseSequence() == b.BaseSequence() && old.LastSequence() == b.LastSequence() {
				return 0, l.offsetOf(old)
			}
		}
		if b.BaseSequence() != record.AddSequence(st.last[len(st.last)-1].LastSequence(), 1) {
			return 45, -1
		}
	}
	st.last = append(st.last, b)
	if len(st.last) > 5 {
		st.last = st.last[1:]
	}
	base := l.end
	l.batches = append(l.batches, b)
	l.end += kafka.Offset(b.Count())
	return 0, base
}

func (l *fakeLog) offsetOf(b record.Batch) kafka.Offset {
	var at kafka.Offset
	for _, o := range l.batches {
		if &o.Bytes()[0] == &b.Bytes()[0] {
			break
		}
		at += kafka.Offset(o.Count())
	}
	return at
}

// records is what a partition's log holds, in order.
func (f *fakeCluster) records(tp kafka.TopicPartition) []kafka.Record {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []kafka.Record
	l := f.logs[tp]
	if l == nil {
		return nil
	}
	var d compress.Decompressor
	for _, b := range l.batches {
		payload, err := b.Payload(&d, nil, 64<<20)
		if err != nil {
			f.tb.Fatalf("%v: %v", tp, err)
		}
		var rd record.Reader
		rd.Reset(b, payload)
		var r kafka.Record
		for rd.Next(&r) {
			out = append(out, r.Clone())
		}
		if rd.Err() != nil {
			f.tb.Fatal(rd.Err())
		}
	}
	return out
}

func (f *fakeCluster) values(tp kafka.TopicPartition) []string {
	var out []string
	for _, r := range f.records(tp) {
		out = append(out, string(r.Value))
	}
	return out
}

func topicPartition(leader kafka.NodeID) meta.Partition { return meta.Partition{Leader: leader} }

func withTimeout(t *testing.T, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), d)
}
