// Package group holds the rules of consumer groups: what a member sends and
// when (the classic protocol and KIP-848), how a leader divides partitions
// among members, and which offsets may be committed.
//
// A machine owns no socket, clock, goroutine or lock. Time and randomness are
// arguments, maps are ranged over in sorted order, and the same inputs give the
// same outputs. What comes from other members or brokers is never trusted.
package group
