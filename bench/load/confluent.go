package load

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// BuildConfluent builds the program with confluent-kafka-go, which needs cgo,
// from its folder. It is a module of its own, as it brings 100 MB of libraries.
// The caller removes the folder that bin is in.
func BuildConfluent(ctx context.Context, folder string) (bin string, err error) {
	dir, err := os.MkdirTemp("", "ottla-bench-")
	if err != nil {
		return "", err
	}
	bin = filepath.Join(dir, "confluent")
	cmd := exec.CommandContext(ctx, "go", "build", "-o", bin, ".")
	cmd.Dir = folder
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		_ = os.RemoveAll(dir)
		first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
		return "", fmt.Errorf("%w: %s", err, first)
	}
	return bin, nil
}

// Member is what a program that is a member of a group is told, as JSON in its
// second argument; the first is "member". It writes a line with partition and
// offset for each record that it has handled, until SIGTERM; or, if Count is
// set, one line with the nanoseconds of processor time that so many took.
type Member struct {
	Addr, Group, Topic string
	Session, Heartbeat time.Duration
	Count              int
}
