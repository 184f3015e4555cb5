package cli

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

const (
	demoProducers  = 2
	demoConsumers  = 2
	demoPartitions = 6
	demoBurst      = 40 // records that a producer appends every 10 ms
)

// demoResult is the outcome of the records part.
type demoResult struct {
	demoRecords
	disordered int64
}

func (r *demoResult) ok() bool {
	return r.Lost == 0 && r.Duplicated == 0 && r.disordered == 0 && r.Produced > 0
}

// recordsDemo is the records part at work.
type recordsDemo struct {
	app    *app
	cfg    cluster.Config
	cutter *cutter
	topic  string

	appended, acked, read atomic.Int64

	mu       sync.Mutex
	writtenN [demoProducers]map[uint64]bool // guarded by mu: sequence numbers that were acknowledged
	seen     [demoProducers]map[uint64]int  // guarded by mu: how often each was read
	newest   map[laneKey]uint64             // guarded by mu
	disorder int64                          // guarded by mu
	ends     map[int32]kafka.Offset         // guarded by mu; nil until the producers have ended
}

// laneKey is the records of one producer in one partition, which must come in
// order.
type laneKey struct {
	producer  int
	partition int32
}

// runRecordsDemo runs the part on a topic of its own.
func runRecordsDemo(ctx context.Context, a *app, cfg cluster.Config, view *demoView) (*demoResult, error) {
	d := &recordsDemo{app: a, cfg: cfg, cutter: newCutter(), topic: demoTopic(), newest: map[laneKey]uint64{}}
	for i := range demoProducers {
		d.writtenN[i], d.seen[i] = map[uint64]bool{}, map[uint64]int{}
	}
	d.cfg.Dial = d.cutter.dial
	admin, err := cluster.Connect(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer admin.Close()
	c := &client{Cluster: admin}
	drop, err := makeOwnTopic(ctx, a, c, d.topic, demoPartitions)
	if err != nil {
		return nil, err
	}
	defer drop()
	view.event("cluster of %s, topic %s with %d partitions", count(int64(len(admin.Brokers())), "broker"), d.topic, demoPartitions)

	tasks := task.New(ctx)
	producing := task.New(tasks.Context())
	for i := range demoProducers {
		producing.Go(func(ctx context.Context) error { return d.produce(ctx, i) })
	}
	for i := range demoConsumers {
		tasks.Go(func(ctx context.Context) error { return d.consume(ctx, i) })
	}
	done := make(chan error, 1)
	tasks.Go(func(ctx context.Context) error {
		err := producing.Wait()
		if err == nil {
			err = d.learnEnds(ctx, c)
		}
		return err
	})
	a.tasks.Go(func(context.Context) error { done <- tasks.Wait(); return nil })
	if err := d.watch(ctx, admin.Brokers(), view, done); err != nil {
		return nil, err
	}
	return d.result(), nil
}

// produce appends records for demoWork and waits for their results.
func (d *recordsDemo) produce(ctx context.Context, me int) error {
	c, err := cluster.Connect(ctx, d.cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	p, err := producer.New(c, producer.Config{DeliveryTimeout: demoLimit - demoWork})
	if err != nil {
		return err
	}
	defer p.Close()
	results := task.New(ctx)
	receipts := make(chan producer.Receipt, 1<<16)
	results.Go(func(ctx context.Context) error { return d.await(ctx, me, receipts) })
	err = d.append(ctx, p, me, receipts)
	close(receipts)
	if err == nil {
		err = p.Flush(ctx)
	}
	if waitErr := results.Wait(); err == nil {
		err = waitErr
	}
	return err
}

// append writes bursts of numbered records until the work is over.
func (d *recordsDemo) append(ctx context.Context, p *producer.Producer, me int, receipts chan<- producer.Receipt) error {
	end := time.Now().Add(demoWork)
	for seq := uint64(0); time.Now().Before(end); {
		for range demoBurst {
			value := binary.BigEndian.AppendUint64([]byte{byte(me)}, seq)
			r, err := p.Append(ctx, kafka.Record{Topic: d.topic, Key: fmt.Appendf(nil, "key-%d", seq%97), Value: value})
			if err != nil {
				return err
			}
			receipts <- r
			seq++
			d.appended.Add(1)
		}
		if err := task.Sleep(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// await notes which records are written. Receipts come in order of their
// numbers.
func (d *recordsDemo) await(ctx context.Context, me int, receipts <-chan producer.Receipt) error {
	seq := uint64(0)
	for r := range receipts {
		if _, err := r.Wait(ctx); err != nil {
			return fmt.Errorf("record %d of producer %d: %w", seq, me, err)
		}
		d.mu.Lock()
		d.writtenN[me][seq] = true
		d.mu.Unlock()
		d.acked.Add(1)
		seq++
	}
	return nil
}

// learnEnds asks where the partitions end after everything is written.
func (d *recordsDemo) learnEnds(ctx context.Context, c *client) error {
	infos, err := existing(ctx, c, []string{d.topic})
	if err != nil {
		return err
	}
	found, err := listOffsets(ctx, c, infos[0], admin.Latest, admin.ReadUncommitted)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ends = map[int32]kafka.Offset{}
	for p, at := range found {
		d.ends[p] = kafka.Offset(at.Offset)
	}
	return nil
}

// consume reads its share of the partitions until all ends are reached.
func (d *recordsDemo) consume(ctx context.Context, me int) error {
	c, err := cluster.Connect(ctx, d.cfg)
	if err != nil {
		return err
	}
	defer c.Close()
	in, err := consumer.New(c, consumer.Config{})
	if err != nil {
		return err
	}
	defer in.Close()
	at := map[kafka.TopicPartition]consumer.Start{}
	next := map[int32]kafka.Offset{}
	for p := int32(me); p < demoPartitions; p += demoConsumers {
		at[kafka.TopicPartition{Topic: d.topic, Partition: p}] = consumer.Earliest()
		next[p] = 0
	}
	if err := in.Assign(ctx, at); err != nil {
		return err
	}
	for !d.reached(next) {
		batches, err := pollFor(ctx, in, 100*time.Millisecond)
		if err != nil {
			return err
		}
		for i := range batches {
			d.note(&batches[i], next)
		}
	}
	return nil
}

// note counts the records of a batch.
func (d *recordsDemo) note(b *consumer.Batch, next map[int32]kafka.Offset) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for offset, r := range b.Records() {
		next[r.Partition] = kafka.Offset(offset) + 1
		if len(r.Value) != 9 || int(r.Value[0]) >= demoProducers {
			d.disorder++
			continue
		}
		from, seq := int(r.Value[0]), binary.BigEndian.Uint64(r.Value[1:])
		key := laneKey{from, r.Partition}
		if last, ok := d.newest[key]; ok && seq <= last {
			if d.seen[from][seq] == 0 {
				d.disorder++
			}
		} else {
			d.newest[key] = seq
		}
		d.seen[from][seq]++
		d.read.Add(1)
	}
}

// reached reports whether the partitions are read to their ends.
func (d *recordsDemo) reached(next map[int32]kafka.Offset) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ends == nil {
		return false
	}
	for p, offset := range next {
		if offset < d.ends[p] {
			return false
		}
	}
	return true
}

// watch draws the view and cuts the connections of one broker after the other.
func (d *recordsDemo) watch(ctx context.Context, brokers []kafka.Broker, view *demoView, done <-chan error) error {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	began := time.Now()
	plan := demoCuts(brokers)
	down := ""
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
		}
		for len(plan) > 0 && time.Since(began) >= plan[0].at {
			step := plan[0]
			plan = plan[1:]
			if step.back {
				d.cutter.restore(step.addr)
				view.event("broker %d: its connections may come back", step.id)
				down = ""
			} else {
				n := d.cutter.cutOff(step.addr)
				view.event("broker %d: %s cut", step.id, count(int64(n), "connection"))
				down = fmt.Sprintf(" · broker %d is cut off", step.id)
			}
		}
		appended, acked, read := d.appended.Load(), d.acked.Load(), d.read.Load()
		view.state([]string{fmt.Sprintf("%s appended %d, acknowledged %d", count(demoProducers, "producer"), appended, acked),
			fmt.Sprintf("%s read %d, behind by %d%s", count(demoConsumers, "consumer"), read, max(0, acked-read), down)})
	}
}

// demoCut is one step of the plan.
type demoCut struct {
	at   time.Duration
	back bool
	id   kafka.NodeID
	addr string
}

// demoCuts plans cuts of two brokers, one after the other.
func demoCuts(brokers []kafka.Broker) []demoCut {
	var plan []demoCut
	for i, b := range brokers[:min(2, len(brokers))] {
		at := time.Duration(i)*2200*time.Millisecond + 1200*time.Millisecond
		plan = append(plan, demoCut{at: at, id: b.ID, addr: b.Addr()},
			demoCut{at: at + 1200*time.Millisecond, back: true, id: b.ID, addr: b.Addr()})
	}
	return plan
}

// result compares what was acknowledged with what was read.
func (d *recordsDemo) result() *demoResult {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := &demoResult{disordered: d.disorder}
	for i := range demoProducers {
		r.Produced += int64(len(d.writtenN[i]))
		r.Consumed += int64(len(d.seen[i]))
		for _, seq := range slices.Sorted(maps.Keys(d.writtenN[i])) {
			if d.seen[i][seq] == 0 {
				r.Lost++
			}
		}
		for _, times := range d.seen[i] {
			r.Duplicated += int64(times - 1)
		}
	}
	return r
}
