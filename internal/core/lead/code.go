package lead

import "github.com/ottla/ottla/internal/core/retry"

// Reaction is what the holder of a role does about an error code of the four
// requests that write a lease.
type Reaction uint8

const (
	Unsure     Reaction = iota // no sure answer: it may have happened
	Fine                       // code 0
	Lost                       // the pair is fenced or gone: the leadership is over
	Again                      // nothing happened: the same request, after a moment
	Elsewhere                  // the coordinator or leader is another broker, then the same
	Ended                      // the transaction is not the one that was thought: resolve it by EndTxn
	Gap                        // the sequence number is wrong: abort, re-init, write again
	Ask                        // stop, and let the coordinator say what is so
	Configured                 // the user has to change something
)

// String is the reaction in a word.
func (r Reaction) String() string {
	return [...]string{"unsure", "fine", "lost", "again", "elsewhere", "ended", "gap", "ask", "configured"}[r]
}

// NoAnswer stands for a code where no answer came although the request may
// have been read.
const NoAnswer int16 = -1

// React is the reaction to a code. Where a holder differs from other users of
// the same code it is said here; the rest is package retry's.
func React(code int16) Reaction {
	switch code {
	case 47, 49, 90: // INVALID_PRODUCER_EPOCH, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED
		return Lost
	case 48, 120: // INVALID_TXN_STATE, TRANSACTION_ABORTABLE
		return Ended
	case 45: // OUT_OF_ORDER_SEQUENCE_NUMBER
		return Gap
	case 59: // UNKNOWN_PRODUCER_ID
		return Ask
	case 7, 20: // REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND
		return Unsure
	case 50: // INVALID_TRANSACTION_TIMEOUT
		return Configured
	}
	switch retry.Of(code) {
	case retry.OK:
		return Fine
	case retry.Retry:
		return Again
	case retry.RefreshMetadata, retry.FindCoordinator:
		return Elsewhere
	}
	if retry.Unauthorized(code) {
		return Configured
	}
	return Unsure
}

// Fenced reports whether a code says that the pair is another's by now, or
// gone with its id.
func Fenced(code int16) bool { return React(code) == Lost }
