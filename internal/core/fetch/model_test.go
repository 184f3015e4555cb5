package fetch

import (
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// The model: logs of two partitions that do not change, and for each assigned
// partition the offsets that its reader has to be given next. A random script
// answers, loses and delays requests, moves leaders, seeks, pauses, takes
// partitions away; whatever the order, what is handed out continues what was
// handed out before, without a hole and without a repetition, and in the end
// everything is.

type modelEntry struct {
	s       spec
	wire    []byte
	visible bool
}

// modelTopic is the log of a partition: plain batches, a committed and an
// aborted transaction, in a random order, and gaps.
func modelTopic(t *rapid.T, name string) (log []modelEntry, aborts [][3]int64) {
	o := kafka.Offset(0)
	add := func(s spec, visible bool) {
		s.base += o
		s.last += o
		if !s.empty && !s.control {
			s.codec = compress.Codec(len(log) % 3 * 2 % 5) // none, snappy, zstd
		}
		log = append(log, modelEntry{s, s.build(), visible})
		o = s.last + 1
	}
	for i := range rapid.IntRange(1, 12).Draw(t, name) {
		pid := kafka.ProducerID(i%2 + 1)
		switch rapid.IntRange(0, 5).Draw(t, "entry") {
		case 0:
			aborts = append(aborts, [3]int64{int64(pid), int64(o), int64(o) + 3})
			add(tx(pid, 0, 2), false)
			add(mark(record.Abort, pid, 0), false)
		case 1:
			add(tx(pid, 0, 1), true)
			add(mark(record.Commit, pid, 0), false)
		case 2:
			add(spec{last: 3, empty: true}, false)
		case 3:
			o += 100
		default:
			add(spec{last: kafka.Offset(i % 4), holes: i % 2 * min(1, i%4)}, true)
		}
	}
	return log, aborts
}

type model struct {
	t      *rapid.T
	r      *rig
	logs   map[int32][]modelEntry
	aborts map[int32][][3]int64
	expect map[int32]kafka.Offset // assigned partitions: where their readers are
	paused map[int32]bool
	leader map[int32]kafka.NodeID
	ranged *Loan // a range is in the middle of it
	reuse  bool  // memory of answers is used again, poisoned (F46)

	sessions map[kafka.NodeID]*sim.FetchSessions
	works    []Work
}

// broker keeps the sessions of one broker; at times it grants none.
func (m *model) broker(id kafka.NodeID) *sim.FetchSessions {
	if m.sessions[id] == nil {
		m.sessions[id] = &sim.FetchSessions{Refuse: func() bool { return rapid.IntRange(0, 9).Draw(m.t, "refuse") == 0 }}
	}
	return m.sessions[id]
}

func (m *model) end(p int32) kafka.Offset {
	if n := len(m.logs[p]); n > 0 {
		return m.logs[p][n-1].s.last + 1
	}
	return 0
}

// next is the first visible offset at or above o, and false behind the last.
func (m *model) next(p int32, o kafka.Offset) (kafka.Offset, bool) {
	for _, e := range m.logs[p] {
		if last := e.s.last - kafka.Offset(e.s.holes); e.visible && last >= o {
			return max(o, e.s.base), true
		}
	}
	return 0, false
}

func (m *model) info() TopicInfo {
	ti := info("t", m.leader[0], m.leader[1])
	for p := range ti.Partitions {
		ti.Partitions[p].Epoch = kafka.LeaderEpoch(m.leader[int32(p)])
	}
	return ti
}

// serve answers one partition of a Fetch.
func (m *model) serve(rp kmsg.FetchRequestTopicPartition) partAnswer {
	p := rp.Partition
	a := partAnswer{p: p, hw: m.end(p), lso: m.end(p)}
	switch rapid.IntRange(0, 9).Draw(m.t, "serve") {
	case 0:
		a.code = rapid.SampledFrom([]int16{5, 6, 7, 74, 75, 78}).Draw(m.t, "code")
		return a
	case 1:
		return a
	}
	at := kafka.Offset(rp.FetchOffset)
	first := slices.IndexFunc(m.logs[p], func(e modelEntry) bool { return e.s.last >= at })
	if first < 0 {
		return a
	}
	end := min(first+rapid.IntRange(1, 5).Draw(m.t, "batches"), len(m.logs[p]))
	for _, e := range m.logs[p][first:end] {
		a.data = append(a.data, e.wire...)
	}
	if end < len(m.logs[p]) {
		cut := m.logs[p][end].wire
		a.data = append(a.data, cut[:rapid.IntRange(0, len(cut)-1).Draw(m.t, "cut")]...)
	}
	for _, ab := range m.aborts[p] { // those that reach into the answer, as a broker lists them
		if ab[2] >= int64(m.logs[p][first].s.base) {
			a.aborted = append(a.aborted, abortedList(ab[0], ab[1])...)
		}
	}
	slices.Reverse(a.aborted)
	return a
}

func (m *model) answer() {
	f, ok := maybe[*FetchAction](m.r)
	if !ok {
		return
	}
	b := m.broker(f.Broker)
	outcome := rapid.IntRange(0, 11).Draw(m.t, "outcome")
	if outcome == 0 { // lost on the way
		m.r.m.OnFetch(m.r.now, f.ID, nil, io.EOF)
		m.r.step()
		return
	}
	if outcome == 1 { // the broker forgets, as after a restart
		*b = sim.FetchSessions{}
	}
	id, full, code := b.Expand(f.Req)
	if faults := b.Faults(); len(faults) > 0 {
		m.t.Fatal(faults)
	}
	if code != 0 && outcome != 1 && f.Req.SessionEpoch <= 0 || code == 71 {
		m.t.Fatalf("code %d to a request of session %d, epoch %d", code, f.Req.SessionID, f.Req.SessionEpoch)
	}
	resp := fetchAnswer("t")
	resp.Topics = nil
	if resp.ErrorCode = code; code == 0 {
		var parts []partAnswer
		for _, rt := range full.Topics {
			for _, rp := range rt.Partitions {
				m.meant(f, rp)
				parts = append(parts, m.serve(rp))
			}
		}
		resp = fetchAnswer("t", parts...)
		b.Finish(id, f.Req, resp)
	}
	if outcome == 2 { // the answer is lost, the broker's session went on
		m.r.m.OnFetch(m.r.now, f.ID, nil, io.EOF)
	} else {
		if m.reuse {
			m.r.read(f, resp)
		}
		m.r.m.OnFetch(m.r.now, f.ID, resp, nil)
	}
	m.r.step()
}

// meant checks that what the broker believes it was asked for is what the
// machine asked, or has given up since.
func (m *model) meant(f *FetchAction, rp kmsg.FetchRequestTopicPartition) {
	p := m.r.m.part(tp("t", rp.Partition))
	if p != nil && p.fetch.id == f.ID && p.fetch.offset != kafka.Offset(rp.FetchOffset) {
		m.t.Fatalf("the broker reads partition %d from %d, the machine means %d", rp.Partition, rp.FetchOffset, p.fetch.offset)
	}
}

// ahead has a batch decoded, and worked takes the result of one in, which may
// have hit its limit.
func (m *model) ahead() {
	if w, ok := m.r.m.Ahead(); ok {
		m.works = append(m.works, w)
	}
	m.r.step()
}

func (m *model) worked() {
	if len(m.works) == 0 {
		return
	}
	i := rapid.IntRange(0, len(m.works)-1).Draw(m.t, "work")
	w := m.works[i]
	m.works = slices.Delete(m.works, i, i+1)
	var d Decoder
	if payload, err := d.Decode(w.Batch, nil); rapid.IntRange(0, 3).Draw(m.t, "too large") == 0 {
		m.r.m.OnAhead(w, nil, io.ErrShortBuffer)
	} else {
		m.r.m.OnAhead(w, payload, err)
	}
	m.r.step()
}

// vet answers a question for the end of an epoch. Nothing is ever truncated.
func (m *model) vet() {
	a, ok := maybe[*EpochAction](m.r)
	if !ok {
		return
	}
	resp := kmsg.NewPtrOffsetForLeaderEpochResponse()
	rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
	rt.Topic = "t"
	for _, q := range a.Req.Topics[0].Partitions {
		rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
		rp.Partition = q.Partition
		switch rapid.IntRange(0, 4).Draw(m.t, "epoch") {
		case 0:
			rp.ErrorCode = rapid.SampledFrom([]int16{6, 74, 75, 29}).Draw(m.t, "code")
		case 1:
			rp.EndOffset = -1
		default:
			rp.EndOffset = int64(m.end(q.Partition))
		}
		rt.Partitions = append(rt.Partitions, rp)
	}
	resp.Topics = append(resp.Topics, rt)
	m.r.m.OnEpochs(m.r.now, a.ID, resp, nil)
	m.r.step()
}

// poll takes a batch and hands all of it out.
func (m *model) poll() {
	recs, _ := m.r.pollOne()
	m.r.step()
	m.handed(recs)
}

// enter begins to range over a batch, if no range is under way; leave ends that
// with a part of the batch used, if the partition may still be handed out.
func (m *model) enter() {
	if m.ranged == nil {
		if l, ok := m.r.m.Take(m.r.now); ok {
			m.ranged = &l
		}
		m.r.step()
	}
}

func (m *model) leave() {
	if m.ranged == nil {
		return
	}
	l := *m.ranged
	m.ranged = nil
	payload, err := l.Payload, error(nil)
	if payload == nil {
		payload, err = m.r.dec.Decode(l.Batch, nil)
	}
	if err != nil {
		m.t.Fatal(err)
	}
	l.Payload = payload
	recs := recordsOf(l, payload)
	if n := rapid.IntRange(0, 2*len(recs)).Draw(m.t, "used"); !l.Current() || l.Stopped() || n == 0 {
		m.r.m.Return(l, l.From, l.From)
		recs = nil
	} else if n < len(recs) {
		m.r.m.Return(l, recs[n].o, recs[n].o)
		recs = recs[:n]
	} else {
		m.r.m.Return(l, l.next, l.next)
	}
	l.Free()
	m.r.step()
	m.handed(recs)
}

// handed checks that records continue what was handed out before.
func (m *model) handed(recs []got) {
	for _, g := range recs {
		p := g.tp.Partition
		at, assigned := m.expect[p]
		want, more := m.next(p, at)
		if !assigned || m.paused[p] || !more || g.o != want {
			m.t.Fatalf("%s: offset %d was handed out, want %d (assigned %v, paused %v)", g.tp, g.o, want, assigned, m.paused[p])
		}
		m.expect[p] = g.o + 1
	}
}

func (m *model) drawn() int32 { return rapid.Int32Range(0, 1).Draw(m.t, "partition") }

func (m *model) seek() {
	p := m.drawn()
	to := kafka.Offset(rapid.Int64Range(0, int64(m.end(p))).Draw(m.t, "offset"))
	if m.r.m.Seek(tp("t", p), AtOffset(to)) {
		m.expect[p] = to
	}
	m.r.step()
}

func (m *model) pause() {
	p, on := m.drawn(), rapid.Bool().Draw(m.t, "paused")
	if m.r.m.Pause(tp("t", p), on) {
		m.paused[p] = on
	}
	m.r.step()
}

func (m *model) reassign() {
	p := m.drawn()
	if _, ok := m.expect[p]; ok {
		m.r.m.Remove([]kafka.TopicPartition{tp("t", p)})
		delete(m.expect, p)
		delete(m.paused, p)
	} else {
		m.r.m.Add(map[kafka.TopicPartition]Start{tp("t", p): AtOffset(0)})
		m.expect[p] = 0
	}
	m.r.step()
}

func (m *model) move() {
	m.leader[m.drawn()] += 1
	m.r.m.OnTopic(m.r.now, "t", m.info())
	m.r.step()
}

func (m *model) lookup() {
	if l, ok := maybe[*LookupAction](m.r); ok {
		m.r.m.OnTopic(m.r.now, l.Topic, m.info())
		m.r.step()
	}
}

func (m *model) pass() {
	if !m.r.m.Deadline(m.r.now).IsZero() {
		m.r.wait()
	}
}

func TestF7_F14_F15_F47AnyScriptHandsEverythingOutOnceAndInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		cfg := testConfig()
		cfg.Budget = 4000
		cfg.Poison = true
		cfg.MaxBytes, cfg.PartitionMaxBytes = 2000, 500
		m := &model{
			t: rt, r: newRig(t, cfg), logs: map[int32][]modelEntry{}, aborts: map[int32][][3]int64{},
			expect: map[int32]kafka.Offset{}, paused: map[int32]bool{}, leader: map[int32]kafka.NodeID{0: 1, 1: 2},
			sessions: map[kafka.NodeID]*sim.FetchSessions{}, reuse: rapid.Bool().Draw(rt, "reuse"),
		}
		for p := range int32(2) {
			m.logs[p], m.aborts[p] = modelTopic(rt, fmt.Sprint("log ", p))
		}
		m.reassign()
		rt.Repeat(map[string]func(*rapid.T){
			"answer": func(*rapid.T) { m.answer() }, "answer again": func(*rapid.T) { m.answer() },
			"poll": func(*rapid.T) { m.poll() }, "poll again": func(*rapid.T) { m.poll() },
			"enter": func(*rapid.T) { m.enter() }, "leave": func(*rapid.T) { m.leave() },
			"ahead": func(*rapid.T) { m.ahead() }, "worked": func(*rapid.T) { m.worked() },
			"vet":    func(*rapid.T) { m.vet() },
			"lookup": func(*rapid.T) { m.lookup() }, "pass": func(*rapid.T) { m.pass() },
			"seek": func(*rapid.T) { m.seek() }, "pause": func(*rapid.T) { m.pause() },
			"reassign": func(*rapid.T) { m.reassign() }, "move": func(*rapid.T) { m.move() },
		})
		m.finish()
	})
}

// finish lets everything come to its end: all that is left must be handed out.
func (m *model) finish() {
	for p := range m.paused {
		m.r.m.Pause(tp("t", p), false)
	}
	clear(m.paused)
	m.leave()
	m.r.step()
	began := m.r.now
	for n := 0; ; n++ {
		left := 0
		for p, o := range m.expect {
			if _, more := m.next(p, o); more {
				left++
			}
		}
		if left == 0 {
			return
		}
		if n > 3000 || m.r.now.Sub(began) > time.Hour {
			m.t.Fatalf("%d partitions come to no end: %v", left, m.expect)
		}
		m.lookup()
		m.vet()
		m.worked()
		m.answer()
		m.poll()
		m.pass()
	}
}
