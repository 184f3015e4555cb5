//go:build kafka

package cli

import "testing"

func runTests(m *testing.M) int { return m.Run() }
