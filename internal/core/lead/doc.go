// Package lead holds the rules of leadership over Kafka: the bytes of its
// records, how a role's records fold into who leads, when a candidate may
// challenge, how the lease is written in transactions that a broker fences,
// and what an observer may conclude.
//
// Everything here is pure. Time is an argument, in two forms at once: a
// [Now] has the local clock, which never goes back and runs while the machine
// sleeps, and the wall clock, which is only what stands in records.
//
// The wire contract is shared with members written in other languages: kinds,
// versions and layouts never change.
package lead
