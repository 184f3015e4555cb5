package transact

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/producer"
)

// world is a cluster in memory in virtual time.
type world struct {
	t *testing.T
	k *ottlatest.Cluster
	c *cluster.Cluster
}

func inWorld(t *testing.T, f func(ctx context.Context, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		k, err := ottlatest.Start(ottlatest.Config{InMemory: true, Seed: 7, Topics: map[string]int{"in": 4, "other": 4, "out": 4, "late-in": 4, "late-out": 4}, Journal: 100000})
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		w := &world{t: t, k: k}
		w.c = w.connect(ctx)
		defer w.c.Close()
		f(ctx, w)
	})
}

func (w *world) connect(ctx context.Context) *cluster.Cluster {
	w.t.Helper()
	c, err := cluster.Connect(ctx, w.k.ClientConfig()) // each has a seed of its own, and so its own member ids
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// feed produces the numbers from lo to hi-1.
func feed(ctx context.Context, t *testing.T, c *cluster.Cluster, topic string, lo, hi int) {
	t.Helper()
	p, err := producer.New(c, producer.Config{Partitioner: producer.Manual, DeliveryTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var rs []kafka.Record
	for i := lo; i < hi; i++ {
		rs = append(rs, kafka.Record{Topic: topic, Partition: int32(i % 4), Value: []byte(fmt.Sprint(i))})
	}
	if _, err := p.Send(ctx, rs...); err != nil {
		t.Fatal(err)
	}
}

// configured is a runner's configuration.
func configured(group, id, topic string, protocol kafka.GroupKind) Config {
	return Config{
		Consumer: consumer.Config{Group: consumer.GroupConfig{ID: group, Topics: []string{topic}, Protocol: protocol, SessionTimeout: 6 * time.Second}},
		Producer: producer.Config{TransactionalID: id, TransactionTimeout: 20 * time.Second},
		Interval: 50 * time.Millisecond, MaxRecords: 50,
	}
}

// copying is a handler that writes every record to a topic.
func copying(topic string) Handler {
	return func(ctx context.Context, b consumer.Batch, tx *producer.Tx) error {
		for _, r := range b.Records() {
			if _, err := tx.Append(ctx, kafka.Record{Topic: topic, Key: []byte(fmt.Sprint(r.Partition)), Value: r.Value}); err != nil {
				return err
			}
		}
		return nil
	}
}

// verify reads the committed records of a topic until n different ones came, and
// fails if one came twice.
func verify(ctx context.Context, t *testing.T, c *cluster.Cluster, topic string, n int) {
	t.Helper()
	in, err := consumer.New(c, consumer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	at := map[kafka.TopicPartition]consumer.Start{}
	for p := range int32(4) {
		at[kafka.TopicPartition{Topic: topic, Partition: p}] = consumer.Earliest()
	}
	if err := in.Assign(ctx, at); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	for r, err := range in.Records(ctx) {
		if err != nil {
			t.Errorf("%d of %d: %v", len(seen), n, err)
			return // and no further: what runs is to be stopped
		}
		if seen[string(r.Value)]++; seen[string(r.Value)] > 1 {
			t.Errorf("%s is in the output twice", r.Value)
			return
		}
		if len(seen) == n {
			break
		}
	}
	short, cancel := context.WithTimeout(ctx, 3*time.Second)
	defer cancel()
	if bs, _ := in.Poll(short); len(bs) > 0 {
		t.Errorf("more than %d records are in the output", n)
	}
}

// started is a runner at work.
type started struct {
	r      *Runner
	client *cluster.Cluster
	cancel context.CancelFunc
	done   chan error
}

func start(ctx context.Context, t *testing.T, client *cluster.Cluster, cfg Config, h Handler) *started {
	t.Helper()
	r, err := New(client, cfg, h)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &started{r: r, client: client, cancel: cancel, done: make(chan error, 1)}
	go func() { s.done <- r.Run(ctx) }()
	return s
}

// stop ends the runner in order.
func (s *started) stop(t *testing.T) {
	t.Helper()
	s.cancel()
	if err := <-s.done; err != nil {
		t.Errorf("Run: %v", err)
	}
	s.client.Close()
}

// kill ends it as a crash would.
func (s *started) kill() {
	s.client.Close()
	s.cancel()
	<-s.done
}

// churn starts, stops and kills runners under load, and holds that the output is
// the input, once each.
func churn(ctx context.Context, t *testing.T, connect func() *cluster.Cluster, cfg func(id string) Config, rounds int, rng *rand.Rand) {
	t.Helper()
	c := connect()
	defer c.Close()
	topics := cfg("").Consumer.Group.Topics[0]
	out := topics[:len(topics)-2] + "out"
	h := copying(out)
	ids := []string{"one", "two", "three"}
	runners := map[string]*started{}
	begin := func(id string) { runners[id] = start(ctx, t, connect(), cfg(id), h) }
	for _, id := range ids {
		begin(id)
	}
	n := 0
	for range rounds {
		feed(ctx, t, c, topics, n, n+200)
		n += 200
		time.Sleep(time.Duration(300+rng.IntN(1200)) * time.Millisecond)
		id := ids[rng.IntN(len(ids))]
		if rng.IntN(2) == 0 {
			runners[id].kill()
		} else {
			runners[id].stop(t)
		}
		time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
		begin(id)
	}
	verify(ctx, t, c, out, n)
	for _, r := range runners {
		r.stop(t)
	}
}

// Mutation: SendOffsets with positions before the batch, or a rewind that is left
// out.
func TestG41G42G43OutputIsInputExactlyOnceWhileRunnersComeAndGo(t *testing.T) {
	for _, protocol := range []kafka.GroupKind{kafka.ClassicGroup, kafka.ConsumerGroup} {
		t.Run(protocol.String(), func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				churn(ctx, t, func() *cluster.Cluster { return w.connect(ctx) }, func(id string) Config {
					return configured("g", "tx-"+id, "in", protocol)
				}, 12, rand.New(rand.NewPCG(3, 4)))
			})
		})
	}
}

func TestG42AFailedHandlerAbortsAndEndsTheRunAndTheNextOneGoesOn(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		feed(ctx, t, w.c, "in", 0, 20)
		bad := errors.New("no luck")
		cp := copying("out")
		r, err := New(w.c, configured("g", "tx", "in", kafka.ClassicGroup), func(ctx context.Context, b consumer.Batch, tx *producer.Tx) error {
			if err := cp(ctx, b, tx); err != nil {
				return err
			}
			return bad
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Run(ctx); err != bad {
			t.Errorf("Run: %v", err)
		}
		if s := r.Stats(); s.Committed != 0 || s.Aborted != 1 {
			t.Errorf("stats %+v", s)
		}
		s := start(ctx, t, w.connect(ctx), configured("g", "tx", "in", kafka.ClassicGroup), cp)
		verify(ctx, t, w.c, "out", 20)
		s.stop(t)
	})
}

// The same records are handled again after a transaction that cannot be
// committed, and come out once.
func TestG42PositionsGoBackToWhatIsCommittedAfterAnAbort(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		feed(ctx, t, w.c, "in", 0, 40)
		w.k.Fail(28, 22, 1, 0) // the first TxnOffsetCommit: ILLEGAL_GENERATION
		s := start(ctx, t, w.connect(ctx), configured("g", "tx", "in", kafka.ClassicGroup), copying("out"))
		verify(ctx, t, w.c, "out", 40)
		if st := s.r.Stats(); st.Aborted == 0 || st.Records != 40 {
			t.Errorf("stats %+v", st)
		}
		s.stop(t)
	})
}

// What goes wrong with reading while a transaction collects is told like the rest.
// Mutation: an error of that poll that is dropped.
func TestG42AnErrorOfReadingInsideATransactionIsTold(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		feed(ctx, t, w.c, "in", 0, 4)
		var told bytes.Buffer // written by the runner's goroutine, read after its end
		cfg := configured("g", "tx", "in", kafka.ClassicGroup)
		cfg.Interval, cfg.Logger = 10*time.Second, slog.New(slog.NewTextHandler(&told, nil))
		begun := make(chan struct{}, 4)
		cp := copying("out")
		s := start(ctx, t, w.connect(ctx), cfg, func(ctx context.Context, b consumer.Batch, tx *producer.Tx) error {
			begun <- struct{}{}
			return cp(ctx, b, tx)
		})
		<-begun
		w.k.Fail(1, 29, 1, 0) // Fetch: TOPIC_AUTHORIZATION_FAILED
		time.Sleep(5 * time.Second)
		if c := s.r.Stats().Committed; c != 0 {
			t.Errorf("%d transactions are over: the error did not come inside of one", c)
		}
		time.Sleep(20 * time.Second)
		s.stop(t)
		if !strings.Contains(told.String(), "TOPIC_AUTHORIZATION_FAILED") {
			t.Errorf("the log: %s", &told)
		}
		verify(ctx, t, w.c, "out", 4)
	})
}

// Two processes with one transactional id: the one that began its last
// transaction later works on, the other one is over, at its next transaction. Each
// reads a topic of its own, so that it is known who begins one when. Mutation: a
// run that goes on after ErrFenced.
func TestG41TheNextRunnerWithAnIDFencesTheFirst(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		feed(ctx, t, w.c, "in", 0, 20)
		first := start(ctx, t, w.connect(ctx), configured("g1", "tx", "in", kafka.ClassicGroup), copying("out"))
		verify(ctx, t, w.c, "out", 20)

		feed(ctx, t, w.c, "other", 20, 40)
		second := start(ctx, t, w.connect(ctx), configured("g2", "tx", "other", kafka.ClassicGroup), copying("out"))
		verify(ctx, t, w.c, "out", 40)
		if len(first.done) > 0 {
			t.Fatalf("the first ended without a transaction: %v", <-first.done)
		}

		feed(ctx, t, w.c, "in", 40, 60)
		began := time.Now()
		if err := <-first.done; !errors.Is(err, kafka.ErrFenced) || time.Since(began) > time.Second {
			t.Errorf("the first ended after %v with %v", time.Since(began), err)
		}
		first.client.Close()
		feed(ctx, t, w.c, "other", 60, 80)
		time.Sleep(20 * time.Second)
		if s := second.r.Stats(); len(second.done) > 0 || s.Records != 40 {
			t.Errorf("the second is over, or did not do its work: %+v", s)
		}
		second.stop(t)
	})
}

func TestT7TransactConfigurationsThatCannotBeAreRefused(t *testing.T) {
	good := configured("g", "tx", "in", kafka.ClassicGroup)
	for name, change := range map[string]func(*Config){
		"commits":     func(c *Config) { c.Consumer.Group.Commits = consumer.CommitMarked },
		"uncommitted": func(c *Config) { c.Consumer.Isolation = consumer.ReadUncommitted },
		"no group":    func(c *Config) { c.Consumer.Group.ID = "" },
		"no id":       func(c *Config) { c.Producer.TransactionalID = "" },
		"negative":    func(c *Config) { c.Interval = -1 },
	} {
		cfg := good
		change(&cfg)
		if _, err := New(nil, cfg, nil); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// A partition that goes waits for the open transaction, which is committed.
// Mutation: an OnRevoked that does not wait.
func TestG43ARevocationWaitsForTheOpenTransaction(t *testing.T) {
	for _, protocol := range []kafka.GroupKind{kafka.ClassicGroup, kafka.ConsumerGroup} {
		t.Run(protocol.String(), func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				feed(ctx, t, w.c, "in", 0, 40)
				cp := copying("out")
				slow := func(ctx context.Context, b consumer.Batch, tx *producer.Tx) error {
					time.Sleep(2 * time.Second)
					return cp(context.WithoutCancel(ctx), b, tx)
				}
				first := start(ctx, t, w.connect(ctx), configured("g", "tx-1", "in", protocol), slow)
				time.Sleep(time.Second)
				second := start(ctx, t, w.connect(ctx), configured("g", "tx-2", "in", protocol), slow)
				verify(ctx, t, w.c, "out", 40)
				if s := first.r.Stats(); s.Committed == 0 || s.Aborted > 1 {
					t.Errorf("stats of the first: %+v", s)
				}
				first.stop(t)
				second.stop(t)
			})
		})
	}
}

// A transaction that takes longer than a revocation may is not committed: others
// have read its records. Mutation: a token without the look at who owns what.
func TestG43ATransactionThatOverranItsRevocationIsAborted(t *testing.T) {
	for _, protocol := range []kafka.GroupKind{kafka.ClassicGroup, kafka.ConsumerGroup} {
		t.Run(protocol.String(), func(t *testing.T) {
			aborted := int64(0)
			for p := range int32(4) {
				aborted += overrun(t, protocol, p)
			}
			if aborted == 0 {
				t.Error("no partition with a transaction moved")
			}
		})
	}
}

// overrun has a runner work on records of one partition for longer than it may
// while another one joins, and tells how often it aborted.
func overrun(t *testing.T, protocol kafka.GroupKind, partition int32) (aborted int64) {
	inWorld(t, func(ctx context.Context, w *world) {
		p, err := producer.New(w.c, producer.Config{Partitioner: producer.Manual})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for i := range 10 {
			if _, err := p.Append(ctx, kafka.Record{Topic: "in", Partition: partition, Value: fmt.Append(nil, i)}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Flush(ctx); err != nil {
			t.Fatal(err)
		}
		cp := copying("out")
		slow := func(ctx context.Context, b consumer.Batch, tx *producer.Tx) error {
			time.Sleep(17 * time.Second)
			return cp(context.WithoutCancel(ctx), b, tx)
		}
		one, two := configured("g", "tx-1", "in", protocol), configured("g", "tx-2", "in", protocol)
		for _, c := range []*Config{&one, &two} {
			c.Consumer.Group.RebalanceTimeout, c.Consumer.Group.RevokeTimeout = 5*time.Second, time.Second
		}
		first := start(ctx, t, w.connect(ctx), one, slow)
		time.Sleep(time.Second)
		second := start(ctx, t, w.connect(ctx), two, cp)
		time.Sleep(30 * time.Second)
		verify(ctx, t, w.c, "out", 10)
		first.stop(t)
		second.stop(t)
		aborted = first.r.Stats().Aborted
	})
	return aborted
}
