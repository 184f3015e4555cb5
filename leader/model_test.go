package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
)

// brief is a lease that random schedules have patience for.
var brief = Config{Lease: 10 * time.Second, Renew: 3 * time.Second, Stagger: time.Second, StopMargin: 2 * time.Second, RequestTimeout: 2 * time.Second}

// player is a process of a random schedule: it campaigns, leads until told or
// forced to end, and campaigns again.
type player struct {
	s    *schedule
	id   int
	l    *link
	e    *Elector
	stop context.CancelFunc
	done chan struct{}

	mu   sync.Mutex
	term *Term
}

// schedule is one run of the model test.
type schedule struct {
	*world
	role    string
	wg      sync.WaitGroup
	players []*player
	dead    []*player
	born    int

	compacted bool
	pauses    map[string]bool     // members that were ever paused; guarded by mu
	ended     map[*Term]time.Time // guarded by mu

	tmu   sync.Mutex
	terms []*Term // in the order of their returns

	told history
	busy bool // leaders write all the time
}

func (s *schedule) spawn(i int) {
	s.born++
	p := &player{s: s, id: s.born, l: s.link(fmt.Sprintf("m%d.%d", i, s.born)), done: make(chan struct{})}
	e, err := p.l.open(brief)
	if err != nil {
		s.problem("open: %v", err)
		return
	}
	p.e = e
	var ctx context.Context
	ctx, p.stop = context.WithCancel(context.Background())
	s.mu.Lock()
	s.players[i] = p
	s.mu.Unlock()
	s.wg.Add(1)
	go func() {
		defer s.wg.Done()
		defer close(p.done)
		p.play(ctx)
	}()
}

func (p *player) play(ctx context.Context) {
	for ctx.Err() == nil {
		call := p.s.since()
		t, err := p.e.Campaign(ctx, p.s.role)
		if err != nil {
			if ctx.Err() == nil && !errors.Is(err, ErrClosed) {
				p.s.problem("%s: campaign: %v", p.l.name, err)
			}
			return
		}
		p.s.told.add(p.id, call, acquired, t.Number(), p.s.since())
		p.lead(t)
		select {
		case <-t.Done():
			p.s.watchEnd(p, t)
		case <-ctx.Done():
		}
	}
}

func (p *player) lead(t *Term) {
	p.mu.Lock()
	p.term = t
	p.mu.Unlock()
	p.s.tmu.Lock()
	p.s.terms = append(p.s.terms, t)
	p.s.tmu.Unlock()
	if p.s.busy {
		p.s.wg.Add(1)
		go func() {
			defer p.s.wg.Done()
			for t.Err() == nil {
				p.renew(t)
				time.Sleep(300 * time.Millisecond)
			}
		}()
	}
	p.s.wg.Add(1)
	go func() {
		defer p.s.wg.Done()
		<-t.Done()
		p.s.mu.Lock()
		defer p.s.mu.Unlock()
		p.s.ended[t] = time.Now()
	}()
}

// renew writes a lease, and notes it if it was written.
func (p *player) renew(t *Term) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	call := p.s.since()
	if t.Renew(ctx) == nil {
		p.s.told.add(p.id, call, wrote, t.Number(), p.s.since())
	}
}

func (s *schedule) since() time.Duration { return time.Since(s.start) }

func (p *player) current() *Term {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.term
}

// watchEnd is invariant (vi): Done closes no later than the local deadline.
// Of a process that was paused only its own clock can be asked.
func (s *schedule) watchEnd(p *player, t *Term) {
	now := time.Since(s.start)
	t.mu.Lock()
	at, err := t.holder.StepDownAt(), t.err
	t.mu.Unlock()
	p.l.mu.Lock()
	paused := p.l.paused != nil
	p.l.mu.Unlock()
	if errors.Is(err, ErrExpired) && !paused && now > at+time.Second && !p.s.wasPaused(p) {
		s.problem("(vi) %s: the leadership ended %v after its deadline", p.l.name, now-at)
	}
}

func (s *schedule) wasPaused(p *player) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.pauses[p.l.name]
}

// onSendLocked is invariant (iii): once Done is closed, a handle begins no
// write that could keep a lease, and no commit.
func (s *schedule) guard(l *link, req kmsg.Request) {
	r, ok := req.(*kmsg.ProduceRequest)
	if !ok || r.TransactionID == nil {
		return
	}
	for _, p := range s.players {
		if p == nil || p.l != l {
			continue
		}
		t := p.current()
		if t == nil {
			continue
		}
		if at, ended := s.ended[t]; !ended || time.Since(at) < time.Millisecond {
			continue // it lasts, or the request is on its way as it ends
		}
		f := &lead.Scanner{}
		a := kmsg.NewFetchResponseTopicPartition()
		a.RecordBatches = r.Topics[0].Partitions[0].Records
		_, _ = f.Scan(&a, 0, func(e lead.Entry) {
			if lease, err := lead.DecodeLease(e.Value); err == nil && lease.Token == t.Token() {
				s.problems = append(s.problems, fmt.Sprintf("%v: (iii) %s writes a lease of term %d after its end", time.Since(s.start), l.name, t.Number()))
			}
		})
	}
}

// check looks at everything that must hold at any time.
func (s *schedule) check() {
	s.with(func(m *model.Cluster) {
		for _, why := range s.overlaps(leases(m, s.role)) {
			s.problems = append(s.problems, fmt.Sprintf("%v: %s", time.Since(s.start), why))
		}
	})
	s.tmu.Lock()
	for i := 1; i < len(s.terms); i++ {
		if s.terms[i].Number() == s.terms[i-1].Number() {
			s.problem("(ii) two leaderships of term %d", s.terms[i].Number())
		}
	}
	s.tmu.Unlock()
	for _, p := range s.players {
		s.checkWritten(p)
	}
}

// overlaps is invariants (i) and (ii), from the log: committed leases of one
// term follow each other without another's between, and terms grow.
func (s *schedule) overlaps(ls []writtenLease) []string {
	var out []string
	term, last := int64(-1), owner{}
	for _, l := range ls {
		by := s.owners[l.writer]
		switch {
		case by.nth < last.nth:
			out = append(out, fmt.Sprintf("(i) offset %d: %v of %s writes after a later pair of %s", l.Offset, l.writer, by.name, last.name))
		case !l.gone && by.name != l.lease.Member:
			out = append(out, fmt.Sprintf("(i) offset %d: %v of %s wrote a lease of %s", l.Offset, l.writer, by.name, l.lease.Member))
		case l.gone:
		case l.term < term:
			out = append(out, fmt.Sprintf("(i) offset %d: a lease of term %d after one of term %d", l.Offset, l.term, term))
		case l.term > term && !l.grant && !s.compacted: // compaction takes the grant
			out = append(out, fmt.Sprintf("(ii) offset %d: term %d begins without a grant", l.Offset, l.term))
		}
		if !l.gone {
			term = max(term, l.term)
		}
		last = by
	}
	return out
}

// checkWritten is G12: what a leader takes for written is in the log.
func (s *schedule) checkWritten(p *player) {
	t := p.current()
	if t == nil {
		return
	}
	select {
	case t.lease.turn <- struct{}{}:
		defer t.lease.unlock()
	default:
		return // a write is under way
	}
	t.mu.Lock()
	err, start := t.err, t.holder.LeaseEnd()-brief.Lease
	t.mu.Unlock()
	if err != nil {
		return
	}
	s.with(func(m *model.Cluster) {
		for _, l := range leases(m, s.role) {
			if l.term == t.Number() && l.lease.Granted == kafka.TimestampOf(s.start.Add(start)) || s.compacted && l.term > t.Number() {
				return
			}
		}
		s.problems = append(s.problems, fmt.Sprintf("%v: (G12) %s: its lease of %v is confirmed and not in the log", time.Since(s.start), p.l.name, start))
	})
}

// eager is invariant (iv): nobody takes an epoch while the newest lease was
// seen to change within its own length. A renewal that arrived less than a
// renew interval before the mint may have come after the proof.
func (s *schedule) eager() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ls := leases(s.m, s.role)
	for _, mt := range s.mints {
		if mt.id != s.role {
			continue
		}
		var last *writtenLease
		for i := range ls {
			if at := ls[i].Timestamp.Time(); at.Before(mt.at.Add(-brief.Renew - 4*time.Second)) {
				last = &ls[i]
			}
		}
		if last != nil && !last.gone && mt.at.Before(last.lease.Deadline.Time()) && !s.superseded(ls, *last, mt) {
			s.problems = append(s.problems, fmt.Sprintf("(iv) %s took an epoch at %v while the lease of %s, granted at %v, was live", mt.member, mt.at.Sub(s.start), last.lease.Member, last.lease.Granted.Time().Sub(s.start)))
		}
	}
}

// superseded reports whether the lease was cleared, or its holder is who mints.
func (s *schedule) superseded(ls []writtenLease, l writtenLease, mt mint) bool {
	for _, o := range ls {
		if o.Offset > l.Offset && o.Timestamp.Time().Before(mt.at) {
			return true
		}
	}
	return l.lease.Member == mt.member
}

// ops of a random schedule.
const (
	opNothing = iota
	opPause
	opResume
	opCut
	opCutCoordinator
	opCutLog
	opMend
	opResign
	opKill
	opMoveCoordinator
	opMoveLeader
	opLossy
	opLossless
	opLevel
	opCompact
	opRenew
	ops
)

type step struct {
	op, who, arg int
	wait         time.Duration
}

func (s *schedule) do(st step) {
	p := s.players[st.who]
	switch st.op {
	case opPause:
		s.mu.Lock()
		s.pauses[p.l.name] = true
		s.mu.Unlock()
		p.l.pause()
	case opResume:
		p.l.resume()
	case opCut:
		p.l.setCut(true, nil)
	case opCutCoordinator:
		p.l.setCut(true, func(key int16) bool { return key >= 22 && key <= 26 })
	case opCutLog:
		p.l.setCut(true, func(key int16) bool { return key <= 2 })
	case opMend:
		p.l.setCut(false, nil)
	case opResign:
		if t := p.current(); t != nil {
			s.wg.Add(1)
			go func() {
				defer s.wg.Done()
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				call := s.since()
				if err := t.Resign(ctx); err == nil && errors.Is(t.Err(), ErrResigned) {
					s.told.add(p.id, call, resigned, t.Number(), s.since())
				}
			}()
		}
	case opKill: // the process is gone for good, and a new one comes
		p.stop()
		p.l.setCut(true, nil)
		s.dead = append(s.dead, p)
		s.spawn(st.who)
	case opMoveCoordinator:
		s.with(func(m *model.Cluster) { m.MoveCoordinator(s.role, kafka.NodeID(1+st.arg%3)) })
	case opMoveLeader:
		s.with(func(m *model.Cluster) {
			if m.TopicID(Topic) != (kafka.TopicID{}) {
				m.MoveLeader(placeOf(s.role), kafka.NodeID(1+st.arg%3))
			}
		})
	case opLossy:
		s.with(func(*model.Cluster) { s.loss, s.mute, s.again = 2*st.arg, 8*st.arg, 5*st.arg })
	case opLossless:
		s.with(func(*model.Cluster) { s.loss, s.mute, s.again = 0, 0, 0 })
	case opLevel:
		s.with(func(m *model.Cluster) { m.SetLevel(int16(1 + st.arg%2)) })
	case opCompact:
		s.with(func(m *model.Cluster) {
			if m.TopicID(Topic) != (kafka.TopicID{}) && st.arg%4 == 0 {
				s.compacted = true
				m.Compact(placeOf(s.role))
			}
		})
	case opRenew:
		if t := p.current(); t != nil {
			s.wg.Add(1)
			go func() {
				defer s.wg.Done()
				p.renew(t)
			}()
		}
	}
	time.Sleep(st.wait)
	s.check()
}

// finish heals everything, and wants the role led: invariant (v).
func (s *schedule) finish() {
	for _, p := range s.players {
		p.l.resume()
		p.l.setCut(false, nil)
	}
	s.with(func(*model.Cluster) { s.loss, s.mute, s.again = 0, 0, 0 })
	// A lease, all ranks, the coordinator's sweep and what is on its way.
	time.Sleep(4*brief.Lease + 20*time.Second)
	s.check()
	leading := 0
	for _, p := range s.players {
		if t := p.current(); t != nil && t.Err() == nil {
			leading++
		}
	}
	if leading != 1 {
		s.problem("(v) %d leaders after everything was healed", leading)
	}
	if !s.compacted {
		s.eager()
	}
	for _, p := range append(s.dead, s.players...) {
		p.l.resume()
		p.stop()
	}
	for _, p := range append(s.dead, s.players...) {
		_ = p.e.Close()
	}
	s.wg.Wait()
	s.check()
	if why := s.told.check(); why != "" {
		s.problem("%s", why)
	}
}

// play runs a schedule and returns what was wrong.
func play(t *testing.T, seed uint64, cfg model.Config, busy bool, steps []step) (problems []string) {
	synctest.Test(t, func(t *testing.T) {
		s := &schedule{world: newWorld(seed, cfg), role: "controller", players: make([]*player, 3), busy: busy}
		s.pauses, s.ended = map[string]bool{}, map[*Term]time.Time{}
		s.onSend = s.guard
		for i := range s.players {
			s.spawn(i)
			time.Sleep(100 * time.Millisecond)
		}
		for _, st := range steps {
			s.do(st)
		}
		s.finish()
		problems = s.problems
	})
	return problems
}

func drawSteps(rt *rapid.T) []step {
	return rapid.SliceOfN(rapid.Custom(func(rt *rapid.T) step {
		return step{
			op:   rapid.IntRange(0, ops-1).Draw(rt, "op"),
			who:  rapid.IntRange(0, 2).Draw(rt, "who"),
			arg:  rapid.IntRange(0, 99).Draw(rt, "arg"),
			wait: time.Duration(rapid.IntRange(0, 12_000).Draw(rt, "ms")) * time.Millisecond,
		}
	}), 0, 14).Draw(rt, "steps")
}

// TestInvariantsOverRandomSchedules drives three Electors against a model of
// the brokers: members are paused, cut off and killed, requests and answers
// are lost and come twice, coordinators and leaders move. The mutations that
// make it fail: the re-init after an unsure Produce (Writer.start), the check
// of the clock before each request (leaseWriter.run), the proof of freshness
// (campaign.prove).
func TestInvariantsOverRandomSchedules(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		seed := rapid.Uint64Range(0, 1<<20).Draw(rt, "seed")
		cfg := model.Config{TransactionVersion: int16(rapid.IntRange(1, 2).Draw(rt, "level")), MarkerDelay: time.Duration(rapid.IntRange(0, 300).Draw(rt, "markers")) * time.Millisecond}
		if rapid.Bool().Draw(rt, "rotate") {
			cfg.MaxEpoch = 12
		}
		for _, p := range play(t, seed, cfg, rapid.Bool().Draw(rt, "busy"), drawSteps(rt)) {
			rt.Error(p)
		}
	})
}
