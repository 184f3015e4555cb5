// Package cluster is one client's view of one Kafka cluster and the way to its
// brokers: a pool of connections, the cluster map and its refreshes, the cache
// of coordinators, and requests that find their broker by themselves.
//
// [Connect] makes a [Cluster]; producers, consumers and everything else of
// ottla share it. It has one goroutine of its own, and two for each open
// socket. [Cluster.Close] ends and waits for all of them.
//
// A Cluster is safe for concurrent use. No method holds a lock while it
// blocks, and every method that blocks takes a context and returns when it
// ends.
package cluster
