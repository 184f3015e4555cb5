package realkafka

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// java is the Java that runs the brokers.
type java struct {
	path  string
	major int
}

const installJava = "install one with `apt-get install openjdk-17-jre-headless` (Debian, Ubuntu), " +
	"`dnf install java-21-openjdk-headless` (Fedora) or `brew install openjdk@21`"

var javaVersion = regexp.MustCompile(`version "(1\.)?(\d+)`)

// findJava takes the Java of JAVA_HOME, else the one on PATH, and refuses one
// that is too old for v.
func findJava(ctx context.Context, v version) (java, error) {
	path, err := exec.LookPath("java")
	if home := os.Getenv("JAVA_HOME"); home != "" {
		path, err = exec.LookPath(filepath.Join(home, "bin", "java"))
	}
	if err != nil {
		return java{}, fmt.Errorf("Apache Kafka %s needs Java %d or newer, and there is no java in JAVA_HOME or on PATH: %s", v.text, v.java(), installJava)
	}
	out, err := exec.CommandContext(ctx, path, "-version").CombinedOutput()
	m := javaVersion.FindSubmatch(out)
	if m == nil {
		return java{}, fmt.Errorf("%s -version does not say which Java it is (%v, %q): %s", path, err, firstLine(string(out)), installJava)
	}
	j := java{path: path}
	j.major, _ = strconv.Atoi(string(m[2]))
	if j.major < v.java() {
		return java{}, fmt.Errorf("Apache Kafka %s needs Java %d or newer, and %s is Java %d: %s", v.text, v.java(), path, j.major, installJava)
	}
	return j, nil
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(s), "\n")
	return line
}
