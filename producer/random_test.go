package producer

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/model/serve"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// seeds is how many random schedules a test runs: OTTLA_T10_SEEDS, or a few.
func seeds(t *testing.T, few int) int {
	if s := os.Getenv("OTTLA_T10_SEEDS"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	return few
}

// turmoil does harm to a cluster: requests and answers are lost, some come late a
// second time, brokers die and come back, partitions and coordinators move.
type turmoil struct {
	r   *txRig
	mu  sync.Mutex
	rng *rand.Rand // guarded by mu
}

func newTurmoil(r *txRig, seed uint64) *turmoil {
	return &turmoil{r: r, rng: rand.New(rand.NewPCG(seed, 99))}
}

func (c *turmoil) n(limit int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rng.IntN(limit)
}

func (c *turmoil) ms(limit int) time.Duration { return time.Duration(1+c.n(limit)) * time.Millisecond }

// faults harms a request of the producer's now and then.
func (c *turmoil) faults(q *sim.Request) serve.Fault {
	if q.Key != keyProduce && (q.Key < keyInit || q.Key > keyOffsets) {
		return serve.Fault{}
	}
	f := serve.Fault{Delay: c.ms(20)}
	switch c.n(12) {
	case 0:
		f.Mute = true
	case 1:
		f.Lost = true
	case 2:
		f.Mute, f.Again = true, c.ms(8000)
	case 3:
		f.Lost, f.Again = true, c.ms(8000)
	}
	return f
}

// run moves and kills until ctx ends, and leaves everything healthy.
func (c *turmoil) run(ctx context.Context) {
	c.r.s.SetFaults(c.faults)
	for ctx.Err() == nil {
		node := int32(1 + c.n(3))
		switch c.n(3) {
		case 0:
			c.r.s.Kill(node)
			_ = task.Sleep(ctx, c.ms(3000))
			c.r.s.Revive(node)
		case 1:
			tp := kafka.TopicPartition{Topic: "t", Partition: int32(c.n(3))}
			c.r.s.Model(func(m *model.Cluster) { m.MoveLeader(tp, kafka.NodeID(node)) })
		default:
			key := []string{"id", "g"}[c.n(2)]
			c.r.s.Model(func(m *model.Cluster) { m.MoveCoordinator(key, kafka.NodeID(node)) })
		}
		_ = task.Sleep(ctx, c.ms(1500))
	}
	c.r.s.SetFaults(nil)
}

// logged is how often each value is in the logs, and what became of it.
func (r *txRig) logged() (times map[string]int, fates map[string]model.Fate) {
	times, fates = map[string]int{}, map[string]model.Fate{}
	r.s.Model(func(m *model.Cluster) {
		for i := range int32(3) {
			for _, rec := range m.Records(kafka.TopicPartition{Topic: "t", Partition: i}) {
				times[string(rec.Value)]++
				fates[string(rec.Value)] = rec.Fate
			}
		}
	})
	return times, fates
}

// written is what callers were told of each record.
type written struct {
	mu  sync.Mutex
	err map[string]error // guarded by mu
}

func (w *written) note(v string, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.err[v] = err
}

// judge holds what was told against the logs: done is there once, not done is
// not there, unknown is there once at most.
func (w *written) judge(times map[string]int) error {
	var errs []error
	for v, err := range w.err {
		n := times[v]
		switch {
		case n > 1:
			errs = append(errs, fmt.Errorf("%q is in the log %d times", v, n))
		case err == nil && n == 0:
			errs = append(errs, fmt.Errorf("%q is acknowledged and not in the log", v))
		case err != nil && !kafka.MayHaveHappened(err) && n > 0:
			errs = append(errs, fmt.Errorf("%q has not happened and is in the log: %w", v, err))
		}
	}
	for v := range times {
		if _, ok := w.err[v]; !ok {
			errs = append(errs, fmt.Errorf("%q is in the log and nobody knows what of it", v))
		}
	}
	return errors.Join(errs...)
}

// TestT10IdempotentOutcomesAreHonestOnRandomSchedules runs the whole producer
// against a modelled cluster in trouble. The mutations that make it fail: a
// batch in doubt sent under another epoch (twice in the log); its sequences given
// to the next batch (acknowledged, not there); a lost answer taken for a refusal
// (not done, and there).
func TestT10IdempotentOutcomesAreHonestOnRandomSchedules(t *testing.T) {
	for seed := range seeds(t, 20) {
		inTxBubble(t, 2, func(r *txRig) {
			c := newTurmoil(r, uint64(seed))
			p := r.producer(func(cfg *Config) {
				cfg.TransactionalID = ""
				cfg.DeliveryTimeout = []time.Duration{300 * time.Millisecond, 3 * time.Second, time.Minute}[c.n(3)]
				cfg.Linger = NoLinger
			})
			ctx, cancel := context.WithTimeout(r.ctx, 30*time.Second)
			defer cancel()
			told := written{err: map[string]error{}}
			var all sync.WaitGroup
			all.Go(func() { c.run(ctx) })
			for w := range 3 {
				all.Go(func() {
					for n := 0; ctx.Err() == nil; n++ {
						v := fmt.Sprintf("%d/%d", w, n)
						rc, err := p.Append(r.ctx, kafka.Record{Topic: "t", Partition: int32(c.n(3)), Value: []byte(v)})
						if err != nil {
							told.note(v, err)
							continue
						}
						all.Go(func() { told.note(v, second(rc.Wait(r.ctx))) })
						_ = task.Sleep(ctx, c.ms(200))
					}
				})
			}
			all.Wait()
			time.Sleep(time.Minute) // late copies, and the longest backoff
			_, err := p.Send(r.ctx, kafka.Record{Topic: "t", Value: []byte("last")})
			if err != nil {
				t.Errorf("seed %d: a record on a healthy cluster: %v", seed, err)
			}
			told.note("last", err)
			times, _ := r.logged()
			if err := told.judge(times); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
		if t.Failed() {
			return
		}
	}
}

// txStory is one transaction as its user knows it.
type txStory struct {
	values  []string
	offset  kafka.Offset // of the group, 0 if it has none
	commits []error
	aborts  []error
}

// TestT10_P42_P45TransactionsAreHonestOnRandomSchedules is the same for
// transactions: what Commit says is so for everything in it, what was aborted
// never becomes visible, and what is unknown is found out by Abort. The
// mutations are those of the test of the rules beside the machine, and a record
// that slips into the next transaction.
func TestT10_P42_P45TransactionsAreHonestOnRandomSchedules(t *testing.T) {
	for seed := range seeds(t, 20) {
		inTxBubble(t, int16(1+seed%2), func(r *txRig) {
			if err := r.randomTransactions(uint64(seed)); err != nil {
				t.Errorf("seed %d: %v", seed, err)
			}
		})
		if t.Failed() {
			return
		}
	}
}

func (r *txRig) randomTransactions(seed uint64) error {
	c := newTurmoil(r, seed)
	open := func() *Producer {
		return r.producer(func(cfg *Config) {
			cfg.DeliveryTimeout = []time.Duration{time.Second, 10 * time.Second}[c.n(2)]
			cfg.TransactionTimeout = 20 * time.Second
		})
	}
	p := open()
	ctx, cancel := context.WithTimeout(r.ctx, 2*time.Minute)
	defer cancel()
	told := written{err: map[string]error{}}
	var stories []*txStory
	var all sync.WaitGroup
	all.Go(func() { c.run(ctx) })
	for ctx.Err() == nil {
		s := &txStory{}
		stories = append(stories, s)
		if err := r.randomTransaction(c, p, len(stories), s, &told); errors.Is(err, kafka.ErrFenced) {
			_ = p.Close() // only a new one can go on
			p = open()
		}
	}
	all.Wait()
	if err := r.lastTransaction(p, open, &told); err != nil {
		return err
	}
	time.Sleep(2 * time.Minute) // late copies, markers, timeouts
	times, fates := r.logged()
	errs := []error{told.judge(times)}
	for i, s := range stories {
		errs = append(errs, r.judgeStory(i+1, s, times, fates, &told))
	}
	return errors.Join(errs...)
}

// randomTransaction is one transaction of a user who does not give up easily.
func (r *txRig) randomTransaction(c *turmoil, p *Producer, n int, s *txStory, told *written) error {
	tx, err := p.Begin(r.within(time.Minute))
	if err != nil {
		time.Sleep(c.ms(50))
		if errors.Is(err, ErrOpen) { // its user has left it alone
			_ = p.last.Load().Abort(r.within(time.Minute))
		}
		return err
	}
	var receipts sync.WaitGroup
	defer receipts.Wait()
	for i := range c.n(6) {
		v := fmt.Sprintf("%d/%d", n, i)
		s.values = append(s.values, v)
		rc, err := tx.Append(r.ctx, kafka.Record{Topic: "t", Partition: int32(c.n(3)), Value: []byte(v)})
		if err != nil {
			told.note(v, err)
			continue
		}
		receipts.Go(func() { told.note(v, second(rc.Wait(r.ctx))) })
		if c.n(4) == 0 {
			time.Sleep(c.ms(300))
		}
	}
	if c.n(3) == 0 {
		at := map[kafka.TopicPartition]kafka.Commit{{Topic: "in"}: {Offset: kafka.Offset(n)}}
		if tx.SendOffsets(r.within(c.ms(20_000)), kafka.GroupMetadata{Group: "g", Generation: -1}, at) == nil {
			s.offset = kafka.Offset(n)
		}
	}
	if c.n(25) == 0 {
		time.Sleep(35 * time.Second) // the coordinator gives up on it
	}
	if c.n(4) > 0 {
		err := tx.Commit(r.within(c.ms(20_000)))
		s.commits = append(s.commits, err)
		if err == nil || errors.Is(err, kafka.ErrFenced) {
			return err
		}
	}
	for c.n(4) > 0 { // now and then the next Begin has to find out
		err := tx.Abort(r.within(c.ms(20_000)))
		s.aborts = append(s.aborts, err)
		if err == nil || errors.Is(err, ErrCommitted) || errors.Is(err, kafka.ErrFenced) || errors.Is(err, kafka.ErrNoTransaction) {
			return err
		}
	}
	return nil
}

// lastTransaction demands that one goes through on a healthy cluster, of a new
// producer if need be.
func (r *txRig) lastTransaction(p *Producer, open func() *Producer, told *written) error {
	var err error
	for try := range 10 {
		v := fmt.Sprintf("last/%d", try)
		err = func() error {
			if tx := p.last.Load(); tx != nil {
				_ = tx.Abort(r.ctx)
			}
			tx, err := p.Begin(r.within(time.Minute))
			if err != nil {
				return err
			}
			err = r.send(tx, 0, v)
			told.note(v, err)
			return errors.Join(err, tx.Commit(r.ctx))
		}()
		if err == nil {
			return nil
		}
		if errors.Is(err, kafka.ErrFenced) {
			p = open()
		}
	}
	return fmt.Errorf("no transaction goes through on a healthy cluster: %w", err)
}

// judgeStory holds what the user knows of a transaction against the logs.
func (r *txRig) judgeStory(n int, s *txStory, times map[string]int, fates map[string]model.Fate, told *written) error {
	committed, there, holes := 0, 0, 0
	for _, v := range s.values {
		if told.err[v] != nil {
			holes++
		}
		there += times[v]
		if times[v] > 0 && fates[v] == model.Committed {
			committed++
		}
	}
	yes, no, open := false, len(s.commits) == 0, false
	for _, err := range s.commits {
		yes = yes || err == nil
		open = open || err != nil && kafka.MayHaveHappened(err)
		no = no || err != nil && !kafka.MayHaveHappened(err)
	}
	for _, err := range s.aborts {
		yes = yes || errors.Is(err, ErrCommitted)
		no = no || err == nil
	}
	switch {
	case committed > 0 && committed < there:
		return fmt.Errorf("transaction %d is committed in part: %d of %d records", n, committed, there)
	case yes && holes > 0:
		return fmt.Errorf("transaction %d is committed around %d holes", n, holes)
	case yes && committed < there:
		return fmt.Errorf("transaction %d was reported committed and is not: %v, %v", n, s.commits, s.aborts)
	case no && !yes && committed > 0:
		return fmt.Errorf("transaction %d was reported not committed and is: %v, %v", n, s.commits, s.aborts)
	case yes && no && !open:
		return fmt.Errorf("transaction %d was reported both: %v, %v", n, s.commits, s.aborts)
	}
	return nil
}
