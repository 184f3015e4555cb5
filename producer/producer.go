package producer

import (
	"context"
	"errors"
	"math/rand/v2"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// Producer writes records through a cluster handle. It is safe for concurrent
// use; records of one goroutine for one partition keep their order.
type Producer struct {
	cfg     Config
	seam    seam
	tasks   *task.Group
	inbox   inbox
	budget  budget
	buffers buffers
	sealers sealers
	ids     atomic.Uint64
	ahead   atomic.Int64           // bytes of buffers that open batches began with
	topics  atomic.Pointer[topics] // replaced under topicMu
	closing atomic.Bool            // Shutdown or Close was called
	last    atomic.Pointer[Tx]     // the transaction that was begun last

	spreader spreader
	reports  reporter

	topicMu sync.Mutex
	over    error    // guarded by topicMu: set when the producer closes
	bound   *binding // nil = it has its own identity
}

// spreader is the random source for records without key.
type spreader struct {
	mu  sync.Mutex
	rng *rand.Rand // guarded by mu
}

func (s *spreader) pick(waiting []int32) int32 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return produce.Spread(s.rng, waiting)
}

var errNoRecord error = notDone("ottla: this Receipt is of no record")

type notDone string

func (e notDone) Error() string       { return string(e) }
func (notDone) MayHaveHappened() bool { return false }

// New starts a producer on c. It contacts nobody before the first record. Close
// or Shutdown ends it; c stays open, and must outlive it. A client of controllers
// is kafka.ErrUnsupportedEndpointType.
func New(c *cluster.Cluster, cfg Config) (*Producer, error) {
	if c == nil {
		return nil, errors.New("ottla: producer.New needs a cluster")
	}
	if cluster.AtControllers(c) {
		return nil, kafka.ErrUnsupportedEndpointType
	}
	return start(clusterSeam{c}, cfg)
}

func start(s seam, cfg Config) (*Producer, error) { return launch(s, cfg, nil) }

func launch(s seam, cfg Config, b *binding) (*Producer, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	p := &Producer{cfg: cfg, seam: s, bound: b, tasks: task.New(context.Background())}
	p.spreader.rng = s.NewRand()
	p.inbox.wake = make(chan struct{}, 1)
	p.budget.init(cfg.BufferBytes)
	p.buffers.budget = &p.budget
	p.sealers.init(p)
	p.reports.tasks = task.New(context.Background())
	p.topics.Store(&topics{})
	a := newActor(p)
	p.tasks.Go(a.run)
	return p, nil
}

// Append adds one record. It returns as soon as the record is encoded: key,
// value and headers are the caller's again. It blocks only while the buffer is
// full, until there is room or ctx ends; those who wait are served in order.
//
// An error means that the record was not accepted and will not be written:
// *kafka.TooLargeError, *NoPartitionError, cluster.ErrClosed, or the cause of
// ctx.
func (p *Producer) Append(ctx context.Context, r kafka.Record) (Receipt, error) {
	if p.cfg.TransactionalID != "" {
		return Receipt{}, errOutside
	}
	return p.append(ctx, r)
}

func (p *Producer) append(ctx context.Context, r kafka.Record) (Receipt, error) {
	var at cursor
	rc, err := p.appendOne(ctx, &r, r.Timestamp, time.Time{}, &at)
	at.leave()
	if at.shut {
		runtime.Gosched()
	}
	return rc, err
}

// TryAppend is Append that never waits: with a full buffer it returns
// kafka.ErrBufferFull.
func (p *Producer) TryAppend(r kafka.Record) (Receipt, error) {
	return p.Append(noWait{}, r)
}

// noWait stands for a context that does not even begin to wait.
type noWait struct{}

func (noWait) Deadline() (time.Time, bool) { return time.Time{}, false }
func (noWait) Done() <-chan struct{}       { return nil }
func (noWait) Err() error                  { return nil }
func (noWait) Value(any) any               { return nil }

// AppendAll adds records in order, as Append does each, and appends their
// receipts to `to`. Records in a row for one partition cost one lock. On an
// error the records from the first without a receipt on were not accepted.
func (p *Producer) AppendAll(ctx context.Context, rs []kafka.Record, to []Receipt) ([]Receipt, error) {
	if p.cfg.TransactionalID != "" {
		return to, errOutside
	}
	return p.appendAll(ctx, rs, to)
}

func (p *Producer) appendAll(ctx context.Context, rs []kafka.Record, to []Receipt) ([]Receipt, error) {
	var at cursor
	defer at.leave()
	now := time.Now()
	stamp := kafka.TimestampOf(now)
	for i := range rs {
		ts := rs[i].Timestamp
		if ts == 0 {
			ts = stamp
		}
		rc, err := p.appendOne(ctx, &rs[i], ts, now, &at)
		if err != nil {
			return to, err
		}
		to = append(to, rc)
		if at.shut {
			at.leave()
			at.shut = false
			runtime.Gosched()
		}
	}
	return to, nil
}

// cursor holds the mutex of the partition that the last record went to.
type cursor struct {
	topic *topic
	held  *partition
	// shut says that a batch was closed: time to let those run who bring it
	// away, as long as its bytes are in the processor's cache. Who appends on
	// and on would fill the buffer first, and every byte would come from memory
	// three times.
	shut bool
}

func (c *cursor) enter(q *partition) {
	if c.held != q {
		c.leave()
		q.mu.Lock()
		c.held = q
	}
}

func (c *cursor) leave() {
	if c.held != nil {
		c.held.mu.Unlock()
		c.held = nil
	}
}

func (p *Producer) appendOne(ctx context.Context, r *kafka.Record, ts kafka.Timestamp, now time.Time, at *cursor) (Receipt, error) {
	if p.closing.Load() {
		return Receipt{}, cluster.ErrClosed
	}
	if at.topic == nil || at.topic.name != r.Topic {
		at.leave()
		t, err := p.topic(r.Topic)
		if err != nil {
			return Receipt{}, err
		}
		at.topic = t
	}
	t := at.topic
	for {
		l := t.layout.Load()
		if l == nil {
			at.enter(&t.area)
			if t.layout.Load() != nil { // placed at this moment
				at.leave()
				continue
			}
			if err := p.fits(r, &t.area.tp); err != nil {
				return Receipt{}, err
			}
			rc, err := t.area.appendLocked(ctx, r, ts, now)
			if err == errPlaced {
				at.leave()
				continue
			}
			return rc, err
		}
		if p.cfg.Partition != nil {
			at.leave() // the user's function runs under no lock
		}
		q, keyless, err := t.pick(l, r)
		if err == nil {
			err = p.fits(r, &q.tp)
		}
		if err != nil {
			return Receipt{}, err
		}
		at.enter(q)
		open := q.open
		rc, err := q.appendLocked(ctx, r, ts, now)
		at.shut = open != nil && q.open != open
		if keyless && err == nil && q.stickLocked(most(r)) {
			t.spread(l)
		}
		return rc, err
	}
}

// fits refuses a record that is larger than a batch may be.
func (p *Producer) fits(r *kafka.Record, tp *kafka.TopicPartition) error {
	if record.HeaderSize+most(r) <= int64(p.cfg.BatchBytes) {
		return nil
	}
	var alone record.Builder
	size := record.HeaderSize + alone.SizeOf(r.Timestamp, r.Key, r.Value, r.Headers)
	if size <= p.cfg.BatchBytes {
		return nil
	}
	return &kafka.TooLargeError{TopicPartition: *tp, Size: size, Limit: p.cfg.BatchBytes}
}

func (p *Producer) topic(name string) (*topic, error) {
	if t := p.topics.Load().find(name); t != nil {
		return t, nil
	}
	p.topicMu.Lock()
	defer p.topicMu.Unlock()
	if p.over != nil {
		return nil, p.over
	}
	old := p.topics.Load()
	if t := old.find(name); t != nil {
		return t, nil
	}
	if name == "" {
		return nil, errNoTopic
	}
	t := newTopic(p, name)
	p.topics.Store(old.with(t))
	return t, nil
}

var errNoTopic error = notDone("ottla: the record names no topic")

// waitForRoom waits for n bytes of the buffer, unless ctx says not to. Open
// batches may have to be closed, if nothing else makes room.
func (p *Producer) waitForRoom(ctx context.Context, n int64, tp *kafka.TopicPartition) error {
	if ctx == (noWait{}) {
		for p.budget.grow() {
			if p.budget.try(n) {
				return nil
			}
		}
		p.post((*actor).relieve)
		return kafka.ErrBufferFull
	}
	w, err := p.budget.join(n)
	if w == nil {
		return err
	}
	p.post((*actor).onPressure)
	if err := p.budget.wait(ctx, w); errors.Is(err, cluster.ErrClosed) {
		return err
	} else if err != nil {
		err = &noRoomError{err}
		return &kafka.OpError{Op: "append", Broker: kafka.NoNode, Topic: tp.Topic, Partition: tp.Partition, Err: err}
	}
	return nil
}

// noRoomError is a wait for room that its context ended.
type noRoomError struct{ cause error }

func (e *noRoomError) Error() string {
	return "the producer's buffer is full, and the wait for room has ended: " + e.cause.Error()
}
func (e *noRoomError) Unwrap() []error     { return []error{e.cause, kafka.ErrBufferFull} }
func (*noRoomError) MayHaveHappened() bool { return false }

// Send appends records and waits for their results, one for each and in their
// order, without waiting for linger. The error is the first of the results'.
// If ctx ends, records of which nothing was sent yet are taken out of the queue:
// they will not be written. The results of the others that are missing are a
// *WaitError: they may be written, or will be.
func (p *Producer) Send(ctx context.Context, rs ...kafka.Record) ([]Result, error) {
	return p.send(ctx, p.AppendAll, rs)
}

type appender func(ctx context.Context, rs []kafka.Record, to []Receipt) ([]Receipt, error)

func (p *Producer) send(ctx context.Context, add appender, rs []kafka.Record) ([]Result, error) {
	receipts, err := add(ctx, rs, make([]Receipt, 0, len(rs)))
	p.post(func(a *actor, now time.Time) { a.onHurry(now, receipts) })
	if !waitFor(ctx, receipts) {
		p.withdraw(ctx, receipts)
	}
	results := make([]Result, len(rs))
	for i := range rs {
		if i < len(receipts) {
			results[i] = receipts[i].Result(ctx)
		} else {
			results[i] = Result{Topic: rs[i].Topic, Partition: -1, Offset: -1, Timestamp: kafka.NoTimestamp, Err: notAccepted(err, i == len(receipts))}
		}
	}
	for i := range results {
		if results[i].Err != nil {
			return results, results[i].Err
		}
	}
	return results, nil
}

// notAccepted is the error of a record at or behind one that Append refused.
func notAccepted(err error, itself bool) error {
	if itself {
		return err
	}
	return &skippedError{err}
}

type skippedError struct{ cause error }

func (e *skippedError) Error() string {
	return "ottla: not appended, as a record before it was refused: " + e.cause.Error()
}
func (e *skippedError) Unwrap() error       { return e.cause }
func (*skippedError) MayHaveHappened() bool { return false }

// Flush waits until every record that was accepted before the call has its
// result, whichever. It returns the cause of ctx if that ends first.
func (p *Producer) Flush(ctx context.Context) error {
	done := make(chan struct{})
	if !p.post(func(a *actor, now time.Time) { a.onFlush(now, done) }) {
		return nil // closed: everything has its result
	}
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Shutdown refuses further records, waits as Flush does and closes. If ctx ends
// first it closes at once, as Close, and returns the cause of ctx. An open
// transaction is aborted.
func (p *Producer) Shutdown(ctx context.Context) error {
	p.closing.Store(true)
	p.budget.close(cluster.ErrClosed)
	err := p.abortOpen(ctx)
	return errors.Join(err, p.Flush(ctx), p.Close())
}

// Close gives every record without a result its honest one, at once: not done
// if nothing of it was written, else unknown. It returns when the producer's
// goroutines have ended. Further calls do nothing.
func (p *Producer) Close() error {
	p.closing.Store(true)
	p.budget.close(cluster.ErrClosed)
	p.tasks.Cancel(cluster.ErrClosed)
	p.tasks.Wait()
	return nil
}

func itoa(n int32) string { return strconv.Itoa(int(n)) }
