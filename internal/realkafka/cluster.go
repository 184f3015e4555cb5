package realkafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/ottla/ottla/internal/task"
)

// Cluster is a real Apache Kafka of one or three brokers, numbered from 1. Its
// methods may be called concurrently; those that change a broker do it one
// after the other.
type Cluster struct {
	home
	inst install

	mu    sync.Mutex // one change at a time; guards the pids in state
	state *state
	held  *ports // nil in a process that found the cluster running
	tasks *task.Group
}

const (
	stopWithin = 20 * time.Second // of SIGTERM, before SIGKILL
	logTail    = 50               // lines of a log in an error
	startTries = 3                // with other ports
)

var (
	errPortTaken = errors.New("a port of the cluster is taken by another program")
	errDown      = errors.New("the cluster is down for good")
	errNotReady  = fmt.Errorf("not ready within %v", readyWithin)
)

// home is where a cluster lives and whether it lives on.
type home struct {
	dir      string
	name     string
	detached bool      // the brokers outlive this process
	output   io.Writer // of progress
}

// launch makes a new cluster in a folder, which it empties, and waits until it
// serves. On failure nothing is left running; the folder stays.
func launch(ctx context.Context, h home, o Options) (*Cluster, error) {
	o, v, err := o.settle()
	if err != nil {
		return nil, err
	}
	inst, err := fetch(ctx, v, h.output)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		one, err := attempt(ctx, h, inst, o)
		if err == nil {
			return one, nil
		}
		if !errors.Is(err, errPortTaken) || try == startTries {
			return nil, err
		}
		fmt.Fprintf(h.output, "%v; starting again with others\n", err)
	}
}

// attempt is launch with one choice of ports.
func attempt(ctx context.Context, h home, inst install, o Options) (*Cluster, error) {
	s, held, err := plan(h.dir, h.name, o, inst.version)
	if err != nil {
		return nil, err
	}
	one := &Cluster{home: h, inst: inst, state: s, held: held, tasks: task.New(context.Background())}
	err = layOut(ctx, h, inst, s)
	if err == nil {
		err = one.boot(ctx)
	}
	if err != nil {
		one.destroy()
		return nil, err
	}
	return one, nil
}

// boot starts every node of a fresh cluster and waits until it is ready.
func (c *Cluster) boot(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, errNotReady)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if z := c.state.ZooKeeper; z != nil {
		if err := c.spawn(z); err != nil {
			return err
		}
	}
	for _, n := range c.state.Nodes {
		if err := c.spawn(n); err != nil {
			return err
		}
	}
	if err := c.ready(ctx, c.state.Options.Cold); err != nil {
		return c.state.withLogs(err)
	}
	c.state.Ready = true
	return c.state.save(c.dir)
}

// spawn starts the process of a node and remembers its pid in the state file,
// so that a later process finds it.
func (c *Cluster) spawn(n *node) error {
	var err error
	if n.Pid, err = c.inst.brokerJVM(n, c.state.Options.ClassPath...).start(c.tasks, c.detached); err != nil {
		return err
	}
	return c.state.save(c.dir)
}

// stillRuns says which started node has ended, if one has.
func (s *state) stillRuns() error {
	for _, n := range s.all() {
		if n.Pid == 0 || n.alive() {
			continue
		}
		log, err := os.ReadFile(n.log())
		if err != nil {
			return fmt.Errorf("%s ended, and nobody knows why: %w", n, err)
		}
		if strings.Contains(string(log), "Address already in use") {
			return fmt.Errorf("%s ended: %w", n, errPortTaken)
		}
		return fmt.Errorf("%s ended: %s\nthe last lines of %s:\n%s", n, complaints(string(log)), n.log(), lastLines(string(log), logTail))
	}
	return nil
}

// forgetDead drops the pids of nodes that ended without being asked to, such
// as by a reboot, so that only what is started now counts as one that ends.
func (s *state) forgetDead() {
	for _, n := range s.all() {
		if !n.alive() {
			n.Pid = 0
		}
	}
}

// withLogs adds the ends of the logs to an error of a cluster that runs but
// does not get ready.
func (s *state) withLogs(err error) error {
	if !errors.Is(err, errNotReady) {
		return err
	}
	for _, n := range s.all() {
		log, _ := os.ReadFile(n.log())
		err = fmt.Errorf("%w\nthe last lines of %s:\n%s", err, n.log(), lastLines(string(log), logTail))
	}
	return err
}

// destroy kills every node, waits for the processes and gives the ports back.
// The folder stays.
func (c *Cluster) destroy() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, n := range c.state.all() {
		_ = n.signal(signalKill) // the only error: it does not run
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	for _, n := range c.state.all() {
		_ = n.ended(ctx)
		n.Pid = 0
	}
	if c.held != nil {
		c.held.release()
	}
	c.tasks.Cancel(errDown) // for what was launched beside the brokers
	_ = c.tasks.Wait()
}

// Kill ends a broker with SIGKILL and waits until its process is gone.
func (c *Cluster) Kill(id int) error { return c.end(id, signalKill) }

// Stop ends a broker with SIGTERM and waits until its process is gone: an
// orderly shutdown, in which it hands its leaderships over. It needs a
// controller: the last brokers of a cluster without a quorum do not end by it
// and are killed after 20 s, which is an error.
func (c *Cluster) Stop(id int) error { return c.end(id, signalEnd) }

func (c *Cluster) end(id int, sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.state.node(id)
	if err != nil {
		return err
	}
	if err := n.signal(sig); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
	defer cancel()
	var late error
	if n.ended(ctx) != nil && n.signal(signalKill) == nil {
		late = fmt.Errorf("%s did not end within %v of its signal and was killed", n, stopWithin)
		ctx, cancel := context.WithTimeout(context.Background(), stopWithin)
		defer cancel()
		if err := n.ended(ctx); err != nil {
			return errors.Join(late, err)
		}
	}
	n.Pid = 0
	return errors.Join(late, c.state.save(c.dir))
}

// Pause stops a broker with SIGSTOP: its sockets accept and never answer.
func (c *Cluster) Pause(id int) error { return c.send(id, signalStop) }

// Resume lets a paused broker go on.
func (c *Cluster) Resume(id int) error { return c.send(id, signalResume) }

func (c *Cluster) send(id int, sig syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	n, err := c.state.node(id)
	if err != nil {
		return err
	}
	return n.signal(sig)
}

// Restart starts brokers that were killed or stopped, on their data and ports,
// and waits until they serve and every other running broker knows them. A
// killed broker waits for the end of its earlier registration, some 5 s. A
// broker that runs is an error. Without a quorum nothing serves: start as many
// brokers as it takes in one call.
func (c *Cluster) Restart(ids ...int) error {
	return c.restart(context.Background(), ids)
}

func (c *Cluster) restart(ctx context.Context, ids []int) error {
	inst, err := fetch(ctx, c.inst.version, c.output)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, readyWithin, errNotReady)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inst = inst
	for _, id := range ids {
		n, err := c.state.node(id)
		if err != nil {
			return err
		}
		if n.alive() {
			return fmt.Errorf("%s runs already", n)
		}
	}
	c.state.forgetDead()
	for try := 1; ; try++ {
		err := c.bringBack(ctx, ids)
		// A broker of the ZooKeeper lines ends when ZooKeeper still has its
		// earlier registration; the next try finds it expired.
		if err == nil || !c.inst.version.zooKeeper() || try == startTries {
			return c.state.withLogs(err)
		}
	}
}

// bringBack is one try to get brokers to serve again.
func (c *Cluster) bringBack(ctx context.Context, ids []int) error {
	if err := c.respawn(ids); err != nil {
		return err
	}
	for _, n := range c.state.Nodes {
		if !n.alive() || n.paused() {
			continue
		}
		if err := c.state.serves(ctx, n, ids); err != nil {
			return err
		}
	}
	return nil
}

// respawn starts processes of brokers that served before, on their old ports.
func (c *Cluster) respawn(ids []int) error {
	var nodes []*node
	if c.state.ZooKeeper != nil {
		nodes = append(nodes, c.state.ZooKeeper)
	}
	for _, id := range ids {
		nodes = append(nodes, c.state.Nodes[id-1])
	}
	for _, n := range nodes {
		if n.alive() {
			continue
		}
		if err := n.portsFree(); err != nil {
			return err
		}
		if err := c.spawn(n); err != nil {
			return err
		}
	}
	return nil
}

// portsFree says which port of a node is no longer to be had.
func (n *node) portsFree() error {
	for _, listener := range sortedKeys(n.Ports) {
		l, err := net.Listen("tcp4", n.addr(listener))
		if err != nil {
			return fmt.Errorf("%s cannot have its port %s back, %w (%w): bring the cluster down and up again", n, n.addr(listener), errPortTaken, err)
		}
		_ = l.Close()
	}
	return nil
}
