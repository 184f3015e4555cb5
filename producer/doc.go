// Package producer writes records to Kafka: idempotent by default, in order per
// partition, in batches of its own making.
//
// A record is encoded into the open batch of its partition before Append
// returns, so the caller's slices are free afterwards. A batch is closed when
// it is full, after Config.Linger, or by a flush; it is compressed by a pool
// of workers and sent with the other batches for the same broker. Its records'
// results are read through a [Receipt].
//
// Every record ends in one of three outcomes. Done: a nil error; the record is
// in the log once. Not done: kafka.MayHaveHappened of the error is false; it
// is not in the log and will not get there. Unknown: kafka.MayHaveHappened is
// true; it may be there. An answer that is lost is followed by the same bytes
// again, which the broker recognises, until Config.DeliveryTimeout is over.
package producer
