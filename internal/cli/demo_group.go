package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// demoGroups is what became of the group part.
type demoGroups struct {
	Members     int
	Handled     int64
	Lost        int64
	Duplicated  int64
	DoubleOwned int64 // partitions that two members had at a time
}

func (g *demoGroups) ok() bool {
	return g.Lost == 0 && g.Duplicated == 0 && g.DoubleOwned == 0 && g.Handled > 0
}

// demoGroupWork is how long members come and go.
const demoGroupWork = 4 * time.Second

// groupDemo is the group part at work.
type groupDemo struct {
	cfg   cluster.Config
	topic string
	news  chan string // for the view

	mu      sync.Mutex
	owners  map[kafka.TopicPartition]string // guarded by mu: by the callbacks
	handled map[string]int64                // guarded by mu: how often, by value
	double  int64                           // guarded by mu
}

// runGroupDemo has three members share a topic while one of them leaves and comes
// back.
func runGroupDemo(ctx context.Context, a *app, cfg cluster.Config, view *demoView) (*demoGroups, error) {
	d := &groupDemo{
		cfg: cfg, topic: demoTopic(), news: make(chan string, 100),
		owners: map[kafka.TopicPartition]string{}, handled: map[string]int64{},
	}
	c, err := cluster.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer c.Close()
	drop, err := makeOwnTopic(ctx, a, &client{Cluster: c}, d.topic, demoPartitions)
	if err != nil {
		return nil, err
	}
	defer drop()
	tasks := task.New(ctx)
	produced := make(chan int64, 1)
	tasks.Go(func(ctx context.Context) error { return d.produce(ctx, c, produced) })
	tasks.Go(func(ctx context.Context) error { return d.members(ctx) })
	done := make(chan error, 1)
	a.tasks.Go(func(context.Context) error { done <- tasks.Wait(); return nil })
	for {
		select {
		case text := <-d.news:
			view.event("%s", text)
			continue
		case err = <-done:
		}
		break
	}
	if err != nil {
		return nil, err
	}
	return d.result(<-produced), nil
}

// produce writes numbered records while members come and go.
func (d *groupDemo) produce(ctx context.Context, c *cluster.Cluster, produced chan<- int64) error {
	p, err := producer.New(c, producer.Config{})
	if err != nil {
		return err
	}
	defer p.Close()
	n := int64(0)
	for end := time.Now().Add(demoGroupWork); time.Now().Before(end) && ctx.Err() == nil; n++ {
		v := fmt.Sprint(n)
		if _, err := p.Append(ctx, kafka.Record{Topic: d.topic, Key: []byte(v), Value: []byte(v)}); err != nil {
			return err
		}
		time.Sleep(2 * time.Millisecond)
	}
	produced <- n
	return p.Flush(ctx)
}

// members starts three members, one after the other; the second leaves.
func (d *groupDemo) members(ctx context.Context) error {
	all, second := task.New(ctx), task.New(ctx)
	defer second.Cancel(nil)
	defer all.Cancel(nil)
	step := demoGroupWork / 5
	all.Go(func(ctx context.Context) error { return d.member(ctx, "A") })
	time.Sleep(step)
	second.Go(func(ctx context.Context) error { return d.member(ctx, "B") })
	time.Sleep(step)
	all.Go(func(ctx context.Context) error { return d.member(ctx, "C") })
	time.Sleep(step)
	second.Cancel(errMemberLeaves)
	if err := second.Wait(); err != nil {
		return err
	}
	for last := int64(-1); ctx.Err() == nil; time.Sleep(step) { // until nothing more comes
		d.mu.Lock()
		n := int64(len(d.handled))
		d.mu.Unlock()
		if n == last {
			break
		}
		last = n
	}
	all.Cancel(errMemberLeaves)
	return all.Wait()
}

var errMemberLeaves = fmt.Errorf("the member leaves")

// member handles records until ctx ends.
func (d *groupDemo) member(ctx context.Context, name string) error {
	c, err := cluster.Connect(ctx, d.cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	m, err := consumer.New(c, consumer.Config{Group: consumer.GroupConfig{
		ID: d.topic, Topics: []string{d.topic}, HeartbeatInterval: 100 * time.Millisecond,
		OnAssigned: func(_ *consumer.Consumer, at map[kafka.TopicPartition]kafka.Commit) { d.take(name, at) },
		OnRevoked:  func(_ *consumer.Consumer, tps []kafka.TopicPartition) { d.give(name, tps) },
		OnLost:     func(_ *consumer.Consumer, tps []kafka.TopicPartition, _ error) { d.give(name, tps) },
	}})
	if err != nil {
		return err
	}
	d.tell("member %s comes", name)
	err = m.Run(ctx, func(_ context.Context, b consumer.Batch) error {
		d.mu.Lock()
		defer d.mu.Unlock()
		for _, r := range b.Records() {
			d.handled[string(r.Value)]++
		}
		return nil
	})
	d.tell("member %s leaves", name)
	return err
}

func (d *groupDemo) take(name string, at map[kafka.TopicPartition]kafka.Commit) {
	d.mu.Lock()
	for tp := range at {
		if d.owners[tp] != "" {
			d.double++
		}
		d.owners[tp] = name
	}
	var mine []string
	for tp, owner := range d.owners {
		if owner == name {
			mine = append(mine, fmt.Sprint(tp.Partition))
		}
	}
	d.mu.Unlock()
	slices.Sort(mine)
	d.tell("member %s has partitions %s", name, strings.Join(mine, " "))
}

func (d *groupDemo) give(name string, tps []kafka.TopicPartition) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, tp := range tps {
		if d.owners[tp] == name {
			delete(d.owners, tp)
		}
	}
}

func (d *groupDemo) tell(format string, args ...any) {
	select {
	case d.news <- fmt.Sprintf(format, args...):
	default:
	}
}

func (d *groupDemo) result(produced int64) *demoGroups {
	d.mu.Lock()
	defer d.mu.Unlock()
	g := &demoGroups{Members: 3, Handled: int64(len(d.handled)), Lost: produced - int64(len(d.handled)), DoubleOwned: d.double}
	for _, n := range d.handled {
		g.Duplicated += n - 1
	}
	return g
}
