//go:build kafka

package chaos

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

var brokers *realkafka.Cluster

func TestMain(m *testing.M) {
	os.Exit(sim.NoLeaks(func() int {
		return realkafka.Run(m, realkafka.Options{Brokers: 3, Props: map[string]string{
			"broker.heartbeat.interval.ms":             "500", // three brokers on a busy machine
			"broker.session.timeout.ms":                "3000",
			"min.insync.replicas":                      "2",
			"transaction.state.log.min.isr":            "2",
			"transaction.state.log.replication.factor": "3",
		}}, func(c *realkafka.Cluster) { brokers = c })
	}))
}

const (
	topic      = "chaos"
	partitions = 6
)

// length is how long faults go on.
func length(t *testing.T) time.Duration {
	s := os.Getenv("OTTLA_CHAOS")
	if s == "" {
		return 15 * time.Second
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// run is one test on the cluster.
type run struct {
	t    *testing.T
	c    *cluster.Cluster
	log  *slog.Logger
	book *book
	ctx  context.Context // ends with the test's patience
	wg   sync.WaitGroup
	stop chan struct{} // closed: writers end
}

func (r *run) stopped() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// Brokers are killed, paused and stopped, one at a time, while idempotent and
// transactional producers write and consumers of committed records read. What was
// acknowledged is read exactly once and in order, nothing of an aborted
// transaction is, no position is ever reset, and what is unknown is whole or not
// there.
func TestF10_F36_P7EveryAcknowledgedRecordExactlyOnce(t *testing.T) {
	d := length(t)
	ctx, cancel := context.WithTimeout(context.Background(), d+4*time.Minute)
	defer cancel()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(brokers.Bootstrap(), ","), Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	r := &run{t: t, c: c, log: log, book: newBook(), ctx: ctx, stop: make(chan struct{})}
	r.createTopic()
	for i := range 2 {
		r.wg.Go(func() { r.write(fmt.Sprint("p", i), []producer.Compression{producer.Snappy, producer.LZ4}[i]) })
		r.wg.Go(func() { r.transact(fmt.Sprint("tx", i)) })
	}
	var readers sync.WaitGroup
	defer func() {
		cancel()
		r.wg.Wait()
		readers.Wait()
	}()
	ends := make(chan map[kafka.TopicPartition]kafka.Offset, 2)
	polled, ranged := newSeen(), newSeen()
	readers.Go(func() { r.read(polled, ends, pollOnce) })
	readers.Go(func() { r.read(ranged, ends, rangeABit) })

	r.faults(d)
	close(r.stop)
	r.wg.Wait()
	end := r.end()
	ends <- end
	ends <- end
	readers.Wait()
	t.Logf("outcomes: %d done, %d not done, %d unknown", r.book.count()[done], r.book.count()[notDone], r.book.count()[unknown])
	if r.book.count()[done] < 500 {
		t.Error("next to nothing was written: the test shows nothing")
	}
	r.book.check(t, "polls", polled)
	r.book.check(t, "ranges", ranged)
	if t.Failed() {
		dump(t)
	}
}

// dump keeps what the brokers' logs hold, with -artifacts.
func dump(t *testing.T) {
	for p := range partitions {
		text, err := brokers.DumpLog(topic, p)
		if err == nil {
			err = os.WriteFile(filepath.Join(t.ArtifactDir(), fmt.Sprint(topic, "-", p)), []byte(text), 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

func (r *run) createTopic() {
	r.t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	rt := kmsg.NewCreateTopicsRequestTopic()
	rt.Topic, rt.NumPartitions, rt.ReplicationFactor = topic, partitions, 3
	req.Topics = append(req.Topics, rt)
	resp, err := r.c.Request(r.ctx, req)
	if err != nil {
		r.t.Fatal(err)
	}
	if code := resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode; code != 0 {
		r.t.Fatal(kerr.ErrorForCode(code))
	}
}

// faults makes one broker at a time unable to serve, in one way or another.
func (r *run) faults(d time.Duration) {
	seed := uint64(time.Now().UnixNano())
	if s, err := strconv.ParseUint(os.Getenv("OTTLA_CHAOS_SEED"), 10, 64); err == nil {
		seed = s
	}
	rng := rand.New(rand.NewPCG(seed, 1))
	r.t.Logf("OTTLA_CHAOS_SEED=%d", seed)
	began := time.Now()
	pause := func(least, most int) { time.Sleep(time.Duration(least+rng.IntN(most-least)) * time.Millisecond) }
	for n := 0; time.Since(began) < d; n++ {
		pause(500, 2500)
		id := rng.IntN(3) + 1
		kind := []string{"kill", "pause", "stop"}[rng.IntN(3)]
		r.t.Logf("%5.1f s: %s broker %d", time.Since(began).Seconds(), kind, id)
		fault, mend := brokers.Kill, func(id int) error { return brokers.Restart(id) }
		switch kind {
		case "pause":
			fault, mend = brokers.Pause, brokers.Resume
		case "stop":
			fault = brokers.Stop
		}
		if err := fault(id); err != nil { // one that is slow to end is killed
			r.t.Log(err)
		}
		pause(500, 6000)
		if err := mend(id); err != nil && brokers.Status()[id-1].State != "running" {
			r.t.Error(err)
			return
		}
	}
}

// sent is a record whose result is yet to come.
type sent struct {
	value   string
	receipt producer.Receipt
}

// write appends records until the run stops, and has a note made of what became
// of each.
func (r *run) write(name string, compression producer.Compression) {
	p, err := producer.New(r.c, producer.Config{Partitioner: producer.Manual, Compression: compression, Logger: r.log, Report: func(err error) {
		r.t.Errorf("%s: %v", name, err) // nothing acknowledged may be lost with two replicas in sync
	}})
	if err != nil {
		r.t.Error(err)
		return
	}
	defer p.Close()
	results := make(chan sent, 10_000)
	var noted sync.WaitGroup
	noted.Go(func() { r.note(results) })
	for n := 0; !r.stopped(); n++ {
		v := fmt.Sprintf("%s/%d/%d", name, n%partitions, n)
		receipt, err := p.Append(r.ctx, kafka.Record{Topic: topic, Partition: int32(n % partitions), Key: []byte("k"), Value: []byte(v)})
		if err != nil {
			r.t.Errorf("%s: %v", v, err)
			break
		}
		results <- sent{v, receipt}
		if n%10 == 0 {
			time.Sleep(20 * time.Millisecond)
		}
	}
	close(results)
	noted.Wait()
}

// note enters the results of records. What is unknown needs a reason: here only
// that the delivery time was over.
func (r *run) note(results <-chan sent) {
	for s := range results {
		res := s.receipt.Result(r.ctx)
		if r.ctx.Err() != nil {
			continue // the test is over
		}
		var late *kafka.TimeoutError
		switch {
		case res.Err == nil:
			r.book.note(s.value, done)
			continue
		case kafka.MayHaveHappened(res.Err):
			r.book.note(s.value, unknown)
		default:
			r.book.note(s.value, notDone)
		}
		if r.t.Logf("%s: %v", s.value, res.Err); !errors.As(res.Err, &late) {
			r.t.Errorf("%s failed, and not for want of time", s.value)
		}
	}
}

// read reads everything, with a consumer of its own, until the ends that come
// at last.
func (r *run) read(s *seen, ends <-chan map[kafka.TopicPartition]kafka.Offset, some func(context.Context, *consumer.Consumer, *seen) error) {
	cons, err := consumer.New(r.c, consumer.Config{OnReset: func(p consumer.PositionReset) {
		r.t.Errorf("%s was reset from %d to %d: %v", p.TopicPartition, p.Old, p.New, p.Reason)
	}})
	if err != nil {
		r.t.Error(err)
		return
	}
	defer cons.Close()
	at := map[kafka.TopicPartition]consumer.Start{}
	for p := range int32(partitions) {
		at[kafka.TopicPartition{Topic: topic, Partition: p}] = consumer.Earliest()
	}
	if err := cons.Assign(r.ctx, at); err != nil {
		r.t.Error(err)
		return
	}
	var end map[kafka.TopicPartition]kafka.Offset
	for r.ctx.Err() == nil {
		ctx, cancel := context.WithTimeout(r.ctx, time.Second)
		if err := some(ctx, cons, s); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			s.errs = append(s.errs, err)
		}
		cancel()
		select {
		case end = <-ends:
		default:
		}
		if end != nil && reached(r.ctx, cons, end) {
			return
		}
	}
	for tp, e := range end { // none if the test is over
		at, err := cons.Position(r.ctx, tp)
		lag, known := cons.Lag(tp)
		log, _ := cons.Log(tp)
		r.t.Errorf("%s: position %d (%v), the end is %d; lag %d (%v), log %+v", tp, at, err, e, lag, known, log)
	}
}

// reached reports whether all positions are at the end.
func reached(ctx context.Context, c *consumer.Consumer, end map[kafka.TopicPartition]kafka.Offset) bool {
	for tp, e := range end {
		if at, err := c.Position(ctx, tp); err != nil || at < e {
			return false
		}
	}
	return true
}

func pollOnce(ctx context.Context, c *consumer.Consumer, s *seen) error {
	batches, err := c.Poll(ctx)
	for _, b := range batches {
		for _, rec := range b.Records() {
			s.add(rec)
		}
	}
	return err
}

func rangeABit(ctx context.Context, c *consumer.Consumer, s *seen) error {
	n := 0
	for rec, err := range c.Records(ctx) {
		if err != nil {
			return err
		}
		s.add(rec)
		if n++; n == 777 {
			break
		}
	}
	return nil
}

// end is where the log of committed records ends when no transaction is open
// any more.
func (r *run) end() map[kafka.TopicPartition]kafka.Offset {
	cons, err := consumer.New(r.c, consumer.Config{Isolation: consumer.ReadUncommitted})
	if err != nil {
		r.t.Fatal(err)
	}
	defer cons.Close()
	var tps []kafka.TopicPartition
	for p := range int32(partitions) {
		tps = append(tps, kafka.TopicPartition{Topic: topic, Partition: p})
	}
	end, err := cons.End(r.ctx, tps...)
	if err != nil || len(end) != partitions {
		r.t.Fatal(end, err)
	}
	return end
}
