package fetch

import (
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// Machine decides what a consumer fetches, keeps and hands out.
type Machine struct {
	Counters Counters // so far; read only
	Shut     bool     // set by the driver: nothing is handed out for now

	cfg    Config
	rng    *rand.Rand
	roster // what is assigned and who leads it
	ledger
	desk
	shelf
	reserved int64                 // byte limits of fetches that are out
	lastID   uint64                // of requests
	inflate  compress.Decompressor // for control batches
}

// Counters count what a Machine dropped.
type Counters struct {
	Unasked  int64 // partitions of answers that nobody had asked for
	Outdated int64 // partitions of answers that a seek, revoke or leader change overtook
	Control  int64 // batches that hold markers
	Aborted  int64 // batches of aborted transactions
}

// Action is something for the driver to do: [*FetchAction], [*ListAction],
// [*EpochAction], [*LookupAction] or [*HintAction].
type Action interface{ action() }

// FetchAction is a Fetch to send; its answer goes to OnFetch. The request is
// the driver's. With ID 0 it closes a session, and nothing is done with its
// answer.
type FetchAction struct {
	ID     uint64
	Broker kafka.NodeID
	Req    *kmsg.FetchRequest // names and ids both, where both are known (K9)

	request *request
	home    *spares
}

// ListAction is a ListOffsets to send; its answer goes to OnList.
type ListAction struct {
	ID     uint64
	Broker kafka.NodeID
	Req    *kmsg.ListOffsetsRequest
}

// EpochAction is an OffsetForLeaderEpoch to send; its answer goes to OnEpochs.
type EpochAction struct {
	ID     uint64
	Broker kafka.NodeID
	Req    *kmsg.OffsetForLeaderEpochRequest
}

// LookupAction asks for metadata of a topic, for OnTopic or OnTopicError. The
// known leaders of the partitions in Stale were refused.
type LookupAction struct {
	Topic string
	Stale []int32
}

// HintAction is a leader that an answer named (KIP-951), to be offered to the
// cluster's map. If that takes it, OnHint is called before Next is called again.
type HintAction struct {
	kafka.TopicPartition
	Leader  kafka.NodeID
	Epoch   kafka.LeaderEpoch
	Brokers []kafka.Broker
}

func (*FetchAction) action()  {}
func (*ListAction) action()   {}
func (*EpochAction) action()  {}
func (*LookupAction) action() {}
func (*HintAction) action()   {}

// New makes a Machine with nothing assigned. rng gives jitter; the Machine owns
// it.
func New(cfg Config, rng *rand.Rand) *Machine {
	m := &Machine{cfg: cfg, rng: rng, roster: newRoster()}
	m.shelf.spares = spares{limit: min(cfg.Budget/2, mostSpare), poison: cfg.Poison}
	return m
}

// Next is the next thing to do. It is called until it says false.
func (m *Machine) Next(now time.Time) (Action, bool) {
	if len(m.queued) > 0 {
		a := m.queued[0]
		m.queued = m.queued[1:]
		return a, true
	}
	for _, name := range m.names {
		if a := m.topics[name].lookup(now); a != nil {
			return a, true
		}
	}
	for _, id := range m.ids {
		b := m.brokers[id]
		if now.Before(b.retryAt) {
			continue
		}
		p := plan{m: m, now: now, b: b}
		if a := p.list(); a != nil {
			return a, true
		}
		if a := p.vet(); a != nil {
			return a, true
		}
		if a := p.fetch(); a != nil {
			return a, true
		}
	}
	return nil, false
}

// Deadline is when Next may have something to do although nothing happens
// before; zero is never.
func (m *Machine) Deadline(now time.Time) time.Time {
	var first time.Time
	at := func(t time.Time) {
		if t.After(now) && (first.IsZero() || t.Before(first)) {
			first = t
		}
	}
	for _, name := range m.names {
		t := m.topics[name]
		if t.wantsLookup() {
			at(t.retryAt)
		}
		for _, p := range t.parts {
			if p.readable() || p.wantsList() || p.wantsVet() {
				at(p.retryAt)
			}
		}
	}
	for _, id := range m.ids {
		at(m.brokers[id].retryAt)
	}
	return first
}

// stop stops a partition with an error for the user, as soon as everything that
// was fetched before has been handed out.
func (m *Machine) stop(p *part, op string, err error) {
	if p.drained() {
		m.fail(p, op, err)
		return
	}
	if !p.stuck() {
		p.queue = append(p.queue, chunk{from: p.next, next: p.next, err: err, op: op})
		m.shelf.enlist(p)
	}
}

// fail stops a partition at once.
func (m *Machine) fail(p *part, op string, err error) {
	p.state = stateFailed
	p.invalidate()
	m.shelf.drop(p)
	m.news.report(p, op, err)
}
