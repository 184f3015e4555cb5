package streams

import (
	"cmp"
	"slices"
	"unicode/utf16"
)

// Kafka Streams keeps copartition groups in hash sets and writes them in the
// order in which those are walked: by bucket, and within one in the order of
// insertion. Members compare topologies byte for byte, so a Go member beside
// Java ones has to walk alike.

// javaHash is the hash code of a Java string.
func javaHash(s string) uint32 {
	var h uint32
	for _, c := range utf16.Encode([]rune(s)) {
		h = 31*h + uint32(c)
	}
	return h
}

// bucket is where a hash table of a power of two puts a hash code.
func bucket(h uint32, table int) uint32 { return (h ^ h>>16) & (uint32(table) - 1) }

// javaTable is the size that a growing table has with so many entries.
func javaTable(entries int) int {
	size := 16
	for entries > size/4*3 {
		size *= 2
	}
	return size
}

// javaTableOfGroups is the size of the tables that hold groups: made for all
// topics that stand in groups of the whole topology.
func javaTableOfGroups(subs []Subtopology) int {
	topics := map[string]bool{}
	for _, s := range subs {
		for _, g := range s.CopartitionGroups {
			for _, name := range g {
				topics[name] = true
			}
		}
	}
	want := max(int(float64(len(topics))/0.75+1), 16)
	size := 16
	for size < want {
		size *= 2
	}
	return size
}

// javaOrder orders copartition groups, and the names in each.
func (s *Subtopology) javaOrder(table int) {
	hash := func(g []string) (h uint32) {
		for _, name := range g {
			h += javaHash(name)
		}
		return h
	}
	slices.SortStableFunc(s.CopartitionGroups, func(a, b []string) int {
		return cmp.Compare(bucket(hash(a), table), bucket(hash(b), table))
	})
	for _, g := range s.CopartitionGroups {
		size := javaTable(len(g))
		slices.SortStableFunc(g, func(a, b string) int {
			return cmp.Compare(bucket(javaHash(a), size), bucket(javaHash(b), size))
		})
	}
}
