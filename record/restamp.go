package record

// Restamp writes another stamp, and the checksum that goes with it, into the
// bytes that Seal returned. It is for a batch that was never sent, whose
// sequence numbers moved because one before it failed; the bytes of a batch
// that may have been sent never change. Fewer bytes than a header, as Seal returns
// where there is no record, are left alone.
func Restamp(wire []byte, s Stamp) {
	if len(wire) >= HeaderSize {
		stamp(wire, s)
	}
}
