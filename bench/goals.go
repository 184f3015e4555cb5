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
	most             map[string]float64 // by codec
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
}

func ratios(none, lz4, snappy, zstd float64) map[string]float64 {
	return map[string]float64{"none": none, "lz4": lz4, "snappy": snappy, "zstd": zstd}
}

// goals writes the ratios beside what they should be.
func (r *report) goals(b *bytes.Buffer) {
	var rows bytes.Buffer
	for _, g := range goalList {
		for _, codec := range codecs {
			c := cell{g.place, g.op, g.size, codec, 1}
			ours, _, ok := r.of(c, g.label, cpuMicros)
			shipped, _, ok2 := r.of(c, "kgo", cpuMicros)
			best, spread, ok3 := r.of(c, "kgo best", cpuMicros)
			if !ok || !ok2 || !ok3 {
				continue
			}
			verdict := "yes"
			if ours > shipped*g.most[codec] {
				verdict = "**no**"
			}
			if ours > best*(1+spread/2) {
				verdict += ", **dearer than best**"
			}
			fmt.Fprintf(&rows, "| %s, %s | %.2f | %.2f | %.2f | %s |\n", c, g.label, ours/shipped, g.most[codec], ours/best, verdict)
		}
	}
	if rows.Len() == 0 {
		return
	}
	fmt.Fprintf(b, "\n### CPU as a ratio to kgo\n\n| | to kgo as shipped | goal, at most | to kgo at its best | met |\n|---|---|---|---|---|\n%s", rows.String())
}
