package fetch

import (
	"time"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// Isolation says which transactional records are data (isolation.level).
type Isolation int8

const (
	ReadCommitted   Isolation = iota // only those of committed transactions
	ReadUncommitted                  // all, of open and aborted transactions too
)

// String is Kafka's name of the level.
func (i Isolation) String() string {
	if i == ReadUncommitted {
		return "read_uncommitted"
	}
	return "read_committed"
}

// wire is the level's number in a request, where Kafka counts the other way.
func (i Isolation) wire() int8 {
	if i == ReadUncommitted {
		return 0
	}
	return 1
}

// Reset is what to do with a position that is outside of the log
// (auto.offset.reset).
type Reset int8

const (
	// ResetNearest takes the end of the log that is nearer: the first offset if
	// the position fell behind retention, else the log end, which is reported as
	// a [*kafka.DataLossError].
	ResetNearest  Reset = iota
	ResetEarliest       // the first offset of the log
	ResetLatest         // the end of the log
	ResetFail           // stop the partition with a [*kafka.OutOfRangeError]
	ResetTime           // the first record of Config.ResetTime or later
	ResetBack           // the first record of Config.ResetBack before now, or later
	// ResetBackFromLast goes back by Config.ResetBack from the time of the last
	// record that was handed out, if the position is above the end of the log, and
	// is nearest otherwise.
	ResetBackFromLast
)

// byTime reports whether the policy looks for a time at once.
func (r Reset) byTime() bool { return r == ResetTime || r == ResetBack }

// String is the policy's name.
func (r Reset) String() string {
	return [...]string{"nearest", "earliest", "latest", "fail", "time", "back", "back from last"}[r]
}

// Special timestamps of ListOffsets.
const (
	timeLatest   kafka.Timestamp = -1
	timeEarliest kafka.Timestamp = -2
)

// Start is where reading of a partition begins. The zero value is the first
// offset of the log.
type Start struct {
	kind  startKind
	at    int64             // an offset or a timestamp
	epoch kafka.LeaderEpoch // startOffset: of the batch before it, kafka.NoEpoch if not known
}

type startKind uint8

const (
	startEarliest startKind = iota
	startLatest
	startOffset
	startTime
	startPending
)

// Earliest starts at the first offset of the log.
func Earliest() Start { return Start{} }

// Latest starts behind the last record: with [ReadCommitted] at the last stable
// offset.
func Latest() Start { return Start{kind: startLatest} }

// AtOffset starts at offset o. A negative one is the beginning of the log.
func AtOffset(o kafka.Offset) Start { return AtProgress(Progress{Offset: o, Epoch: kafka.NoEpoch}) }

// AtProgress starts where another reader has finished: the epoch tells whether
// the log was truncated since.
func AtProgress(at Progress) Start {
	if at.Offset < 0 {
		return Earliest()
	}
	return Start{kind: startOffset, at: int64(at.Offset), epoch: at.Epoch}
}

// AtTime starts at the first record whose timestamp is t or later, and at the
// end of the log if there is none. A negative t is the beginning of the log.
func AtTime(t kafka.Timestamp) Start {
	if t < 0 {
		return Earliest()
	}
	return Start{kind: startTime, at: int64(t)}
}

// past is the epoch of what is before the start, kafka.NoEpoch if not known.
func (s Start) past() kafka.LeaderEpoch {
	if s.kind != startOffset {
		return kafka.NoEpoch
	}
	return s.epoch
}

// timestamp is what to ask ListOffsets for; ok is false for a plain offset.
func (s Start) timestamp() (ts kafka.Timestamp, ok bool) {
	switch s.kind {
	case startEarliest:
		return timeEarliest, true
	case startLatest:
		return timeLatest, true
	case startTime:
		return kafka.Timestamp(s.at), true
	default:
		return 0, false
	}
}

// Config is what a Machine is made with. Every field must be set but
// ResetTime and ResetBack where Reset does not need them, // TurnRecords, Rack, ReplicaTime and Retry.
type Config struct {
	MaxWait           time.Duration // fetch.max.wait.ms
	MinBytes          int32         // fetch.min.bytes
	MaxBytes          int32         // fetch.max.bytes
	PartitionMaxBytes int32         // max.partition.fetch.bytes
	Budget            int64         // bytes that may wait to be handed out, and be on their way
	Isolation         Isolation     // isolation.level
	Reset             Reset         // auto.offset.reset
	ResetTime         kafka.Timestamp
	ResetBack         time.Duration
	UnknownTimeout    time.Duration // how long a topic once seen may be unknown to a broker
	RequestTimeout    time.Duration // request.timeout.ms, told to brokers in ListOffsets
	TurnRecords       int           // of one partition in a turn of polling; 0 = no bound
	Rack              string        // client.rack; with one a replica may be read from (KIP-392)
	ReplicaTime       time.Duration // after which the leader is asked again
	Retry             retry.Backoff
	Poison            bool // for tests: memory that is to be used again is overwritten
}
