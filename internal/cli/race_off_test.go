//go:build !race

package cli

// buildFlags build the command as it is released.
func buildFlags() []string { return []string{"build"} }
