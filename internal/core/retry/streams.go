package retry

// ForStreams is the reaction to an error code in the answer to a heartbeat of a
// Streams group (KIP-1071): a code that only some moments forgive (29, 69, 81,
// 111, -1) is what the member makes of it, see internal/core/streams.
func ForStreams(code int16) Disposition {
	switch code {
	case 0:
		return OK
	case 14, 27: // COORDINATOR_LOAD_IN_PROGRESS, REBALANCE_IN_PROGRESS
		return Retry
	case 15, 16: // COORDINATOR_NOT_AVAILABLE, NOT_COORDINATOR
		return FindCoordinator
	case 25, 69, 110, 113: // UNKNOWN_MEMBER_ID, GROUP_ID_NOT_FOUND, FENCED_MEMBER_EPOCH, STALE_MEMBER_EPOCH
		return Rejoin
	}
	return Fatal
}
