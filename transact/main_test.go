//go:build !kafka

package transact

import (
	"os"
	"testing"

	"github.com/ottla/ottla/internal/sim"
)

func TestMain(m *testing.M) { os.Exit(sim.NoLeaks(m.Run)) }
