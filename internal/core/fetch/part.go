package fetch

import (
	"time"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

type partState uint8

const (
	stateListing partState = iota // a ListOffsets answer decides the position
	stateReading                  // the position is known
	stateFailed                   // stopped by an error until a seek
	statePending                  // somebody else is about to say where to start
)

// listing is the question that a partition in stateListing has.
type listing struct {
	reset bool            // the position was out of range; otherwise it is a start
	ts    kafka.Timestamp // what to ask next
	first kafka.Offset    // reset: the log's first offset, once known, else -1

	sought bool // reset: a time was asked for, back from the last record
}

// ask remembers under which request and generation a partition was asked for.
type ask struct {
	id     uint64 // of the request, 0 if none is out
	gen    uint64
	offset kafka.Offset
}

// part is one assigned partition.
type part struct {
	tp    kafka.TopicPartition
	topic *topic
	state partState
	list  listing

	lead
	gen     uint64 // raised by seek, revoke, reset and leader change (F7)
	cut     uint64 // raised when what was taken must not be handed out any more
	fetch   ask    // the Fetch that is out
	listed  ask    // the ListOffsets that is out
	vetting vetting

	position kafka.Offset      // next offset to hand out
	next     kafka.Offset      // next offset to fetch: behind all of queue
	last     kafka.LeaderEpoch // of the last batch before position
	tail     kafka.LeaderEpoch // of the last batch before next
	limit    int32             // byte limit of the next fetch, 0 = the configured one

	stock
	patience
	halt
	log     Log
	corrupt kafka.Offset // the batch here was corrupt once, -1 if none
}

// halt is what keeps a partition from being fetched and handed out.
type halt struct {
	paused   bool
	withheld bool // until it is removed
}

// lead says who leads a partition, and who serves it.
type lead struct {
	leader  kafka.NodeID      // kafka.NoNode if not known
	epoch   kafka.LeaderEpoch // of leader
	stale   bool              // a broker refused: metadata must be read again first
	replica kafka.NodeID      // read from in place of the leader, kafka.NoNode if none
	until   time.Time         // of replica: then the leader is asked again
	shunned time.Time         // no replica is taken before
}

// ledBy is a partition's new leader.
func ledBy(leader kafka.NodeID, epoch kafka.LeaderEpoch) lead {
	return lead{leader: leader, epoch: epoch, replica: kafka.NoNode}
}

// stock is what was fetched of a partition.
type stock struct {
	queue    []chunk           // not taken yet, in offset order
	buffered int64             // bytes of queue
	lent     bool              // a batch was taken and not yet delivered
	loan     kafka.LeaderEpoch // of that batch
	held     int               // batches that were delivered and have perhaps not reached the user
	lastTime kafka.Timestamp   // of the last batch that was handed out
	owes     bool              // the user has something of it that is not finished
	done     Progress          // where that begins, if owes
	inRing   bool
	turn     uint64  // the last one in which something was taken
	given    int     // records taken in it
	unpacked float64 // size of the last payload, by that of its compressed batch
}

// patience counts failures of a partition.
type patience struct {
	attempt int       // failures in a row
	retryAt time.Time // nothing is asked before
	unknown time.Time // since when the broker does not know the partition
	short   int       // answers in a row that held less than a batch, at the highest limit
}

// Log is what Fetch answers say of a partition's log. Offsets are -1 where they
// are not known.
type Log struct {
	Start         kafka.Offset // first offset of the log
	Stable        kafka.Offset // last stable offset: open transactions begin here
	HighWatermark kafka.Offset // offset behind the last record that is replicated
}

var unknownLog = Log{Start: -1, Stable: -1, HighWatermark: -1}

// chunk is a stretch of offsets that was fetched: a batch with data, a stretch
// without (batch is zero), or a batch that cannot be read (err).
type chunk struct {
	batch record.Batch
	from  kafka.Offset // records below are not handed out
	next  kafka.Offset
	epoch kafka.LeaderEpoch
	frame *frame
	ahead *decoding // nil if nobody has begun to decode it
	err   error     // what stops the partition here
	op    string    // of err; empty if err is a batch that cannot be read
}

func (c *chunk) silent() bool { return c.batch.IsZero() && c.err == nil }

// stuck reports whether the queue ends with a batch that cannot be read:
// fetching more makes no sense before that is decided.
func (p *part) stuck() bool {
	return len(p.queue) > 0 && p.queue[len(p.queue)-1].err != nil
}

// ready reports whether Take may find something here.
func (p *part) ready() bool {
	return len(p.queue) > 0 && !p.paused && !p.withheld && !p.lent && p.state != stateFailed
}

// readable reports whether a Fetch may name the partition, apart from byte
// limits and backoff.
func (p *part) readable() bool {
	return p.state == stateReading && !p.paused && !p.withheld && !p.stale && p.leader != kafka.NoNode && !p.stuck() &&
		!p.vetting.wanted
}

// soon reports whether the leader or the position of p is being asked for, so
// that a Fetch without it should not wait for long.
func (p *part) soon() bool {
	asked := p.stale || p.leader == kafka.NoNode || p.state == stateListing || p.vetting.wanted
	return asked && !p.paused && !p.withheld && p.state != stateFailed && p.state != statePending &&
		p.attempt < patientAfter && p.topic.attempt < patientAfter
}

// drained reports whether all that was fetched has reached the user.
func (p *part) drained() bool { return len(p.queue) == 0 && !p.lent && p.held == 0 }

// wantsList reports whether a ListOffsets should name the partition. A reset
// waits until everything that was read before has reached the user.
func (p *part) wantsList() bool {
	return p.state == stateListing && !p.stale && p.leader != kafka.NoNode && p.listed.id == 0 &&
		(!p.list.reset || p.drained())
}

// invalidate makes answers that are on their way void.
func (p *part) invalidate() {
	p.gen++
	p.listed, p.vetting.asked = ask{}, 0
}

// startReset begins to look for a place to go on, as the broker says that the
// position is outside of the log.
func (p *part) startReset(now time.Time, c *Config) {
	p.state = stateListing
	p.list = listing{reset: true, ts: timeEarliest, first: -1}
	switch c.Reset {
	case ResetLatest:
		p.list.ts = timeLatest
	case ResetTime:
		p.list.ts = max(c.ResetTime, 0)
	case ResetBack:
		p.list.ts = max(kafka.TimestampOf(now.Add(-c.ResetBack)), 0)
	}
	p.invalidate()
}

// moveTo sets the position; nothing may be queued.
func (p *part) moveTo(o kafka.Offset) {
	p.state = stateReading
	p.position, p.next, p.tail = o, o, p.last
}

func (p *part) waits(now time.Time) bool { return now.Before(p.retryAt) }
