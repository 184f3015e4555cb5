package main

import (
	"errors"

	"github.com/ottla/ottla/bench/load"
)

var errSize = errors.New("a value has not the length it should have")

// warm is what a producer sends before it is measured, so that it knows the
// topic and has its id.
var warm = []byte("warm")

// clients are the ways to do a job, by the name that Job.Client has. That of
// confluent-kafka-go is a program of its own, as it needs cgo.
var clients = map[string]load.Client{
	"ottla":             ottlaBatches,
	"ottla reuse":       ottlaReuse,
	"ottla records":     ottlaRecords,
	"ottla slices":      ottlaSlices,
	"ottla singles":     ottlaSingles,
	"ottla fill":        ottlaFill,
	"ottla requests":    ottlaRequests,
	"kgo":               kgoConsume,
	"kgo best":          kgoConsumeBest,
	"kgo produce":       kgoProduce,
	"kgo produce best":  kgoProduceBest,
	"kgo requests":      kgoRequests,
	"sarama":            saramaConsume,
	"sarama produce":    saramaProduce,
	"sarama requests":   saramaRequests,
	"kafka-go":          kafkaGoConsume,
	"kafka-go batches":  kafkaGoBatches,
	"kafka-go produce":  kafkaGoProduce,
	"kafka-go requests": kafkaGoRequests,
}
