//go:build kafka

package realkafka

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
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

// Run runs the tests of a package and returns the exit status for TestMain. It
// starts a cluster for those in files with the build tag kafka and hands it to
// set. Without a Kafka the status is 1.
//
//	func TestMain(m *testing.M) {
//		os.Exit(realkafka.Run(m, realkafka.Options{}, func(c *realkafka.Cluster) { kafka = c }))
//	}
//
// Where the command line picks no tests, all others run first, so that a
// cluster of three is held for no longer than it is needed: only one process of
// a machine has one.
func Run(m *testing.M, o Options, set func(*Cluster)) int {
	flag.Parse()
	first := 0
	if names, others := onKafka(); len(names) > 0 && others && !picked() {
		these := "^(" + strings.Join(names, "|") + ")$"
		choose("test.skip", these)
		first = m.Run()
		choose("test.skip", "")
		choose("test.run", these)
	}
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
	return max(first, status)
}

// picked reports whether the command line says which tests to run, or to do
// something else than run tests.
func picked() bool {
	for _, name := range []string{"test.run", "test.skip", "test.list", "test.bench", "test.fuzz"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return true
		}
	}
	return false
}

func choose(name, tests string) {
	if err := flag.Set(name, tests); err != nil {
		panic(err) // package testing has these flags
	}
}

var (
	taggedKafka = regexp.MustCompile(`(?m)^//go:build kafka\b`)
	testFunc    = regexp.MustCompile(`(?m)^func (Test\w+)\(`)
)

// onKafka names the tests of the files with the build tag kafka in the current
// folder, which is the package's, and reports whether there are tests in other
// files. Those cannot know of the cluster.
func onKafka() (names []string, others bool) {
	files, _ := filepath.Glob("*_test.go")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil || !taggedKafka.Match(text) {
			others = others || testFunc.Match(text)
			continue
		}
		for _, m := range testFunc.FindAllSubmatch(text, -1) {
			if name := string(m[1]); name != "TestMain" {
				names = append(names, name)
			}
		}
	}
	return names, others
}
