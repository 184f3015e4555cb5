// Package ottlatest runs a Kafka cluster inside the process, for tests and
// demonstrations of programs that use ottla: several brokers that speak the
// real protocol, keep records in memory and can be made to fail.
//
// By default the brokers listen on free ports of 127.0.0.1, so that any
// client of any language can use them. With Config.InMemory they live on a
// network in memory that also works in the virtual time of a testing/synctest
// bubble: a test of minutes of protocol time then takes milliseconds, and the
// latency of every link follows from Config.Seed.
//
// Faults are one line each: CloseAfter, Hang, Fail, Throttle, SlowLink,
// Partition, StopBroker, MoveLeader. What the brokers accepted is told by
// Journal and Records: assert on those rather than on what a client returned.
//
// The brokers are kfake's (github.com/twmb/franz-go/pkg/kfake). Every frame is
// checked before kfake sees it: bytes that are no request end their connection
// and reserve no memory. Replication, log cleaning by size and quotas are not
// simulated: an acknowledged record is stored once, in memory, until its
// topic is deleted or the cluster is closed.
//
// Streams groups (KIP-1071) have a coordinator here, see [Streams]: sticky
// assignment, standbys, revocation in two steps, static members, internal topics,
// statuses, session and rebalance time-outs. It differs from Kafka's in that it
// removes members only when the group is asked about, gives no task by rack or
// tag, refuses commits of any older epoch, and knows copartition errors of
// external topics only. Nobody who may log in is without a right: [Cluster.Fail]
// gives the codes 29 and 30.
package ottlatest
