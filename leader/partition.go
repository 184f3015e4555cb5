package leader

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/kafka"
)

// partition is what is known of one partition of the coordination topic: the
// fold of every role in it, and how far it was read.
type partition struct {
	id    int32
	lease time.Duration
	now   func() lead.Now
	event func(Event)
	turn  chan struct{} // capacity 1: one read to the end at a time

	mu      sync.Mutex
	topic   kafka.TopicID
	roles   map[string]*followed
	scan    lead.Scanner
	start   kafka.Offset  // of the log, when it was first read
	next    kafka.Offset  // the position; -1 before the first read began
	high    kafka.Offset  // the high watermark as last told
	read    bool          // everything up to a last stable offset was read
	before  bool          // it was read before a reset
	fresh   time.Duration // local: when it was last known to its end; at first, when it was first asked for
	peeked  time.Duration
	back    time.Duration // local: when reading went on after it had failed
	skipped int64
	failure error // of the last read, nil after a good one
}

func newPartition(id int32, cfg *Config, event func(Event)) *partition {
	return &partition{
		id: id, lease: cfg.Lease, now: cfg.now, event: event, turn: make(chan struct{}, 1),
		roles: map[string]*followed{}, next: -1, fresh: cfg.now().Local,
	}
}

// followed is one role of a partition.
type followed struct {
	fold    *lead.Fold
	changed chan struct{} // closed with the next change
}

func (r *followed) tell() {
	close(r.changed)
	r.changed = make(chan struct{})
}

func (p *partition) roleLocked(role string) *followed {
	r := p.roles[role]
	if r == nil {
		r = &followed{lead.NewFold(role, p.lease), make(chan struct{})}
		p.roles[role] = r
	}
	return r
}

// fold is a copy of what is known of a role, with a channel that is closed at
// its next change. ok is false before the first whole read.
func (p *partition) fold(role string) (f *lead.Fold, change <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r := p.roleLocked(role)
	return r.fold.Clone(), r.changed, p.read
}

// contested reports whether the roster of a role has another member.
func (p *partition) contested(role, but string) bool {
	f, _, _ := p.fold(role)
	return slices.ContainsFunc(f.Roster(), func(m lead.Member) bool { return m.Name != but })
}

// known are the roles with a record in the partition.
func (p *partition) known() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.roles))
}

// view is how far the partition was read.
type view struct {
	next, high, start kafka.Offset
	topic             kafka.TopicID
	read, before      bool
	fresh, back       time.Duration // local
	skipped           int64
	failure           error
}

func (p *partition) view() view {
	p.mu.Lock()
	defer p.mu.Unlock()
	return view{p.next, p.high, p.start, p.topic, p.read, p.before, p.fresh, p.back, p.skipped, p.failure}
}

// position is where to read on, from where a first read begins if none did.
func (p *partition) position(start kafka.Offset) kafka.Offset {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next < 0 {
		p.next, p.start = start, start
	}
	return p.next
}

// apply takes the committed records of a Fetch answer that begins at from. One
// that begins beyond the position was asked for before a reset, and is void. It
// says how the log was at the local time by, or now if that is earlier: a process
// that was suspended finds answers that are old.
func (p *partition) apply(a *kmsg.FetchResponseTopicPartition, from kafka.Offset, by time.Duration) error {
	now := p.now()
	p.mu.Lock()
	at, live := p.next, p.read || p.before
	if from > at {
		p.mu.Unlock()
		return nil
	}
	var events []Event
	next, err := p.scan.Scan(a, at, func(e lead.Entry) {
		if ev := p.takeLocked(e, now, live); ev != nil {
			events = append(events, *ev)
		}
	})
	p.next, p.high = next, kafka.Offset(a.HighWatermark)
	p.goodLocked(now.Local)
	if p.read && p.next >= kafka.Offset(a.LastStableOffset) {
		p.fresh = max(p.fresh, min(now.Local, by))
	}
	p.mu.Unlock()
	for _, e := range events {
		p.event(e)
	}
	return err
}

// takeLocked gives a record to the fold of its role.
func (p *partition) takeLocked(e lead.Entry, now lead.Now, live bool) *Event {
	k, err := lead.DecodeKey(e.Key)
	if err != nil {
		p.skipped++
		return &Event{Kind: EventSkipped, Term: -1, Rank: -1, Err: &unreadable{p.id, e.Offset, err}}
	}
	r := p.roleLocked(k.Role)
	counted, err := r.fold.Apply(k, e, now, live)
	if counted {
		r.tell()
	}
	if err != nil {
		return &Event{Kind: EventSkipped, Role: k.Role, Term: -1, Rank: -1, Err: &unreadable{p.id, e.Offset, err}}
	}
	return nil
}

// peek takes records that are not committed, from where p was read to.
func (p *partition) peek(a *kmsg.FetchResponseTopicPartition, at kafka.Offset) (kafka.Offset, error) {
	now := p.now()
	p.mu.Lock()
	defer p.mu.Unlock()
	a.AbortedTransactions = nil
	next, err := p.scan.Scan(a, at, func(e lead.Entry) {
		k, err := lead.DecodeKey(e.Key)
		if err != nil {
			return
		}
		if r := p.roles[k.Role]; r != nil && r.fold.Open(k, e, now) {
			r.tell()
		}
	})
	return next, err
}

// hides reports whether records have been behind an open transaction for a
// whole wait of the follower, and takes it that they are looked at now.
func (p *partition) hides(wait time.Duration) bool {
	now := p.now().Local
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.high <= p.next || now-p.fresh < wait && now-p.peeked < wait {
		return false
	}
	p.peeked = now
	return true
}

// reached takes note that everything up to a last stable offset sampled at
// since was read.
func (p *partition) reached(since time.Duration, high kafka.Offset) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.read {
		p.read = true
		p.tellAllLocked()
	}
	p.fresh, p.high = max(p.fresh, since), max(p.high, high)
	p.goodLocked(p.now().Local)
}

// goodLocked takes note of an answer.
func (p *partition) goodLocked(now time.Duration) {
	if p.failure != nil {
		p.back, p.failure = now, nil
	}
}

// failed takes note that the partition cannot be followed.
func (p *partition) failed(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure == nil {
		p.event(Event{Kind: EventFollow, Term: -1, Rank: -1, Err: err})
	}
	p.failure = err
}

// belongs tells which topic is read. Another id than before is another log:
// what was read of the old one is void.
func (p *partition) belongs(id kafka.TopicID) {
	p.mu.Lock()
	was := p.topic
	p.topic = id
	p.mu.Unlock()
	if !was.IsZero() && was != id {
		p.reset(errors.New("the topic was deleted and made anew"))
	}
}

// reset drops all that was read: the log is not what it was.
func (p *partition) reset(why error) {
	p.mu.Lock()
	for role, r := range p.roles {
		r.fold = lead.NewFold(role, p.lease)
	}
	p.before = p.before || p.read
	p.next, p.high, p.read = -1, 0, false
	p.tellAllLocked()
	p.mu.Unlock()
	p.event(Event{Kind: EventReset, Term: -1, Rank: -1, Err: why})
}

func (p *partition) tellAllLocked() {
	for _, r := range p.roles {
		r.tell()
	}
}
