// Package record reads and writes record batches: the form in which Kafka
// keeps records in its log and moves them in Produce and Fetch (message
// format 2, KIP-98). It also reads the message sets that came before, formats 0
// and 1, as topics older than Kafka 0.11 may still hold them.
//
// A [Builder] encodes records straight into the bytes of a batch. [Next] splits
// the bytes of a Fetch answer into batches, a [Batch] is a view of one of them,
// and a [Reader] walks its records. Nothing is copied and nothing is decoded
// that is not asked for; neither side allocates per record.
//
// The package is pure: bytes in, bytes out. All lengths in foreign bytes are
// checked against the bytes present before they are used. Whatever is wrong
// with a batch is a [*CorruptError].
package record
