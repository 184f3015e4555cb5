// Package chaos runs producers and consumers on a real Kafka whose brokers are
// killed, paused and restarted at random, and compares what was acknowledged
// with what was read. Its tests need the build tag kafka.
//
// OTTLA_CHAOS is the length of a run, such as 30m; without it a run takes half
// a minute. OTTLA_CHAOS_SEED repeats the order of the faults, as far as the
// machine lets it.
package chaos
