package consumer

import (
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"strconv"
	"time"

	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/kafka"
)

// Isolation says which transactional records are data (isolation.level). The
// zero value is ReadCommitted. Brokers send aborted records under either level;
// the Consumer drops them.
type Isolation int8

// The isolation levels.
const (
	ReadCommitted   = Isolation(fetch.ReadCommitted)   // only records of committed transactions, and of none
	ReadUncommitted = Isolation(fetch.ReadUncommitted) // also those of open and aborted transactions
)

// String is Kafka's name of the level, or its number if there is none.
func (i Isolation) String() string {
	if i != ReadCommitted && i != ReadUncommitted {
		return "isolation level " + strconv.Itoa(int(i))
	}
	return fetch.Isolation(i).String()
}

// Reset is what to do with a position that is outside of the log
// (auto.offset.reset). The zero value is ResetNearest.
type Reset int8

// The reset policies.
const (
	// ResetNearest goes on at the first offset of the log if the position fell
	// behind retention, and else at its end, with a *kafka.DataLossError. Where the
	// log was truncated below the position, all policies but ResetFail go on where
	// it parted from what was read, with the same error.
	ResetNearest  = Reset(fetch.ResetNearest)
	ResetEarliest = Reset(fetch.ResetEarliest) // goes on at the first offset of the log
	ResetLatest   = Reset(fetch.ResetLatest)   // goes on at the end of the log
	ResetFail     = Reset(fetch.ResetFail)     // stops the partition with a *kafka.OutOfRangeError
	ResetTime     = Reset(fetch.ResetTime)     // goes on at the first record of Config.ResetTime or later
	ResetBack     = Reset(fetch.ResetBack)     // goes on at the first record that is at most Config.ResetBack old
	// ResetBackFromLast goes back by Config.ResetBack from the time of the last
	// record read, where the position is above the end of the log; where it fell
	// behind retention it is nearest.
	ResetBackFromLast = Reset(fetch.ResetBackFromLast)
)

// String is a name of the policy, or its number if there is none.
func (r Reset) String() string {
	if r < ResetNearest || r > ResetBackFromLast {
		return "reset policy " + strconv.Itoa(int(r))
	}
	return fetch.Reset(r).String()
}

// Start is where reading of a partition begins. The zero value is the first
// offset of the log.
type Start struct{ at fetch.Start }

// Earliest starts at the first offset of the log.
func Earliest() Start { return Start{fetch.Earliest()} }

// Latest starts behind the last record, as of when the broker is asked: under
// [ReadCommitted] at the last stable offset. [Consumer.Position] waits for it.
func Latest() Start { return Start{fetch.Latest()} }

// AtOffset starts at an offset. A negative one is the first offset of the log.
func AtOffset(o kafka.Offset) Start { return Start{fetch.AtOffset(o)} }

// AtTime starts at the first record whose timestamp is t or later, and at the
// end of the log if there is none. A time before 1970 is the first offset of the
// log.
func AtTime(t time.Time) Start { return Start{fetch.AtTime(kafka.TimestampOf(t))} }

// Back starts at the first record that is at most d old, by the clock of the
// caller as of this call, and at the end of the log if there is none.
func Back(d time.Duration) Start { return AtTime(time.Now().Add(-d)) }

// starts is the machine's form of starts.
func starts(at map[kafka.TopicPartition]Start) map[kafka.TopicPartition]fetch.Start {
	out := make(map[kafka.TopicPartition]fetch.Start, len(at))
	for tp, s := range at {
		out[tp] = s.at
	}
	return out
}

// PositionReset is a position that was moved by the reset policy.
type PositionReset struct {
	kafka.TopicPartition
	Old, New kafka.Offset
	Reason   error // a *kafka.OutOfRangeError, or a *kafka.DataLossError where the log was truncated
}

// Log is what brokers last said of a partition's log. Offsets are -1 where they
// are not known.
type Log struct {
	Start         kafka.Offset // first offset of the log
	Stable        kafka.Offset // last stable offset: open transactions begin here
	HighWatermark kafka.Offset // offset behind the last record that is replicated
}

// Config says how to consume. The zero value is a safe default for every field.
// [New] copies and validates it.
type Config struct {
	// MaxWait is how long a broker may hold a Fetch back for MinBytes
	// (fetch.max.wait.ms); 0 = 500 ms. There is one Fetch per broker at a time, so
	// a partition that is added, resumed or sought meanwhile waits as long.
	MaxWait           time.Duration
	MinBytes          int32         // fetch.min.bytes; 0 = 1
	MaxBytes          int32         // fetch.max.bytes: see below; 0 = 32 MiB
	PartitionMaxBytes int32         // max.partition.fetch.bytes: of one partition in an answer; 0 = 1 MiB
	Isolation         Isolation     // isolation.level; zero = read committed
	Reset             Reset         // auto.offset.reset, for positions outside of the log; zero = nearest
	ResetTime         time.Time     // of ResetTime
	ResetBack         time.Duration // of ResetBack and ResetBackFromLast
	NoCRC             bool          // inverse of check.crcs

	// Rack is where the consumer stands (client.rack). With one, a leader may send
	// it to a replica that is nearer (KIP-392); "" reads from leaders only.
	Rack string

	// Budget bounds the bytes that were fetched and not yet handed out, together
	// with those that may be on their way; 0 = 128 MiB. A batch above every limit
	// is still read. Most consumers stay far below it: what waits of a partition is
	// less than two fetches, and an answer has 2 MiB, or up to MaxBytes where a broker
	// is so far that these come too slowly.
	Budget int64
	// MaxBatchBytes bounds one batch once it is decompressed; 0 = 256 MiB. A
	// larger one is an UnreadableError.
	MaxBatchBytes int
	// MaxPollRecords bounds what one Poll hands out (max.poll.records): after the
	// batch that reaches it Poll returns. Batches are not cut. 0 = no bound.
	MaxPollRecords int
	// MaxPollBytes is the same for bytes of decompressed batches; 0 = 1 MiB.
	MaxPollBytes int
	// MaxPollPartitionRecords bounds what one Poll hands out of one partition: after
	// the batch that reaches it the others come. 0 = no bound.
	MaxPollPartitionRecords int
	// Workers is how many batches are decompressed at once before they are asked
	// for, while Budget has room; 0 = one less than GOMAXPROCS.
	Workers int
	// ReuseBuffers recycles the memory of answers and of decompressed batches, which
	// costs less and keeps memory flat: what Poll returned is valid until the next
	// Poll, of Batches and Records until the next step. Without it everything stays
	// valid as long as it is referenced. Run refuses it.
	ReuseBuffers bool
	// UnknownTopicTimeout is how long a topic that existed may be unknown to the
	// brokers before its partitions stop; 0 = 5 s. One that never existed is
	// waited for.
	UnknownTopicTimeout time.Duration

	Group GroupConfig // makes the consumer a member of a group; the zero value is none

	// OnReset is called, on the goroutine that polls and before Poll returns, for
	// each position that the reset policy moved; nil = none. It may seek, and must
	// not poll.
	OnReset func(PositionReset)
	Logger  *slog.Logger // nil = silent

	poison bool // for tests: memory that is to be used again is overwritten
}

// configError is a setting that New refuses.
type configError struct{ field, problem string }

func (e *configError) Error() string       { return "ottla: consumer.Config." + e.field + " " + e.problem }
func (*configError) MayHaveHappened() bool { return false }

func orDefault[T int | int32 | int64 | time.Duration](v *T, def T, name string) error {
	if *v < 0 {
		return &configError{name, fmt.Sprintf("is negative: %v", *v)}
	}
	if *v == 0 {
		*v = def
	}
	return nil
}

// withDefaults is a checked copy of the configuration.
func (c Config) withDefaults() (Config, error) {
	for _, err := range []error{
		orDefault(&c.MaxWait, 500*time.Millisecond, "MaxWait"),
		orDefault(&c.MinBytes, 1, "MinBytes"),
		orDefault(&c.MaxBytes, 32<<20, "MaxBytes"),
		orDefault(&c.PartitionMaxBytes, 1<<20, "PartitionMaxBytes"),
		orDefault(&c.Budget, 128<<20, "Budget"),
		orDefault(&c.MaxBatchBytes, 256<<20, "MaxBatchBytes"),
		orDefault(&c.MaxPollRecords, math.MaxInt, "MaxPollRecords"),
		orDefault(&c.MaxPollBytes, 1<<20, "MaxPollBytes"),
		orDefault(&c.MaxPollPartitionRecords, 0, "MaxPollPartitionRecords"),
		orDefault(&c.Workers, runtime.GOMAXPROCS(0)-1, "Workers"),
		orDefault(&c.UnknownTopicTimeout, 5*time.Second, "UnknownTopicTimeout"),
		orDefault(&c.ResetBack, 0, "ResetBack"),
	} {
		if err != nil {
			return c, err
		}
	}
	var err error
	if c.Group, err = c.Group.withDefaults(); err != nil {
		return c, err
	}
	switch {
	case c.Isolation != ReadCommitted && c.Isolation != ReadUncommitted:
		return c, &configError{"Isolation", "is no level: " + c.Isolation.String()}
	case c.Reset < ResetNearest || c.Reset > ResetBackFromLast:
		return c, &configError{"Reset", "is no policy: " + c.Reset.String()}
	case (c.Reset == ResetTime) == c.ResetTime.IsZero():
		return c, &configError{"ResetTime", "and Reset = ResetTime need each other"}
	case (c.Reset == ResetBack || c.Reset == ResetBackFromLast) == (c.ResetBack == 0):
		return c, &configError{"ResetBack", "and Reset = ResetBack or ResetBackFromLast need each other"}
	case c.MaxWait > math.MaxInt32*time.Millisecond:
		return c, &configError{"MaxWait", "is above 2^31-1 ms: " + c.MaxWait.String()}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// machine is the part of the configuration that the machine needs.
func (c *Config) machine(replicaTime time.Duration) fetch.Config {
	return fetch.Config{
		MaxWait: c.MaxWait, MinBytes: c.MinBytes, MaxBytes: c.MaxBytes, PartitionMaxBytes: c.PartitionMaxBytes,
		Budget: c.Budget, Isolation: fetch.Isolation(c.Isolation), Reset: fetch.Reset(c.Reset),
		ResetTime: kafka.TimestampOf(c.ResetTime), ResetBack: c.ResetBack,
		UnknownTimeout: c.UnknownTopicTimeout, RequestTimeout: listTimeout, Rack: c.Rack, ReplicaTime: replicaTime,
		TurnRecords: c.MaxPollPartitionRecords, Poison: c.poison,
	}
}

// listTimeout is how long a broker may take for ListOffsets; it matters for
// data in tiered storage only.
const listTimeout = 30 * time.Second
