package cli

import (
	"cmp"
	"slices"
	"strings"
)

// near lists the names that are most like the wanted one, best first, three at
// most.
func near(wanted string, names []string) []string {
	type hit struct {
		name string
		far  int
	}
	var hits []hit
	low := strings.ToLower(wanted)
	for _, name := range names {
		other := strings.ToLower(name)
		far := distance(low, other)
		limit := max(1, min(len(low), len(other))/3)
		inside := len(low) > 2 && (strings.Contains(other, low) || len(other) > 2 && strings.Contains(low, other))
		if far <= limit || inside {
			hits = append(hits, hit{name, far})
		}
	}
	slices.SortFunc(hits, func(a, b hit) int { return cmp.Or(cmp.Compare(a.far, b.far), cmp.Compare(a.name, b.name)) })
	var found []string
	for _, h := range hits {
		if len(found) < 3 && h.name != wanted {
			found = append(found, h.name)
		}
	}
	return found
}

// didYouMean is the end of a sentence that offers names, or nothing.
func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return " (did you mean " + strings.Join(names, ", ") + "?)"
}

// distance counts the bytes to insert, delete, replace or swap with their
// neighbour to get from a to b. Texts over 256 bytes are as far as they are
// long.
func distance(a, b string) int {
	if len(a) > 256 || len(b) > 256 {
		return max(len(a), len(b))
	}
	before, above, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range above {
		above[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(above[j]+1, row[j-1]+1, above[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, above, row = above, row, before
	}
	return above[len(b)]
}
