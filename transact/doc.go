// Package transact runs read-process-write programs exactly once: records are
// read as a member of a consumer group, a handler makes others of them, and
// those are written in one transaction with the positions that were read. A
// crash, a rebalance or a broker that dies leaves neither gaps nor doubles in
// what readers of committed records see (KIP-98, KIP-447).
package transact
