package record

// Restamp writes another stamp, and the checksum that goes with it, into the
// bytes that Seal returned. It is for a batch that was never sent, whose
// sequence numbers moved because one before it failed; the bytes of a batch
// that may have been sent never change.
func Restamp(wire []byte, s Stamp) { stamp(wire, s) }
