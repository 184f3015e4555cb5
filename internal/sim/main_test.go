package sim

import (
	"os"
	"testing"
)

func TestMain(m *testing.M) { os.Exit(NoLeaks(m.Run)) }
