package kafka

// GroupKind is the protocol of a group. The zero value is the classic one.
type GroupKind uint8

const (
	ClassicGroup  GroupKind = iota // JoinGroup and SyncGroup
	ConsumerGroup                  // ConsumerGroupHeartbeat (KIP-848)
	StreamsGroup                   // StreamsGroupHeartbeat (KIP-1071)
)

// String is Kafka's name of the kind, as its tools print it.
func (k GroupKind) String() string {
	switch k {
	case ConsumerGroup:
		return "consumer"
	case StreamsGroup:
		return "streams"
	default:
		return "classic"
	}
}

// GroupMetadata proves to a broker that who commits offsets is a member of the
// group in its present generation (KIP-447). A member hands it out; it is good
// until the next rebalance, so take a fresh one for each commit. One with a
// Group alone, and Generation -1, commits without being a member.
type GroupMetadata struct {
	Group      string
	Kind       GroupKind
	MemberID   string
	InstanceID string // of a static member (group.instance.id), else empty
	Generation int32  // generation id, or the member epoch of the newer kinds
}

// NoGeneration is the Generation of who commits without being a member.
const NoGeneration int32 = -1

// Commit is the position that a group keeps for one partition.
type Commit struct {
	Offset      Offset      // the next one to read
	LeaderEpoch LeaderEpoch // of the last record processed; NoEpoch if not known
	Metadata    string      // the committer's own, usually empty
}
