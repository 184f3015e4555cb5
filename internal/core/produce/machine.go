// Package produce holds the rules of a producer as a machine without clock,
// socket or goroutine: which batch gets which sequence numbers, when a batch is
// closed, sealed, sent, sent again, split or given up, and what its caller may
// be told about it. Partitioners are here too.
//
// The machine knows batches by number only. Whoever drives it keeps their
// bytes, feeds it what happened and carries out its actions.
package produce

import (
	"cmp"
	"math/rand/v2"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// BatchID names a batch. The driver chooses it; it must not come twice.
type BatchID uint64

// RequestID names a Produce request.
type RequestID uint64

// WaitingArea is the partition number under which records of a topic wait
// whose partition count is not known.
const WaitingArea int32 = -1

// Config is what a [Machine] needs to know. The zero value is usable.
type Config struct {
	Linger        time.Duration // how long an open batch may wait for more records
	Delivery      time.Duration // the time of a batch from its first record to its result; 0 = 120 s
	TopicPatience time.Duration // how long a topic that was there may be unknown; 0 = 5 s
	BrokerWindow  int           // requests outstanding per broker; 0 = 5
	RequestBytes  int           // batches of one request together; 0 = 16 MiB
	Backoff       retry.Backoff

	// Window bounds the batches of a partition that are outstanding or settled
	// out of turn; 0 = 5, or 1 without sequences. With sequences it is 5 at
	// most: a broker remembers the last five batches of a producer.
	Window         int
	Plain          bool // no identity and no sequences: every batch stands alone
	Duplicates     bool // with Plain: what may be written is sent again all the same
	StopOnDataLoss bool // a partition whose log lost what was acknowledged takes no more
	Codecs         int  // how many codecs there are to fall back on; 0 = 1
}

// brokerMemory is how many batches of a producer a broker remembers.
const brokerMemory = 5

func (c Config) withDefaults() Config {
	if c.Delivery == 0 {
		c.Delivery = 120 * time.Second
	}
	if c.TopicPatience == 0 {
		c.TopicPatience = 5 * time.Second
	}
	if c.BrokerWindow == 0 {
		c.BrokerWindow = 5
	}
	if c.RequestBytes == 0 {
		c.RequestBytes = 16 << 20
	}
	switch {
	case c.Window == 0 && c.Plain:
		c.Window = 1
	case c.Window == 0 || c.Window > brokerMemory && !c.Plain:
		c.Window = brokerMemory
	}
	c.Codecs = max(c.Codecs, 1)
	return c
}

// Batch is what the machine is told about a batch when it is closed.
type Batch struct {
	ID        BatchID
	Partition kafka.TopicPartition
	Count     int32     // records in it, at least 1
	Since     time.Time // when its first record came
}

// Item is one batch of a request.
type Item struct {
	Batch BatchID
	Stamp record.Stamp // what the bytes must carry; until the first Send it may differ from that of Seal
}

// Action is something for the driver to do.
type Action interface{ action() }

type (
	// Identify asks for a producer id without a transaction (InitProducerId);
	// the answer goes to OnIdentity.
	Identify struct{}
	// CloseOpen asks to close the open batch of a partition and to hand it over
	// to OnBatch. If it was handed over meanwhile there is nothing to do.
	CloseOpen struct{ Partition kafka.TopicPartition }
	// Seal asks to compress a batch and to write the stamp into it; then OnSealed.
	// Codec is the place of the codec in the list of preference; above 0 the
	// batch may have been sealed before, with one that the broker refused.
	Seal struct {
		Batch BatchID
		Stamp record.Stamp
		Codec int
	}
	// Split asks for other batches in place of one: two, as the broker finds it
	// too large, or one without the records that were withdrawn; then OnSplit.
	Split struct{ Batch BatchID }
	// Send asks for one Produce request; then OnAnswer or OnFailure, once.
	Send struct {
		Request RequestID
		Broker  kafka.NodeID
		Items   []Item // the driver's; every partition at most once
		// Behind says that other batches of one of the partitions are
		// outstanding there. The request must not go out on another connection
		// than theirs: if that one is lost it fails.
		Behind bool
	}
	// Resolve asks for the leader of a partition, or in the waiting area for
	// the partitions of the topic. Invalid says that what the cluster map knows
	// has proven wrong. The answer goes to OnLeader, or to OnPlaced.
	Resolve struct {
		Partition kafka.TopicPartition
		Invalid   bool
	}
	// Finish is the result of a batch. It comes once per batch.
	Finish struct {
		Batch   BatchID
		Outcome Outcome
	}
	// Report is something that somebody should know: a *kafka.DataLossError or
	// a *DuplicateError. There is nothing to do about it.
	Report struct {
		Partition kafka.TopicPartition
		Err       error
	}
)

func (Identify) action()  {}
func (CloseOpen) action() {}
func (Seal) action()      {}
func (Send) action()      {}
func (Resolve) action()   {}
func (Finish) action()    {}
func (Split) action()     {}
func (Report) action()    {}

// Answer is what a broker answered for one partition of a request.
type Answer struct {
	Partition  kafka.TopicPartition
	Code       int16
	Message    string
	Base       kafka.Offset    // of the first record; -1 unknown
	AppendTime kafka.Timestamp // -1 unless the topic uses the broker's time
	LogStart   kafka.Offset    // first offset of the log; -1 unknown
	Leader     kafka.NodeID    // the leader if the answer taught one that is newer than what was known, else NoNode
	Reasons    []Reason        // records that are the cause of the rejection, if the broker named some
}

// Reason is why the broker rejects one record of a batch.
type Reason struct {
	Index int32 // within the batch
	Text  string
}

// Machine is the producer's state. It is not safe for concurrent use. The same
// inputs give the same actions.
type Machine struct {
	cfg      Config
	rng      *rand.Rand
	ident    identity
	parts    map[kafka.TopicPartition]*partition
	order    []*partition // all of parts, in order of appearance
	batches  map[BatchID]*batch
	brokers  map[kafka.NodeID]*broker
	lanes    []*broker // all of brokers, in order of appearance
	requests map[RequestID]*request
	lastReq  RequestID
	timers   timers
	out      []Action
	over     error // set by OnClose and by a fence: nothing is sent any more
	odd      uint64
	codec    int // the first codec of the list that no broker refused
	tx       *Transactions
	refused  error // batches are refused with it; nothing else stops
}

// New is a machine without partitions. rng is the machine's alone.
func New(cfg Config, rng *rand.Rand) *Machine {
	return &Machine{
		cfg:      cfg.withDefaults(),
		rng:      rng,
		parts:    map[kafka.TopicPartition]*partition{},
		batches:  map[BatchID]*batch{},
		brokers:  map[kafka.NodeID]*broker{},
		requests: map[RequestID]*request{},
	}
}

// OddAnswers counts answers for partitions that were not asked for, or that
// came twice in one answer. They are ignored.
func (m *Machine) OddAnswers() uint64 { return m.odd }

// OnOpened says that a batch of tp was opened with its first record.
func (m *Machine) OnOpened(now time.Time, tp kafka.TopicPartition) {
	p := m.partition(tp)
	if m.over != nil || m.refused != nil {
		closeOpen(p)
		return
	}
	p.open = open{is: true, now: m.tx != nil && m.tx.end != nil, due: now.Add(m.cfg.Linger), last: now.Add(m.cfg.Delivery)}
	p.evaluate(now)
}

// OnBatch hands over a closed batch, in the order in which the batches of a
// partition were opened; in the waiting area when its first record comes.
func (m *Machine) OnBatch(now time.Time, in Batch) {
	p := m.partition(in.Partition)
	b := &batch{Batch: in, part: p, deadline: in.Since.Add(m.cfg.Delivery)}
	m.batches[b.ID] = b
	if !p.waitingArea() {
		p.open, p.owed = open{}, false
	}
	if err := cmp.Or(m.over, p.over, m.refused); err != nil {
		m.finish(b, Outcome{Offset: -1, AppendTime: kafka.NoTimestamp, Err: b.opError(refusal{err})})
		return
	}
	p.queue = append(p.queue, b)
	p.evaluate(now)
}

// OnSealed says that a batch is ready: size is its size on the wire.
func (m *Machine) OnSealed(now time.Time, id BatchID, size int) {
	b := m.batches[id]
	if b == nil || b.state != sealing {
		return
	}
	b.state, b.size = ready, size
	b.part.evaluate(now)
}

// OnFlush closes every open batch without waiting for linger.
func (m *Machine) OnFlush(now time.Time) {
	for _, p := range m.order {
		m.OnFlushPartition(now, p.tp)
	}
}

// OnFlushPartition closes the open batch of one partition without waiting for
// linger.
func (m *Machine) OnFlushPartition(now time.Time, tp kafka.TopicPartition) {
	if p := m.parts[tp]; p != nil && p.open.is && !p.open.now {
		p.open.now = true
		p.evaluate(now)
	}
}

// OnLeader is what the cluster map says about a partition, asked for or not.
// NoNode is no leader, err says why. An error that cannot heal ends the
// batches that wait.
func (m *Machine) OnLeader(now time.Time, tp kafka.TopicPartition, leader kafka.NodeID, err error) {
	p := m.parts[tp]
	if p == nil {
		if leader == kafka.NoNode {
			return
		}
		p = m.partition(tp)
	}
	asked := p.asking
	p.asking = false
	switch {
	case leader != kafka.NoNode:
		p.lead(leader)
	case asked: // unasked news that there is none waits for the next rejection
		p.onNoLeader(now, err)
	}
	p.evaluate(now)
}

func (p *partition) onNoLeader(now time.Time, err error) {
	if final(err) {
		p.queue.giveUpWaiting(err)
		return
	}
	for _, b := range p.queue {
		b.cause = err
	}
	if vanished(err) && !p.waitingArea() && p.outOfPatience(now, p.m.cfg.TopicPatience) {
		p.queue.giveUpWaiting(err)
		return
	}
	p.backOff(now)
}

// OnPlaced says that what waited for the topic's partition count went to its
// partitions.
func (m *Machine) OnPlaced(now time.Time, topic string) {
	p := m.parts[kafka.TopicPartition{Topic: topic, Partition: WaitingArea}]
	if p == nil {
		return
	}
	for _, b := range p.queue {
		delete(m.batches, b.ID)
	}
	p.queue, p.asking, p.tries, p.retryAt = nil, false, 0, time.Time{}
	p.evaluate(now)
}

// OnClose ends every batch: those that may have been written are in doubt, the
// others have not happened. cause is the error of both. After it nothing is
// sent, and every further batch ends at once.
func (m *Machine) OnClose(cause error) {
	m.over = cause
	for _, p := range m.order {
		p.queue.giveUpAll(refusal{cause})
		if p.open.is {
			closeOpen(p)
		}
		m.timers.set(p, time.Time{})
	}
	if m.tx != nil {
		m.tx.close(cause)
	}
}

// Next is the next action, false if there is none at this time.
func (m *Machine) Next(now time.Time) (Action, bool) {
	for len(m.out) == 0 {
		if p := m.timers.due(now); p != nil {
			p.evaluate(now)
			continue
		}
		m.identify(now)
		decide(m, now)
		if len(m.out) == 0 {
			return nil, false
		}
	}
	a := m.out[0]
	m.out = m.out[1:]
	if len(m.out) == 0 {
		m.out = nil
	}
	return a, true
}

// decide makes the requests that are due.
func decide(m *Machine, now time.Time) {
	if m.tx == nil {
		m.send(now)
		return
	}
	m.tx.settle(now)
	m.send(now)
	m.tx.next(now)
}

// Deadline is when Next has to be asked again if nothing happens before; zero
// is never.
func (m *Machine) Deadline() time.Time {
	at := m.timers.first()
	if m.ident.state == identNone && m.ident.wanted && m.over == nil {
		at = retry.Earlier(at, m.ident.retryAt)
	}
	if m.tx != nil {
		at = retry.Earlier(at, m.tx.deadline())
	}
	return at
}

func (m *Machine) emit(a Action) { m.out = append(m.out, a) }
