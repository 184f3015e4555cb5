package consumer

import (
	"context"
	"iter"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// Poll waits for data and hands it out: batches of the partitions in turn, up to
// Config.MaxPollBytes and Config.MaxPollRecords. It returns the batches and an
// error side by side: the error joins one [*kafka.OpError] for each partition
// that stopped or lost data, once each, and never costs the batches. A Poll
// without a batch has an error: the cause of ctx when that ends (a Poll whose
// context has ended before returns nothing else), or [cluster.ErrClosed].
//
// Positions move with the return of Poll. The slice is the caller's own; for the
// memory of its batches see the package. Concurrent Polls take turns.
func (c *Consumer) Poll(ctx context.Context) ([]Batch, error) {
	var batches []Batch
	err := c.poll(ctx, func() error {
		var loans []fetch.Loan
		batches, loans = c.collect(batches[:0])
		var err error
		batches, err = c.settle(batches, loans)
		return err
	}, func() bool { return len(batches) > 0 })
	return batches, err
}

// poll waits for its turn, then calls try until that returns an error or done
// says that there is something.
func (c *Consumer) poll(ctx context.Context, try func() error, done func() bool) error {
	if c.group != nil {
		c.group.back()
	}
	if err := c.ready(ctx); err != nil {
		return err
	}
	select {
	case c.turn <- struct{}{}:
	default:
		select {
		case c.turn <- struct{}{}:
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-c.tasks.Context().Done():
			return cluster.ErrClosed
		}
	}
	defer func() { <-c.turn }()
	c.finish()
	for {
		if err := c.closed(); err != nil {
			return err
		}
		if err := try(); err != nil || done() {
			return err
		}
		c.mu.Lock()
		if c.machine.Ready() {
			c.mu.Unlock()
			continue
		}
		change := c.waiterLocked()
		c.mu.Unlock()
		if err := c.wait(ctx, change); err != nil {
			return err
		}
	}
}

// collect takes and decodes batches up to the limits of a Poll.
func (c *Consumer) collect(batches []Batch) ([]Batch, []fetch.Loan) {
	var loans []fetch.Loan
	bytes, records := 0, 0
	for bytes < c.cfg.MaxPollBytes && records < c.cfg.MaxPollRecords {
		b, l, ok := c.takeOne()
		if !ok {
			break
		}
		if b.batch.IsZero() || !c.deliver(l) {
			continue
		}
		bytes += len(b.payload)
		records += b.Count()
		batches, loans = append(batches, b), append(loans, l)
	}
	if len(loans) > 0 {
		c.ahead.start()
		c.kick() // there is room in the budget again
	}
	return batches, loans
}

// takeOne takes and decodes one batch; ok is false if there is none. The batch
// is zero if it cannot be read or was overtaken; otherwise it is lent.
func (c *Consumer) takeOne() (b Batch, l fetch.Loan, ok bool) {
	c.mu.Lock()
	if l, ok = c.machine.Take(time.Now()); ok {
		c.buffers.takenLocked(l)
	}
	c.mu.Unlock()
	if !ok {
		return Batch{}, l, false
	}
	batch, err := c.decode(&l)
	if err != nil {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.machine.Unreadable(time.Now(), l, err)
		c.kick()
		return Batch{}, l, true
	}
	b = newBatch(l, batch)
	b.ctx = c.group.contextOf(b.TopicPartition())
	return b, l, true
}

// decode makes what the user gets of a batch: its payload, if that was not decoded
// ahead, and the batch to go with it.
func (c *Consumer) decode(l *fetch.Loan) (b record.Batch, err error) {
	if l.Payload == nil {
		l.Payload, err = c.decoder.Decode(l.Batch, c.buffers.spare(l.Room))
	}
	if err == nil && !c.buffers.lends(*l) {
		return record.Head(l.Batch), nil
	}
	return l.Batch, err
}

// deliver moves the position behind a batch that was taken, and reports false
// if the batch was overtaken.
func (c *actor) deliver(l fetch.Loan) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.machine.Deliver(l)
}

// settle drops batches that a seek or a revoke overtook meanwhile, and collects
// what has to be told.
func (c *Consumer) settle(batches []Batch, loans []fetch.Loan) ([]Batch, error) {
	c.mu.Lock()
	news := c.machine.News()
	c.mu.Unlock()
	for _, r := range news.Resets {
		c.cfg.Logger.Warn("position reset", "topic", r.Topic, "partition", r.Partition, "old", r.Old, "new", r.New, "reason", r.Reason)
		if c.cfg.OnReset != nil {
			c.cfg.OnReset(PositionReset(r))
		}
	}
	unlock := lockBook(c.group)
	c.mu.Lock()
	kept := batches[:0]
	for i, b := range batches {
		if loans[i].Current() {
			c.group.handedLocked(&b)
			kept = append(kept, b)
			c.buffers.given(b)
		}
		c.releaseLocked(loans[i])
	}
	c.mu.Unlock()
	unlock()
	clear(batches[len(kept):])
	return kept, news.Err
}

// releaseLocked tells the machine that a batch reaches the user.
func (c *actor) releaseLocked(l fetch.Loan) {
	if l.Release() {
		c.kick()
	}
}

// next waits for one batch or for something to tell; the batch is zero if err
// is not nil. A batch is lent.
func (c *Consumer) next(ctx context.Context) (b Batch, l fetch.Loan, err error) {
	err = c.poll(ctx, func() error {
		if _, err := c.settle(nil, nil); err != nil {
			return err
		}
		for {
			var ok bool
			if b, l, ok = c.takeOne(); !ok {
				_, err := c.settle(nil, nil)
				return err
			}
			if !b.batch.IsZero() {
				return nil
			}
		}
	}, func() bool { return !b.batch.IsZero() })
	return b, l, err
}

// ended reports whether an iterator is over with err.
func (c *actor) ended(ctx context.Context) bool { return ctx.Err() != nil || c.closed() != nil }

// Batches ranges over batches as they come. Each step is a batch, with a nil
// error, or an error about a partition, with a zero batch; reading goes on
// behind such an error. The range ends, after a last step with the reason, when
// ctx ends or the consumer is closed. Positions move a batch at a time, so
// leaving the range loses nothing.
func (c *Consumer) Batches(ctx context.Context) iter.Seq2[Batch, error] {
	return func(yield func(Batch, error) bool) {
		for {
			b, l, err := c.next(ctx)
			if err == nil {
				if !c.handOut(&b, l) {
					continue
				}
				c.ahead.start()
				c.kick()
			}
			if !yield(b, err) || err != nil && c.ended(ctx) {
				return
			}
		}
	}
}

// handOut moves the position behind a batch that goes to the user, and reports
// false if it was overtaken.
func (c *Consumer) handOut(b *Batch, l fetch.Loan) bool {
	defer lockBook(c.group)()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.machine.Deliver(l) {
		return false
	}
	c.group.handedLocked(b)
	c.releaseLocked(l)
	c.buffers.given(*b)
	return true
}

// Records ranges over records as they come. Each step is a record, with a nil
// error, or an error about a partition, with a zero record, as in
// [Consumer.Batches]. When the range is left in the middle of a batch the
// position is behind the last record that was yielded.
//
// While a range is in the middle of a batch nothing else of its partition is
// handed out, to nobody: a Poll in the body of the range, or beside it, brings
// other partitions. Seek, Remove and Pause take effect before the next record.
func (c *Consumer) Records(ctx context.Context) iter.Seq2[kafka.Record, error] {
	return func(yield func(kafka.Record, error) bool) {
		stop := context.AfterFunc(ctx, func() { c.interrupts.Add(1) })
		defer stop()
		for {
			b, l, err := c.next(ctx)
			if err != nil {
				if !yield(kafka.Record{}, err) || c.ended(ctx) {
					return
				}
				continue
			}
			if !c.yieldAll(ctx, b, l, yield) {
				return
			}
		}
	}
}

// yieldAll yields the records of a batch until the range is left, ctx ends, or
// the partition is sought, revoked or paused; what was not yielded is returned.
// It reports whether the range goes on.
func (c *actor) yieldAll(ctx context.Context, b Batch, l fetch.Loan, yield func(kafka.Record, error) bool) bool {
	next := l.From // behind what was yielded
	done := next   // behind what the user is done with
	defer func() {
		if next >= b.Next() {
			c.buffers.given(b)
		}
		c.do(func(m *fetch.Machine) { m.Return(l, next, done) })
	}()
	seen := c.interrupts.Load()
	unlock := lockBook(c.group)
	current := c.mayYield(ctx, l)
	if current {
		c.group.handedLocked(&b)
	}
	unlock()
	if !current {
		return true
	}
	for o, r := range b.Records() {
		if n := c.interrupts.Load(); n != seen { // something came since the batch was taken
			if seen = n; !c.mayYield(ctx, l) {
				return true
			}
		}
		next, done = kafka.Offset(o)+1, kafka.Offset(o)
		if c.group != nil {
			c.group.steps.Add(1)
		}
		if !yield(r, nil) {
			return false
		}
		done = next
	}
	next, done = b.Next(), b.Next()
	return true
}

// mayYield reports whether records of a batch may still be handed out.
func (c *actor) mayYield(ctx context.Context, l fetch.Loan) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return ctx.Err() == nil && l.Current() && !l.Stopped()
}
