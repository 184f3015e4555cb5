// Package benchmark is what benchmarks of the project share: values to write, and
// what a process has used.
package benchmark

import (
	"fmt"
	"math/rand/v2"
)

// Values are n different values of size bytes that compress as JSON of a
// service does, about 1:3: words of a small vocabulary, some of them numbers,
// with punctuation between them.
func Values(size, n int) [][]byte {
	rng := rand.New(rand.NewPCG(1, 2))
	words := make([]string, 400)
	for i := range words {
		words[i] = fmt.Sprintf("%x", rng.Uint64()>>(8*rng.IntN(7)))
	}
	values := make([][]byte, n)
	for i := range values {
		v := make([]byte, 0, size+20)
		for len(v) < size {
			v = append(v, words[rng.IntN(len(words))]...)
			v = append(v, ` ,:"`[rng.IntN(4)])
		}
		values[i] = v[:size:size]
	}
	return values
}

// Ring is how many different values a producer goes round.
const Ring = 1 << 12
