package consumer

import (
	"fmt"
	"log/slog"
	"math"
	"time"

	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/kafka"
)

// Isolation says which transactional records are data (isolation.level). The
// zero value is ReadCommitted. Brokers send aborted records under either level;
// the Consumer drops them.
type Isolation = fetch.Isolation

// The isolation levels.
const (
	ReadCommitted   = fetch.ReadCommitted   // only records of committed transactions, and of none
	ReadUncommitted = fetch.ReadUncommitted // also those of open and aborted transactions
)

// Reset is what to do with a position that is outside of the log
// (auto.offset.reset). The zero value is ResetNearest.
type Reset = fetch.Reset

// The reset policies.
const (
	// ResetNearest goes on at the first offset of the log if the position fell
	// behind retention, and else at its end, with a *kafka.DataLossError.
	ResetNearest  = fetch.ResetNearest
	ResetEarliest = fetch.ResetEarliest // goes on at the first offset of the log
	ResetLatest   = fetch.ResetLatest   // goes on at the end of the log
	ResetFail     = fetch.ResetFail     // stops the partition with a *kafka.OutOfRangeError
)

// Start is where reading of a partition begins. The zero value is the first
// offset of the log.
type Start = fetch.Start

// Earliest starts at the first offset of the log.
func Earliest() Start { return fetch.Earliest() }

// Latest starts behind the last record, as of when the broker is asked: under
// [ReadCommitted] at the last stable offset. [Consumer.Position] waits for it.
func Latest() Start { return fetch.Latest() }

// AtOffset starts at an offset. A negative one is the first offset of the log.
func AtOffset(o kafka.Offset) Start { return fetch.AtOffset(o) }

// AtTime starts at the first record whose timestamp is t or later, and at the
// end of the log if there is none.
func AtTime(t time.Time) Start { return fetch.AtTime(kafka.TimestampOf(t)) }

// PositionReset is a position that was moved by the reset policy. Reason is a
// *kafka.OutOfRangeError.
type PositionReset = fetch.Position

// UnreadableError is a batch that is there and cannot be read. Its partition is
// stopped; a seek to Next goes on behind it.
type UnreadableError = fetch.UnreadableError

// Config says how to consume. The zero value is a safe default for every field.
// [New] copies and validates it.
type Config struct {
	MaxWait           time.Duration // fetch.max.wait.ms: how long a broker may wait for MinBytes; 0 = 500 ms
	MinBytes          int32         // fetch.min.bytes; 0 = 1
	MaxBytes          int32         // fetch.max.bytes: of one answer; 0 = 32 MiB
	PartitionMaxBytes int32         // max.partition.fetch.bytes: of one partition in an answer; 0 = 1 MiB
	Isolation         Isolation     // isolation.level; zero = read committed
	Reset             Reset         // auto.offset.reset, for positions outside of the log; zero = nearest
	NoCRC             bool          // inverse of check.crcs
	// Rack is the consumer's own rack (client.rack), for reading from a replica
	// near by (KIP-392). That is not implemented: records come from the leader,
	// and brokers are not told the rack, so that none sends the consumer away.
	Rack string

	// Budget bounds the bytes that were fetched and not yet handed out, together
	// with those that may be on their way; 0 = 128 MiB. A batch above every limit
	// is still read.
	Budget int64
	// MaxBatchBytes bounds one batch once it is decompressed; 0 = 256 MiB. A
	// larger one is an UnreadableError.
	MaxBatchBytes int
	// MaxPollRecords bounds what one Poll hands out (max.poll.records): after the
	// batch that reaches it Poll returns. Batches are not cut. 0 = no bound.
	MaxPollRecords int
	// MaxPollBytes is the same for bytes of decompressed batches; 0 = 1 MiB.
	MaxPollBytes int
	// UnknownTopicTimeout is how long a topic that existed may be unknown to the
	// brokers before its partitions stop; 0 = 5 s. One that never existed is
	// waited for.
	UnknownTopicTimeout time.Duration

	// OnReset is called, on the goroutine that polls and before Poll returns, for
	// each position that the reset policy moved; nil = none. It may seek, and must
	// not poll.
	OnReset func(PositionReset)
	Logger  *slog.Logger // nil = silent
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
		orDefault(&c.UnknownTopicTimeout, 5*time.Second, "UnknownTopicTimeout"),
	} {
		if err != nil {
			return c, err
		}
	}
	switch {
	case c.Isolation != ReadCommitted && c.Isolation != ReadUncommitted:
		return c, &configError{"Isolation", fmt.Sprintf("%d is no isolation level", c.Isolation)}
	case c.Reset < ResetNearest || c.Reset > ResetFail:
		return c, &configError{"Reset", fmt.Sprintf("%d is no reset policy", c.Reset)}
	case c.MaxWait > math.MaxInt32*time.Millisecond:
		return c, &configError{"MaxWait", "is above 2^31-1 ms: " + c.MaxWait.String()}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// machine is the part of the configuration that the machine needs.
func (c *Config) machine() fetch.Config {
	return fetch.Config{
		MaxWait: c.MaxWait, MinBytes: c.MinBytes, MaxBytes: c.MaxBytes, PartitionMaxBytes: c.PartitionMaxBytes,
		Budget: c.Budget, Isolation: c.Isolation, Reset: c.Reset,
		UnknownTimeout: c.UnknownTopicTimeout, RequestTimeout: listTimeout,
	}
}

// listTimeout is how long a broker may take for ListOffsets; it matters for
// data in tiered storage only.
const listTimeout = 30 * time.Second
