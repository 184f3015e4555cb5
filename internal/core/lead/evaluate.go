package lead

import (
	"slices"
	"time"
)

// Kind of what a candidate may do.
type Turn uint8

const (
	NotRegistered Turn = iota // it is not in the roster: register
	Hold                      // it leads
	Wait                      // not before Decision.At, if nothing changes
	Challenge                 // it may take the role
)

// String is the turn in words.
func (t Turn) String() string {
	return [...]string{"not registered", "hold", "wait", "challenge"}[t]
}

// Candidate is who asks.
type Candidate struct {
	Member     string
	Registered time.Duration // local, when its own registration was sent
	Token      Token         // that this process holds for the role, NoToken if none
	Delay      time.Duration // more than others wait (its weight)
	RosterTTL  time.Duration // registrations older than this do not count in its rank; 0 = all count
}

// Decision is the answer. At is local; for Wait it is the earliest instant at
// which the answer changes if no record comes.
type Decision struct {
	Turn Turn
	At   time.Duration
	Rank int // among the standbys, -1 if not registered
}

// Evaluate says what a candidate may do at now. It depends on nothing else:
// asked again later for the same records it moves from Wait to Challenge at
// the instant that it named.
func (f *Fold) Evaluate(c Candidate, t Timing, now Now) Decision {
	lease, led := f.Lease()
	rank := f.rank(c, now)
	if rank < 0 {
		return Decision{Turn: NotRegistered, Rank: rank}
	}
	if led && lease.Member == c.Member && lease.Token == c.Token && c.Token.Valid() && lease.Live(now.Wall) {
		return Decision{Turn: Hold, Rank: rank}
	}
	d := Decision{Turn: Wait, At: addLocal(f.anchor(c, t, now), min(delay(rank, t.Stagger), t.Lease)+c.Delay), Rank: rank}
	if now.Local >= d.At {
		d.Turn = Challenge
	}
	return d
}

// anchor is when rank 0 may challenge.
func (f *Fold) anchor(c Candidate, t Timing, now Now) time.Duration {
	lease, led := f.Lease()
	silent := addLocal(f.seen.At, f.seen.For) // no sign of life for a whole lease
	switch {
	case f.open > f.lease.offset, f.lease.bad != nil:
		return silent
	case led && f.seen.Live:
		return silent
	case led:
		return min(silent, now.localOf(addWall(lease.Deadline, t.Skew.Milliseconds())))
	case f.lease.offset < 0: // never led, as far as the log tells
		return c.Registered
	case f.cleared.Live:
		return f.cleared.At
	default:
		return min(f.cleared.At, now.localOf(f.clearAt))
	}
}

// Rank is a member's place among the standbys, counted from 0: its place in
// the roster without the holder. The member that the lease names has rank 0;
// one that is not registered has none, which is -1.
func (f *Fold) Rank(member string) int { return f.rank(Candidate{Member: member}, Now{}) }

func (f *Fold) rank(c Candidate, now Now) int {
	roster := f.Roster()
	lease, led := f.Lease()
	if !slices.ContainsFunc(roster, func(m Member) bool { return m.Name == c.Member }) {
		return -1
	}
	if led && lease.Member == c.Member {
		return 0
	}
	rank := 0
	for _, m := range roster {
		switch {
		case m.Name == c.Member:
			return rank
		case led && m.Name == lease.Member:
		case c.RosterTTL > 0 && millis(subWall(now.Wall, m.At)) > c.RosterTTL:
		default:
			rank++
		}
	}
	return rank
}
