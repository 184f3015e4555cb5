// Package consumer reads records from the partitions that it is assigned.
//
// A [Consumer] keeps one Fetch on the wire to each broker that leads one of its
// partitions, and the next one goes out before a record of the last answer is
// decoded. What arrives waits within a byte budget: compressed as it came, or
// decompressed by workers that go ahead of the polls as far as there is room.
//
// [Consumer.Poll] hands out batches: views of the bytes that the broker sent,
// whose records are read while they are ranged over. [Consumer.Batches] and
// [Consumer.Records] are iterators over it.
//
// # Whatever is handed out can be read to its end
//
// Poll verifies the checksum of every batch, decompresses it and checks that
// each of its records can be read before it hands it out. Ranging over a batch
// therefore has no error. A batch that cannot be read stops its partition, once
// everything before it was handed out, with an [*kafka.UnreadableError] that says
// where it is and where to seek to, to go on behind it. Nothing is skipped
// silently.
//
// # Order
//
// Offsets of a partition rise, whoever asks: polls and ranges of several goroutines
// take turns, each goes on where the one before stopped, and a range over Records
// has its partition to itself until it leaves the batch. Only [Consumer.Seek], the
// reset policy and a new assignment move back. A seek or a removal holds for
// everything that is returned after it: a Poll that runs meanwhile leaves out what
// it took before.
//
// # Errors
//
// Poll returns batches and an error side by side. The error lists the partitions
// that have stopped, one [*kafka.OpError] each, and never costs the batches of
// others; a stopped partition goes on after [Consumer.Seek]. What a client can
// mend by itself (a leader that moved, a broker that restarts, a topic in
// creation) is no error.
//
// # Memory
//
// Key, Value and Headers of a record are parts of its batch's memory. They stay
// valid as long as they are referenced, and nothing writes to them; each keeps
// its whole batch alive, and without compression the whole answer that came in.
// [kafka.Record.Clone] cuts a record free. With Config.ReuseBuffers everything is
// valid until the next poll only.
package consumer
