// Package compat tries what ottla can do against releases of Apache Kafka from
// 0.11 on, and writes docs/compatibility.md from what it sees. It holds tests
// only: see `make compat`.
package compat
