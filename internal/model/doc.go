// Package model is the broker side of Kafka as one pure state machine, for
// tests that need to know what a cluster would really have done: partition logs
// with what they remember of each producer, and the transaction coordinator
// with both of its protocols. Tests on a real broker hold it to the facts.
//
//	c := model.New(model.Config{TransactionVersion: 2, Rand: rng})
//	c.CreateTopic("t", 3)
//	resp := c.Handle(now, model.AnyBroker, req) // any time, never going back
//
// [Cluster.Handle] answers one request at once, at the version it has. A lost
// answer is one that the test does not pass on; a late copy of a request is
// another Handle with it; a broker that is down is one that is not asked. What
// happens by itself (markers, timeouts, expiry) happens in Handle and in
// [Cluster.Advance], at the times that [Cluster.Deadline] names. Afterwards
// [Cluster.Records] and [Cluster.Transaction] tell what is the case.
//
// The package reads no clock and starts no goroutine. A Cluster is not safe for
// concurrent use; model/serve puts it behind sockets.
package model
