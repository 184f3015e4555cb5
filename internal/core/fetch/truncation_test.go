package fetch

import (
	"errors"
	"io"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/ottla/ottla/kafka"
)

// The model of a partition whose log is cut by elections (KIP-320): every leader
// begins with a part of the log before it and writes in an epoch of its own, and a
// deposed one may not know and serve what it has. A user who takes what is handed
// out, and goes back where a loss is told, has the log of the last leader in the
// end, whatever the order of answers, losses and elections.

// replica is a node as it sees itself.
type replica struct {
	leads bool
	epoch kafka.LeaderEpoch
	log   []spec
}

func (r *replica) end() kafka.Offset {
	if n := len(r.log); n > 0 {
		return r.log[n-1].last + 1
	}
	return 0
}

// refuses is the broker's look at the leader epoch of a request.
func (r *replica) refuses(current int32) int16 {
	switch {
	case !r.leads:
		return 6
	case current >= 0 && kafka.LeaderEpoch(current) < r.epoch:
		return 74
	case kafka.LeaderEpoch(current) > r.epoch:
		return 75
	}
	return 0
}

// endOf is where an epoch ends, where the first one after it begins, and the
// epoch of what is before that.
func (r *replica) endOf(epoch kafka.LeaderEpoch) (end kafka.Offset, of kafka.LeaderEpoch) {
	if epoch < 0 || epoch > r.epoch {
		return -1, -1
	}
	of = epoch
	for _, s := range r.log {
		if s.epoch > epoch {
			return s.base, of
		}
		of = s.epoch
	}
	return r.end(), of
}

type parting struct {
	t      *rapid.T
	r      *rig
	nodes  map[kafka.NodeID]*replica
	leader kafka.NodeID
	known  kafka.NodeID // as the client's metadata has it
	at     kafka.LeaderEpoch

	seen   []kafka.LeaderEpoch // by offset: the epoch of the record that the user has
	ranged *Loan
	held   []Loan // delivered, on their way to the user
	losses int
}

func (m *parting) newest() *replica { return m.nodes[m.leader] }

func (m *parting) write() {
	l := m.newest()
	n := kafka.Offset(rapid.IntRange(1, 4).Draw(m.t, "records"))
	l.log = append(l.log, spec{base: l.end(), last: l.end() + n - 1, epoch: l.epoch})
}

// elect makes another node the leader, whose log may lack the end of what was
// there. Whoever led before may not hear of it.
func (m *parting) elect() {
	old := m.newest()
	cut := 0
	if rapid.Bool().Draw(m.t, "unclean") {
		cut = min(len(old.log), rapid.IntRange(0, 3).Draw(m.t, "cut"))
	}
	m.leader = m.leader%3 + 1
	m.nodes[m.leader] = &replica{leads: true, epoch: old.epoch + 1, log: append([]spec(nil), old.log[:len(old.log)-cut]...)}
	if rapid.Bool().Draw(m.t, "hears") {
		old.leads = false
	}
}

// learn has the client hear of the newest leader.
func (m *parting) learn() {
	m.known, m.at = m.leader, m.newest().epoch
	m.tell()
}

func (m *parting) tell() {
	ti := info("t", m.known)
	ti.Partitions[0].Epoch = m.at
	m.r.m.OnTopic(m.r.now, "t", ti)
	m.r.step()
}

func (m *parting) lookup() {
	if _, ok := maybe[*LookupAction](m.r); ok {
		if rapid.Bool().Draw(m.t, "current") {
			m.known, m.at = m.leader, m.newest().epoch
		}
		m.tell()
	}
}

func (m *parting) answer() {
	f, ok := maybe[*FetchAction](m.r)
	if !ok {
		return
	}
	if rapid.IntRange(0, 7).Draw(m.t, "lost") == 0 || len(f.Req.Topics) == 0 {
		m.r.m.OnFetch(m.r.now, f.ID, nil, io.EOF)
		m.r.step()
		return
	}
	rp := f.Req.Topics[0].Partitions[0]
	n := m.nodes[f.Broker]
	if n == nil {
		n = &replica{}
	}
	a := partAnswer{hw: n.end(), lso: n.end(), code: n.refuses(rp.CurrentLeaderEpoch)}
	if a.code != 0 {
		if rapid.Bool().Draw(m.t, "hint") && a.code != 75 {
			a.leader, a.epoch = m.leader, m.newest().epoch
		}
	} else if at := kafka.Offset(rp.FetchOffset); at > n.end() {
		m.t.Fatalf("%d is fetched of a log of %d that was not compared", at, n.end())
	} else {
		left := rapid.IntRange(0, 4).Draw(m.t, "batches")
		for _, s := range n.log {
			if s.last >= at && left > 0 {
				a.data = append(a.data, s.build()...)
				left--
			}
		}
	}
	m.r.m.OnFetch(m.r.now, f.ID, fetchAnswer("t", a), nil)
	m.r.step()
}

func (m *parting) vet() {
	a, ok := maybe[*EpochAction](m.r)
	if !ok {
		return
	}
	if rapid.IntRange(0, 7).Draw(m.t, "lost") == 0 {
		m.r.m.OnEpochs(m.r.now, a.ID, nil, io.EOF)
		m.r.step()
		return
	}
	q := a.Req.Topics[0].Partitions[0]
	n := m.nodes[a.Broker]
	if n == nil {
		n = &replica{}
	}
	resp := epochResponse(tp0, -1, n.refuses(q.CurrentLeaderEpoch))
	if rp := &resp.Topics[0].Partitions[0]; rp.ErrorCode == 0 {
		end, of := n.endOf(kafka.LeaderEpoch(q.LeaderEpoch))
		rp.EndOffset, rp.LeaderEpoch = int64(end), int32(of)
		if end < 0 {
			m.t.Fatalf("asked for the end of epoch %d", q.LeaderEpoch)
		}
	}
	m.r.m.OnEpochs(m.r.now, a.ID, resp, nil)
	m.r.step()
}

// news goes back where a loss is told, of what the user has.
func (m *parting) news() {
	n := m.r.m.News()
	told := 0
	for _, p := range n.Resets {
		if int(p.New) >= len(m.seen) || int(p.Old) != len(m.seen) {
			m.t.Fatalf("back from %d to %d, the user has %d", p.Old, p.New, len(m.seen))
		}
		m.seen = m.seen[:p.New]
		told++
	}
	var loss *kafka.DataLossError
	if (told > 0) != errors.As(n.Err, &loss) || n.Err != nil && loss == nil {
		m.t.Fatalf("%d losses, told: %v", told, n.Err)
	}
	m.losses += told
}

// handed takes what the user is given of a batch.
func (m *parting) handed(l Loan, recs []got) {
	for _, g := range recs {
		if int(g.o) != len(m.seen) {
			m.t.Fatalf("offset %d was handed out, the user has %d", g.o, len(m.seen))
		}
		m.seen = append(m.seen, l.Batch.LeaderEpoch())
	}
}

// poll has a batch delivered, which reaches the user at once or later.
func (m *parting) poll() {
	m.news()
	recs, l, ok := m.r.hold()
	if ok {
		l.Free()
	}
	m.handed(l, recs)
	if recs != nil {
		m.held = append(m.held, l)
	}
	if rapid.Bool().Draw(m.t, "reached") {
		m.reach()
	}
	m.r.step()
}

func (m *parting) reach() {
	for _, l := range m.held {
		l.Release()
	}
	m.held = nil
	m.r.step()
}

func (m *parting) enter() {
	if m.ranged == nil {
		m.news()
		if l, ok := m.r.m.Take(m.r.now); ok {
			m.ranged = &l
		}
		m.r.step()
	}
}

func (m *parting) leave() {
	if m.ranged == nil {
		return
	}
	l := *m.ranged
	m.ranged = nil
	payload, err := m.r.dec.Decode(l.Batch, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	l.Payload = payload
	recs := recordsOf(l, payload)
	if n := rapid.IntRange(0, len(recs)).Draw(m.t, "used"); !l.Current() || n == 0 {
		m.r.m.Return(l, l.From, l.From)
		recs = nil
	} else if n < len(recs) {
		m.r.m.Return(l, recs[n].o, recs[n].o)
		recs = recs[:n]
	} else {
		m.r.m.Return(l, l.next, l.next)
	}
	l.Free()
	m.handed(l, recs)
	m.r.step()
}

func (m *parting) pass() {
	if !m.r.m.Deadline(m.r.now).IsZero() {
		m.r.wait()
	}
}

// whole reports whether the user has the log of the last leader.
func (m *parting) whole() bool {
	l := m.newest()
	if len(m.seen) != int(l.end()) {
		return false
	}
	for _, s := range l.log {
		for o := s.base; o <= s.last; o++ {
			if m.seen[o] != s.epoch {
				return false
			}
		}
	}
	return true
}

// Mutations: vet without the look at the epoch; truncated that takes what is held
// or lent for unseen, or goes back to an offset without its epoch; trim without the
// epoch of what is lent, or of what was handed out last.
func TestF36_F37_B148WhoGoesBackWhereALossIsToldHasTheLastLeadersLog(t *testing.T) {
	losses := 0
	for range 30 {
		rapid.Check(t, func(rt *rapid.T) { losses += partings(t, rt) })
	}
	if losses == 0 {
		t.Error("no loss was told in any script")
	}
}

// partings runs one script, and counts the losses that were told.
func partings(t *testing.T, rt *rapid.T) int {
	cfg := testConfig()
	cfg.Reset = ResetEarliest
	cfg.MaxBytes, cfg.PartitionMaxBytes = 2000, 1000
	m := &parting{
		t: rt, r: newRig(t, cfg), leader: 1, known: 1, at: 1,
		nodes: map[kafka.NodeID]*replica{1: {leads: true, epoch: 1}},
	}
	m.r.m.Assign(map[kafka.TopicPartition]Start{tp0: AtOffset(0)})
	m.r.step()
	rt.Repeat(map[string]func(*rapid.T){
		"write": func(*rapid.T) { m.write() }, "write more": func(*rapid.T) { m.write() },
		"answer": func(*rapid.T) { m.answer() }, "answer again": func(*rapid.T) { m.answer() },
		"poll": func(*rapid.T) { m.poll() }, "reach": func(*rapid.T) { m.reach() },
		"enter": func(*rapid.T) { m.enter() }, "leave": func(*rapid.T) { m.leave() },
		"elect": func(*rapid.T) { m.elect() }, "learn": func(*rapid.T) { m.learn() },
		"vet": func(*rapid.T) { m.vet() }, "vet again": func(*rapid.T) { m.vet() },
		"lookup": func(*rapid.T) { m.lookup() }, "pass": func(*rapid.T) { m.pass() },
	})
	m.leave()
	m.reach()
	for id, n := range m.nodes {
		n.leads = id == m.leader
	}
	m.write()
	m.learn()
	for n, began := 0, m.r.now; !m.whole(); n++ {
		if n > 3000 || m.r.now.Sub(began) > time.Hour {
			rt.Fatalf("the user has %v, the log is %+v", m.seen, m.newest().log)
		}
		m.lookup()
		m.vet()
		m.answer()
		m.poll()
		m.reach()
		m.pass()
	}
	return m.losses
}
