package realkafka

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// Version is the release that the cluster runs.
func (c *Cluster) Version() string { return c.inst.version.text }

// Brokers is the number of brokers, running or not.
func (c *Cluster) Brokers() int { return len(c.state.Nodes) }

// Bootstrap lists the plaintext addresses of all brokers, host:port joined by
// commas.
func (c *Cluster) Bootstrap() string { return c.state.bootstrap(Plaintext) }

// Listener lists the addresses of all brokers on one of the listeners, joined
// by commas; with KRaft Controllers is one. It panics for a listener that the
// cluster does not have.
func (c *Cluster) Listener(name string) string {
	if _, ok := c.state.Nodes[0].Ports[name]; !ok {
		panic(fmt.Sprintf("the cluster has no listener %s: start it with Options.Secure", name))
	}
	return c.state.bootstrap(name)
}

// Addr is the plaintext address of one broker.
func (c *Cluster) Addr(id int) string { return c.state.Nodes[id-1].addr(Plaintext) }

// Certs are the files with certificates of a cluster with Options.Secure.
func (c *Cluster) Certs() Certs { return certsIn(filepath.Join(c.dir, "certs")) }

// LogFile is the file with everything that a broker has written to its log.
func (c *Cluster) LogFile(id int) string { return c.state.Nodes[id-1].log() }

// Features are the finalized features as the first running broker tells them.
func (c *Cluster) Features(ctx context.Context) (map[string]int, error) {
	err := errors.New("no broker runs")
	for _, n := range c.state.Nodes {
		var features map[string]int
		if _, features, err = versionsOf(ctx, n.addr(Plaintext)); err == nil {
			return features, nil
		}
	}
	return nil, err
}

// quorumState is the part of a broker's quorum-state file that is read here.
type quorumState struct {
	LeaderID    int `json:"leaderId"`
	LeaderEpoch int `json:"leaderEpoch"`
}

// Controller is the broker that is the active controller, as the newest of the
// brokers' files says. It is -1 during an election.
func (c *Cluster) Controller() (int, error) {
	if c.inst.version.zooKeeper() {
		m, err := metadata(context.Background(), c.Addr(1))
		if err != nil {
			return -1, err
		}
		return int(m.ControllerID), nil
	}
	newest := quorumState{LeaderID: -1, LeaderEpoch: -1}
	for _, n := range c.state.Nodes {
		text, err := os.ReadFile(filepath.Join(n.data(), "__cluster_metadata-0", "quorum-state"))
		if err != nil {
			return -1, err
		}
		var q quorumState
		if err := json.Unmarshal(text, &q); err != nil {
			return -1, fmt.Errorf("quorum-state of %s: %w", n, err)
		}
		if q.LeaderEpoch > newest.LeaderEpoch || q.LeaderEpoch == newest.LeaderEpoch && newest.LeaderID < 0 {
			newest = q
		}
	}
	return newest.LeaderID, nil
}

// toolPackage holds most of Kafka's tools; a class without a package is there.
const toolPackage = "org.apache.kafka.tools."

// offline are the tools that talk to no broker.
var offline = []string{"DumpLogSegments", "StorageTool"}

// ToolCommand is one of Kafka's own Java programs, ready to run against the
// cluster's plaintext listener. A class such as consumer.ConsoleConsumer is
// looked for in org.apache.kafka.tools; those have the release DefaultVersion,
// which fits every release from 2.1 on. Classes that start with kafka. have the
// cluster's own release. --bootstrap-server is added where args have none.
func (c *Cluster) ToolCommand(ctx context.Context, class string, args ...string) (*exec.Cmd, error) {
	release := c.Version()
	if !strings.HasPrefix(class, "kafka.") {
		release = DefaultVersion
		if !strings.HasPrefix(class, "org.") {
			class = toolPackage + class
		}
	}
	v, err := parseVersion(release)
	if err != nil {
		return nil, err
	}
	i, err := fetch(ctx, v, c.output)
	if err != nil {
		return nil, err
	}
	quiet := []string{"-Xmx256m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", i.classPath(), class}
	name := class[strings.LastIndex(class, ".")+1:]
	given := slices.ContainsFunc(args, func(a string) bool { return strings.HasPrefix(a, "--bootstrap-") || a == "--broker-list" })
	server := []string{"--bootstrap-server", c.Bootstrap()}
	switch {
	case given || slices.Contains(offline, name):
	case name == "ClusterTool": // the one that wants it behind its command
		args = slices.Concat(args, server)
	default:
		quiet = append(quiet, server...)
	}
	return exec.CommandContext(ctx, i.java.path, slices.Concat(baseFlags(), quiet, args)...), nil
}

// Tool runs one of Kafka's own Java programs, as ToolCommand makes it, and
// returns what it wrote to stdout. Some exit with 0 although they failed: judge
// by the output.
func (c *Cluster) Tool(class string, args ...string) (string, error) {
	return c.ToolInput("", class, args...)
}

// ToolInput is Tool with a text on stdin.
func (c *Cluster) ToolInput(stdin, class string, args ...string) (string, error) {
	cmd, err := c.ToolCommand(context.Background(), class, args...)
	if err != nil {
		return "", err
	}
	var stderr bytes.Buffer
	cmd.Stdin, cmd.Stderr = strings.NewReader(stdin), &stderr
	out, err := cmd.Output()
	if err != nil {
		return string(out), fmt.Errorf("%s %s: %w: %s", class, strings.Join(args, " "), err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

// DumpLog returns every batch and record of a partition as Kafka's
// DumpLogSegments prints them, from the files of the first broker that has a
// replica.
func (c *Cluster) DumpLog(topic string, partition int) (string, error) {
	for _, n := range c.state.Nodes {
		segments, err := filepath.Glob(filepath.Join(n.data(), fmt.Sprintf("%s-%d", topic, partition), "*.log"))
		if err != nil {
			return "", err
		}
		if len(segments) > 0 {
			return c.Tool("DumpLogSegments", "--print-data-log", "--files", strings.Join(segments, ","))
		}
	}
	return "", fmt.Errorf("no broker has a replica of %s-%d", topic, partition)
}

// Secure says whether the cluster has the listeners of Options.Secure.
func (c *Cluster) Secure() bool { return c.state.Options.Secure }
