package leader

import (
	"time"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/kafka"
)

// Token is the pair of producer id and epoch that a leadership was acquired
// with: the fence that brokers check. Tokens are equal or not; the newer one
// may well be lower. To order leaderships use the term.
type Token = lead.Token

// ParseToken reads a token as Token.String writes it: "producerID:epoch".
func ParseToken(s string) (Token, error) { return lead.ParseToken(s) }

// Verdict is what can be said about a token.
type Verdict = lead.Verdict

// The verdicts. Advice, not a fence: by the time it is read it may be old.
const (
	Indeterminate = lead.Indeterminate // it cannot be told at the moment
	Authoritative = lead.Authoritative // the token's holder leads
	Superseded    = lead.Superseded    // another leads, or nobody
)

// Member is a candidate in the roster of a role.
type Member struct {
	Name         string
	Rank         int // among the standbys, from 0; the leader has 0 too
	RegisteredAt time.Time
}

// State is who leads a role, as the log shows it. A State never changes.
type State struct {
	Role      string
	Leader    string // empty: nobody leads, or the state is too old to tell
	Token     Token  // of the newest lease, also one that has run out
	Term      int64  // of the newest lease, -1 if there is none
	TermExact bool   // false: the holder does not say its term, so this is the lowest offset seen for it
	TopicID   kafka.TopicID
	Since     time.Time     // when the leader was granted the role, as far as the log tells
	Granted   time.Time     // of the newest lease, by its holder's clock
	Deadline  time.Time     // of the newest lease, by its holder's clock
	LeaseLeft time.Duration // until the lease runs out if it is not renewed, by this process's clock; negative: it has
	Address   string        // of the leader, if it tells
	Roster    []Member      // in order of rank; the leader among them

	Log     Reading
	Stale   bool  // the log was last read to its end longer ago than a lease
	Suspect error // a record of the role cannot be read; nil: all can

	// What the coordinator says; only Describe asks it.
	Epoch       Token  // the pair that it accepts, -1:-1 if none
	Transaction string // the state of the role's transactional id, empty if it is not known
	Verdict     Verdict
	Reason      string // of the verdict
}

// Reading is how well the log of a role's partition is read.
type Reading struct {
	Age     time.Duration // since it was last read to its end
	Lag     int64         // records hidden behind an open transaction
	Skipped int64         // records of the partition that are none of the contract
	Forged  int64         // leases of the role that no broker has checked, which do not count
}

// Vacant reports whether nobody leads, as far as this state can tell.
func (s State) Vacant() bool { return s.Leader == "" && !s.Stale }

// EventKind is what happened to a candidate.
type EventKind string

// The kinds of events.
const (
	EventRegistered   EventKind = "registered"     // it is in the roster
	EventWaiting      EventKind = "waiting"        // its rank is known, and somebody else's turn comes first
	EventAcquired     EventKind = "acquired"       // it leads
	EventRenewed      EventKind = "renewed"        // and goes on to
	EventTokenChanged EventKind = "token_changed"  // the pair was moved on after an answer was lost; the term stays
	EventLostRace     EventKind = "lost_race"      // another was faster
	EventLost         EventKind = "lost"           // it leads no more, and did not resign
	EventResigned     EventKind = "resigned"       // it leads no more
	EventForeign      EventKind = "foreign_mint"   // somebody without a lease uses the role as its transactional id
	EventReset        EventKind = "reset"          // the log of the partition was cut or made anew
	EventSkipped      EventKind = "skipped"        // a record that cannot be read
	EventFollow       EventKind = "follow"         // following the log failed, and is tried again
	EventUnverified   EventKind = "not_verifiable" // brokers do not say whether they verify transactions
)

// Event is one step of a candidate or a leader. Fields that do not apply are
// zero, Rank and Term -1.
type Event struct {
	At     time.Time
	Kind   EventKind
	Role   string
	Member string
	Term   int64
	Token  Token
	Rank   int
	Err    error
}
