package streams

import (
	"cmp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// Snapshot is what a member knows of its place in the group. It never changes;
// its slices are shared and must not be written to.
type Snapshot struct {
	Version     uint64 // grows by one with each snapshot
	Incarnation uint64 // grows by one with each loss
	Epoch       int32  // of the member when the snapshot was made; Metadata has the present one

	Target                Tasks         // what the coordinator wants this member to hold; complete once HasTarget
	Update                Update        // the lists that came last, as received
	HasTarget             bool          // lists came since the last join
	Ready                 bool          // no status says that the group has to wait; owned tasks go on in any case
	Lost                  bool          // the tasks are lost: drop all without a commit, then acknowledge Tasks{}
	Shutdown              bool          // some member asked the whole application to stop
	Statuses              []Status      // of the last answer
	AcceptableRecoveryLag int64         // acceptable.recovery.lag; -1 = unknown
	TaskOffsetInterval    time.Duration // task.offset.interval.ms; 0 = offsets are not asked for
	Endpoints             []EndpointPartitions
}

// Status is one thing that the coordinator says about the group.
type Status struct {
	Code   StatusCode
	Detail string // the broker's text
}

// StatusCode is the number of a [Status]. Brokers may send others than the ones
// named here; they mean nothing to the member.
type StatusCode int8

const (
	StaleTopology                StatusCode = iota // this member's topology epoch is below the group's
	MissingSourceTopics                            // a source topic does not exist
	IncorrectlyPartitionedTopics                   // numbers of partitions do not fit
	MissingInternalTopics                          // internal topics are being created
	ShutdownApplication                            // some member asked for it
	AssignmentDelayed                              // the initial delay or the assignment interval is running
	MissingClientTags                              // a tag of the rack-aware assignment is missing
)

// String is Kafka's name of the status.
func (c StatusCode) String() string {
	names := [...]string{
		"STALE_TOPOLOGY", "MISSING_SOURCE_TOPICS", "INCORRECTLY_PARTITIONED_TOPICS", "MISSING_INTERNAL_TOPICS",
		"SHUTDOWN_APPLICATION", "ASSIGNMENT_DELAYED", "MISSING_CLIENT_TAGS",
	}
	if c >= 0 && int(c) < len(names) {
		return names[c]
	}
	return "UNKNOWN_STATUS"
}

// Waits reports whether the group is not ready while the status lasts.
func (c StatusCode) Waits() bool {
	return c == MissingSourceTopics || c == IncorrectlyPartitionedTopics || c == MissingInternalTopics || c == AssignmentDelayed
}

// EndpointPartitions is what one member with an endpoint reads.
type EndpointPartitions struct {
	Endpoint        Endpoint
	Active, Standby []kafka.TopicPartition // of source and repartition topics
}

func readStatuses(ws []kmsg.StreamsGroupHeartbeatResponseStatus) []Status {
	var out []Status
	for _, w := range ws {
		out = append(out, Status{StatusCode(w.StatusCode), w.StatusDetail})
	}
	slices.SortStableFunc(out, func(a, b Status) int { return cmp.Compare(a.Code, b.Code) })
	return out
}

func ready(ss []Status) bool {
	return !slices.ContainsFunc(ss, func(s Status) bool { return s.Code.Waits() })
}

// detail is the text of a status; ok is false if it is not there.
func detail(ss []Status, c StatusCode) (text string, ok bool) {
	for _, s := range ss {
		if s.Code == c {
			return s.Detail, true
		}
	}
	return "", false
}

func readEndpoints(ws []kmsg.StreamsGroupHeartbeatResponsePartitionsByUserEndpoint) []EndpointPartitions {
	out := []EndpointPartitions{}
	for _, w := range ws {
		e := EndpointPartitions{Endpoint: Endpoint{w.UserEndpoint.Host, w.UserEndpoint.Port}}
		for _, p := range w.ActivePartitions {
			e.Active = appendPartitions(e.Active, p.Topic, p.Partitions)
		}
		for _, p := range w.StandbyPartitions {
			e.Standby = appendPartitions(e.Standby, p.Topic, p.Partitions)
		}
		slices.SortFunc(e.Active, kafka.TopicPartition.Compare)
		slices.SortFunc(e.Standby, kafka.TopicPartition.Compare)
		out = append(out, e)
	}
	slices.SortStableFunc(out, func(a, b EndpointPartitions) int {
		if c := cmp.Compare(a.Endpoint.Host, b.Endpoint.Host); c != 0 {
			return c
		}
		if c := cmp.Compare(a.Endpoint.Port, b.Endpoint.Port); c != 0 {
			return c
		}
		return slices.CompareFunc(a.Active, b.Active, kafka.TopicPartition.Compare)
	})
	return out
}

func appendPartitions(tps []kafka.TopicPartition, topic string, ps []int32) []kafka.TopicPartition {
	for _, p := range ps {
		tps = append(tps, kafka.TopicPartition{Topic: topic, Partition: p})
	}
	return tps
}

// same reports whether two snapshots say the same, whatever their versions and
// epochs.
func (s *Snapshot) same(o *Snapshot) bool {
	return s.Incarnation == o.Incarnation && s.HasTarget == o.HasTarget && s.Ready == o.Ready &&
		s.Lost == o.Lost && s.Shutdown == o.Shutdown && s.AcceptableRecoveryLag == o.AcceptableRecoveryLag &&
		s.TaskOffsetInterval == o.TaskOffsetInterval && slices.Equal(s.Statuses, o.Statuses) &&
		s.Target.Equal(o.Target) && Tasks(s.Update).Equal(Tasks(o.Update)) && sameEndpoints(s.Endpoints, o.Endpoints)
}

func sameEndpoints(a, b []EndpointPartitions) bool {
	return slices.EqualFunc(a, b, func(x, y EndpointPartitions) bool {
		return x.Endpoint == y.Endpoint && slices.Equal(x.Active, y.Active) && slices.Equal(x.Standby, y.Standby)
	})
}
