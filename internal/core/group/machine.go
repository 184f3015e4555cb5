package group

import (
	"math/rand/v2"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// Config is what a [Machine] is made with. Durations and Group must be set.
type Config struct {
	Group      string
	InstanceID string // group.instance.id; empty for a dynamic member
	Rack       string // client.rack

	Session   time.Duration // session.timeout.ms
	Heartbeat time.Duration // heartbeat.interval.ms
	Rebalance time.Duration // how long the group waits for a member in a rebalance

	Assignors []string // classic: in order of preference
	// Consumer chooses the consumer protocol (KIP-848), with the id that the
	// member makes for itself.
	Consumer       bool
	MemberID       string
	HeartbeatV1    bool   // the broker takes that id, and patterns
	ServerAssignor string // group.remote.assignor; empty = the broker's choice

	Backoff retry.Backoff // between attempts; its zero value is 5 ms to 1 s
}

// State is where a member stands.
type State uint8

const (
	Idle     State = iota // no subscription, or suspended
	Joining               // on its way into the group
	Syncing               // in the group, waiting for what it gets
	Revoking              // waiting until partitions are given up
	Stable                // member with an assignment
	Left                  // left for good
	Failed                // over, by an error
)

// String is Kafka's word for the state, where it has one.
func (s State) String() string {
	return [...]string{"idle", "joining", "syncing", "revoking", "stable", "left", "failed"}[s]
}

// over reports whether there will be no membership any more.
func (s State) over() bool { return s == Left || s == Failed }

// joined reports whether a broker counts on heartbeats.
func (s State) joined() bool { return s == Stable || s == Syncing || s == Revoking }

// Machine is one member of a group: it decides what is sent when, and tells
// which partitions are given and taken.
type Machine struct {
	Dropped Dropped // by the leader so far; read only

	cfg   Config
	rng   *rand.Rand
	proto protocol
	state State
	err   error // of Failed

	topics   []string // subscription, sorted
	pattern  string   // for the broker to resolve
	owned    map[kafka.TopicPartition]kafka.TopicID
	revoking revocation
	memberID string

	outbox
	commits commits

	confirmed time.Time // when a broker last confirmed the membership
	doubtful  bool      // that is longer ago than the session lasts
}

// revocation is what the driver was asked to give up.
type revocation struct {
	id  uint64 // 0: nothing
	tps []kafka.TopicPartition
}

// protocol is what differs between the two kinds of groups. Methods queue
// actions.
type protocol interface {
	next(now time.Time)
	deadline() time.Time
	onAnswer(now time.Time, f *flight, resp kmsg.Response, code int16, err error)
	subscribed(now time.Time)
	onRevoked(now time.Time)
	onLost(code int16) // partitions and membership are gone
	rejoin(cause string)
	leave(reason string)
	epoch() int32 // generation or member epoch, the last one outside of a classic group
	mayCommit() bool
}

// New makes a member that is in no group. rng gives jitter; the Machine owns it.
func New(cfg Config, rng *rand.Rand) *Machine {
	m := &Machine{
		cfg: cfg, rng: rng, memberID: cfg.MemberID,
		owned: map[kafka.TopicPartition]kafka.TopicID{}, outbox: outbox{flights: map[uint64]*flight{}},
	}
	if cfg.Consumer {
		m.proto = newConsumer(m)
	} else {
		m.proto = newClassic(m)
	}
	return m
}

// Next is the next thing to do. It is called until it says false.
func (m *Machine) Next(now time.Time) (Action, bool) {
	if len(m.queue) == 0 {
		if at := m.doubtAt(); !at.IsZero() && !now.Before(at) {
			m.doubtful = true
			m.tell(Event{Kind: Doubtful})
		}
		m.proto.next(now)
		m.commits.next(m, now)
	}
	return m.take()
}

// Deadline is when Next may have something to do although nothing happens
// before; zero is never.
func (m *Machine) Deadline() time.Time {
	return retry.Earlier(retry.Earlier(m.proto.deadline(), m.commits.deadline(m)), m.doubtAt())
}

// State is where the member stands.
func (m *Machine) State() State { return m.state }

// Err is why the member failed.
func (m *Machine) Err() error { return m.err }

// MemberID is the member's id, empty while it has none.
func (m *Machine) MemberID() string { return m.memberID }

// Owned lists what the member owns, in order.
func (m *Machine) Owned() []kafka.TopicPartition {
	tps := make([]kafka.TopicPartition, 0, len(m.owned))
	for tp := range m.owned {
		tps = append(tps, tp)
	}
	slices.SortFunc(tps, kafka.TopicPartition.Compare)
	return tps
}

// Owns reports whether the member owns a partition, one that it is about to
// give up included.
func (m *Machine) Owns(tp kafka.TopicPartition) bool {
	_, ok := m.owned[tp]
	return ok
}

// Token proves the membership; ok is false unless the member is stable, or still
// owns what it is about to give up.
func (m *Machine) Token() (t kafka.GroupMetadata, ok bool) {
	if m.state != Stable && m.state != Revoking {
		return t, false
	}
	t = kafka.GroupMetadata{
		Group: m.cfg.Group, MemberID: m.memberID, InstanceID: m.cfg.InstanceID, Generation: m.proto.epoch(),
	}
	if m.cfg.Consumer {
		t.Kind = kafka.ConsumerGroup
	}
	return t, true
}

// Subscribe sets what the member wants: topics, or a pattern for the broker.
// None of both leaves the group. What is subscribed already changes nothing.
func (m *Machine) Subscribe(now time.Time, topics []string, pattern string) {
	topics = slices.Compact(sorted(topics))
	if m.state.over() || slices.Equal(topics, m.topics) && pattern == m.pattern {
		return
	}
	m.topics, m.pattern = topics, pattern
	if len(topics) == 0 && pattern == "" {
		m.Suspend("unsubscribed")
		return
	}
	m.proto.subscribed(now)
}

// Suspend leaves the group without giving the subscription up: everything owned
// is lost. A static member only falls silent. Resume joins again.
func (m *Machine) Suspend(reason string) {
	if m.state.over() || m.state == Idle {
		return
	}
	if m.cfg.InstanceID == "" {
		m.proto.leave(reason)
	}
	m.lose(0, &LostError{Group: m.cfg.Group, Reason: reason})
	m.state = Idle
}

// Resume joins again after a Suspend, if there is something to join for.
func (m *Machine) Resume(now time.Time) {
	if m.state == Idle && (len(m.topics) > 0 || m.pattern != "") {
		m.proto.subscribed(now)
	}
}

// Rejoin asks for a rebalance.
func (m *Machine) Rejoin(cause string) {
	if m.state == Stable {
		m.proto.rejoin(cause)
	}
}

// Leave ends the membership for good. With forGood a static member gives its
// place up too; otherwise it keeps it until its session ends. It reports whether
// a request says so to the coordinator; its answer changes nothing.
func (m *Machine) Leave(reason string, forGood bool) bool {
	if m.state.over() {
		return false
	}
	before := len(m.queue)
	stays := m.cfg.InstanceID != "" && !forGood && !orphans(m)
	if m.state != Idle && !(stays && !m.cfg.Consumer) {
		if !stays && m.cfg.InstanceID != "" {
			reason = "the static member leaves for good: " + reason
		}
		if c, ok := m.proto.(*consumer); ok {
			c.stays = stays
		}
		m.proto.leave(reason)
	}
	m.commits.lost(m, errLeft)
	m.state = Left
	m.owned = map[kafka.TopicPartition]kafka.TopicID{}
	return len(m.queue) > before
}

// orphans reports whether partitions that the member gave up would stay with
// nobody if it fell silent now: between a revocation and the rejoin (G30).
func orphans(m *Machine) bool {
	c, ok := m.proto.(*classic)
	return ok && (c.gaveUp || m.revoking.id != 0)
}

// OnRevoked says that what a [Taken] asked for is given up.
func (m *Machine) OnRevoked(now time.Time, id uint64) {
	if id == 0 || m.revoking.id != id {
		return
	}
	for _, tp := range m.revoking.tps {
		delete(m.owned, tp)
	}
	m.revoking = revocation{}
	m.proto.onRevoked(now)
}

// OnAnswer takes the answer of a [Send], or why there is none.
func (m *Machine) OnAnswer(now time.Time, id uint64, resp kmsg.Response, err error) {
	f := m.flights[id]
	if f == nil {
		return
	}
	delete(m.flights, id)
	code := int16(0)
	switch {
	case f.kind == flightCommit:
		m.commits.onCommit(m, now, f, resp, err)
		return
	case f.kind == flightLoad:
		m.commits.onLoad(m, now, f, resp, err)
		return
	case f.kind == flightLeave || m.state.over() || m.state == Idle:
		return
	case err == nil:
		code = codeOf(resp)
	}
	m.proto.onAnswer(now, f, resp, code, err)
}

// codeOf is the code at the top of an answer.
func codeOf(resp kmsg.Response) int16 {
	switch r := resp.(type) {
	case *kmsg.JoinGroupResponse:
		return r.ErrorCode
	case *kmsg.SyncGroupResponse:
		return r.ErrorCode
	case *kmsg.HeartbeatResponse:
		return r.ErrorCode
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return r.ErrorCode
	}
	return 0
}

// send queues a request.
func (m *Machine) send(f *flight, req kmsg.Request, wait time.Duration) uint64 {
	m.lastID++
	f.epoch = m.proto.epoch()
	m.flights[m.lastID] = f
	m.queue = append(m.queue, &Send{ID: m.lastID, Req: req, Wait: wait})
	return m.lastID
}

// confirm notes that the coordinator counts the member in.
func (m *Machine) confirm(now time.Time) {
	m.confirmed = now
	if m.doubtful {
		m.doubtful = false
		m.tell(Event{Kind: Confirmed})
	}
}

// doubtAt is when the membership is to be doubted if nothing confirms it. A
// broker may hold a JoinGroup back for a whole rebalance.
func (m *Machine) doubtAt() time.Time {
	switch {
	case m.doubtful:
	case m.state.joined():
		return m.confirmed.Add(m.cfg.Session)
	case m.state == Joining && len(m.owned) > 0:
		return m.confirmed.Add(m.cfg.Session + m.cfg.Rebalance + syncGrace)
	}
	return time.Time{}
}

// revoke asks for partitions to be given up.
func (m *Machine) revoke(tps []kafka.TopicPartition) {
	m.lastID++
	m.revoking = revocation{id: m.lastID, tps: tps}
	m.state = Revoking
	m.queue = append(m.queue, &Taken{ID: m.lastID, Partitions: tps})
}

// give takes partitions into possession.
func (m *Machine) give(ids map[kafka.TopicPartition]kafka.TopicID, tps []kafka.TopicPartition) {
	if len(tps) == 0 {
		return
	}
	g := &Given{Partitions: tps, IDs: map[string]kafka.TopicID{}}
	for _, tp := range tps {
		m.owned[tp] = ids[tp]
		if id := ids[tp]; !id.IsZero() {
			g.IDs[tp.Topic] = id
		}
	}
	m.queue = append(m.queue, g)
}

// lose ends the ownership of everything at once.
func (m *Machine) lose(code int16, why error) {
	tps := m.Owned()
	clear(m.owned)
	m.revoking = revocation{}
	m.forget(flightJoin, flightSync, flightHeartbeat)
	m.commits.lost(m, why)
	m.proto.onLost(code)
	if len(tps) > 0 {
		m.queue = append(m.queue, &Taken{Partitions: tps, Lost: true, Why: why})
	}
	if m.doubtful {
		m.doubtful = false
		m.tell(Event{Kind: Outside})
	}
}

// fail ends the member by an error.
func (m *Machine) fail(err error) {
	m.lose(0, err)
	m.state, m.err = Failed, err
	m.tell(Event{Kind: Over, Err: err})
}

// begin tells of a rebalance.
func (m *Machine) begin(cause string) {
	m.tell(Event{Kind: Rebalance, Cause: cause})
}
