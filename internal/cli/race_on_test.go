//go:build race

package cli

// buildFlags build the command with the race detector, as these tests are.
func buildFlags() []string { return []string{"build", "-race"} }
