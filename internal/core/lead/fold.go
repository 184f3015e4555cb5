package lead

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/ottla/ottla/kafka"
)

// Names of the headers that this package adds to leases; other members of the
// contract look at no header.
const (
	HeaderTerm        = "ottla.term"        // offset of the grant, 8 bytes; not in the grant itself
	HeaderIncarnation = "ottla.incarnation" // 16 random bytes of one process
	HeaderTxn         = "ottla.txn"         // "1": the writer is pinned below KIP-890 part 2
	HeaderAddress     = "ottla.address"     // of the holder, for people
)

// Entry is one record of a role's partition as the log has it.
type Entry struct {
	Offset        kafka.Offset
	Time          kafka.Timestamp
	Key, Value    []byte
	Headers       []kafka.Header
	Transactional bool
	Writer        Token // of the batch's header, which the broker has checked
}

// Member is a member in the roster.
type Member struct {
	Name   string
	Offset kafka.Offset // of its registration: the order of the roster
	At     kafka.Timestamp
}

// Held is a lease as the log shows it.
type Held struct {
	Lease
	Offset      kafka.Offset
	Writer      Token        // the pair that this write was checked with
	Term        kafka.Offset // offset of the grant
	Exact       bool         // Term is from the holder itself, not a guess from what was seen
	Pinned      bool         // the holder writes below KIP-890 part 2
	Since       kafka.Timestamp
	Incarnation string
	Address     string
}

// Sighting is when this process last saw a sign of life of a holder.
type Sighting struct {
	At   time.Duration // local
	For  time.Duration // the length of the lease that was seen
	Live bool          // seen to arrive; false: found by the first read
}

// Fold is what the records of one role add up to. Make it with [NewFold].
type Fold struct {
	role    string
	config  time.Duration // the lease of this process, for a lease that cannot be read
	members map[string]slot[Member]
	lease   slot[Held]
	seen    Sighting
	cleared Sighting // of the tombstone that cleared the lease; For is unused
	clearAt kafka.Timestamp
	open    kafka.Offset // of the newest uncommitted lease that counted, -1 if none
	suspect error        // a value under a key of the role that cannot be read
	forged  int64
}

// slot is the newest record of one key; gone is its tombstone.
type slot[T any] struct {
	offset kafka.Offset
	gone   bool
	value  T
	bad    error
}

// NewFold makes the fold of a role without records. lease is how long a lease
// that cannot be read is taken to last.
func NewFold(role string, lease time.Duration) *Fold {
	return &Fold{role: role, config: lease, members: map[string]slot[Member]{}, lease: slot[Held]{offset: -1, gone: true}, open: -1}
}

// Apply takes a committed record with the role's key. live says that it was
// seen to arrive, and not found by the first read. The order of records does
// not matter: for each key the highest offset counts. It reports whether the
// record counted, and a [*DecodeError] where its value cannot be read: the value
// before it then stands, and the fold is suspect.
func (f *Fold) Apply(k Key, e Entry, now Now, live bool) (bool, error) {
	if k.Kind == KindLease {
		return f.applyLease(e, now, live)
	}
	old, known := f.members[k.Member]
	if known && e.Offset <= old.offset {
		return false, nil
	}
	s := slot[Member]{offset: e.Offset, gone: len(e.Value) == 0}
	if !s.gone {
		var r Registration
		if r, s.bad = DecodeRegistration(e.Value); s.bad != nil {
			s.value, s.gone = old.value, old.gone || !known
		} else {
			s.value = Member{Name: k.Member, Offset: e.Offset, At: r.At}
		}
	}
	f.members[k.Member] = s
	f.forget()
	f.judge(e.Offset, s.bad)
	return true, s.bad
}

func (f *Fold) applyLease(e Entry, now Now, live bool) (bool, error) {
	if !e.Transactional {
		f.forged++ // no broker has checked who wrote it
		return false, nil
	}
	if e.Offset <= f.lease.offset {
		return false, nil
	}
	old := f.lease
	f.lease = slot[Held]{offset: e.Offset, gone: len(e.Value) == 0}
	if f.lease.gone {
		f.cleared, f.clearAt = Sighting{At: now.Local, Live: live}, e.Time
		f.judge(e.Offset, nil)
		return true, nil
	}
	l, err := DecodeLease(e.Value)
	if err != nil {
		f.lease = slot[Held]{offset: e.Offset, gone: old.gone, value: old.value, bad: err}
		f.seen = Sighting{At: now.Local, For: f.config, Live: true}
		f.judge(e.Offset, err)
		return true, err
	}
	h := Held{Lease: l, Offset: e.Offset, Writer: e.Writer, Since: l.Granted, Term: e.Offset}
	h.readHeaders(e.Headers)
	if prev := old.value; !old.gone && h.continues(prev) {
		h.Since = prev.Since
		if !h.Exact {
			h.Term = prev.Term
		}
	}
	f.lease.value = h
	f.seen = Sighting{At: now.Local, For: l.Duration(), Live: live}
	f.judge(e.Offset, nil)
	return true, nil
}

// readHeaders takes what the holder says beside the contract. A lease of this
// package without a term is a grant.
func (h *Held) readHeaders(hs []kafka.Header) {
	for _, hd := range hs {
		switch hd.Key {
		case HeaderTerm:
			if len(hd.Value) == 8 {
				h.Term, h.Exact = kafka.Offset(binary.BigEndian.Uint64(hd.Value)), true
			}
		case HeaderIncarnation:
			h.Incarnation = string(hd.Value)
		case HeaderTxn:
			h.Pinned = string(hd.Value) == "1"
		case HeaderAddress:
			h.Address = string(hd.Value)
		}
	}
	if h.Incarnation != "" && !h.Exact {
		h.Term, h.Exact = h.Offset, true
	}
}

// continues reports whether h is of the same leadership as the lease before it.
func (h *Held) continues(prev Held) bool {
	if h.Exact || prev.Exact {
		return h.Exact && prev.Exact && h.Term == prev.Term
	}
	return h.Member == prev.Member && h.Token == prev.Token
}

// Open takes a record that is not committed. A lease of the role among them is
// a sign of life of its holder, once, and nothing else.
func (f *Fold) Open(k Key, e Entry, now Now) bool {
	if k.Kind != KindLease || !e.Transactional || e.Offset <= f.lease.offset || e.Offset <= f.open || len(e.Value) == 0 {
		return false
	}
	d := f.config
	if l, err := DecodeLease(e.Value); err == nil {
		d = l.Duration()
	}
	f.open = e.Offset
	f.seen = Sighting{At: now.Local, For: d, Live: true}
	return true
}

// judge makes the fold suspect, or not any more once the key has a good value.
func (f *Fold) judge(at kafka.Offset, err error) {
	if err != nil {
		f.suspect = fmt.Errorf("offset %d: %w", at, err)
		return
	}
	if f.suspect == nil || f.lease.bad != nil {
		return
	}
	for _, s := range f.members {
		if s.bad != nil {
			return
		}
	}
	f.suspect = nil
}

// mostGone is how many removed members a fold remembers, against late records
// of theirs.
const mostGone = 256

// forget drops the oldest removed members beyond mostGone.
func (f *Fold) forget() {
	if len(f.members) <= 2*mostGone {
		return
	}
	var gone []string
	for name, s := range f.members {
		if s.gone {
			gone = append(gone, name)
		}
	}
	slices.SortFunc(gone, func(a, b string) int { return cmp.Compare(f.members[a].offset, f.members[b].offset) })
	for _, name := range gone[:max(0, len(gone)-mostGone)] {
		delete(f.members, name)
	}
}

// Roster is the members in order of their registrations. It is the caller's.
func (f *Fold) Roster() []Member {
	var out []Member
	for _, s := range f.members {
		if !s.gone {
			out = append(out, s.value)
		}
	}
	slices.SortFunc(out, func(a, b Member) int { return cmp.Compare(a.Offset, b.Offset) })
	return out
}

// Lease is the newest committed lease; false if there is none or it was cleared.
func (f *Fold) Lease() (Held, bool) { return f.lease.value, !f.lease.gone }

// ClearedAt is the offset of the tombstone that cleared the lease, -1 if there
// is a lease or never was one.
func (f *Fold) ClearedAt() kafka.Offset {
	if f.lease.gone {
		return f.lease.offset
	}
	return -1
}

// Seen is the last sign of life of a holder.
func (f *Fold) Seen() Sighting { return f.seen }

// Suspect says which value under a key of the role cannot be read, nil if none.
func (f *Fold) Suspect() error { return f.suspect }

// Forged is how many leases were skipped because they were no part of a
// transaction.
func (f *Fold) Forged() int64 { return f.forged }

// Role is the role.
func (f *Fold) Role() string { return f.role }

// Clone is a copy that does not change with f.
func (f *Fold) Clone() *Fold {
	c := *f
	c.members = maps.Clone(f.members)
	return &c
}
