package realkafka

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// state is what a cluster's folder says about it, in state.json.
type state struct {
	Name      string
	Options   Options // settled
	ClusterID string
	Nodes     []*node
	ZooKeeper *node `json:",omitempty"`
	Ready     bool  // it served once
}

// node is one broker, or ZooKeeper with ID 0.
type node struct {
	ID    int
	Dir   string         // holds server.properties, broker.log and data
	Ports map[string]int // by listener
	Pid   int            `json:",omitempty"` // 0: not started
}

const zooKeeperPort = "ZOOKEEPER"

func (n *node) addr(listener string) string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(n.Ports[listener]))
}

func (n *node) config() string { return filepath.Join(n.Dir, "server.properties") }
func (n *node) data() string   { return filepath.Join(n.Dir, "data") }
func (n *node) log() string    { return filepath.Join(n.Dir, "broker.log") }

func (n *node) String() string {
	if n.ID == 0 {
		return "ZooKeeper"
	}
	return fmt.Sprintf("broker %d", n.ID)
}

// plan lays out a cluster in dir with ports of its own.
func plan(dir, name string, o Options, v version) (*state, *ports, error) {
	s := &state{Name: name, Options: o, ClusterID: newClusterID()}
	perNode := len(o.listeners()) + 1
	p, err := reservePorts(o.Brokers*perNode + 1)
	if err != nil {
		return nil, nil, err
	}
	for id := 1; id <= o.Brokers; id++ {
		n := &node{ID: id, Dir: filepath.Join(dir, fmt.Sprintf("broker-%d", id)), Ports: map[string]int{}}
		for _, l := range o.listeners() {
			n.Ports[l] = p.next()
		}
		if !v.zooKeeper() {
			n.Ports[Controllers] = p.next()
		}
		s.Nodes = append(s.Nodes, n)
	}
	if v.zooKeeper() {
		s.ZooKeeper = &node{Dir: filepath.Join(dir, "zookeeper"), Ports: map[string]int{zooKeeperPort: p.next()}}
	}
	return s, p, nil
}

// newClusterID makes a random UUID in the form that Kafka wants: 22 characters
// of base64, and none at the start that a command line would take for a flag.
func newClusterID() string {
	var id [16]byte
	_, _ = rand.Read(id[:])
	id[0] &= 0x7f
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// all are the nodes in the order in which they start.
func (s *state) all() []*node {
	if s.ZooKeeper == nil {
		return s.Nodes
	}
	return append([]*node{s.ZooKeeper}, s.Nodes...)
}

func (s *state) node(id int) (*node, error) {
	if id < 1 || id > len(s.Nodes) {
		return nil, fmt.Errorf("cluster %q has no broker %d: its brokers are 1 to %d", s.Name, id, len(s.Nodes))
	}
	return s.Nodes[id-1], nil
}

func (s *state) bootstrap(listener string) string {
	var addrs []string
	for _, n := range s.Nodes {
		addrs = append(addrs, n.addr(listener))
	}
	return strings.Join(addrs, ",")
}

func statePath(dir string) string { return filepath.Join(dir, "state.json") }

func (s *state) save(dir string) error {
	text, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	tmp := statePath(dir) + ".new"
	if err := os.WriteFile(tmp, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(tmp, statePath(dir))
}

func loadState(dir string) (*state, error) {
	text, err := os.ReadFile(statePath(dir))
	if err != nil {
		return nil, err
	}
	s := &state{}
	if err := json.Unmarshal(text, s); err != nil {
		return nil, fmt.Errorf("%s: %w", statePath(dir), err)
	}
	return s, nil
}
