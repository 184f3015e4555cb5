package cli

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/streams"
)

// demoStreams counts what the members of the Streams part held.
type demoStreams struct {
	Members     int `json:"members"`
	Tasks       int `json:"tasks"`
	DoubleOwned int `json:"double_owned"`
}

const (
	demoTasks       = 4
	demoStreamsTime = 15 * time.Second // the part, at most
)

// streamsDemo is two members that share tasks until one leaves.
type streamsDemo struct {
	group string
	topic string
	view  func(format string, args ...any)

	mu     sync.Mutex
	holds  map[streams.TaskID]string // guarded by mu: which member has acknowledged a task
	double int                       // guarded by mu
}

// acknowledge notes what a member holds from here on.
func (d *streamsDemo) acknowledge(name string, tasks []streams.TaskID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for id, by := range d.holds {
		if by == name {
			delete(d.holds, id)
		}
	}
	for _, id := range tasks {
		if d.holds[id] != "" {
			d.double++
		}
		d.holds[id] = name
	}
}

// held are how many tasks a member holds.
func (d *streamsDemo) held(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	n := 0
	for _, by := range d.holds {
		if by == name {
			n++
		}
	}
	return n
}

// startStreamsDemo starts the part; what it returns waits for its end. A cluster
// without Streams groups has no such part.
func startStreamsDemo(ctx context.Context, a *app, cfg cluster.Config, view *demoView) func() (*demoStreams, error) {
	var out *demoStreams
	part := task.New(ctx)
	part.Go(func(ctx context.Context) error {
		c, err := cluster.Connect(ctx, cfg)
		if err != nil {
			return err
		}
		defer c.Close()
		out, err = runStreamsDemo(ctx, a, c, view.event)
		var unsupported *streams.UnsupportedError
		if errors.As(err, &unsupported) {
			view.event("streams: not here: %v", err)
			return nil
		}
		return err
	})
	return func() (*demoStreams, error) {
		err := part.Wait()
		return out, err
	}
}

// runStreamsDemo runs the part.
func runStreamsDemo(ctx context.Context, a *app, c *cluster.Cluster, view func(format string, args ...any)) (*demoStreams, error) {
	ctx, cancel := context.WithTimeout(ctx, demoStreamsTime)
	defer cancel()
	d := &streamsDemo{group: demoTopic(), topic: demoTopic(), view: view, holds: map[streams.TaskID]string{}}
	drop, err := makeOwnTopic(ctx, a, &client{Cluster: c}, d.topic, demoTasks)
	if err != nil {
		return nil, err
	}
	defer drop()
	defer d.forgetGroup(a, c)
	if err := streams.SetGroupConfigs(ctx, c, d.group, map[string]string{"initial.rebalance.delay.ms": "0"}); err != nil {
		return nil, err
	}
	owners := task.New(ctx)
	first, err := d.join(ctx, owners, c, "first")
	if err != nil {
		_ = owners.Wait()
		return nil, err
	}
	defer first.Close()
	if err := d.until(ctx, first, func() bool { return d.held("first") == demoTasks }); err != nil {
		return nil, err
	}
	second, err := d.join(ctx, owners, c, "second")
	if err != nil {
		return nil, err
	}
	defer second.Close()
	both := func() bool { return d.held("first") == demoTasks/2 && d.held("second") == demoTasks/2 }
	if err := d.until(ctx, first, both); err != nil {
		return nil, err
	}
	view("streams: the second member leaves")
	d.acknowledge("second", nil)
	if err := second.Leave(ctx); err != nil {
		return nil, err
	}
	if err := d.until(ctx, first, func() bool { return d.held("first") == demoTasks }); err != nil {
		return nil, err
	}
	d.acknowledge("first", nil)
	if err := first.Leave(ctx); err != nil {
		return nil, err
	}
	return &demoStreams{Members: 2, Tasks: demoTasks, DoubleOwned: d.double}, owners.Wait()
}

// join makes a member and its owner.
func (d *streamsDemo) join(ctx context.Context, owners *task.Group, c *cluster.Cluster, name string) (*streams.Member, error) {
	m, err := streams.Join(ctx, c, streams.Config{
		Group: d.group, ProcessID: name,
		Topology: streams.Topology{Subtopologies: []streams.Subtopology{{ID: "0", Sources: []string{d.topic}}}},
	})
	if err != nil {
		return nil, err
	}
	owners.Go(func(ctx context.Context) error {
		for s, err := range m.Assignments(ctx) {
			if err != nil {
				return err
			}
			if s.Lost || s.HasTarget {
				d.acknowledge(name, s.Target.Active)
				d.view("streams: %s member has tasks %v", name, s.Target.Active)
				_ = m.Acknowledge(ctx, s, s.Target) // an outdated one is followed by another
			}
		}
		return nil
	})
	return m, nil
}

// until waits for a condition. It heartbeats in the meantime, so that nobody has
// to wait for the interval.
func (d *streamsDemo) until(ctx context.Context, m *streams.Member, cond func() bool) error {
	for !cond() {
		if _, err := m.Heartbeat(ctx); err != nil {
			return err
		}
		if err := task.Sleep(ctx, 200*time.Millisecond); err != nil {
			return fmt.Errorf("the tasks of the streams part did not settle: %w", err)
		}
	}
	return nil
}

// forgetGroup deletes the group; an empty one is forgotten by itself later.
func (d *streamsDemo) forgetGroup(a *app, c *cluster.Cluster) {
	ctx, cancel := context.WithTimeout(a.work, ownTopicTime)
	defer cancel()
	_ = streams.Delete(ctx, c, d.group, false)
}
