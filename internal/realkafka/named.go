package realkafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/ottla/ottla/internal/task"
)

// ErrNoCluster says that there is no cluster of a name.
var ErrNoCluster = errors.New("there is no such cluster")

var nameForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,40}$`)

// namedDir holds the clusters that outlive the program that started them.
func namedDir() string { return filepath.Join(tempDir(), "named") }

func checkName(name string) error {
	if !nameForm.MatchString(name) {
		return fmt.Errorf("%q is no name for a cluster: letters, digits, dots, dashes and underscores make one", name)
	}
	return nil
}

// Names lists the clusters that were brought up and not taken down, running or
// not.
func Names() []string {
	paths, _ := filepath.Glob(statePath(filepath.Join(namedDir(), "*")))
	var names []string
	for _, p := range paths {
		names = append(names, filepath.Base(filepath.Dir(p)))
	}
	return names
}

// Find returns a cluster that was brought up, running or not. Its error is
// ErrNoCluster when there is none.
func Find(name string, output io.Writer) (*Cluster, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	h := namedHome(name, output)
	s, err := loadState(h.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w as %q: bring one up first", ErrNoCluster, name)
	}
	if err != nil {
		return nil, err
	}
	v, err := parseVersion(s.Options.Version)
	if err != nil {
		return nil, err
	}
	return &Cluster{home: h, inst: install{version: v}, state: s, tasks: task.New(context.Background())}, nil
}

func namedHome(name string, output io.Writer) home {
	return home{dir: filepath.Join(namedDir(), name), name: name, detached: true, output: orDiscard(output)}
}

// Change finds a cluster and calls f with it while no other process changes it.
func Change(ctx context.Context, name string, output io.Writer, f func(*Cluster) error) error {
	unlock, err := lockName(ctx, name, output)
	if err != nil {
		return err
	}
	defer unlock()
	c, err := Find(name, output)
	if err != nil {
		return err
	}
	return f(c)
}

func lockName(ctx context.Context, name string, output io.Writer) (unlock func(), err error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	l, err := lockFile(ctx, filepath.Join(namedDir(), name+".lock"), func() {
		fmt.Fprintf(orDiscard(output), "waiting for another program that changes the cluster %q\n", name)
	})
	if err != nil {
		return nil, err
	}
	return l.release, nil
}

// Up brings a cluster up under a name, in a folder below the system's
// temporary folder, and returns when all of it serves. Its brokers outlive this
// process. A cluster that is up stays as it is; brokers of it that were killed
// are started again on their data. One with other options is an error.
func Up(ctx context.Context, name string, o Options, output io.Writer) (*Cluster, error) {
	unlock, err := lockName(ctx, name, output)
	if err != nil {
		return nil, err
	}
	defer unlock()
	c, err := Find(name, output)
	if errors.Is(err, ErrNoCluster) {
		return launchNamed(ctx, name, o, output)
	}
	if err != nil {
		return nil, err
	}
	if c.inst, err = fetch(ctx, c.inst.version, c.output); err != nil {
		return nil, err
	}
	asked, _, err := o.settle()
	if err != nil {
		return nil, err
	}
	running := slices.ContainsFunc(c.state.all(), (*node).alive)
	if running && c.state.Ready && !asked.same(c.state.Options) {
		return nil, fmt.Errorf("the cluster %q runs with other options (Apache Kafka %s, %d broker(s)): take it down first, or give the new one another name",
			name, c.Version(), c.Brokers())
	}
	if !c.state.Ready || !asked.same(c.state.Options) {
		c.destroy() // a start that was cut short, or remains of a cluster that is gone
		return launchNamed(ctx, name, o, output)
	}
	return c, complete(ctx, c)
}

func launchNamed(ctx context.Context, name string, o Options, output io.Writer) (*Cluster, error) {
	h := namedHome(name, output)
	c, err := launch(ctx, h, o)
	if err != nil {
		// The logs stay for a look; the state goes, so that the name is free.
		_ = os.Remove(statePath(h.dir))
	}
	return c, err
}

// complete starts what does not run of a cluster that served before.
func complete(ctx context.Context, c *Cluster) error {
	var down []int
	for _, n := range c.state.Nodes {
		if n.paused() {
			return fmt.Errorf("%s of the cluster %q is paused: resume it first", n, c.name)
		}
		if !n.alive() {
			down = append(down, n.ID)
		}
	}
	if len(down) > 0 {
		if err := c.restart(ctx, down); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, errNotReady)
	defer cancel()
	return c.state.withLogs(c.ready(ctx, false))
}

// Down ends the brokers of a cluster with SIGTERM, after 20 s with SIGKILL,
// and removes its folder. A name without a cluster is ErrNoCluster.
func Down(ctx context.Context, name string, output io.Writer) error {
	return Change(ctx, name, output, func(c *Cluster) error {
		for _, n := range c.state.Nodes {
			_ = n.signal(signalResume) // a paused process does not hear SIGTERM
			_ = n.signal(signalEnd)
		}
		ctx, cancel := context.WithTimeout(ctx, stopWithin)
		defer cancel()
		for _, n := range c.state.Nodes {
			if err := n.ended(ctx); err != nil {
				fmt.Fprintf(c.output, "%s does not end by itself and is killed\n", n)
			}
		}
		c.destroy()
		for _, n := range c.state.all() {
			if n.alive() {
				return fmt.Errorf("%s (pid %d) does not end", n, n.Pid)
			}
		}
		return os.RemoveAll(c.dir)
	})
}

// BrokerStatus is what can be seen of one broker from outside.
type BrokerStatus struct {
	ID    int
	Addr  string // plaintext
	Pid   int    // 0 while it is down
	State string // running, paused or down
}

// Status says for each broker whether its process runs. A pid that belongs to
// another program by now counts as down.
func (c *Cluster) Status() []BrokerStatus {
	c.mu.Lock()
	defer c.mu.Unlock()
	var list []BrokerStatus
	for _, n := range c.state.Nodes {
		s := BrokerStatus{ID: n.ID, Addr: n.addr(Plaintext), State: "down"}
		if n.alive() {
			s.Pid, s.State = n.Pid, "running"
			if n.paused() {
				s.State = "paused"
			}
		}
		list = append(list, s)
	}
	return list
}
