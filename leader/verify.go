package leader

import (
	"context"
	"iter"
	"time"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// Verify says whether the holder of a token leads a role: the coordinator is
// asked first, the log read after it. It works for holders of every language,
// joins nothing and takes no epoch. It is advice and no fence: by the time it
// is used it may be old. It blocks for a few requests until ctx ends; the errors
// are ErrInvalidConfig, ErrAdmin and ErrClient.
func (e *Elector) Verify(ctx context.Context, role string, tok Token) (Verdict, error) {
	v, _, err := e.observe(ctx, role, &tok)
	return v, err
}

// Describe is the state of a role with what the coordinator says, and a verdict
// about the newest lease. It blocks as Verify does, with the same errors.
func (e *Elector) Describe(ctx context.Context, role string) (State, error) {
	_, s, err := e.observe(ctx, role, nil)
	return s, err
}

// observeTries is how often a transaction under way is looked at again.
const observeTries = 4

// observe concludes about a token; nil is that of the newest lease.
func (e *Elector) observe(ctx context.Context, role string, tok *Token) (Verdict, State, error) {
	ctx, cancel, err := e.use(ctx)
	if err != nil {
		return Indeterminate, State{}, err
	}
	defer cancel()
	p, err := e.place(ctx, role)
	if err != nil {
		return Indeterminate, State{}, err
	}
	for tries := 1; ; tries++ {
		d, err := e.coords.describe(ctx, role)
		if err != nil {
			return Indeterminate, State{}, err
		}
		r, s, err := e.read(ctx, p, role)
		if err != nil {
			return Indeterminate, State{}, err
		}
		about := lead.NoToken
		if tok != nil {
			about = *tok
		} else if r.Led {
			about = r.Lease.Token
		}
		v, why := lead.Verify(about, d, r)
		if v == Indeterminate && tries < observeTries {
			if err := task.Sleep(ctx, 4*backoff(tries)); err == nil {
				continue
			}
		}
		s.Epoch, s.Transaction, s.Verdict, s.Reason = d.Pair, d.State, v, why.Reason
		if r.Led && why.Leads == lead.TheHolder && s.LeaseLeft <= 0 {
			s.Reason += "; the lease has run out: its pair is not fenced, its holder may be dead"
		}
		if why.Leads == lead.Nobody {
			s.Leader = ""
		}
		return v, s, nil
	}
}

// read reads the log to its end, and says whether that is all that was written
// before.
func (e *Elector) read(ctx context.Context, p *partition, role string) (lead.Reading, State, error) {
	node, _, err := e.topic.leader(ctx, p.id, nil)
	var high kafka.Offset
	if err == nil {
		high, err = e.log.listOffset(ctx, node, p.id, latest, uncommitted)
	}
	if err != nil { // sync finds the leader anew
		high = -1
	}
	if _, err := e.log.sync(ctx, p); err != nil {
		return lead.Reading{}, State{}, err
	}
	f, _, _ := p.fold(role)
	h, led := f.Lease()
	return lead.Reading{Lease: h, Led: led, Complete: high >= 0 && p.view().next >= high}, e.state(p, f), nil
}

// Watch yields the state of a role: as it is, and after each change. A slow
// reader gets the newest state, not every one. A state says how old it is, and
// names no leader where the log could not be read for longer than a lease. The
// sequence ends with ctx, the Elector, or the loop; an error that nothing helps
// against comes last.
func (e *Elector) Watch(ctx context.Context, role string) iter.Seq2[State, error] {
	return func(yield func(State, error) bool) {
		ctx, cancel, err := e.use(ctx)
		if err != nil {
			yield(State{}, err)
			return
		}
		defer cancel()
		p, err := e.place(ctx, role)
		if err == nil {
			_, err = e.log.sync(ctx, p)
		}
		if err != nil {
			if ctx.Err() == nil {
				yield(State{}, err)
			}
			return
		}
		e.watch(ctx, p, role, yield)
	}
}

func (e *Elector) watch(ctx context.Context, p *partition, role string, yield func(State, error) bool) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for first, last := true, (State{}); ; {
		f, changed, _ := p.fold(role)
		s := e.state(p, f)
		if first || !s.same(last) {
			if !yield(s, nil) {
				return
			}
			first, last = false, s
		}
		next := e.cfg.Lease - s.Log.Age
		if s.LeaseLeft > 0 && s.Leader != "" {
			next = min(next, s.LeaseLeft)
		}
		if next <= 0 {
			next = e.cfg.FetchWait
		}
		timer.Reset(next)
		select {
		case <-changed:
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// same reports whether nothing changed that a watcher would want to know.
func (s State) same(o State) bool {
	if s.Leader != o.Leader || s.Token != o.Token || s.Term != o.Term || s.Stale != o.Stale || len(s.Roster) != len(o.Roster) || (s.Suspect == nil) != (o.Suspect == nil) {
		return false
	}
	for i := range s.Roster {
		if s.Roster[i] != o.Roster[i] {
			return false
		}
	}
	return true
}

// state is what a fold says at this time.
func (e *Elector) state(p *partition, f *lead.Fold) State {
	now, v := e.cfg.now(), p.view()
	s := State{
		Role: f.Role(), Term: -1, Token: lead.NoToken, Epoch: lead.NoToken, TopicID: v.topic,
		Suspect: f.Suspect(), Log: Reading{now.Local - v.fresh, max(0, int64(v.high-v.next)), v.skipped, f.Forged()},
	}
	s.Stale = !v.read || s.Log.Age > e.cfg.Lease
	for _, m := range f.Roster() {
		s.Roster = append(s.Roster, Member{Name: m.Name, Rank: f.Rank(m.Name), RegisteredAt: m.At.Time()})
	}
	h, led := f.Lease()
	if !led {
		return s
	}
	seen := f.Seen()
	s.Token, s.Term, s.TermExact = h.Token, int64(h.Term), h.Exact
	s.Since, s.Granted, s.Deadline, s.Address = h.Since.Time(), h.Granted.Time(), h.Deadline.Time(), h.Address
	s.LeaseLeft = seen.At + seen.For - now.Local
	doubt := time.Duration(0)
	if !seen.Live { // nobody saw it arrive: only the holder's clock tells
		s.LeaseLeft = min(s.LeaseLeft, time.Duration(h.Deadline-now.Wall)*time.Millisecond)
		doubt = e.cfg.MaxSkew
	}
	if s.LeaseLeft+doubt > 0 && !s.Stale {
		s.Leader = h.Member
	}
	return s
}
