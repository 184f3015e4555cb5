package consumer

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/internal/core/group"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// FailurePolicy says what Run does with work whose handler goes on failing.
type FailurePolicy uint8

// The policies.
const (
	StopOnFailure       FailurePolicy = iota // Run ends with the error; the work is not finished
	SkipOnFailure                            // the work counts as finished, with an event
	DeadLetterOnFailure                      // RunConfig.DeadLetter takes it, then it counts as finished
)

// RunConfig says how [Consumer.Run] and [Consumer.RunRecords] work. The zero
// value is one worker for each partition, and an end with the first error.
type RunConfig struct {
	Workers    int // handlers that run at a time; 0 = one for each partition
	KeyWorkers int // RunRecords: records of one batch at a time, those of one key in order; 0 = 1

	Retries      int           // attempts after the first that failed
	RetryBackoff time.Duration // before the first of them, doubled up to 30 s; 0 = 100 ms
	OnFailure    FailurePolicy
	// DeadLetter puts work away that cannot be done, such as into another topic.
	// If it fails too, Run ends with its error and that of the work.
	DeadLetter func(ctx context.Context, f Failure) error
}

// Failure is work that a handler failed at.
type Failure struct {
	Batch    Batch
	Record   *kafka.Record // RunRecords: the record; nil in Run
	Attempts int
	Err      error // of the last attempt
}

// PanicError is a handler that panicked. Run ends with it, whatever the policy.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string {
	return fmt.Sprintf("ottla: a handler panicked: %v\n%s", e.Value, e.Stack)
}
func (*PanicError) MayHaveHappened() bool { return true }

func (r *RunConfig) check() error {
	switch {
	case r.Workers < 0 || r.KeyWorkers < 0 || r.Retries < 0 || r.RetryBackoff < 0:
		return &configError{"Group.Run", "has a negative number"}
	case r.OnFailure > DeadLetterOnFailure:
		return &configError{"Group.Run.OnFailure", fmt.Sprintf("is no policy: %d", r.OnFailure)}
	case (r.OnFailure == DeadLetterOnFailure) != (r.DeadLetter != nil):
		return &configError{"Group.Run.DeadLetter", "and Group.Run.OnFailure = DeadLetterOnFailure need each other"}
	}
	return nil
}

// Run reads in a group and calls handle for each batch: those of a partition in
// order, different partitions at the same time. A batch is finished when handle
// returns nil, and only what is finished is committed. An error is dealt with as
// Config.Group.Run says.
//
// The context of a handler ends when its partition goes, or when Run ends; an
// error that it returns then is not counted, and the batch goes to whoever reads
// the partition next. A partition whose handlers are slow is paused meanwhile,
// and delays no other.
//
// Run blocks until ctx ends, a handler fails for good, or the member is over.
// It then waits for handlers that still run, for Config.Group.RevokeTimeout at
// most, commits, leaves the group and closes the consumer. If ctx ended that is
// all as it should be, and the error is nil. Run is called once, in place of
// polling.
func (c *Consumer) Run(ctx context.Context, handle func(ctx context.Context, b Batch) error) error {
	return c.group.runWith(ctx, func(ctx context.Context, r *runner, j *job) error {
		return r.try(ctx, Failure{Batch: j.batch}, func() error { return handle(ctx, j.batch) })
	})
}

// RunRecords is Run with a handler for single records. Those of one partition
// are handled in order, or with Config.Group.Run.KeyWorkers those of one key.
func (c *Consumer) RunRecords(ctx context.Context, handle func(ctx context.Context, r kafka.Record) error) error {
	return c.group.runWith(ctx, func(ctx context.Context, r *runner, j *job) error { return r.records(ctx, j, handle) })
}

// runWith is Run for either form of handlers.
func (m *member) runWith(ctx context.Context, do func(ctx context.Context, r *runner, j *job) error) error {
	if m == nil {
		return ErrNoGroup
	}
	c := m.c
	if c.cfg.ReuseBuffers {
		return &configError{"ReuseBuffers", "and Run exclude each other: handlers work beside the next poll"}
	}
	m.mu.Lock()
	again := m.running
	m.running = true
	m.mu.Unlock()
	if again {
		return errRunsAlready
	}
	r := &runner{c: c, m: m, cfg: c.cfg.Group.Run, do: do, lanes: map[kafka.TopicPartition]*lane{}}
	if r.cfg.Workers > 0 {
		r.slots = make(chan struct{}, r.cfg.Workers)
	}
	r.ctx, r.stop = context.WithCancelCause(ctx)
	defer r.stop(nil)
	err := r.poll()
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.cfg.Group.RevokeTimeout)
	defer cancel()
	if shut := c.Shutdown(end); err == nil {
		err = shut
	}
	return err
}

const errExited = groupError("ottla: a handler ended its goroutine, as runtime.Goexit and FailNow of a test do")

const errRunsAlready = groupError("ottla: Run was called on this consumer already")

// runner hands batches to a worker for each partition.
type runner struct {
	c     *Consumer
	m     *member
	cfg   RunConfig
	do    func(ctx context.Context, r *runner, j *job) error
	slots chan struct{} // nil = no bound

	ctx  context.Context // ends with Run, or the first failure for good
	stop context.CancelCauseFunc

	mu    sync.Mutex
	lanes map[kafka.TopicPartition]*lane // guarded by mu
}

// lane is the work of one partition, in order.
type lane struct {
	jobs   []*job
	bytes  int
	active bool
	paused bool
}

// job is one batch to handle.
type job struct {
	batch Batch
	work  *group.Work
}

// failedForGood is the cause with which a handler ends Run.
type failedForGood struct{ err error }

func (e *failedForGood) Error() string { return e.err.Error() }

// poll fetches and hands out until Run is over.
func (r *runner) poll() error {
	for {
		batches, err := r.c.Poll(r.ctx)
		for _, b := range batches {
			r.add(b)
		}
		var end *failedForGood
		switch cause := context.Cause(r.ctx); {
		case errors.As(cause, &end):
			return end.err
		case cause != nil:
			return nil
		case r.m.err() != nil:
			return r.m.err()
		case r.c.closed() != nil:
			return cluster.ErrClosed
		case err != nil:
			r.c.cfg.Logger.Warn("reading goes on behind an error", "group", r.m.cfg.ID, "err", err)
			r.m.tell(GroupEvent{Kind: GroupTrouble, Err: err})
		}
	}
}

// add queues a batch behind those of its partition, and pauses a partition
// that has enough.
func (r *runner) add(b Batch) {
	j := &job{batch: b, work: b.work}
	tp := b.TopicPartition()
	r.mu.Lock()
	defer r.mu.Unlock()
	l := r.lanes[tp]
	if l == nil {
		l = &lane{}
		r.lanes[tp] = l
	}
	l.jobs = append(l.jobs, j)
	l.bytes += b.Size()
	if !l.paused && l.bytes >= r.c.cfg.MaxPollBytes {
		l.paused = true
		r.c.Pause(tp)
	}
	if !l.active {
		l.active = r.m.outside.Go(func(context.Context) error {
			r.serve(tp, l)
			return nil
		})
	}
}

// serve is the worker of a partition while it has work.
func (r *runner) serve(tp kafka.TopicPartition, l *lane) {
	var at *job
	defer func() {
		if at == nil {
			return
		}
		r.stop(&failedForGood{errExited})
		r.giveBack(at)
		r.m.outside.Go(func(context.Context) error { // the rest is to be given back too
			r.serve(tp, l)
			return nil
		})
	}()
	for {
		r.mu.Lock()
		if len(l.jobs) == 0 {
			l.active = false
			delete(r.lanes, tp)
			r.mu.Unlock()
			return
		}
		j := l.jobs[0]
		l.jobs = l.jobs[1:]
		r.mu.Unlock()
		at = j
		r.handle(j)
		at = nil
		r.mu.Lock()
		l.bytes -= j.batch.Size()
		resume := l.paused && l.bytes < r.c.cfg.MaxPollBytes/2+1
		if resume {
			l.paused = false
		}
		r.mu.Unlock()
		if resume {
			r.c.Resume(tp)
		}
	}
}

// handle does one job.
func (r *runner) handle(j *job) {
	ctx, cancel := context.WithCancelCause(j.batch.Context())
	defer cancel(nil)
	defer context.AfterFunc(r.ctx, func() { cancel(context.Cause(r.ctx)) })()
	if r.slots != nil {
		select {
		case r.slots <- struct{}{}:
			defer func() { <-r.slots }()
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		r.giveBack(j)
		return
	}
	err := r.do(ctx, r, j)
	switch {
	case err == nil:
		r.m.mu.Lock()
		r.m.book.Finish(j.work)
		r.m.mu.Unlock()
	case ctx.Err() == nil:
		r.stop(&failedForGood{err})
		r.giveBack(j)
	default:
		r.giveBack(j)
	}
	r.c.do(func(*fetch.Machine) {}) // wakes who waits for finished work
}

// giveBack ends work that is not done: nobody waits for it any more.
func (r *runner) giveBack(j *job) {
	r.m.mu.Lock()
	r.m.book.Abandon(j.work)
	r.m.mu.Unlock()
	r.c.do(func(*fetch.Machine) {}) // wakes who waits for finished work
}

// try calls a handler until it succeeds or the policy decides. An error means
// that the work is not done.
func (r *runner) try(ctx context.Context, f Failure, handle func() error) error {
	backoff := retry.Backoff{Base: r.cfg.RetryBackoff, Cap: 30 * time.Second}
	if backoff.Base == 0 {
		backoff.Base = 100 * time.Millisecond
	}
	for {
		f.Attempts++
		f.Err = guard(handle)
		var panicked *PanicError
		switch {
		case f.Err == nil:
			return nil
		case ctx.Err() != nil || errors.As(f.Err, &panicked):
			return f.Err
		case f.Attempts > r.cfg.Retries:
			return r.giveUp(ctx, f)
		case task.Sleep(ctx, backoff.Delay(f.Attempts, nil)) != nil:
			return context.Cause(ctx)
		}
	}
}

// giveUp does with failed work what the policy says.
func (r *runner) giveUp(ctx context.Context, f Failure) error {
	tp := f.Batch.TopicPartition()
	switch r.cfg.OnFailure {
	case StopOnFailure:
		return f.Err
	case DeadLetterOnFailure:
		if err := guard(func() error { return r.cfg.DeadLetter(ctx, f) }); err != nil {
			return errors.Join(err, f.Err)
		}
	}
	r.c.cfg.Logger.Warn("work was given up", "group", r.m.cfg.ID, "topic", tp.Topic, "partition", tp.Partition, "err", f.Err)
	r.m.tell(GroupEvent{Kind: GroupSkipped, TopicPartition: tp, Err: f.Err})
	return nil
}

// guard turns a panic into an error.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &PanicError{Value: v, Stack: debug.Stack()}
		}
	}()
	return f()
}

// records handles the records of a batch one by one, or key by key.
func (r *runner) records(ctx context.Context, j *job, handle func(ctx context.Context, r kafka.Record) error) error {
	one := func(rec kafka.Record) error {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := r.try(ctx, Failure{Batch: j.batch, Record: &rec}, func() error { return handle(ctx, rec) })
		if err == nil {
			r.m.mu.Lock()
			r.m.book.Mark(j.work, rec.Offset)
			r.m.mu.Unlock()
		}
		return err
	}
	if r.cfg.KeyWorkers <= 1 {
		for _, rec := range j.batch.Records() {
			if err := one(rec); err != nil {
				return err
			}
		}
		return nil
	}
	return r.byKey(j, one)
}

// byKey handles the records of a batch with several workers, those of one key in
// order.
func (r *runner) byKey(j *job, one func(kafka.Record) error) error {
	at := map[string]int{}
	var keys [][]kafka.Record
	for _, rec := range j.batch.Records() {
		i, ok := at[string(rec.Key)]
		if !ok {
			i = len(keys)
			at[string(rec.Key)] = i
			keys = append(keys, nil)
		}
		keys[i] = append(keys[i], rec)
	}
	var next atomic.Int64
	work := func() (err error) {
		for err == nil {
			i := int(next.Add(1)) - 1
			if i >= len(keys) {
				return nil
			}
			for k := 0; k < len(keys[i]) && err == nil; k++ {
				err = one(keys[i][k])
			}
		}
		return err
	}
	workers := min(r.cfg.KeyWorkers, len(keys))
	results := make(chan error, workers)
	for range workers {
		if !r.m.outside.Go(func(context.Context) error {
			var err error = errExited
			defer func() { results <- err }()
			err = work()
			return nil
		}) {
			results <- cluster.ErrClosed
		}
	}
	var first error
	for range workers {
		if err := <-results; first == nil {
			first = err
		}
	}
	return first
}
