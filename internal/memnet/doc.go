// Package memnet is a network in memory: listeners and connections with the
// manners of TCP, without a socket. Whole clients and brokers run on it in
// the virtual time of testing/synctest: whatever blocks here blocks on a
// channel or a timer, and no goroutine of its own runs.
//
// Names become addresses (Resolve), a port without listener refuses, a full
// window stops the writer, deadlines, half-close and reset behave as the
// kernel's. Every link between two hosts has a latency of its own, derived
// from the seed of the Network, so that two events on different links do not
// fall on the same instant; the same seed and the same order of dials gives
// the same latencies. Faults are methods: Partition, BlackHole, Reset,
// SetRate for hosts, and CutAfter, Hang, SetWindow, SetRate, Reset for one
// connection.
//
// To use a Network inside a synctest bubble, create it and everything on it
// there.
package memnet
