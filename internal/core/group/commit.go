package group

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// Offsets are positions by partition.
type Offsets map[kafka.TopicPartition]kafka.Commit

// Committed is the end of a commit: a result for each partition, nil if the
// broker took the offset. Its errors answer MayHaveHappened.
type Committed struct {
	Op      uint64
	Results map[kafka.TopicPartition]error
}

// Loaded is the end of a load: what is committed, without the partitions that
// have nothing committed, or why nothing can be said.
type Loaded struct {
	Op      uint64
	Offsets Offsets
	Err     error
}

func (*Committed) action() {}
func (*Loaded) action()    {}

// commits holds what is to be committed and to be looked up. One of each is in
// flight at a time.
type commits struct {
	ops     []*commitOp
	loads   []*loadOp
	out     *commitOp
	asking  *loadOp
	retryAt time.Time // of ops
	loadAt  time.Time // of loads
	tries   int
	asks    int
}

type commitOp struct {
	id      uint64
	offsets Offsets
	results map[kafka.TopicPartition]error
	doubt   error // an earlier copy may have been taken
}

type loadOp struct {
	id  uint64
	tps []kafka.TopicPartition
	got Offsets
}

// Commit asks for offsets to be committed, and gives the number of the
// [Committed] that ends it. Offsets below zero and partitions that are not owned
// are refused. What cannot be sent now waits for the end of the round.
func (m *Machine) Commit(offsets Offsets) uint64 {
	m.lastID++
	op := &commitOp{id: m.lastID, offsets: Offsets{}, results: map[kafka.TopicPartition]error{}}
	for tp, c := range offsets {
		switch {
		case c.Offset < 0:
			op.results[tp] = errNegative
		case m.state.over():
			op.results[tp] = errLeft
		case !m.Owns(tp): // what it may own later is read from elsewhere
			op.results[tp] = errNotOwned
		default:
			op.offsets[tp] = c
		}
	}
	if len(op.offsets) == 0 {
		m.commits.finish(m, op)
		return op.id
	}
	m.commits.ops = append(m.commits.ops, op)
	return op.id
}

const errNegative = notDone("ottla: an offset below zero is never committed")

// Load asks for the committed offsets of partitions, and gives the number of the
// [Loaded] that ends it. Partitions that are lost meanwhile are left out.
func (m *Machine) Load(tps []kafka.TopicPartition) uint64 {
	m.lastID++
	m.commits.loads = append(m.commits.loads, &loadOp{id: m.lastID, tps: slices.Clone(tps), got: Offsets{}})
	if m.state.over() {
		m.commits.lost(m, errLeft)
	}
	return m.lastID
}

// flying reports whether a commit is in flight.
func (c *commits) flying() bool { return c.out != nil }

// next sends what may be sent.
func (c *commits) next(m *Machine, now time.Time) {
	if c.out == nil && len(c.ops) > 0 && m.proto.mayCommit() && !now.Before(c.retryAt) {
		c.sendCommit(m)
	}
	if c.asking == nil && len(c.loads) > 0 && !now.Before(c.loadAt) {
		c.sendLoad(m)
	}
}

func (c *commits) deadline(m *Machine) time.Time {
	var d time.Time
	if c.out == nil && len(c.ops) > 0 && m.proto.mayCommit() {
		d = c.retryAt
	}
	if c.asking == nil && len(c.loads) > 0 {
		d = retry.Earlier(d, c.loadAt)
	}
	return d
}

// sendCommit sends the oldest commit, without what is not owned any more.
func (c *commits) sendCommit(m *Machine) {
	op := c.ops[0]
	c.ops = c.ops[1:]
	tps := make([]kafka.TopicPartition, 0, len(op.offsets))
	for tp := range op.offsets {
		if !m.Owns(tp) {
			op.end(tp, errNotOwned)
			continue
		}
		tps = append(tps, tp)
	}
	if len(tps) == 0 {
		c.finish(m, op)
		return
	}
	slices.SortFunc(tps, kafka.TopicPartition.Compare)
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation, req.MemberID = m.cfg.Group, m.proto.epoch(), m.memberID
	if m.cfg.InstanceID != "" {
		req.InstanceID = &m.cfg.InstanceID
	}
	for _, tp := range tps {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic = tp.Topic
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		o := op.offsets[tp]
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = tp.Partition, int64(o.Offset), int32(o.LeaderEpoch), &o.Metadata
		last := &req.Topics[len(req.Topics)-1]
		last.Partitions = append(last.Partitions, p)
	}
	c.out = op
	m.send(&flight{kind: flightCommit, op: op}, req, 0)
}

// end records the result of one partition.
func (op *commitOp) end(tp kafka.TopicPartition, err error) {
	if err != nil && op.doubt != nil {
		err = op.doubt // an earlier copy may have been taken
	}
	op.results[tp] = err
	delete(op.offsets, tp)
}

func (c *commits) finish(m *Machine, op *commitOp) {
	for _, tp := range sortedPartitions(op.offsets) {
		op.end(tp, errNotOwned)
	}
	m.queue = append(m.queue, &Committed{Op: op.id, Results: op.results})
}

func sortedPartitions(offsets Offsets) []kafka.TopicPartition {
	tps := make([]kafka.TopicPartition, 0, len(offsets))
	for tp := range offsets {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, kafka.TopicPartition.Compare)
	return tps
}

// onCommit takes the answer of OffsetCommit.
func (c *commits) onCommit(m *Machine, now time.Time, f *flight, resp kmsg.Response, err error) {
	op := f.op
	c.out = nil
	r, ok := resp.(*kmsg.OffsetCommitResponse)
	if err != nil || !ok {
		if permanent(err) {
			for _, tp := range sortedPartitions(op.offsets) {
				op.end(tp, err)
			}
			c.finish(m, op)
			return
		}
		if kafka.MayHaveHappened(err) {
			op.doubt = err
		}
		c.again(m, now, op)
		return
	}
	codes := map[kafka.TopicPartition]int16{}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			codes[kafka.TopicPartition{Topic: t.Topic, Partition: p.Partition}] = p.ErrorCode
		}
	}
	worst := int16(0)
	for _, tp := range sortedPartitions(op.offsets) {
		code, answered := codes[tp]
		if !answered {
			code = codeCoordinatorLoading // never an answer without an item: ask again
		}
		switch {
		case code == 0:
			op.end(tp, nil)
		case worthAgain(code):
			worst = code
		default:
			op.end(tp, kafka.CodeError(code, nil))
			if memberGone(code) {
				worst = code
			}
		}
	}
	c.after(m, now, f, worst)
}

// worthAgain reports whether an offset refused with the code is kept and sent
// again.
func worthAgain(code int16) bool {
	switch retry.Of(code) {
	case retry.Retry, retry.FindCoordinator:
		return true
	}
	return code == codeRebalancing || code == codeStaleEpoch
}

// memberGone reports whether a code on a commit says that the membership that it
// was made under is over.
func memberGone(code int16) bool {
	return code == codeIllegalGeneration || code == codeUnknownMember || code == codeFencedInstance || code == codeFencedEpoch
}

// after acts on the worst code of an answer. A code about an older generation
// than the present one says nothing about that.
func (c *commits) after(m *Machine, now time.Time, f *flight, code int16) {
	op := f.op
	current := f.epoch == m.proto.epoch()
	switch {
	case code == 0:
		c.tries = 0
	case worthAgain(code):
		m.coordinatorMoved(code)
		if code == codeRebalancing {
			m.Rejoin("the group rebalances")
		}
		if code == codeStaleEpoch && current {
			m.proto.rejoin("stale epoch") // a full heartbeat brings the epoch
		}
		c.again(m, now, op)
		return
	}
	c.finish(m, op)
	if memberGone(code) && current {
		c.gone(m, now, code)
	}
}

// gone deals with a membership that a commit found over.
func (*commits) gone(m *Machine, now time.Time, code int16) {
	if code == codeFencedInstance {
		m.fail(m.memberError(code, nil))
		return
	}
	switch p := m.proto.(type) {
	case *classic:
		p.lost(now, code)
	case *consumer:
		p.failed(now, code, nil, nil)
	}
}

// again keeps a commit for later.
func (c *commits) again(m *Machine, now time.Time, op *commitOp) {
	c.tries++
	c.retryAt = now.Add(m.cfg.Backoff.Delay(c.tries, m.rng))
	c.ops = append([]*commitOp{op}, c.ops...)
}

// lost ends everything under a membership that is over: what waits was not done,
// what is in flight may have been, and nobody waits for its answer.
func (c *commits) lost(m *Machine, why error) {
	if op := c.out; op != nil {
		c.out = nil
		m.forget(flightCommit)
		op.doubt = &unanswered{why}
		c.finish(m, op)
	}
	for _, op := range c.ops {
		for _, tp := range sortedPartitions(op.offsets) {
			op.end(tp, refusal(why))
		}
		c.finish(m, op)
	}
	c.ops = nil
	if c.asking != nil {
		c.loads = append(c.loads, c.asking)
		c.asking = nil
		m.forget(flightLoad)
	}
	for _, op := range c.loads {
		m.queue = append(m.queue, &Loaded{Op: op.id, Err: why})
	}
	c.loads = nil
}

// refusal is an error of something that was not done.
func refusal(why error) error {
	if kafka.MayHaveHappened(why) {
		return errLeft
	}
	return why
}

// unanswered is a commit that was sent and whose answer nobody waits for.
type unanswered struct{ why error }

func (e *unanswered) Error() string {
	return "ottla: the commit was sent and not answered: " + e.why.Error()
}
func (e *unanswered) Unwrap() error       { return e.why }
func (*unanswered) MayHaveHappened() bool { return true }
