package producer

import (
	"cmp"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"slices"
	"time"

	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// Durability says what a record's success means, and what a lost answer costs
// (acks and enable.idempotence in one: idempotence with fewer than all acks
// cannot be written down).
type Durability uint8

const (
	// Idempotent: all in-sync replicas have it, exactly once.
	Idempotent Durability = iota
	// All in-sync replicas have it (acks=all). What may have been written is
	// not sent again, unless Config.AcceptDuplicates says so: its outcome is
	// unknown.
	All
	// Leader: the leader has it (acks=1); a leader that fails may lose it.
	// Repetition as with All.
	Leader
	// None: it was written to the socket (acks=0), and nothing more is ever
	// known. The result is a nil error and offset -1.
	None
)

// String is the name of the constant.
func (d Durability) String() string {
	if int(d) >= len(durabilities) {
		return fmt.Sprintf("Durability(%d)", uint8(d))
	}
	return durabilities[d]
}

var durabilities = [...]string{"Idempotent", "All", "Leader", "None"}

// acks is what a Produce request asks for.
func (d Durability) acks() int16 {
	switch d {
	case Leader:
		return acksLeader
	case None:
		return acksNone
	}
	return acksAll
}

// Partitioner names the rule by which a record gets its partition
// (partitioner.class).
type Partitioner uint8

const (
	// Murmur2 is the rule of Java's client, and librdkafka's murmur2_random: a
	// record with a key, also an empty one, goes where the key's hash says.
	// Records without key (nil) go to one partition until a batch's worth of
	// bytes went there, then to another (KIP-794).
	Murmur2 Partitioner = iota
	// Manual takes the partition from kafka.Record.Partition.
	Manual
	// Uniform treats every record as one without key.
	Uniform
	// RoundRobin gives each record to the next partition that has a leader,
	// whatever its key. It makes small batches.
	RoundRobin
	// RackAware is Murmur2, but records without key go to partitions whose
	// leader is in Config.Rack, if there are any (KIP-1123).
	RackAware
	// CRC32 is librdkafka's default, consistent_random: the key's CRC-32. Here
	// an empty key is none.
	CRC32
	// CRC32Consistent is librdkafka's consistent: CRC32, and all records
	// without key, or with an empty one, go to partition 0.
	CRC32Consistent
	// FNV1a is the hash of sarama, of kafka-go's Hash and of librdkafka's
	// fnv1a_random.
	FNV1a
	// FNV1aReference is the reference hash of sarama and kafka-go.
	FNV1aReference
)

// String is the name of the constant.
func (p Partitioner) String() string {
	if int(p) >= len(partitioners) {
		return fmt.Sprintf("Partitioner(%d)", uint8(p))
	}
	return partitioners[p].name
}

var partitioners = [...]struct {
	name string
	hash func(key []byte, partitions int32) int32 // nil: keys do not count
}{
	{"Murmur2", produce.Keyed},
	{"Manual", nil},
	{"Uniform", nil},
	{"RoundRobin", nil},
	{"RackAware", produce.Keyed},
	{"CRC32", produce.CRC32},
	{"CRC32Consistent", produce.CRC32},
	{"FNV1a", produce.FNV1a},
	{"FNV1aReference", produce.FNV1aReference},
}

// keyed is the partition of a key; it reports false if the key does not decide.
func (p Partitioner) keyed(key []byte, partitions int32) (int32, bool) {
	hash := partitioners[p].hash
	switch {
	case hash == nil:
		return 0, false
	case p == CRC32 && len(key) == 0, p != CRC32Consistent && key == nil:
		return 0, false
	}
	return hash(key, partitions), true
}

// Compression names a codec (compression.type). Unlike compress.Codec its zero
// value is the default.
type Compression uint8

const (
	DefaultCompression Compression = iota // Snappy
	Uncompressed
	Gzip
	Snappy
	LZ4
	Zstd
)

// String is the name of the constant.
func (c Compression) String() string {
	if int(c) >= len(compressions) {
		return fmt.Sprintf("Compression(%d)", uint8(c))
	}
	return compressions[c].name
}

func (c Compression) codec() compress.Codec { return compressions[c].codec }

var compressions = [...]struct {
	name  string
	codec compress.Codec
}{
	{"DefaultCompression", compress.Snappy},
	{"Uncompressed", compress.None},
	{"Gzip", compress.Gzip},
	{"Snappy", compress.Snappy},
	{"LZ4", compress.LZ4},
	{"Zstd", compress.Zstd},
}

// NoLinger as Config.Linger sends a batch as soon as its partition has nothing
// outstanding (linger.ms = 0).
const NoLinger time.Duration = -1

// Config says how a producer works. The zero value is a safe default: every
// record exactly once on all in-sync replicas. [New] copies and validates it.
type Config struct {
	Durability Durability // acks, enable.idempotence

	// TransactionalID (transactional.id) makes the producer one for
	// transactions: records are written through a [Tx]. It names this
	// producer across restarts: the next one with the same id aborts what
	// this one left open, and fences it. It needs Durability Idempotent.
	TransactionalID string
	// TransactionTimeout (transaction.timeout.ms) is how long a transaction
	// may stay open before its coordinator aborts it; 0 = 60 s. A broker
	// allows 15 minutes unless it is told otherwise.
	TransactionTimeout time.Duration

	// MaxInFlight bounds the batches of a partition that are on their way at
	// once (max.in.flight.requests.per.connection, by partition). 0 = 5 for
	// Idempotent, which keeps the order and allows no more, and 1 for the
	// others: above 1 a batch that is repeated comes behind those after it.
	MaxInFlight int
	// AcceptDuplicates has a batch that may have been written sent again
	// (retries) where Durability is not Idempotent.
	AcceptDuplicates bool
	// StopOnDataLoss ends a partition whose log has lost what was acknowledged,
	// with a *kafka.DataLossError; else the loss is reported and the partition
	// goes on.
	StopOnDataLoss bool

	Linger          time.Duration // linger.ms: how long a batch waits for more records; 0 = 5 ms, NoLinger = not at all
	DeliveryTimeout time.Duration // delivery.timeout.ms: from Append to the result; 0 = 120 s
	RequestTimeout  time.Duration // request.timeout.ms: how long the leader may wait for its replicas; 0 = 30 s

	BatchBytes   int // batch.size: of a batch on the wire; 0 = 1,000,012
	RequestBytes int // max.request.size, of the batches of one request; 0 = 16 MiB
	// BufferBytes is buffer.memory, of all records without a result; 0 = 64 MiB.
	// It is opened step by step: a few MiB are enough where the brokers keep up,
	// and more is there when no room has come for some milliseconds.
	BufferBytes int64

	Compression      Compression   // compression.type; the zero value is Snappy
	Fallback         []Compression // in order, for brokers that do not know Compression; empty = none
	CompressionLevel int           // compression.gzip.level, compression.zstd.level …; 0 = one chosen for throughput
	Workers          int           // batches compressed at once; 0 = GOMAXPROCS

	Partitioner Partitioner // partitioner.class; the zero value is Murmur2
	Rack        string      // client.rack, for RackAware
	// Partition, if set, chooses the partition of a record in place of
	// Partitioner: a number from 0 to partitions-1. It runs on the goroutine of
	// Append, concurrently, or later on one of the producer's; it must not
	// call the producer and not keep the record's slices.
	Partition func(r kafka.Record, partitions int32) int32

	// BrokerRequests bounds the requests outstanding at one broker, of all
	// partitions together; 0 = 5.
	BrokerRequests int

	Logger *slog.Logger // of what Report hears; nil = silent
	// Report hears of what is wrong with the log: a *kafka.DataLossError or a
	// *SuspectedDuplicateError. It is called on a goroutine of its own, once
	// at a time.
	Report func(error)

	TopicPatience time.Duration // how long a topic that was there may be unknown; 0 = 5 s
	RetryBackoff  time.Duration // retry.backoff.ms: the first, doubled each time; 0 = 5 ms
	MaxBackoff    time.Duration // retry.backoff.max.ms; 0 = 1 s
}

// configError is a setting that New refuses.
type configError struct{ problem string }

func (e *configError) Error() string       { return "ottla: producer.Config: " + e.problem }
func (*configError) MayHaveHappened() bool { return false }

func refuse(format string, args ...any) error {
	return &configError{fmt.Sprintf(format, args...)}
}

func (c Config) withDefaults() (Config, error) {
	if err := c.check(); err != nil {
		return c, err
	}
	switch c.Linger {
	case 0:
		c.Linger = 5 * time.Millisecond
	case NoLinger:
		c.Linger = 0
	}
	setDefault(&c.DeliveryTimeout, 120*time.Second)
	setDefault(&c.RequestTimeout, 30*time.Second)
	setDefault(&c.TransactionTimeout, time.Minute)
	setDefault(&c.TopicPatience, 5*time.Second)
	setDefault(&c.RetryBackoff, 5*time.Millisecond)
	setDefault(&c.MaxBackoff, time.Second)
	setDefault(&c.BatchBytes, 1_000_012)
	setDefault(&c.RequestBytes, 16<<20)
	setDefault(&c.BufferBytes, 64<<20)
	setDefault(&c.Workers, runtime.GOMAXPROCS(0))
	setDefault(&c.BrokerRequests, 5)
	c.Fallback = slices.Clone(c.Fallback)
	return c, c.checkSizes()
}

func setDefault[T int | int64 | time.Duration](field *T, value T) {
	if *field == 0 {
		*field = value
	}
}

// check refuses fields that make no sense by themselves or beside another.
func (c *Config) check() error {
	for _, n := range []struct {
		name string
		bad  bool
	}{
		{"Linger", c.Linger < 0 && c.Linger != NoLinger}, {"DeliveryTimeout", c.DeliveryTimeout < 0},
		{"RequestTimeout", c.RequestTimeout < 0 || c.RequestTimeout.Milliseconds() > math.MaxInt32},
		{"TransactionTimeout", c.TransactionTimeout < 0 || c.TransactionTimeout.Milliseconds() > math.MaxInt32},
		{"TopicPatience", c.TopicPatience < 0}, {"RetryBackoff", c.RetryBackoff < 0}, {"MaxBackoff", c.MaxBackoff < 0},
		{"BatchBytes", c.BatchBytes < 0}, {"RequestBytes", c.RequestBytes < 0}, {"BufferBytes", c.BufferBytes < 0},
		{"Workers", c.Workers < 0}, {"BrokerRequests", c.BrokerRequests < 0}, {"MaxInFlight", c.MaxInFlight < 0},
	} {
		if n.bad {
			return refuse("%s is out of range", n.name)
		}
	}
	switch {
	case c.Durability > None:
		return refuse("Durability %v is not known", c.Durability)
	case int(c.Compression) >= len(compressions):
		return refuse("Compression %v is not known", c.Compression)
	case int(c.Partitioner) >= len(partitioners):
		return refuse("Partitioner %v is not known", c.Partitioner)
	case (c.Partitioner == RackAware) != (c.Rack != ""):
		return refuse("Rack %q and Partitioner %v: RackAware needs a Rack, and nothing else has use for one", c.Rack, c.Partitioner)
	case c.Partition != nil && c.Partitioner != Murmur2:
		return refuse("Partition and Partitioner %v are both set; the function takes the place of the rule", c.Partitioner)
	}
	return cmp.Or(c.checkDurability(), c.checkFallback(), c.checkLevel())
}

// checkDurability refuses what contradicts the promise.
func (c *Config) checkDurability() error {
	switch idempotent := c.Durability == Idempotent; {
	case idempotent && c.MaxInFlight > 5:
		return refuse("MaxInFlight %d is above 5 with Durability Idempotent: a broker remembers the last five batches", c.MaxInFlight)
	case idempotent && c.AcceptDuplicates:
		return refuse("AcceptDuplicates and Durability Idempotent contradict each other: there are none")
	case !idempotent && c.TransactionalID != "":
		return refuse("TransactionalID needs Durability Idempotent, not %v", c.Durability)
	case c.TransactionalID == "" && c.TransactionTimeout != 0:
		return refuse("TransactionTimeout needs TransactionalID")
	case !idempotent && c.StopOnDataLoss:
		return refuse("StopOnDataLoss needs Durability Idempotent: without sequences a loss is not seen")
	}
	return nil
}

func (c *Config) checkFallback() error {
	for _, f := range c.Fallback {
		if int(f) >= len(compressions) {
			return refuse("Fallback %v is not known", f)
		}
	}
	return nil
}

// codecs is the codecs in the order of preference.
func (c *Config) codecs() []Compression {
	return append([]Compression{c.Compression}, c.Fallback...)
}

// level is the level of the codec at a place of that order.
func (c *Config) level(place int) int {
	if place > 0 {
		return 0
	}
	return c.CompressionLevel
}

// checkLevel refuses a level that the codec does not have.
func (c *Config) checkLevel() error {
	lo, hi := c.Compression.codec().Levels()
	switch {
	case c.CompressionLevel == 0 || c.CompressionLevel >= lo && c.CompressionLevel <= hi:
		return nil
	case hi == 0:
		return refuse("CompressionLevel is %d, and Compression %v has no levels", c.CompressionLevel, c.Compression)
	}
	return refuse("CompressionLevel is %d, Compression %v has levels %d to %d", c.CompressionLevel, c.Compression, lo, hi)
}

// checkSizes refuses sizes that contradict each other.
func (c *Config) checkSizes() error {
	switch {
	case c.BatchBytes <= record.HeaderSize:
		return refuse("BatchBytes %d leaves no room for a record: the header of a batch alone has %d", c.BatchBytes, record.HeaderSize)
	case c.BatchBytes > c.RequestBytes:
		return refuse("BatchBytes %d is above RequestBytes %d", c.BatchBytes, c.RequestBytes)
	case int64(c.BatchBytes) > c.BufferBytes:
		return refuse("BatchBytes %d is above BufferBytes %d", c.BatchBytes, c.BufferBytes)
	case c.Linger >= c.DeliveryTimeout:
		return refuse("Linger %v is not below DeliveryTimeout %v", c.Linger, c.DeliveryTimeout)
	case c.RetryBackoff > c.MaxBackoff:
		return refuse("RetryBackoff %v is above MaxBackoff %v", c.RetryBackoff, c.MaxBackoff)
	}
	return nil
}

// CompressionOf is the Compression with a codec.
func CompressionOf(codec compress.Codec) (Compression, error) {
	for i := Uncompressed; int(i) < len(compressions); i++ {
		if compressions[i].codec == codec {
			return i, nil
		}
	}
	return 0, refuse("codec %v is not known", codec)
}
