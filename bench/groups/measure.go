package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/benchmark"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// measurement gives a figure for each of its rows.
type measurement struct {
	rows    []string
	measure func(ctx context.Context, client, addr string) ([]float64, error)
}

var measurements = []measurement{
	{[]string{"from join to the first record, alone in the group, ms"}, firstRecord},
	{[]string{"a third member joins: longest pause of a partition that stays, ms", "of a partition that moves, ms"}, joining},
	{[]string{"rolling restart of 3 members: records handled again", "records lost", "longest pause of a partition, ms"}, restart},
	{[]string{"a member is killed: take-over beyond the session timeout of 6 s, ms"}, killed},
	{[]string{"CPU for a record of 128 B, ns"}, cpu},
}

const (
	wide    = 60 // partitions
	session = 6 * time.Second

	patience = 2 * time.Minute // with one thing that is waited for
)

var topics atomic.Int64

// world is a topic with a producer.
type world struct {
	client *cluster.Cluster
	p      *producer.Producer
	s      setting
	w      *watch
	stop   func() []int64 // the load: how many records each partition has
}

func newWorld(ctx context.Context, addr string, partitions int) (*world, error) {
	c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(addr, ",")})
	if err != nil {
		return nil, err
	}
	name := fmt.Sprintf("groups-%d-%d", time.Now().UnixNano(), topics.Add(1))
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(partitions), 1
	req.Topics = append(req.Topics, t)
	if _, err := c.Request(ctx, req); err != nil {
		return nil, err
	}
	p, err := producer.New(c, producer.Config{Partitioner: producer.Manual, Linger: -1})
	if err != nil {
		return nil, err
	}
	w := newWatch(partitions)
	return &world{client: c, p: p, w: w, s: setting{addr: addr, group: name, topic: name, session: session, heartbeat: session / 3, handle: w.handle}}, nil
}

func (o *world) close() {
	_ = o.p.Close()
	_ = o.client.Close()
}

// load writes one record to each partition every 20 ms.
func (o *world) load(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	counts := make([]int64, len(o.w.seen))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for tick := time.NewTicker(20 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			for p := range counts {
				if _, err := o.p.Append(context.Background(), kafka.Record{Topic: o.s.topic, Partition: int32(p), Value: []byte("v")}); err == nil {
					counts[p]++
				}
			}
		}
		_ = o.p.Flush(context.Background())
	}()
	o.stop = func() []int64 {
		cancel()
		<-done
		return counts
	}
}

// members starts so many, and waits until every partition is read.
func (o *world) members(ctx context.Context, client string, n int) (ms []member, err error) {
	for range n {
		m, err := join[client](o.s)
		if err != nil {
			return ms, err
		}
		ms = append(ms, m)
		if err := o.flows(ctx); err != nil {
			return ms, err
		}
	}
	return ms, nil
}

// flows waits until every partition has been read for a while after now.
func (o *world) flows(ctx context.Context) error {
	time.Sleep(5 * time.Second) // joins come in rounds
	from := time.Now()
	return o.w.until(ctx, func() bool {
		for _, at := range o.w.last {
			if !at.After(from) {
				return false
			}
		}
		return true
	})
}

func firstRecord(ctx context.Context, client, addr string) ([]float64, error) {
	o, err := newWorld(ctx, addr, 6)
	if err != nil {
		return nil, err
	}
	defer o.close()
	if _, err := o.p.Send(ctx, kafka.Record{Topic: o.s.topic, Value: []byte("v")}); err != nil {
		return nil, err
	}
	began := time.Now()
	m, err := join[client](o.s)
	if err != nil {
		return nil, err
	}
	defer m.close()
	err = o.w.until(ctx, func() bool { return o.w.n > 0 })
	return []float64{ms(time.Since(began))}, err
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// joining has a third member join two that read under load.
func joining(ctx context.Context, client, addr string) ([]float64, error) {
	o, err := newWorld(ctx, addr, wide)
	if err != nil {
		return nil, err
	}
	defer o.close()
	o.load(ctx)
	defer o.stop()
	members, err := o.members(ctx, client, 2)
	defer closeAll(&members)
	if err != nil {
		return nil, err
	}
	moved := make([]atomic.Bool, wide)
	third := o.s
	third.handle = func(p int32, off int64) {
		moved[p].Store(true)
		o.w.handle(p, off)
	}
	o.w.reset()
	m, err := join[client](third)
	if err != nil {
		return nil, err
	}
	members = append(members, m)
	if err := o.w.until(ctx, func() bool {
		n := 0
		for p := range moved {
			if moved[p].Load() {
				n++
			}
		}
		return n >= wide/4
	}); err != nil {
		return nil, err
	}
	if err := o.flows(ctx); err != nil {
		return nil, err
	}
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	var stay, move time.Duration
	for p, gap := range o.w.gaps {
		if moved[p].Load() {
			move = max(move, gap)
		} else {
			stay = max(stay, gap)
		}
	}
	return []float64{ms(stay), ms(move)}, nil
}

func closeAll(members *[]member) {
	for _, m := range *members {
		m.close()
	}
}

// restart ends each of three members in order and starts the next one.
func restart(ctx context.Context, client, addr string) ([]float64, error) {
	o, err := newWorld(ctx, addr, wide)
	if err != nil {
		return nil, err
	}
	defer o.close()
	o.load(ctx)
	members, err := o.members(ctx, client, 3)
	defer closeAll(&members)
	if err != nil {
		o.stop()
		return nil, err
	}
	o.w.reset()
	for i := range members {
		members[i].close()
		next, err := join[client](o.s)
		if err != nil {
			members = slices.Delete(members, i, i+1)
			o.stop()
			return nil, err
		}
		members[i] = next
		if err := o.flows(ctx); err != nil {
			o.stop()
			return nil, err
		}
	}
	counts := o.stop()
	_ = o.w.until(ctx, func() bool { return o.lost(counts) == 0 })
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	again, longest := 0, time.Duration(0)
	for p := range o.w.seen {
		for _, n := range o.w.seen[p] {
			again += n - 1
		}
		longest = max(longest, o.w.gaps[p])
	}
	return []float64{float64(again), float64(o.lost(counts)), ms(longest)}, nil
}

func (o *world) lost(counts []int64) (n int64) {
	for p, count := range counts {
		n += count - int64(len(o.w.seen[p]))
	}
	return n
}

// killed cuts one of two members off.
func killed(ctx context.Context, client, addr string) ([]float64, error) {
	o, err := newWorld(ctx, addr, wide)
	if err != nil {
		return nil, err
	}
	defer o.close()
	o.load(ctx)
	defer o.stop()
	members, err := o.members(ctx, client, 2)
	if err != nil {
		closeAll(&members)
		return nil, err
	}
	rest := members[1:]
	defer closeAll(&rest)
	o.w.reset()
	members[0].kill()
	time.Sleep(session / 2)
	if err := o.flows(ctx); err != nil {
		return nil, err
	}
	o.w.mu.Lock()
	defer o.w.mu.Unlock()
	longest := time.Duration(0)
	for _, gap := range o.w.gaps {
		longest = max(longest, gap)
	}
	return []float64{ms(longest - session)}, nil
}

// cpu reads a million records as the only member.
func cpu(ctx context.Context, client, addr string) ([]float64, error) {
	const n = 1_000_000
	o, err := newWorld(ctx, addr, 6)
	if err != nil {
		return nil, err
	}
	defer o.close()
	value := make([]byte, 128)
	for i := range n {
		if _, err := o.p.Append(ctx, kafka.Record{Topic: o.s.topic, Partition: int32(i % 6), Value: value}); err != nil {
			return nil, err
		}
	}
	if err := o.p.Flush(ctx); err != nil {
		return nil, err
	}
	var seen atomic.Int64
	done := make(chan struct{})
	o.s.handle = func(int32, int64) {
		if seen.Add(1) == n {
			close(done)
		}
	}
	counted := make(chan time.Duration, 1)
	o.s.count, o.s.counted = n, func(cpu time.Duration) { counted <- cpu }
	before := benchmark.CPUTime()
	m, err := join[client](o.s)
	if err != nil {
		return nil, err
	}
	defer m.close()
	var spent time.Duration
	select {
	case <-done:
		spent = benchmark.CPUTime() - before
	case spent = <-counted:
	case <-time.After(patience):
		return nil, fmt.Errorf("%d of %d records within %v", seen.Load(), n, patience)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	return []float64{float64(spent) / n}, nil
}
