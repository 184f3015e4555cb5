package realkafka

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

const installMaven = "install it with `apt-get install maven` (Debian, Ubuntu), `dnf install maven` (Fedora) or `brew install maven`"

// install is one release of Kafka in the cache, and the Java that runs it.
type install struct {
	version version
	java    java
	dir     string

	record bool // the next broker writes the archive of its classes when it ends
}

func (i install) classPath() string { return filepath.Join(i.dir, "libs", "*") }

// cacheDir is the folder of all releases, outside of every source tree.
func cacheDir() (string, error) {
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for Kafka's jars: %w", err)
	}
	return filepath.Join(base, "ottla", "kafka"), nil
}

// Fetch makes sure that the jars of a release are in the cache and that a Java
// for it is there. An empty release means VersionEnv and then DefaultVersion.
// Progress goes to log, which may be nil. It blocks until it is done or ctx
// ends; several processes may fetch at once, one downloads.
func Fetch(ctx context.Context, release string, log io.Writer) error {
	v, err := parseVersion(release)
	if err != nil {
		return err
	}
	_, err = fetch(ctx, v, orDiscard(log))
	return err
}

func orDiscard(w io.Writer) io.Writer {
	if w == nil {
		return io.Discard
	}
	return w
}

func fetch(ctx context.Context, v version, log io.Writer) (install, error) {
	if !supported {
		return install{}, errUnsupported
	}
	j, err := findJava(ctx, v)
	if err != nil {
		return install{}, err
	}
	root, err := cacheDir()
	if err != nil {
		return install{}, err
	}
	i := install{version: v, java: j, dir: filepath.Join(root, v.text)}
	if i.complete() {
		return i, nil
	}
	lock, err := lockFile(ctx, filepath.Join(root, "fetch.lock"), func() {
		fmt.Fprintf(log, "waiting for another process that fetches Apache Kafka\n")
	})
	if err != nil {
		return install{}, err
	}
	defer lock.release()
	if i.complete() {
		return i, nil
	}
	return i, i.download(ctx, log)
}

// stamp identifies the set of jars: the hash of the pom that names them.
func (i install) stamp() string {
	sum := sha256.Sum256([]byte(pom(i.version)))
	return hex.EncodeToString(sum[:])
}

func (i install) complete() bool {
	text, err := os.ReadFile(filepath.Join(i.dir, "stamp"))
	return err == nil && strings.TrimSpace(string(text)) == i.stamp()
}

// download fills a temporary folder and renames it, so that nobody ever sees
// half a set of jars.
func (i install) download(ctx context.Context, log io.Writer) error {
	root := filepath.Dir(i.dir)
	tmp, err := os.MkdirTemp(root, "fetch-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := os.WriteFile(filepath.Join(tmp, "pom.xml"), []byte(pom(i.version)), 0o644); err != nil {
		return err
	}
	fmt.Fprintf(log, "fetching Apache Kafka %s with Maven into %s\n", i.version.text, i.dir)
	if err := copyJars(ctx, "Apache Kafka "+i.version.text, filepath.Join(tmp, "pom.xml"), filepath.Join(tmp, "libs"), "-DincludeScope=runtime"); err != nil {
		return err
	}
	if jars, _ := filepath.Glob(filepath.Join(tmp, "libs", "kafka_*.jar")); len(jars) == 0 {
		return fmt.Errorf("Maven said that it fetched Apache Kafka %s, but there is no broker among the jars", i.version.text)
	}
	if err := os.WriteFile(filepath.Join(tmp, "stamp"), []byte(i.stamp()+"\n"), 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(i.dir); err != nil {
		return err
	}
	return os.Rename(tmp, i.dir)
}

var (
	escapeCodes = regexp.MustCompile("\x1b\\[[0-9;]*m")
	unreachable = regexp.MustCompile(`(?i)unknown host|connection refused|connect to|timed out|no route|unreachable|transfer failed|name resolution`)
)

// copyJars copies the jars that a pom names into a folder.
func copyJars(ctx context.Context, subject, pom, to string, args ...string) error {
	mvn, err := exec.LookPath("mvn")
	if err != nil {
		return fmt.Errorf("fetching %s needs Maven, and there is no mvn on PATH: %s", subject, installMaven)
	}
	cmd := exec.CommandContext(ctx, mvn, slices.Concat([]string{"-q", "-B", "-f", pom, "dependency:copy-dependencies", "-DoutputDirectory=" + to}, args)...)
	cmd.Dir = filepath.Dir(to)
	if out, err := cmd.CombinedOutput(); err != nil {
		return mavenError(subject, string(out), err)
	}
	return nil
}

// mavenError keeps the line that says why.
func mavenError(subject, out string, err error) error {
	why := err.Error()
	for line := range strings.Lines(escapeCodes.ReplaceAllString(out, "")) {
		if text, found := strings.CutPrefix(line, "[ERROR] "); found {
			why = strings.TrimSpace(text)
			break
		}
	}
	hint := "look at the settings of Maven (~/.m2/settings.xml)"
	if unreachable.MatchString(out) {
		hint = "Maven Central (https://repo.maven.apache.org) or a mirror in ~/.m2/settings.xml must be reachable for the first start of a version"
	}
	return fmt.Errorf("fetching %s with Maven failed: %s: %s", subject, why, hint)
}
