package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/leader"
	"github.com/ottla/ottla/producer"
)

// demoLeader counts what became of the role of the leader part.
type demoLeader struct {
	Handovers    int `json:"handovers"`
	FencedWrites int `json:"fenced_writes"`
	Overlaps     int `json:"overlaps"`
}

func (d *demoLeader) ok() bool {
	return d.Handovers == demoHandovers && d.FencedWrites == d.Handovers && d.Overlaps == 0
}

const (
	demoHandovers  = 2
	demoWrites     = 5                // of each leader
	demoLeaderTime = 15 * time.Second // the part, at most
)

// leaderDemo is two members that lead a role in turns. Each leader writes its
// term; when it has resigned, a write under its epoch is tried all the same.
type leaderDemo struct {
	role, topic string
	view        func(format string, args ...any)
	out         demoLeader
	written     int
}

// startLeaderDemo starts the part; what it returns waits for its end. It is not
// for clusters of others, where its topic would stay.
func startLeaderDemo(ctx context.Context, a *app, cfg cluster.Config, view *demoView) func() (*demoLeader, error) {
	if a.shared.bootstrap != "" {
		return func() (*demoLeader, error) { return nil, nil }
	}
	name := demoTopic()
	d := &leaderDemo{role: name, topic: name, view: view.event}
	part := task.New(ctx)
	part.Go(func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, demoLeaderTime)
		defer cancel()
		return d.run(ctx, cfg)
	})
	return func() (*demoLeader, error) {
		if err := part.Wait(); err != nil {
			return nil, err
		}
		return &d.out, nil
	}
}

func (d *leaderDemo) run(ctx context.Context, cfg cluster.Config) error {
	var members [2]*leader.Elector
	var cl *client
	for i, name := range []string{"first", "second"} {
		c, err := cluster.Connect(ctx, cfg)
		if err != nil {
			return err
		}
		defer c.Close()
		e, err := leader.Open(c, leader.Config{Member: name, Lease: 10 * time.Second})
		if err != nil {
			return err
		}
		defer e.Close()
		members[i], cl = e, &client{Cluster: c}
	}
	if _, err := makeTopics(ctx, cl, []string{d.topic}, newTopic{partitions: 1, replicas: -1}); err != nil {
		return err
	}
	t, err := members[0].Campaign(ctx, d.role)
	if err != nil {
		return err
	}
	d.view("leader: %s member leads in term %d", t.Member(), t.Number())
	for n := 1; ; n++ {
		if err := d.lead(ctx, t); err != nil {
			return err
		}
		if n > demoHandovers {
			break
		}
		next, err := d.handOver(ctx, t, members[n%2])
		if err != nil {
			return err
		}
		d.zombie(ctx, cl.Cluster, t)
		t = next
	}
	if err := t.Resign(ctx); err != nil {
		return err
	}
	return d.readBack(ctx, cl.Cluster)
}

// lead writes the term, as the application of a leader.
func (d *leaderDemo) lead(ctx context.Context, t *leader.Term) error {
	for range demoWrites {
		err := t.Transact(ctx, func(ctx context.Context, tx *producer.Tx) error {
			_, err := tx.Append(ctx, d.record(t))
			return err
		})
		if err != nil {
			return err
		}
		d.written++
	}
	return nil
}

func (d *leaderDemo) record(t *leader.Term) kafka.Record {
	return kafka.Record{Topic: d.topic, Value: fmt.Append(nil, t.Number())}
}

// handOver resigns, and waits for the other member to lead.
func (d *leaderDemo) handOver(ctx context.Context, t *leader.Term, to *leader.Elector) (next *leader.Term, err error) {
	campaign := task.New(ctx)
	campaign.Go(func(ctx context.Context) (err error) {
		next, err = to.Campaign(ctx, d.role)
		return err
	})
	err = task.Sleep(ctx, 200*time.Millisecond) // it is a candidate by then
	began := time.Now()
	err = errors.Join(err, t.Resign(ctx), campaign.Wait())
	if err != nil {
		return nil, err
	}
	d.out.Handovers++
	d.view("leader: %s member resigns, %s member leads in term %d after %d ms", t.Member(), next.Member(), next.Number(), time.Since(began).Milliseconds())
	return next, nil
}

// zombie writes under the epoch of a leader that resigned, as a process would
// that does not know it yet.
func (d *leaderDemo) zombie(ctx context.Context, c *cluster.Cluster, t *leader.Term) {
	p, err := producer.Bind(c, producer.Config{TransactionalID: d.role}, t.Token().ID, t.Token().Epoch, nobody{})
	if err != nil {
		return
	}
	defer p.Close()
	tx, err := p.Begin(ctx)
	if err == nil {
		_, err = tx.Send(ctx, d.record(t))
	}
	if err == nil {
		err = tx.Commit(ctx)
	}
	if errors.Is(err, kafka.ErrFenced) {
		d.out.FencedWrites++
		d.view("leader: a late write of term %d is refused by the brokers", t.Number())
	}
}

// nobody owns the identity of a zombie.
type nobody struct{}

func (nobody) Begin(context.Context) (time.Duration, error) { return time.Minute, nil }
func (nobody) Commit(context.Context) error                 { return nil }
func (nobody) End(producer.Ending)                          {}

// readBack counts the records that come after those of a later term.
func (d *leaderDemo) readBack(ctx context.Context, c *cluster.Cluster) error {
	r, err := consumer.New(c, consumer.Config{})
	if err != nil {
		return err
	}
	defer r.Close()
	at := map[kafka.TopicPartition]consumer.Start{{Topic: d.topic}: consumer.Earliest()}
	if err := r.Assign(ctx, at); err != nil {
		return err
	}
	n, last := 0, int64(-1)
	for rec, err := range r.Records(ctx) {
		var term int64
		if err == nil {
			_, err = fmt.Sscan(string(rec.Value), &term)
		}
		if err != nil {
			return err
		}
		if term < last {
			d.out.Overlaps++
		}
		last = max(last, term)
		if n++; n == d.written {
			break
		}
	}
	return ctx.Err()
}
