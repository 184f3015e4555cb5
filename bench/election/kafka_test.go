//go:build kafka

package election

import (
	"os"
	"strings"
	"testing"

	"github.com/ottla/ottla/internal/realkafka"
)

func TestMain(m *testing.M) {
	os.Exit(realkafka.Run(m, realkafka.Options{Brokers: 3}, func(c *realkafka.Cluster) {
		elections["ottla on three brokers"] = func(*testing.B) election {
			return &ottla{seeds: strings.Split(c.Bootstrap(), ",")}
		}
	}))
}
