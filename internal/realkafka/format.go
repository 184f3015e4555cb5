package realkafka

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// formatting is everything that a formatted data folder depends on beside the
// release.
type formatting struct {
	Release  string
	Features map[string]int
	Users    []User
}

func (o Options) formatting() formatting {
	f := formatting{Release: o.Release, Features: o.Features}
	if o.Secure {
		f.Users = users()
	}
	return f
}

// name identifies the template folder.
func (f formatting) name() string {
	text, _ := json.Marshal(f) // maps are written in order
	sum := sha256.Sum256(text)
	return "template-" + hex.EncodeToString(sum[:6])
}

func (f formatting) args() []string {
	var args []string
	if f.Release != "" {
		args = append(args, "--release-version", f.Release)
	}
	for _, name := range sortedKeys(f.Features) {
		args = append(args, "--feature", fmt.Sprintf("%s=%d", name, f.Features[name]))
	}
	for _, u := range f.Users {
		for _, m := range []string{"SCRAM-SHA-256", "SCRAM-SHA-512"} {
			args = append(args, "--add-scram", fmt.Sprintf("%s=[name=%s,password=%s]", m, u.Name, u.Password))
		}
	}
	return args
}

// template returns a folder that Kafka formatted once for these options. Each
// new broker gets a copy, which saves it a JVM.
func (i install) template(ctx context.Context, o Options, log io.Writer) (string, error) {
	f := o.formatting()
	dir := filepath.Join(i.dir, f.name())
	if exists(dir) {
		return dir, nil
	}
	lock, err := lockFile(ctx, dir+".lock", nil)
	if err != nil {
		return "", err
	}
	defer lock.release()
	if exists(dir) {
		return dir, nil
	}
	fmt.Fprintf(log, "formatting a template for Apache Kafka %s\n", i.version.text)
	tmp, err := os.MkdirTemp(i.dir, "format-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(tmp) }()
	if err := i.format(ctx, tmp, f); err != nil {
		return "", err
	}
	return dir, os.Rename(filepath.Join(tmp, "data"), dir)
}

// format runs Kafka's own tool on the data folder below tmp.
func (i install) format(ctx context.Context, tmp string, f formatting) error {
	n := &node{ID: 1, Dir: tmp, Ports: map[string]int{Plaintext: 1, Controllers: 2}}
	s := &state{Nodes: []*node{n}, Options: Options{Brokers: 1}}
	if err := os.WriteFile(n.config(), []byte(serverProperties(tmp, s, n, i.version)), 0o600); err != nil {
		return err
	}
	args := slices.Concat([]string{"-Xmx256m"}, baseFlags(), logFlags(),
		[]string{"-cp", i.classPath(), "kafka.tools.StorageTool", "format", "-t", newClusterID(), "-c", n.config()}, f.args())
	cmd := exec.CommandContext(ctx, i.java.path, args...)
	cmd.Dir = tmp
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("formatting a data folder of Apache Kafka %s failed (%w):\n%s", i.version.text, err, strings.TrimSpace(string(out)))
	}
	return nil
}

// copyTemplate makes the data folder of a broker. The file meta.properties is
// written anew without a directory id; the broker adds one of its own.
func copyTemplate(from string, n *node, clusterID string) error {
	if err := os.CopyFS(n.data(), os.DirFS(from)); err != nil {
		return err
	}
	meta := fmt.Sprintf("version=1\ncluster.id=%s\nnode.id=%d\n", clusterID, n.ID)
	return os.WriteFile(filepath.Join(n.data(), "meta.properties"), []byte(meta), 0o644)
}
