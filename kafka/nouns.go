package kafka

import (
	"cmp"
	"encoding/base64"
	"net/netip"
	"strconv"
	"strings"
	"time"
)

// NodeID is a broker id. -1 stands for "no broker".
type NodeID int32

// NoNode is the id that Kafka uses for "no broker": no leader, no controller.
const NoNode NodeID = -1

// Offset is a position in the log of one partition.
type Offset int64

// LeaderEpoch counts the leaders that a partition has had. -1 is unknown.
type LeaderEpoch int32

// NoEpoch is the leader epoch of an answer that does not know it.
const NoEpoch LeaderEpoch = -1

// ProducerID is the identity that a broker gives to an idempotent or
// transactional producer (KIP-98). -1 is none.
type ProducerID int64

// ProducerEpoch fences older instances of the same ProducerID. -1 is none.
type ProducerEpoch int16

// TopicID is the id that a topic keeps for its whole life (KIP-516). A topic
// deleted and created again under its old name has another one. The zero value
// means unknown, as on brokers older than 2.8.
type TopicID [16]byte

// IsZero reports whether the id is unknown.
func (id TopicID) IsZero() bool { return id == TopicID{} }

// String is the base64 form that Kafka's own tools print.
func (id TopicID) String() string { return base64.RawURLEncoding.EncodeToString(id[:]) }

// TopicPartition names one partition.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is "topic-partition", as Kafka's own tools print it, and the topic
// alone where the partition is negative, which stands for "not known".
func (tp TopicPartition) String() string {
	if tp.Partition < 0 {
		return tp.Topic
	}
	return tp.Topic + "-" + strconv.Itoa(int(tp.Partition))
}

// Compare orders by topic, then partition.
func (tp TopicPartition) Compare(o TopicPartition) int {
	return cmp.Or(strings.Compare(tp.Topic, o.Topic), cmp.Compare(tp.Partition, o.Partition))
}

// Broker is a node of the cluster as metadata names it.
type Broker struct {
	ID   NodeID
	Host string
	Port int32
	Rack string // empty if the broker has none (broker.rack)
}

// Addr is the canonical address of the broker (see [JoinAddr]).
func (b Broker) Addr() string { return JoinAddr(b.Host, b.Port) }

// JoinAddr joins host and port to the canonical form that ottla uses as the
// key of an address: lower-case host, explicit port, IPv6 in brackets. A zone
// of an IPv6 address keeps its case.
func JoinAddr(host string, port int32) string {
	host = strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")
	name, zone, hasZone := strings.Cut(host, "%")
	host = strings.ToLower(name)
	if ip, err := netip.ParseAddr(host); err == nil {
		host = ip.String()
	}
	if hasZone {
		host += "%" + zone
	}
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	return host + ":" + strconv.Itoa(int(port))
}

// Timestamp is a record's time in milliseconds since 1970-01-01 UTC. In a
// record to produce, zero means the time of the call. -1 is no timestamp.
type Timestamp int64

// NoTimestamp is the timestamp of a record that has none (message format 0).
const NoTimestamp Timestamp = -1

// TimestampOf converts t, cutting it to milliseconds.
func TimestampOf(t time.Time) Timestamp { return Timestamp(t.UnixMilli()) }

// Time converts to a [time.Time] in UTC.
func (t Timestamp) Time() time.Time { return time.UnixMilli(int64(t)).UTC() }

// TimestampType says whose clock a record's timestamp is
// (message.timestamp.type).
type TimestampType int8

const (
	CreateTime    TimestampType = iota // the producer's clock
	LogAppendTime                      // the broker's clock
	NoTimeType                         // the record has no timestamp (message format 0)
)

// String is Kafka's name of the type.
func (t TimestampType) String() string {
	switch t {
	case CreateTime:
		return "CreateTime"
	case LogAppendTime:
		return "LogAppendTime"
	default:
		return "NoTimestampType"
	}
}
