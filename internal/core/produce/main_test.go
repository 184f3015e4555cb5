package produce

import (
	"flag"
	"os"
	"testing"

	_ "pgregory.net/rapid" // defines the flag
)

// TestMain runs more random scripts than usual: one takes little,
// and the rarest faults need them.
func TestMain(m *testing.M) {
	if err := flag.Set("rapid.checks", "3000"); err != nil {
		panic(err)
	}
	os.Exit(m.Run())
}
