package cluster

import "github.com/ottla/ottla/internal/netconn"

// Journal keeps the envelopes of the last frames of clients: time, address,
// lane, API, version, correlation id, size and code, never a body. Give it to
// Config.Journal and read it at any time with Entries or String, also after a
// Connect that failed. It is safe for concurrent use.
type Journal = netconn.Journal

// NewJournal makes a journal of the last size frames.
func NewJournal(size int) *Journal { return netconn.NewJournal(size) }
