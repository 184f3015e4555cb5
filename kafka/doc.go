// Package kafka holds the nouns of Kafka as Go types, and the errors that
// every other package of ottla returns. It has no behaviour that needs a
// socket, a clock or a goroutine.
package kafka
