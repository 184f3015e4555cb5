// Package fetch is the machine behind a consumer: which partition is read from
// which broker and from where, what of an answer is data, what a broker's error
// means for a position, and which batch is handed out next.
//
// A [Machine] has no socket, clock, lock or goroutine. Its driver feeds it what
// happened (On…), carries out what [Machine.Next] asks for, and calls again at
// [Machine.Deadline]. Whoever polls takes batches with [Machine.Take], decodes
// each with a [Decoder], which needs no Machine, and reports back with
// [Machine.Deliver], [Machine.Return] or [Machine.Unreadable].
//
// Fetch answers given to the Machine must own their bytes: batches are views of
// them and go to the user. The Machine never writes to them and keeps them until
// they are handed out or dropped.
package fetch
