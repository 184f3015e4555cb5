package fetch

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// rig drives a Machine by hand.
type rig struct {
	t   testing.TB
	m   *Machine
	now time.Time
	dec Decoder
	out []Action // actions that were asked for and not yet looked at

	takeHints bool // as a driver whose cluster takes them
}

func testConfig() Config {
	return Config{
		MaxWait: 500 * time.Millisecond, MinBytes: 1, MaxBytes: 32 << 20, PartitionMaxBytes: 1 << 20,
		Budget: 128 << 20, UnknownTimeout: 5 * time.Second, RequestTimeout: 30 * time.Second,
	}
}

func newRig(t testing.TB, cfg Config) *rig {
	return &rig{t: t, m: New(cfg, rand.New(rand.NewPCG(1, 2))), now: time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)}
}

// topicID makes an id from a name.
func topicID(name string) (id kafka.TopicID) {
	copy(id[:], "id of "+name)
	return id
}

// info describes a topic whose partitions are led by the given brokers.
func info(name string, leaders ...kafka.NodeID) TopicInfo {
	ti := TopicInfo{ID: topicID(name)}
	for _, l := range leaders {
		ti.Partitions = append(ti.Partitions, PartitionInfo{Leader: l, Epoch: 3})
	}
	return ti
}

// reading is a rig with partition 0 of topic t, led by broker 1, at an offset.
func reading(t testing.TB, cfg Config, at kafka.Offset) *rig {
	r := newRig(t, cfg)
	r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtOffset(at)})
	r.step()
	r.m.OnTopic(r.now, "t", info("t", 1))
	r.step()
	return r
}

var tp0 = kafka.TopicPartition{Topic: "t"}

func tp(topic string, p int32) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: topic, Partition: p}
}

func (r *rig) check() {
	r.t.Helper()
	if err := check(r.m); err != nil {
		r.t.Fatal(err)
	}
}

// err is what the user is told. It leaves the rest of the news alone.
func (r *rig) err() error {
	n := r.m.News()
	r.m.news.Resets = n.Resets
	return n.Err
}

// step collects the actions that are due.
func (r *rig) step() {
	r.t.Helper()
	r.check()
	for n := 0; ; n++ {
		a, ok := r.m.Next(r.now)
		if !ok {
			return
		}
		if n > 1000 {
			r.t.Fatal("the machine asks for more without end")
		}
		if h, ok := a.(*HintAction); ok && r.takeHints {
			r.m.OnHint(h)
		}
		r.out = append(r.out, a)
	}
}

// wait moves time to the machine's deadline.
func (r *rig) wait() {
	r.t.Helper()
	d := r.m.Deadline(r.now)
	if d.IsZero() {
		r.t.Fatal("the machine waits for nothing")
	}
	r.now = d
	r.step()
}

// take removes the first action of a kind.
func take[A Action](r *rig) A {
	r.t.Helper()
	a, ok := maybe[A](r)
	if !ok {
		r.t.Fatalf("no %T among %d actions", a, len(r.out))
	}
	return a
}

func maybe[A Action](r *rig) (A, bool) {
	for i, a := range r.out {
		if a, ok := a.(A); ok {
			r.out = append(r.out[:i:i], r.out[i+1:]...)
			return a, true
		}
	}
	var none A
	return none, false
}

// settleLookups answers every lookup with the given topics.
func (r *rig) settleLookups(topics map[string]TopicInfo) {
	r.t.Helper()
	for {
		l, ok := maybe[*LookupAction](r)
		if !ok {
			r.step()
			return
		}
		r.m.OnTopic(r.now, l.Topic, topics[l.Topic])
	}
}

// waitFetch waits until a Fetch is asked for.
func (r *rig) waitFetch() {
	r.t.Helper()
	for range 10 {
		if a, ok := maybe[*FetchAction](r); ok {
			r.out = append(r.out, a)
			return
		}
		r.wait()
	}
	r.t.Fatal("no fetch goes out")
}

// partAnswer is what a broker says of one partition.
type partAnswer struct {
	p       int32
	code    int16
	hw      kafka.Offset
	lso     kafka.Offset
	aborted []kmsg.FetchResponseTopicPartitionAbortedTransaction
	data    []byte
	leader  kafka.NodeID      // with epoch: a hint
	replica kafka.NodeID      // the preferred one, above 0
	diverge kafka.Offset      // where the log parted, above 0
	part    kafka.LeaderEpoch // of what is before that
	epoch   kafka.LeaderEpoch
}

func abortedList(pairs ...int64) (list []kmsg.FetchResponseTopicPartitionAbortedTransaction) {
	for i := 0; i < len(pairs); i += 2 {
		a := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
		a.ProducerID, a.FirstOffset = pairs[i], pairs[i+1]
		list = append(list, a)
	}
	return list
}

func fetchAnswer(topic string, parts ...partAnswer) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = 17
	t := kmsg.NewFetchResponseTopic()
	t.TopicID = topicID(topic)
	for _, p := range parts {
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.Partition, rp.ErrorCode = p.p, p.code
		rp.HighWatermark, rp.LastStableOffset, rp.LogStartOffset = int64(p.hw), int64(p.lso), 0
		rp.AbortedTransactions, rp.RecordBatches = p.aborted, p.data
		if p.epoch > 0 {
			rp.CurrentLeader.LeaderID, rp.CurrentLeader.LeaderEpoch = int32(p.leader), int32(p.epoch)
		}
		if p.replica > 0 {
			rp.PreferredReadReplica = int32(p.replica)
		}
		if p.diverge > 0 {
			rp.DivergingEpoch.Epoch, rp.DivergingEpoch.EndOffset = int32(p.part), int64(p.diverge)
		}
		t.Partitions = append(t.Partitions, rp)
	}
	resp.Topics = append(resp.Topics, t)
	return resp
}

func epochResponse(tp kafka.TopicPartition, end kafka.Offset, code int16) *kmsg.OffsetForLeaderEpochResponse {
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
	rt.Topic = tp.Topic
	rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
	rp.Partition, rp.EndOffset, rp.ErrorCode = tp.Partition, int64(end), code
	rt.Partitions = append(rt.Partitions, rp)
	resp.Topics = append(resp.Topics, rt)
	return resp
}

// vetted answers the question that is out for partition 0 of t.
func (r *rig) vetted(end kafka.Offset, code int16) kmsg.OffsetForLeaderEpochRequestTopicPartition {
	r.t.Helper()
	a := take[*EpochAction](r)
	r.m.OnEpochs(r.now, a.ID, epochResponse(tp0, end, code), nil)
	r.step()
	return a.Req.Topics[0].Partitions[0]
}

// answer answers the Fetch that is out to any broker.
func (r *rig) answer(topic string, parts ...partAnswer) *FetchAction {
	r.t.Helper()
	a := take[*FetchAction](r)
	r.m.OnFetch(r.now, a.ID, fetchAnswer(topic, parts...), nil)
	r.step()
	return a
}

// got is a record as the user sees it.
type got struct {
	tp kafka.TopicPartition
	o  kafka.Offset
}

// poll takes everything that is there.
func (r *rig) poll() (recs []got) {
	r.t.Helper()
	for {
		one, ok := r.pollOne()
		if !ok {
			r.step()
			return recs
		}
		recs = append(recs, one...)
	}
}

// pollOne takes one batch and hands it to the user.
func (r *rig) pollOne() ([]got, bool) {
	r.t.Helper()
	recs, l, ok := r.hold()
	if recs != nil {
		l.Release()
		r.check()
	}
	if ok {
		l.Free()
	}
	return recs, ok
}

// read puts the batches of an answer into the memory that the machine gives for
// it, as a connection does.
func (r *rig) read(a *FetchAction, resp *kmsg.FetchResponse) {
	n := 0
	for i := range resp.Topics {
		for _, p := range resp.Topics[i].Partitions {
			n += len(p.RecordBatches)
		}
	}
	to := a.Buffer(n)
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			p := &resp.Topics[i].Partitions[j]
			k := copy(to, p.RecordBatches)
			p.RecordBatches, to = to[:k:k], to[k:]
		}
	}
}

// hold takes one batch, which does not reach the user yet.
func (r *rig) hold() ([]got, Loan, bool) {
	r.t.Helper()
	l, ok := r.m.Take(r.now)
	r.check()
	if !ok {
		return nil, l, false
	}
	payload, err := r.dec.Decode(l.Batch, nil)
	if err != nil {
		r.m.Unreadable(r.now, l, err)
		r.check()
		return nil, l, true
	}
	if !r.m.Deliver(l) {
		r.check()
		return nil, l, true
	}
	r.check()
	return append([]got{}, recordsOf(l, payload)...), l, true
}

func recordsOf(l Loan, payload []byte) (recs []got) {
	var rd record.Reader
	var rec kafka.Record
	rd.Reset(l.Batch, payload)
	for rd.Next(&rec) {
		if rec.Offset >= l.From {
			recs = append(recs, got{l.TopicPartition, rec.Offset})
		}
	}
	return recs
}

func (r *rig) offsets() (os []kafka.Offset) {
	r.t.Helper()
	for _, g := range r.poll() {
		os = append(os, g.o)
	}
	return os
}

func (r *rig) position(tp kafka.TopicPartition) kafka.Offset {
	r.t.Helper()
	at, ok := r.m.At(tp)
	if !ok {
		r.t.Fatalf("%s is not assigned", tp)
	}
	return at.Position
}

func (r *rig) lag(tp kafka.TopicPartition) (int64, bool) {
	at, _ := r.m.At(tp)
	return at.Lag, at.HasLag
}

// spec describes a batch to build.
type spec struct {
	base, last kafka.Offset
	pid        kafka.ProducerID // transactional above 0
	marker     record.ControlType
	control    bool
	codec      compress.Codec
	size       int // of each value
	holes      int // records left out at the end
	empty      bool
	epoch      kafka.LeaderEpoch
}

func data(base, last kafka.Offset) spec { return spec{base: base, last: last} }
func tx(pid kafka.ProducerID, base, last kafka.Offset) spec {
	return spec{base: base, last: last, pid: pid}
}

func mark(kind record.ControlType, pid kafka.ProducerID, at kafka.Offset) spec {
	return spec{base: at, last: at, pid: pid, marker: kind, control: true}
}

// batches builds record batches one after the other.
func batches(specs ...spec) (wire []byte) {
	for _, s := range specs {
		wire = append(wire, s.build()...)
	}
	return wire
}

func (s spec) build() []byte {
	var b record.Builder
	b.Reset(nil)
	key, value := []byte("k"), make([]byte, max(s.size, 1))
	if s.control {
		key = binary.BigEndian.AppendUint16(make([]byte, 2, 4), uint16(s.marker))
		value = make([]byte, 6)
	}
	n := int(s.last-s.base) + 1 - s.holes
	for i := range max(n, 1) {
		b.Append(kafka.Timestamp(1000+i), key, value, nil)
	}
	stamp := record.NoProducer
	if s.pid > 0 {
		stamp = record.Stamp{ProducerID: s.pid, Transactional: true}
	}
	var c compress.Compressor
	wire, _ := b.Seal(stamp, s.codec, &c, 0, nil)
	if s.empty {
		wire = wire[:record.HeaderSize]
		binary.BigEndian.PutUint32(wire[8:], record.HeaderSize-12)
		binary.BigEndian.PutUint32(wire[57:], 0)
	}
	binary.BigEndian.PutUint64(wire, uint64(s.base))
	binary.BigEndian.PutUint32(wire[12:], uint32(s.epoch))
	binary.BigEndian.PutUint32(wire[23:], uint32(s.last-s.base))
	if s.control {
		wire[22] |= 0x20
	}
	reseal(wire)
	return wire
}

// reseal writes the right checksum.
func reseal(wire []byte) {
	binary.BigEndian.PutUint32(wire[17:], crc32.Checksum(wire[21:], crc32.MakeTable(crc32.Castagnoli)))
}

func wantOffsets(t testing.TB, got []kafka.Offset, want ...kafka.Offset) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("offsets %v, want %v", got, want)
	}
}

func asError[E error](t testing.TB, err error) E {
	t.Helper()
	var e E
	if !errors.As(err, &e) {
		t.Fatalf("error %v holds no %T", err, e)
	}
	return e
}
