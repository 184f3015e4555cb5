// Package retry decides what an error code of a broker means: which reaction
// it asks for, which requests may be sent a second time, and how long to wait
// before. It is the only place that does.
package retry

// Disposition is the reaction that an error code asks for. The zero value is
// [Fatal], which is also what an unknown code gets: it is never retried.
type Disposition uint8

const (
	Fatal           Disposition = iota // fails this operation only
	OK                                 // no error
	Retry                              // same broker, after a backoff
	RefreshMetadata                    // invalidate that one partition, refresh that topic, retry
	FindCoordinator                    // forget that coordinator, look it up, retry
	FindController                     // forget the controller if it still is the rejected one, retry
	ResetSession                       // the next fetch to that broker is a full one, at once
	ResetPosition                      // the position is outside of the log
	Rejoin                             // the group member has to join again
	Fenced                             // another instance took over; this one is over
	Sequence                           // a matter of the producer's sequence numbers
	Abortable                          // the open transaction can only be aborted
	Rebootstrap                        // start over from the bootstrap addresses (KIP-1102)
)

var dispositionNames = [...]string{
	"fatal", "ok", "retry", "refresh metadata", "find coordinator", "find controller", "reset session",
	"reset position", "rejoin", "fenced", "sequence", "abortable", "rebootstrap",
}

// String is the disposition in words.
func (d Disposition) String() string {
	if int(d) < len(dispositionNames) {
		return dispositionNames[d]
	}
	return "fatal"
}

// dispositions is the table; codes that are not in it are Fatal.
var dispositions = map[int16]Disposition{
	0: OK,

	7:  Retry, // REQUEST_TIMED_OUT
	14: Retry, // COORDINATOR_LOAD_IN_PROGRESS
	19: Retry, // NOT_ENOUGH_REPLICAS
	20: Retry, // NOT_ENOUGH_REPLICAS_AFTER_APPEND
	51: Retry, // CONCURRENT_TRANSACTIONS
	75: Retry, // UNKNOWN_LEADER_EPOCH
	78: Retry, // OFFSET_NOT_AVAILABLE
	88: Retry, // UNSTABLE_OFFSET_COMMIT
	89: Retry, // THROTTLING_QUOTA_EXCEEDED

	3:   RefreshMetadata, // UNKNOWN_TOPIC_OR_PARTITION
	5:   RefreshMetadata, // LEADER_NOT_AVAILABLE
	6:   RefreshMetadata, // NOT_LEADER_OR_FOLLOWER
	8:   RefreshMetadata, // BROKER_NOT_AVAILABLE
	9:   RefreshMetadata, // REPLICA_NOT_AVAILABLE
	56:  RefreshMetadata, // KAFKA_STORAGE_ERROR
	72:  RefreshMetadata, // LISTENER_NOT_FOUND
	74:  RefreshMetadata, // FENCED_LEADER_EPOCH
	100: RefreshMetadata, // UNKNOWN_TOPIC_ID
	103: RefreshMetadata, // INCONSISTENT_TOPIC_ID

	15: FindCoordinator, // COORDINATOR_NOT_AVAILABLE
	16: FindCoordinator, // NOT_COORDINATOR
	41: FindController,  // NOT_CONTROLLER

	70:  ResetSession,  // FETCH_SESSION_ID_NOT_FOUND
	71:  ResetSession,  // INVALID_FETCH_SESSION_EPOCH
	106: ResetSession,  // FETCH_SESSION_TOPIC_ID_ERROR
	1:   ResetPosition, // OFFSET_OUT_OF_RANGE
	109: ResetPosition, // OFFSET_MOVED_TO_TIERED_STORAGE

	22:  Rejoin, // ILLEGAL_GENERATION
	25:  Rejoin, // UNKNOWN_MEMBER_ID
	27:  Rejoin, // REBALANCE_IN_PROGRESS
	79:  Rejoin, // MEMBER_ID_REQUIRED
	110: Rejoin, // FENCED_MEMBER_EPOCH
	111: Rejoin, // UNRELEASED_INSTANCE_ID
	113: Rejoin, // STALE_MEMBER_EPOCH

	90: Fenced, // PRODUCER_FENCED
	82: Fenced, // FENCED_INSTANCE_ID

	45: Sequence, // OUT_OF_ORDER_SEQUENCE_NUMBER
	46: Sequence, // DUPLICATE_SEQUENCE_NUMBER
	47: Sequence, // INVALID_PRODUCER_EPOCH
	49: Sequence, // INVALID_PRODUCER_ID_MAPPING
	59: Sequence, // UNKNOWN_PRODUCER_ID

	48:  Abortable, // INVALID_TXN_STATE
	120: Abortable, // TRANSACTION_ABORTABLE

	129: Rebootstrap, // REBOOTSTRAP_REQUIRED
}

// Unauthorized reports whether a code says that the user may not do that: for
// a topic, group, cluster, transactional id or delegation token.
func Unauthorized(code int16) bool {
	switch code {
	case 29, 30, 31, 53, 65:
		return true
	}
	return false
}

// Of is the reaction to an error code outside of a transaction.
func Of(code int16) Disposition { return dispositions[code] }

// InTransaction is the reaction to an error code while a transaction is open:
// an id that the coordinator no longer knows (49) can only be aborted there.
func InTransaction(code int16) Disposition {
	if code == 49 {
		return Abortable
	}
	return Of(code)
}

// ForFindCoordinator is the reaction to an error code in the answer of
// FindCoordinator itself, where "coordinator not available" (15) is a matter
// of waiting.
func ForFindCoordinator(code int16) Disposition {
	if code == 15 {
		return Retry
	}
	return Of(code)
}
