// Package chaos runs producers and consumers on a real Kafka whose brokers are
// killed, paused and restarted at random, and compares what was acknowledged
// with what was read. Its tests need the build tag kafka.
//
// OTTLA_CHAOS is the length of a run, such as 30m; without it faults go on for a
// quarter of a minute. OTTLA_CHAOS_SEED repeats their order, as far as the machine
// lets it. With the flag -artifacts a failed run keeps what the brokers' logs hold.
package chaos
