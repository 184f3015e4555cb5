// Package meta is the client's view of the cluster as machines without I/O:
// the map of brokers and topics with the age of each topic, the pacing of
// metadata refreshes, the cache of coordinators, and the walk over addresses
// of a request that any broker can serve.
//
// Nothing here reads a clock or a global random source: time and randomness
// are arguments. No type is safe for concurrent use except [Snapshot], [Topic]
// and what they hold, which never change once handed out.
package meta
