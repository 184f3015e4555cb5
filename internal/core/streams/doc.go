// Package streams is the member of a Kafka Streams group (KIP-1071) as rules
// without a socket, a clock or a goroutine: what a heartbeat carries, what its
// answer means, when tasks are lost, and how a topology is written so that two
// builds of it are the same bytes.
//
// A [Machine] is driven by one goroutine: inputs are the On methods, outputs are
// what [Machine.Next] gives until it says false, and [Machine.Deadline] is when
// to ask again. Nothing that it takes or gives is shared afterwards: snapshots
// are immutable, requests belong to the driver.
package streams
