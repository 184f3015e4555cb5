//go:build kafka

package realkafka

import (
	"context"
	"fmt"
	"os"
	"testing"
)

// Start starts a cluster for one test and ends it with the test. It fails the
// test when there is no Kafka to be had. Prefer Run, one cluster for a package;
// Start is for tests that kill brokers or need Options of their own.
//
// One cluster of three brokers runs at a time on a machine: Start waits for it.
// The brokers die with the test process. The logs of a failed test stay.
func Start(tb testing.TB, o Options) *Cluster {
	tb.Helper()
	r, err := begin(tb.Context(), o)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if kept := r.end(tb.Failed()); kept != "" {
			tb.Logf("the logs of the brokers are kept in %s", kept)
		}
	})
	return r.cluster
}

// Run starts a cluster for all tests of a package, hands it to set, runs them
// and returns the exit status for TestMain. Without a Kafka the status is 1.
//
//	func TestMain(m *testing.M) {
//		os.Exit(realkafka.Run(m, realkafka.Options{}, func(c *realkafka.Cluster) { kafka = c }))
//	}
func Run(m *testing.M, o Options, set func(*Cluster)) int {
	r, err := begin(context.Background(), o)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	set(r.cluster)
	status := m.Run()
	if kept := r.end(status != 0); kept != "" {
		fmt.Fprintf(os.Stderr, "the logs of the brokers are kept in %s\n", kept)
	}
	return status
}
