//go:build race

package netconn

// raced says that the race detector is on, which makes everything slow.
const raced = true
