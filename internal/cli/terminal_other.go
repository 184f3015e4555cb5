//go:build !linux

package cli

import (
	"io"
	"os"
)

// isTerminal reports whether v is a character device other than the null
// device, which is as near as this system lets us come without its own calls.
func isTerminal(v io.Writer) bool {
	f, ok := v.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

// hasNoReader is not known here: the next write tells.
func hasNoReader(io.Writer) bool { return false }
