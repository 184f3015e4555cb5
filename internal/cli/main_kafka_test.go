//go:build kafka

package cli

import (
	"testing"

	"github.com/ottla/ottla/internal/realkafka"
)

// real is the broker that the tests of this package share.
var real *realkafka.Cluster

func runTests(m *testing.M) int {
	return realkafka.Run(m, realkafka.Options{Secure: true}, func(c *realkafka.Cluster) { real = c })
}
