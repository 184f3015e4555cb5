package kafka

// EventKind says what changed in the cluster.
type EventKind uint8

const (
	TopicFound      EventKind = iota + 1 // a topic is described for the first time
	TopicGrew                            // a topic has more partitions
	TopicRecreated                       // a known name has a new topic id
	TopicFailed                          // a topic is refused, or missing beyond the patience
	LeaderChanged                        // a partition has a leader again, or another one
	BrokerAdded                          // a broker joined, or moved to another address
	BrokerGone                           // a broker left the cluster's own list
	Rebootstrapped                       // learned brokers were dropped for the bootstrap ones
	ClusterMismatch                      // an address belongs to another cluster
)

// String is the kind in words.
func (k EventKind) String() string {
	if int(k) >= len(eventNames) {
		return "unknown"
	}
	return eventNames[k]
}

var eventNames = [...]string{"unknown", "topic found", "topic grew", "topic recreated", "topic failed",
	"leader changed", "broker added", "broker gone", "rebootstrapped", "cluster mismatch"}

// Event is one change of the cluster. Fields that its kind does not name are
// zero, Partition is -1.
type Event struct {
	Kind      EventKind
	Topic     string      // TopicFound, TopicGrew, TopicRecreated, TopicFailed, LeaderChanged
	Partition int32       // LeaderChanged
	Broker    Broker      // LeaderChanged (the new leader), BrokerAdded, BrokerGone
	Epoch     LeaderEpoch // LeaderChanged
	Before    int32       // TopicGrew: number of partitions before
	After     int32       // TopicFound, TopicGrew: number of partitions
	OldID     TopicID     // TopicRecreated
	NewID     TopicID     // TopicFound, TopicRecreated
	Addr      string      // ClusterMismatch
	Want      string      // ClusterMismatch: the cluster id this client belongs to
	Found     string      // ClusterMismatch: the cluster id at Addr
	Err       error       // TopicFailed; Rebootstrapped: what caused it
}
