package produce

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

const (
	txTopic   = "t"
	txGroup   = "g"
	txID      = "id"
	txTimeout = 20 * time.Second
)

// txRun is one transaction as its user sees it.
type txRun struct {
	n       int // offsets of the transaction are this
	batches []BatchID
	late    []BatchID // added when its end was asked for
	ending  bool
	offsets map[CallID]bool // calls that succeeded
	ends    []txEnd
}

type txEnd struct {
	commit bool
	err    error
}

func (e txEnd) String() string { return fmt.Sprintf("commit %v: %v", e.commit, e.err) }

// txWorld drives Transactions and their Machine against the model of a cluster.
// Requests that are lost may reach the brokers later.
type txWorld struct {
	t       *rapid.T
	c       *model.Cluster
	m       *Machine
	x       *Transactions
	now     time.Time
	healthy bool

	counts   map[BatchID]int32
	parts    map[BatchID]kafka.TopicPartition
	outcomes map[BatchID]Outcome
	flying   []Send
	asked    Action // of a coordinator
	late     []lateCopy

	runs     []*txRun
	beginner CallID // waits
	beginErr error
	calls    map[CallID]func(err error)
	offsetOf map[CallID]int
	lastCall CallID
	last     BatchID
	begun    bool // the last of runs is open for its user
	over     bool // the instance is
	rival    bool // another instance took the id
	copied   bool // a request came late that opens a transaction, or aborts one: it may depose its own sender
	slept    bool // longer than a transaction may last
}

type lateCopy struct {
	at  time.Time
	req kmsg.Request
}

func newTxWorld(t *rapid.T, level int16) *txWorld {
	c := model.New(model.Config{TransactionVersion: level, MarkerDelay: 10 * time.Millisecond, Rand: rand.New(rand.NewPCG(3, 4))})
	c.CreateTopic(txTopic, 3)
	w := &txWorld{
		t: t, c: c, now: time.Unix(1_700_000_000, 0), m: New(Config{Delivery: 30 * time.Second}, rand.New(rand.NewPCG(1, 2))),
		counts: map[BatchID]int32{}, parts: map[BatchID]kafka.TopicPartition{}, outcomes: map[BatchID]Outcome{},
		calls: map[CallID]func(error){}, offsetOf: map[CallID]int{},
	}
	w.x = NewTransactions(w.m)
	return w
}

func (w *txWorld) chance(what string, percent int) bool {
	return !w.healthy && rapid.IntRange(0, 99).Draw(w.t, what) < percent
}

func (w *txWorld) run() *txRun { return w.runs[len(w.runs)-1] }

func (w *txWorld) call(done func(error)) CallID {
	w.lastCall++
	w.calls[w.lastCall] = done
	return w.lastCall
}

func (w *txWorld) drain() {
	for {
		a, ok := w.m.Next(w.now)
		if !ok {
			break
		}
		switch a := a.(type) {
		case Seal:
			w.m.OnSealed(w.now, a.Batch, 100)
		case Resolve:
			w.m.OnLeader(w.now, a.Partition, 1, nil)
		case Send:
			w.flying = append(w.flying, a)
		case Finish:
			if _, twice := w.outcomes[a.Batch]; twice {
				w.t.Fatalf("batch %d has two results", a.Batch)
			}
			w.outcomes[a.Batch] = a.Outcome
		case Return:
			done := w.calls[a.Call]
			if done == nil {
				w.t.Fatalf("call %d returns twice", a.Call)
			}
			delete(w.calls, a.Call)
			w.over = w.over || errors.Is(a.Err, kafka.ErrFenced)
			done(a.Err)
		case InitProducer, Enrol, EnrolGroup, CommitOffsets, EndTxn:
			if w.asked != nil {
				w.t.Fatalf("%+v is asked beside %+v", a, w.asked)
			}
			w.asked = a
		}
		if err := w.m.check(); err != nil {
			w.t.Fatalf("invariant: %v", err)
		}
	}
}

func (w *txWorld) handle(req kmsg.Request) kmsg.Response {
	for len(w.late) > 0 && !w.late[0].at.After(w.now) {
		c := w.late[0]
		w.late = w.late[1:]
		w.c.Handle(c.at, model.AnyBroker, c.req)
	}
	return w.c.Handle(w.now, model.AnyBroker, req)
}

// send delivers a request, or not: lost is no answer, and written says whether
// the brokers may have it.
func (w *txWorld) send(req kmsg.Request) (resp kmsg.Response, lost error) {
	gone := &kafka.ConnError{Name: "x", Written: 9, Err: errors.New("reset")}
	switch {
	case w.chance("not written", 8):
		return nil, &kafka.DialError{Addr: "b:1", Err: errors.New("refused")}
	case w.chance("lost", 15):
		w.copyLater(req)
		return nil, gone
	}
	resp = w.handle(req)
	if w.chance("answer lost", 15) {
		if w.chance("and comes twice", 50) {
			w.copyLater(req)
		}
		return nil, gone
	}
	return resp, nil
}

func (w *txWorld) copyLater(req kmsg.Request) {
	switch req.(type) {
	case *kmsg.InitProducerIDRequest, *kmsg.AddPartitionsToTxnRequest, *kmsg.AddOffsetsToTxnRequest:
		w.copied = true
	}
	if w.chance("copy never comes", 30) {
		return
	}
	longest := rapid.SampledFrom([]int{3, 50, 500, 30_000}).Draw(w.t, "longest ms")
	at := w.now.Add(time.Duration(rapid.IntRange(1, longest).Draw(w.t, "late ms")) * time.Millisecond)
	w.late = append(w.late, lateCopy{at, req})
	slices.SortStableFunc(w.late, func(a, b lateCopy) int { return a.at.Compare(b.at) })
}

// land ends one outstanding Produce request: one connection, in order.
func (w *txWorld) land() {
	if len(w.flying) == 0 {
		return
	}
	s := w.flying[0]
	w.flying = w.flying[1:]
	version := int16(11)
	if w.x.bumping {
		version = 12
	}
	resp, lost := w.send(w.produceRequest(version, s))
	if lost != nil {
		w.m.OnFailure(w.now, s.Request, lost)
		for _, o := range w.flying { // the connection is gone: what was behind it was not read
			w.m.OnFailure(w.now, o.Request, &kafka.ConnError{Name: "x", Written: 9, Err: errors.New("reset")})
		}
		w.flying = nil
		return
	}
	var answers []Answer
	for _, rt := range resp.(*kmsg.ProduceResponse).Topics {
		for _, rp := range rt.Partitions {
			a := Answer{
				Partition: kafka.TopicPartition{Topic: rt.Topic, Partition: rp.Partition}, Code: rp.ErrorCode,
				Base: kafka.Offset(rp.BaseOffset), AppendTime: -1, LogStart: kafka.Offset(rp.LogStartOffset), Leader: kafka.NoNode,
			}
			if a.Code == 0 && w.chance("success denied", 3) {
				a.Code, a.Base = 7, -1
			}
			answers = append(answers, a)
		}
	}
	w.m.OnAnswer(w.now, s.Request, answers)
}

func (w *txWorld) produceRequest(version int16, s Send) *kmsg.ProduceRequest {
	req := kmsg.NewPtrProduceRequest()
	id := txID
	req.Version, req.Acks, req.TransactionID = version, -1, &id
	for _, item := range s.Items {
		rt := kmsg.NewProduceRequestTopic()
		rt.Topic = txTopic
		rp := kmsg.NewProduceRequestTopicPartition()
		rp.Partition = w.parts[item.Batch].Partition
		var b record.Builder
		for i := range w.counts[item.Batch] {
			b.Append(1, nil, fmt.Appendf(nil, "%d/%d", item.Batch, i), nil)
		}
		rp.Records, _ = b.Seal(item.Stamp, 0, nil, 0, nil)
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
	}
	return req
}

// coordinate ends the outstanding request to a coordinator.
func (w *txWorld) coordinate() {
	a := w.asked
	if a == nil {
		return
	}
	w.asked = nil
	if w.chance("unknown server error", 2) {
		w.x.OnReply(w.now, Reply{Code: -1, ID: -1})
		return
	}
	resp, lost := w.send(w.requestOf(a))
	if lost != nil {
		w.x.OnReply(w.now, Reply{Err: lost, ID: -1})
		return
	}
	w.x.OnReply(w.now, w.replyOf(resp))
}

func (w *txWorld) requestOf(a Action) kmsg.Request {
	id := txID
	switch a := a.(type) {
	case InitProducer:
		req := kmsg.NewPtrInitProducerIDRequest()
		req.Version, req.TransactionalID, req.TransactionTimeoutMillis = 4, &id, int32(txTimeout.Milliseconds())
		req.ProducerID, req.ProducerEpoch = int64(a.ID), int16(a.Epoch)
		return req
	case Enrol:
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 3, txID, int64(a.ID), int16(a.Epoch)
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic = txTopic
		for _, tp := range a.Partitions {
			rt.Partitions = append(rt.Partitions, tp.Partition)
		}
		req.Topics = append(req.Topics, rt)
		return req
	case EnrolGroup:
		req := kmsg.NewPtrAddOffsetsToTxnRequest()
		req.Version, req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = 3, txID, txGroup, int64(a.ID), int16(a.Epoch)
		return req
	case CommitOffsets:
		req := kmsg.NewPtrTxnOffsetCommitRequest()
		req.Version, req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = 4, txID, txGroup, int64(a.ID), int16(a.Epoch)
		if a.Bumping {
			req.Version = 5
		}
		req.Generation = -1
		rt := kmsg.NewTxnOffsetCommitRequestTopic()
		rt.Topic = "in"
		rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
		rp.Offset = int64(w.offsetOf[a.Call])
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return req
	case EndTxn:
		req := kmsg.NewPtrEndTxnRequest()
		req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = 4, txID, int64(a.ID), int16(a.Epoch), a.Commit
		if a.Bumping {
			req.Version = 5
		}
		return req
	}
	panic("no request")
}

func (w *txWorld) replyOf(resp kmsg.Response) Reply {
	r := Reply{ID: -1}
	switch resp := resp.(type) {
	case *kmsg.InitProducerIDResponse:
		r.Code, r.ID, r.Epoch = resp.ErrorCode, kafka.ProducerID(resp.ProducerID), kafka.ProducerEpoch(resp.ProducerEpoch)
		r.Bumping = w.c.Level() >= 2
	case *kmsg.AddPartitionsToTxnResponse:
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				r.Parts = append(r.Parts, PartitionCode{kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}, p.ErrorCode})
			}
		}
	case *kmsg.AddOffsetsToTxnResponse:
		r.Code = resp.ErrorCode
	case *kmsg.TxnOffsetCommitResponse:
		for _, t := range resp.Topics {
			for _, p := range t.Partitions {
				r.Parts = append(r.Parts, PartitionCode{kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}, p.ErrorCode})
			}
		}
	case *kmsg.EndTxnResponse:
		r.Code, r.ID, r.Epoch = resp.ErrorCode, kafka.ProducerID(resp.ProducerID), kafka.ProducerEpoch(resp.ProducerEpoch)
	}
	return r
}

// The user's steps.

func (w *txWorld) begin() {
	if w.begun || w.beginner != 0 {
		return
	}
	w.beginner = w.call(func(err error) {
		w.beginner, w.beginErr = 0, err
		if err == nil {
			w.begun = true
			w.runs = append(w.runs, &txRun{n: len(w.runs) + 1, offsets: map[CallID]bool{}})
		}
	})
	w.x.OnBegin(w.beginner)
}

func (w *txWorld) add() {
	if !w.begun {
		return
	}
	w.last++
	b := Batch{
		ID: w.last, Partition: kafka.TopicPartition{Topic: txTopic, Partition: rapid.Int32Range(0, 2).Draw(w.t, "partition")},
		Count: rapid.Int32Range(1, 3).Draw(w.t, "count"), Since: w.now,
	}
	w.counts[b.ID], w.parts[b.ID] = b.Count, b.Partition
	if run := w.run(); run.ending {
		run.late = append(run.late, b.ID)
	} else {
		run.batches = append(run.batches, b.ID)
	}
	w.m.OnBatch(w.now, b)
}

func (w *txWorld) addOffsets() {
	if !w.begun {
		return
	}
	run := w.run()
	call := CallID(0)
	call = w.call(func(err error) { run.offsets[call] = err == nil })
	w.offsetOf[call] = run.n
	w.x.OnOffsets(w.now, call, kafka.GroupMetadata{Group: txGroup, Generation: -1}, 1)
}

func (w *txWorld) end(commit bool) {
	if !w.begun {
		return
	}
	run := w.run()
	run.ending = true
	call := w.call(func(err error) {
		run.ends = append(run.ends, txEnd{commit, err})
		if err == nil || errors.Is(err, ErrCommitted) || errors.Is(err, kafka.ErrNoTransaction) {
			w.begun = false
		}
	})
	if commit {
		w.x.OnCommit(w.now, call)
	} else {
		w.x.OnAbort(w.now, call)
	}
	if w.chance("context ends", 5) {
		w.x.OnLeave(w.now, call, errors.New("context"))
	}
}

// judge compares what the user was told with what the brokers hold.
func (w *txWorld) judge() {
	w.now = w.now.Add(time.Hour)
	w.handle(kmsg.NewPtrMetadataRequest())
	for range 100 {
		w.now = w.now.Add(time.Minute)
		w.handle(kmsg.NewPtrMetadataRequest())
	}
	fates := map[BatchID][]model.Fate{}
	for i := range int32(3) {
		for _, r := range w.c.Records(kafka.TopicPartition{Topic: txTopic, Partition: i}) {
			var id BatchID
			var index int32
			if _, err := fmt.Sscanf(string(r.Value), "%d/%d", &id, &index); err != nil || w.parts[id].Partition != i {
				w.t.Fatalf("%q is in partition %d", r.Value, i)
			}
			fates[id] = append(fates[id], r.Fate)
		}
	}
	for id := BatchID(1); id <= w.last; id++ {
		out, ok := w.outcomes[id]
		n := len(fates[id])
		switch {
		case !ok:
			w.t.Fatalf("batch %d has no result", id)
		case n != 0 && n != int(w.counts[id]):
			w.t.Fatalf("batch %d: %d records in the log, it has %d", id, n, w.counts[id])
		case out.Err == nil && n == 0:
			w.t.Fatalf("batch %d is acknowledged and not in the log", id)
		case out.Err != nil && !kafka.MayHaveHappened(out.Err) && n > 0:
			w.t.Fatalf("batch %d did not happen and is in the log: %v", id, out.Err)
		}
	}
	applied := int64(0)
	for _, run := range w.runs {
		if w.judgeRun(run, fates) {
			applied = max(applied, int64(run.n))
		}
	}
	if at, _ := w.c.Committed(txGroup, kafka.TopicPartition{Topic: "in"}); int64(at.Offset) < applied {
		w.t.Fatalf("the group is at %d, committed was %d", at.Offset, applied)
	}
}

// judgeRun judges one transaction, and reports whether its offsets have to be
// there.
func (w *txWorld) judgeRun(run *txRun, fates map[BatchID][]model.Fate) bool {
	committed, missing := 0, 0
	for _, id := range append(slices.Clone(run.batches), run.late...) {
		if f := fates[id]; len(f) > 0 && f[0] == model.Committed {
			committed++
		} else if w.outcomes[id].Err == nil {
			missing++
		}
	}
	at, _ := w.c.Committed(txGroup, kafka.TopicPartition{Topic: "in"})
	applied := at.Offset == kafka.Offset(run.n)
	if committed > 0 && missing > 0 {
		w.t.Fatalf("transaction %d is committed in part: %d batches are, %d are not", run.n, committed, missing)
	}
	yes, no, unknown := false, false, false
	for _, e := range run.ends {
		switch {
		case e.commit && e.err == nil, errors.Is(e.err, ErrCommitted):
			yes = true
		case !e.commit && e.err == nil:
			no = true
		case e.commit && kafka.MayHaveHappened(e.err), !e.commit:
			unknown = true
		case errors.Is(e.err, kafka.ErrNoTransaction):
		default:
			unknown = unknown || w.begun
		}
	}
	all := true
	for _, ok := range run.offsets {
		all = all && ok
	}
	switch {
	case yes && no:
		w.t.Fatalf("transaction %d was reported committed and aborted: %v", run.n, run.ends)
	case yes && w.holes(run):
		w.t.Fatalf("transaction %d is committed around a hole", run.n)
	case yes && missing > 0:
		w.t.Fatalf("transaction %d was reported committed and is not", run.n)
	case (no || !yes && !unknown) && (committed > 0 || applied):
		w.t.Fatalf("transaction %d was not committed, as its user knows it: %v, and is: %d batches, offsets %v", run.n, run.ends, committed, applied)
	}
	return yes && len(run.offsets) > 0 && all
}

// holes reports whether a batch of a transaction is not done.
func (w *txWorld) holes(run *txRun) bool {
	return slices.ContainsFunc(run.batches, func(id BatchID) bool { return w.outcomes[id].Err != nil })
}

// settle lets everything end on a healthy network.
func (w *txWorld) settle() {
	w.healthy = true
	for range 3000 {
		w.drain()
		switch {
		case len(w.flying) > 0:
			w.land()
		case w.asked != nil:
			w.coordinate()
		case len(w.calls) == 0 && len(w.outcomes) == int(w.last):
			return
		default:
			at := w.m.Deadline()
			if at.IsZero() {
				w.t.Fatalf("%d calls and %d batches wait, and the machine for nothing", len(w.calls), int(w.last)-len(w.outcomes))
			}
			w.now = later(w.now, at)
		}
	}
	w.t.Fatalf("does not settle: %d calls, %d of %d results, asked %+v, %+v", len(w.calls), len(w.outcomes), w.last, w.asked, w.x)
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// recover demands that a transaction goes through once the faults are over.
func (w *txWorld) recover() {
	w.settle()
	for range 3 { // what is open may be doomed
		if !w.begun {
			break
		}
		w.end(false)
		w.settle()
	}
	w.begin()
	w.settle()
	w.add()
	w.addOffsets()
	w.settle()
	w.end(true)
	w.settle()
	last := w.run()
	if len(last.ends) == 0 || last.ends[len(last.ends)-1].err != nil || !last.ends[len(last.ends)-1].commit {
		if w.over && (w.rival || w.copied || w.slept) {
			return
		}
		if w.copied { // a late copy of a request for a new identity aborts what is open
			return
		}
		w.t.Fatalf("a transaction on a healthy cluster fails: begin %v, %v; over: %v", w.beginErr, last.ends, w.m.over)
	}
}

// TestT10_P42_P45TransactionsAreHonestUnderAnyFaults runs random schedules of a
// transactional machine against the model of the brokers, under both protocols.
//
// The mutations that make it fail: a lost answer of EndTxn taken for success; an
// end that does not wait for batches on their way. That a new epoch is needed
// after a lost answer, or a batch in doubt, is shown by the tests of the rules
// in package producer: here the late copy hardly ever meets its moment.
func TestT10_P42_P45TransactionsAreHonestUnderAnyFaults(t *testing.T) {
	for _, level := range []int16{1, 2} {
		t.Run(fmt.Sprintf("level %d", level), func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				w := newTxWorld(t, level)
				for range rapid.IntRange(1, 80).Draw(t, "steps") {
					w.step()
					w.drain()
				}
				w.recover()
				w.judge()
			})
		})
	}
}

func (w *txWorld) step() {
	switch rapid.IntRange(0, 15).Draw(w.t, "step") {
	case 0, 1:
		w.begin()
	case 2, 3, 4:
		w.add()
	case 5:
		w.addOffsets()
	case 6:
		w.end(true)
	case 7:
		w.end(rapid.Bool().Draw(w.t, "commit"))
	case 8, 9, 10:
		w.land()
	case 11, 12, 13:
		w.coordinate()
	case 14:
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 100).Draw(w.t, "ms")) * time.Millisecond)
	default:
		w.longStep()
	}
}

func (w *txWorld) longStep() {
	switch rapid.IntRange(0, 4).Draw(w.t, "long step") {
	case 0, 1, 2:
		w.now = w.now.Add(time.Duration(rapid.IntRange(1, 5).Draw(w.t, "s")) * time.Second)
		w.slept = true // several of them may be longer than a transaction lasts
	case 3:
		w.now = w.now.Add(txTimeout + 15*time.Second)
		w.slept = true
	default:
		if rapid.IntRange(0, 3).Draw(w.t, "rival") == 0 {
			w.rival = true
			w.handle(w.requestOf(InitProducer{-1, -1}))
		}
	}
}
