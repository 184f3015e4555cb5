package realkafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// program writes a shell script under a name into a folder for PATH.
func program(t *testing.T, dir, name, script string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

const (
	java17 = `echo 'openjdk version "17.0.15" 2025-04-15' >&2`
	// goodMaven makes the jar that is looked for and counts its own runs.
	goodMaven = `for a; do case $a in -DoutputDirectory=*) d=${a#*=};; esac; done; /bin/mkdir -p "$d"; : >"$d/kafka_2.13.jar"; echo run >>"$OTTLA_TEST_RUNS"`
)

// world is a PATH and a cache of the test's own.
func world(t *testing.T) (path string) {
	t.Helper()
	path = t.TempDir()
	t.Setenv("PATH", path)
	t.Setenv("JAVA_HOME", "")
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv(VersionEnv, "")
	t.Setenv("OTTLA_TEST_RUNS", filepath.Join(t.TempDir(), "runs"))
	return path
}

func TestWhatIsMissingIsSaidWithTheCommandThatInstallsIt(t *testing.T) {
	cases := []struct {
		name      string
		java, mvn string
		release   string
		want      []string
	}{
		{"no Java", "", "", "4.4.0", []string{"Apache Kafka 4.4.0 needs Java 17 or newer", "no java", "apt-get install openjdk-17-jre-headless"}},
		{"old Java", `echo 'openjdk version "11.0.2" 2019-01-15' >&2`, "", "4.4.0", []string{"needs Java 17", "is Java 11", "apt-get install openjdk"}},
		{"very old Java", `echo 'java version "1.7.0_80"' >&2`, "", "3.9.2", []string{"needs Java 8", "is Java 7"}},
		{"no Java at all behind the name", `echo 'Unable to locate a Java Runtime.' >&2; exit 1`, "", "4.4.0", []string{"does not say which Java it is", "Unable to locate"}},
		{"no Maven", java17, "", "4.4.0", []string{"needs Maven", "no mvn", "apt-get install maven"}},
		{"Maven Central out of reach", java17, `printf '[\033[1;31mERROR\033[m] Failed: repo.maven.apache.org: Name or service not known: Unknown host\n[ERROR] more\n'; exit 1`,
			"4.4.0", []string{"fetching Apache Kafka 4.4.0 with Maven failed", "Unknown host", "must be reachable"}},
		{"another failure of Maven", java17, `echo '[ERROR] settings.xml is broken'; exit 1`, "4.4.0", []string{"settings.xml is broken", "settings of Maven"}},
		{"Maven that fetches nothing", java17, `exit 0`, "4.4.0", []string{"no broker among the jars"}},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			path := world(t)
			for name, script := range map[string]string{"java": c.java, "mvn": c.mvn} {
				if script != "" {
					program(t, path, name, script)
				}
			}
			err := Fetch(t.Context(), c.release, nil)
			for _, w := range c.want {
				if err == nil || !strings.Contains(err.Error(), w) {
					t.Errorf("%q is missing in: %v", w, err)
				}
			}
			if err != nil && strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %v", err)
			}
			root, _ := cacheDir()
			if left, _ := filepath.Glob(filepath.Join(root, "*-*")); len(left) > 0 {
				t.Errorf("left in the cache: %v", left)
			}
		})
	}
}

func TestJavaHomeComesFirst(t *testing.T) {
	path, home := world(t), t.TempDir()
	program(t, path, "java", `echo 'openjdk version "11.0.2"' >&2`)
	if err := os.Mkdir(filepath.Join(home, "bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	program(t, filepath.Join(home, "bin"), "java", `echo 'openjdk version "25" 2025-09-16' >&2`)
	t.Setenv("JAVA_HOME", home)
	v, _ := parseVersion("4.4.0")
	j, err := findJava(t.Context(), v)
	if err != nil || j.major != 25 {
		t.Errorf("found %+v (%v), want the Java 25 of JAVA_HOME", j, err)
	}
}

// TestManyFetchesDownloadOnce: packages that are tested side by side fetch at
// the same time.
func TestManyFetchesDownloadOnce(t *testing.T) {
	path := world(t)
	program(t, path, "java", java17)
	program(t, path, "mvn", goodMaven)
	var wg sync.WaitGroup
	errs := make([]error, 4)
	for i := range errs {
		wg.Go(func() { errs[i] = Fetch(t.Context(), "4.4.0", nil) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	if runs := maven(t); runs != 1 {
		t.Errorf("Maven ran %d times, want once", runs)
	}
	// Jars that another pom made are replaced.
	root, _ := cacheDir()
	if err := os.WriteFile(filepath.Join(root, "4.4.0", "stamp"), []byte("another\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := Fetch(t.Context(), "4.4.0", nil); err != nil {
		t.Fatal(err)
	}
	if runs := maven(t); runs != 2 {
		t.Errorf("Maven ran %d times, want a second time for a stamp that does not fit", runs)
	}
}

// maven counts the runs of goodMaven.
func maven(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(os.Getenv("OTTLA_TEST_RUNS"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatal(err)
	}
	return bytes.Count(text, []byte("\n"))
}

func TestLockIsWaitedForUntilTheContextEnds(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a", "lock")
	first, err := lockFile(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	cause := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	waited := false
	_, err = lockFile(ctx, path, func() { waited = true; cancel(cause) })
	if !errors.Is(err, cause) || !waited {
		t.Errorf("the second lock gives %v, waited %v", err, waited)
	}
	first.release()
	second, err := lockFile(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	second.release()
}

func TestPollGivesUpAndTellsTheLastError(t *testing.T) {
	last := errors.New("last")
	tries := 0
	err := poll(t.Context(), time.Microsecond, func() error {
		if tries++; tries == 3 {
			return errGiveUp{last}
		}
		return errors.New("first")
	})
	if err != last || tries != 3 {
		t.Errorf("%v after %d tries", err, tries)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cause := fmt.Errorf("too late")
	err = poll(ctx, time.Microsecond, func() error { cancel(cause); return last })
	if !errors.Is(err, last) || !errors.Is(err, cause) {
		t.Errorf("%v does not tell both the last error and the cause", err)
	}
}
