package leader

import (
	"context"
	"errors"
	"fmt"

	"github.com/ottla/ottla/internal/core/lead"
)

// LossKind says who ended a leadership that did not resign.
type LossKind uint8

// The kinds of losses.
const (
	LossNone       LossKind = iota // it resigned, or the Elector was closed
	LossUnknown                    // it could not be found out
	LossOwnClock                   // the lease was not renewed in time; nobody else had taken the role
	LossSuperseded                 // another member leads
	LossTimeout                    // the coordinator ended a transaction that was open too long
	LossExpired                    // the coordinator has forgotten the transactional id
	LossForeign                    // somebody took the epoch and has not granted itself the lease
)

// String is the kind in words.
func (k LossKind) String() string {
	return [...]string{"none", "unknown", "not renewed in time", "superseded", "timed out by the coordinator", "transactional id expired", "foreign mint"}[k]
}

// Loss is why a leadership ended, as found out afterwards.
type Loss struct {
	Kind   LossKind
	Leader string // LossSuperseded: who leads, empty if it has resigned since
	Term   int64  // LossSuperseded: its term, -1 if it has resigned since
	Err    error  // LossUnknown: why it could not be found out
}

// String is the loss in a sentence for people.
func (l Loss) String() string {
	if l.Kind == LossSuperseded && l.Leader != "" {
		return fmt.Sprintf("superseded by %s in term %d", l.Leader, l.Term)
	}
	return l.Kind.String()
}

// Loss says why the leadership ended, beyond what Err does: by whom, or by what.
// Done never waits for that; this does, until ctx ends.
func (t *Term) Loss(ctx context.Context) (Loss, error) {
	select {
	case <-t.explains:
		t.mu.Lock()
		defer t.mu.Unlock()
		return t.why, nil
	case <-ctx.Done():
		return Loss{Kind: LossUnknown}, context.Cause(ctx)
	}
}

func (t *Term) explain(l Loss) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.why = l
	close(t.explains)
}

// findOut asks the coordinator, and then the log, what became of the role.
func (t *Term) findOut(ctx context.Context) Loss {
	t.mu.Lock()
	token, reason := t.token, t.err
	t.mu.Unlock()
	d, err := t.e.coords.describe(ctx, t.role)
	if err != nil {
		return Loss{Kind: LossUnknown, Err: err}
	}
	if _, err := t.e.log.sync(ctx, t.p); err != nil {
		return Loss{Kind: LossUnknown, Err: err}
	}
	fold, _, _ := t.p.fold(t.role)
	h, led := fold.Lease()
	switch {
	case led && h.Term != t.number:
		return Loss{Kind: LossSuperseded, Leader: h.Member, Term: int64(h.Term)}
	case fold.ClearedAt() > t.number:
		return Loss{Kind: LossSuperseded, Term: -1}
	case !d.Known():
		return Loss{Kind: LossExpired}
	case d.Pair == token && errors.Is(reason, ErrExpired):
		return Loss{Kind: LossOwnClock}
	case d.State == lead.StateCompleteAbort:
		return Loss{Kind: LossTimeout}
	case d.Pair == token:
		return Loss{Kind: LossUnknown, Err: errors.New("the coordinator still knows the pair")}
	default:
		t.e.counts.add(func(s *Stats) { s.Foreign++ })
		t.emit(EventForeign, nil)
		return Loss{Kind: LossForeign}
	}
}
