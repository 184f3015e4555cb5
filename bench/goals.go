package main

import (
	"bytes"
	"fmt"
)

// goal is the most that ottla may cost, as a ratio to kgo with its own defaults.
// Where nothing better is aimed at it must not be dearer.
type goal struct {
	place, op, label string
	size             int
	most             map[string]float64 // by codec, "" for requests
}

var goalList = []goal{
	{"canned", "consume", "ottla reuse", 100, ratios(1./7, 1/4.5, 1./3, 1./2)},
	{"canned", "consume", "ottla reuse", 1024, ratios(1/1.8, 1/2.2, 1/1.8, 1/1.5)},
	{"canned", "consume", "ottla batches", 100, ratios(1./7, 1/4.5, 1./3, 1./2)},
	{"canned", "consume", "ottla batches", 1024, ratios(1/1.8, 1/2.2, 1/1.8, 1/1.5)},
	{"canned", "consume", "ottla records", 100, ratios(1./2, 1./2, 1./2, 1./2)},
	{"canned", "consume", "ottla records", 1024, ratios(1, 1, 1, 1)},
	{"canned", "produce", "ottla slices", 100, ratios(1./6, 1./2, 1, 1/1.5)},
	{"canned", "produce", "ottla slices", 1024, ratios(1./2, 1/1.4, 1, 0.95)},
	{"canned", "produce", "ottla singles", 100, ratios(1./4, 1./2, 1, 1/1.5)},
	{"canned", "produce", "ottla singles", 1024, ratios(1./2, 1/1.4, 1, 0.95)},
	{"real", "consume", "ottla reuse", 100, ratios(1./4, 1./4, 1./3, 1./2)},
	{"real", "consume", "ottla reuse", 1024, ratios(0.75, 1./2, 0.65, 0.7)},
	{"real", "consume", "ottla batches", 100, ratios(1./4, 1./4, 1./3, 1./2)},
	{"real", "consume", "ottla batches", 1024, ratios(0.75, 1./2, 0.65, 0.7)},
	{"real", "produce", "ottla slices", 100, ratios(1./4, 1/2.5, 1, 1)},
	{"real", "produce", "ottla slices", 1024, ratios(1, 0.7, 1, 1)},
	{"canned", "metadata", "ottla", 0, map[string]float64{"": 0.8}},
	{"canned", "heartbeat", "ottla", 0, map[string]float64{"": 0.9}},
}

func ratios(none, lz4, snappy, zstd float64) map[string]float64 {
	return map[string]float64{"none": none, "lz4": lz4, "snappy": snappy, "zstd": zstd}
}

// goals writes the ratios beside what they should be.
func (r *report) goals(b *bytes.Buffer) {
	var rows bytes.Buffer
	for _, g := range goalList {
		for _, codec := range append([]string{""}, codecs...) {
			most, ok := g.most[codec]
			if !ok {
				continue
			}
			c := cell{g.place, g.op, g.size, codec, 1}
			ours, _, ok := r.of(c, g.label, cpuMicros)
			shipped, _, ok2 := r.of(c, "kgo", cpuMicros)
			if !ok || !ok2 {
				continue
			}
			verdict, toBest := "yes", ""
			if ours > shipped*most {
				verdict = "**no**"
			}
			if best, spread, ok := r.of(c, "kgo best", cpuMicros); ok {
				toBest = fmt.Sprintf("%.2f", ours/best)
				if ours > best*(1+spread/2) {
					verdict += ", **dearer than best**"
				}
			}
			fmt.Fprintf(&rows, "| %s, %s | %.2f | %.2f | %s | %s |\n", c, g.label, ours/shipped, most, toBest, verdict)
		}
	}
	if rows.Len() == 0 {
		return
	}
	fmt.Fprintf(b, "\n### CPU as a ratio to kgo\n\n| | to kgo as shipped | goal, at most | to kgo at its best | met |\n|---|---|---|---|---|\n%s", rows.String())
}
