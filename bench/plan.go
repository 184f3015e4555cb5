package main

import (
	"fmt"

	"github.com/ottla/ottla/bench/load"
)

// cell is one condition that clients are compared in.
type cell struct {
	place string // canned, real
	op    string // consume, produce, metadata, heartbeat
	size  int
	codec string
	procs int // GOMAXPROCS of the client
}

// entry is one column: a way to do an operation.
type entry struct {
	client string // as in clients
	label  string
	peer   bool // neither ottla nor kgo: fewer records, fewer rounds
}

var entries = map[string][]entry{
	"consume": {
		{"ottla reuse", "ottla reuse", false}, {"ottla", "ottla batches", false}, {"ottla records", "ottla records", false},
		{"kgo", "kgo", false}, {"kgo best", "kgo best", false},
		{"sarama", "sarama", true}, {"kafka-go", "kafka-go Reader", true}, {"kafka-go batches", "kafka-go ReadBatch", true},
		{"confluent", "confluent", true},
	},
	"produce": {
		{"ottla slices", "ottla slices", false}, {"ottla singles", "ottla singles", false},
		{"kgo produce", "kgo", false}, {"kgo produce best", "kgo best", false},
		{"sarama produce", "sarama", true}, {"kafka-go produce", "kafka-go", true}, {"confluent produce", "confluent", true},
	},
	"metadata": {
		{"ottla requests", "ottla", false}, {"kgo requests", "kgo", false}, {"sarama requests", "sarama", true},
	},
	"heartbeat": {
		{"ottla requests", "ottla", false}, {"kgo requests", "kgo", false}, {"sarama requests", "sarama", true},
		{"kafka-go requests", "kafka-go", true},
	},
}

var codecs = []string{"none", "lz4", "snappy", "zstd"}

// plan are the cells of a run.
func plan(o options) (cells []cell) {
	add := func(place string, procs int, sizes []int, codecs []string) {
		for _, op := range []string{"consume", "produce"} {
			for _, size := range sizes {
				for _, codec := range codecs {
					cells = append(cells, cell{place, op, size, codec, procs})
				}
			}
		}
	}
	add("canned", 1, []int{100, 1024}, codecs)
	add("canned", 1, []int{128}, codecs[:2])
	if !o.short {
		add("canned", 2, []int{100, 1024}, []string{"none", "zstd"})
	}
	cells = append(cells, cell{"canned", "metadata", 0, "", 1}, cell{"canned", "heartbeat", 0, "", 1})
	if o.real {
		add("real", 1, []int{100, 1024}, codecs)
	}
	return cells
}

// runs reports whether an entry is measured in a round of a cell: peers are in
// the first two, on the canned broker and one core only.
func (e entry) runs(c cell, round int) bool {
	return !e.peer || round < 2 && c.place == "canned" && c.procs == 1 && c.size != 128
}

// records is how many records a process does.
func (e entry) records(c cell, scale float64) int {
	n := map[string]float64{"consume": 5e6, "produce": 2e6, "metadata": 20e3, "heartbeat": 20e3}[c.op]
	if c.size > 512 {
		n /= 5
	}
	if c.place == "real" && c.op == "consume" {
		n = float64(realRecords(c.size))
	}
	if e.peer && c.size > 0 {
		n /= 5
	}
	const step = 4096
	return max(1, int(n*scale)/step) * step
}

// topic is where a cell's records are. On a real broker what is produced goes
// to a topic of its own.
func (c cell) topic() string {
	switch {
	case c.size == 0:
		return "requests"
	case c.op == "produce":
		return fmt.Sprintf("produced-%d-%s", c.size, c.codec)
	}
	return fmt.Sprintf("%d-%s", c.size, c.codec)
}

func (e entry) job(c cell, addr string, scale float64) load.Job {
	return load.Job{
		Client: e.client, Op: c.op, Size: c.size, Codec: c.codec, Records: e.records(c, scale), Addr: addr, Topic: c.topic(), Parts: parts,
	}
}
