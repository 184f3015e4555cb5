// Package floor holds the house together: a test that reads the import graph
// and the syntax trees of the module and fails when a package imports upwards,
// when a pure package touches the world, or when code outgrows its limits.
package floor
