package model

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/kafka"
)

// State is that of a transactional id at its coordinator.
type State string

// The states, by the names that DescribeTransactions gives them.
const (
	Empty          State = "Empty"
	Ongoing        State = "Ongoing"
	PrepareCommit  State = "PrepareCommit"
	PrepareAbort   State = "PrepareAbort"
	CompleteCommit State = "CompleteCommit"
	CompleteAbort  State = "CompleteAbort"
)

func (s State) prepared() bool { return s == PrepareCommit || s == PrepareAbort }
func (s State) complete() bool { return s == CompleteCommit || s == CompleteAbort }

// noEpoch is the epoch of an id that was never used.
const noEpoch kafka.ProducerEpoch = -1

// txn is what the coordinator knows of one transactional id.
type txn struct {
	name      string
	state     State
	id        kafka.ProducerID
	epoch     kafka.ProducerEpoch
	lastEpoch kafka.ProducerEpoch // the pair before is (id or prevID, lastEpoch); noEpoch where a retry is not known again
	prevID    kafka.ProducerID    // before the last rotation; -1 = none
	timeout   time.Duration
	parts     map[kafka.TopicPartition]struct{}
	markers   []marker // not written yet
	started   time.Time
	updated   time.Time
	stuck     bool // an EndTxn above the finalised level has locked it
}

// pair is a producer id with its epoch.
type pair struct {
	id    kafka.ProducerID
	epoch kafka.ProducerEpoch
}

// coordinator is what the transaction coordinators of all brokers do.
type coordinator struct {
	*Cluster
	txns   map[string]*txn
	blocks map[kafka.NodeID]*idBlock
	nextID int64
	sweep  time.Time                     // timeouts are looked at every Config.Sweep from here
	held   map[kafka.TopicPartition]bool // no marker is written here
}

// idBlock is the producer ids that a broker has drawn.
type idBlock struct{ next, end int64 }

// newProducerID draws an id from the block of a broker: ids of two brokers are
// not ordered in time.
func (c *coordinator) newProducerID(node kafka.NodeID) kafka.ProducerID {
	b := c.blocks[node]
	if b == nil || b.next == b.end {
		b = &idBlock{next: c.nextID, end: c.nextID + c.cfg.BlockSize}
		c.blocks[node] = b
		c.nextID = b.end
	}
	b.next++
	return kafka.ProducerID(b.next - 1)
}

// step carries out what is due at c.now.
func (c *coordinator) step() {
	for _, id := range slices.Sorted(maps.Keys(c.txns)) {
		t := c.txns[id]
		c.writeMarkers(t)
		if t.state == Ongoing && !c.timeUp(t).After(c.now) {
			c.fence(t)
		}
	}
}

// timeUp is when an open transaction is aborted: at the first look after its
// timeout.
func (c *coordinator) timeUp(t *txn) time.Time {
	since := t.started.Add(t.timeout).Sub(c.sweep)
	looks := (since + c.cfg.Sweep - 1) / c.cfg.Sweep
	return c.sweep.Add(looks * c.cfg.Sweep)
}

func (c *coordinator) exhausted(e kafka.ProducerEpoch) bool { return int16(e) >= c.cfg.MaxEpoch-1 }

// txn is the entry of a transactional id, nil if there is none or it expired.
func (c *coordinator) txn(name string) *txn {
	t := c.txns[name]
	if t != nil && (t.state == Empty || t.state.complete()) && c.now.Sub(t.updated) >= c.cfg.IDExpiration {
		delete(c.txns, name)
		return nil
	}
	return t
}

// add enrols partitions; the first one opens the transaction.
func (c *coordinator) add(t *txn, tps ...kafka.TopicPartition) {
	if t.state != Ongoing {
		t.state, t.started = Ongoing, c.now
		t.parts = map[kafka.TopicPartition]struct{}{}
	}
	for _, tp := range tps {
		t.parts[tp] = struct{}{}
	}
	t.updated = c.now
}

// mayAdd is the code for who wants to add partitions under p.
func (t *txn) mayAdd(p pair) int16 {
	switch {
	case t == nil:
		return kerr.InvalidProducerIDMapping.Code
	case t.stuck:
		return kerr.ConcurrentTransactions.Code
	case t.id != p.id:
		return kerr.InvalidProducerIDMapping.Code
	case t.epoch != p.epoch:
		return kerr.ProducerFenced.Code
	case t.state.prepared():
		return kerr.ConcurrentTransactions.Code
	}
	return 0
}

// verify is what the leader of a partition, or a group's coordinator, is told
// about a producer that says to be in a transaction with it.
func (t *txn) verify(p pair, tp kafka.TopicPartition) int16 {
	if code := t.mayAdd(p); code != 0 {
		return code
	}
	if _, ok := t.parts[tp]; !ok || t.state != Ongoing {
		return kerr.TransactionAbortable.Code
	}
	return 0
}

// protocol is the one under which a transaction is ended.
type protocol bool

const (
	pinned  protocol = false // the pair stays
	bumping protocol = true  // the pair moves (KIP-890)
)

// prepare decides an open transaction. With bumping its
// markers carry the next epoch.
func (c *coordinator) prepare(t *txn, node kafka.NodeID, commit bool, p protocol) {
	m := marker{id: t.id, epoch: t.epoch, commit: commit}
	if p == bumping {
		m.epoch++
		t.lastEpoch = t.epoch
		if c.exhausted(t.epoch) {
			t.prevID, t.id, t.epoch = t.id, c.newProducerID(node), 0
		} else {
			t.epoch++
		}
	}
	c.decide(t, m)
}

// fence aborts an open transaction on the coordinator's own account, so that
// its producer can neither go on nor end it. Under the second protocol the
// epoch moves as it does at an abort, which a re-initialisation takes for its
// own; below it the pair before is forgotten.
func (c *coordinator) fence(t *txn) {
	if c.level >= 2 {
		c.prepare(t, c.Coordinator(t.name), false, bumping)
		return
	}
	t.epoch++
	t.lastEpoch = noEpoch
	c.decide(t, marker{id: t.id, epoch: t.epoch})
}

func (c *coordinator) decide(t *txn, m marker) {
	t.state = PrepareAbort
	if m.commit {
		t.state = PrepareCommit
	}
	t.updated = c.now
	order := slices.SortedFunc(maps.Keys(t.parts), kafka.TopicPartition.Compare)
	for _, tp := range order {
		m.to, m.due = tp, c.now.Add(c.delay())
		t.markers = append(t.markers, m)
	}
	c.writeMarkers(t)
}

// complete ends a decided transaction all of whose markers are written.
func (c *coordinator) complete(t *txn) {
	switch t.state {
	case PrepareCommit:
		t.state = CompleteCommit
	case PrepareAbort:
		t.state = CompleteAbort
	default:
		return
	}
	t.parts, t.updated = nil, c.now
}

// Transaction is what the coordinator knows of a transactional id.
type Transaction struct {
	State      State
	ID         kafka.ProducerID
	Epoch      kafka.ProducerEpoch
	Timeout    time.Duration
	Started    time.Time // of the last transaction; zero if there was none
	Partitions []kafka.TopicPartition
}

// Transaction looks at a transactional id. Partitions of a group's offsets
// have the topic __consumer_offsets:GROUP.
func (c *Cluster) Transaction(id string) (Transaction, bool) {
	t := c.coord.txn(id)
	if t == nil {
		return Transaction{}, false
	}
	return Transaction{
		State: t.state, ID: t.id, Epoch: t.epoch, Timeout: t.timeout, Started: t.started,
		Partitions: slices.SortedFunc(maps.Keys(t.parts), kafka.TopicPartition.Compare),
	}, true
}

// SetEpoch puts a transactional id at an epoch, so that a test need not go
// through all of those before it.
func (c *Cluster) SetEpoch(id string, epoch kafka.ProducerEpoch) {
	if t := c.coord.txn(id); t != nil {
		t.epoch, t.lastEpoch = epoch, cmp.Or(epoch, 1)-1
	}
}
