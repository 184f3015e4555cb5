package producer

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// actor drives the machine: it looks at the inbox, carries out what the machine
// asks for and sleeps until its deadline. All of its fields belong to its
// goroutine.
type actor struct {
	p         *Producer
	m         *produce.Machine
	ctx       context.Context
	live      map[produce.BatchID]*batch // without a result
	parts     map[kafka.TopicPartition]*partition
	flushes   flushes
	lookups   map[string]*lookup // running, by topic
	fresh     freshness
	watch     watch
	tx        *txActor // nil without a transactional id
	piped     int64    // bytes of batches that are closed and have no result
	relieving bool     // open batches were told to close, and none has been since
}

func newActor(p *Producer) *actor {
	a := &actor{
		p: p,
		m: produce.New(produce.Config{
			Linger: p.cfg.Linger, Delivery: p.cfg.DeliveryTimeout, TopicPatience: p.cfg.TopicPatience,
			BrokerWindow: p.cfg.BrokerRequests, RequestBytes: p.cfg.RequestBytes,
			Backoff: retry.Backoff{Base: p.cfg.RetryBackoff, Cap: p.cfg.MaxBackoff}, Window: p.cfg.MaxInFlight,
			Plain: p.cfg.Durability != Idempotent, Duplicates: p.cfg.AcceptDuplicates,
			StopOnDataLoss: p.cfg.StopOnDataLoss, Codecs: len(p.cfg.codecs()),
		}, p.seam.NewRand()),
		live: map[produce.BatchID]*batch{}, parts: map[kafka.TopicPartition]*partition{},
		lookups: map[string]*lookup{}, fresh: freshness{until: map[string]time.Time{}},
	}
	if p.cfg.TransactionalID != "" {
		a.tx = newTxActor(p, a.m)
	}
	return a
}

func (a *actor) run(ctx context.Context) error {
	a.ctx = ctx
	a.watch = a.p.seam.changes()
	defer a.watch.Close()
	timer := time.NewTimer(0)
	defer timer.Stop()
	var msgs []message
	for ctx.Err() == nil {
		now := time.Now()
		msgs = a.p.inbox.take(msgs[:0])
		for i, m := range msgs {
			m(a, now)
			msgs[i] = nil
		}
		a.onEvents(now)
		a.expireLayouts(now)
		a.carryOut(now)
		if at := a.deadline(); at.IsZero() {
			timer.Stop()
		} else {
			timer.Reset(time.Until(at))
		}
		select {
		case <-a.p.inbox.wake:
		case <-a.watch.Ready():
		case <-timer.C:
		case <-ctx.Done():
		}
	}
	a.close(context.Cause(ctx))
	return nil
}

// deadline is when there is something to do without a message.
func (a *actor) deadline() time.Time {
	at := a.m.Deadline()
	if next := a.fresh.next; at.IsZero() || !next.IsZero() && next.Before(at) {
		return next
	}
	return at
}

func (a *actor) carryOut(now time.Time) {
	for {
		act, ok := a.m.Next(now)
		if !ok {
			return
		}
		switch act := act.(type) {
		case produce.Identify:
			a.identify()
		case produce.CloseOpen:
			a.closeOpen(act.Partition)
		case produce.Seal:
			a.p.sealers.add(sealing{batch: a.live[act.Batch], stamp: act.Stamp, codec: act.Codec})
		case produce.Split:
			b := a.live[act.Batch]
			b.cutting = true
			a.p.sealers.add(sealing{batch: b, cut: true})
		case produce.Send:
			a.send(now, act)
		case produce.Resolve:
			if act.Invalid {
				a.p.seam.InvalidateLeader(act.Partition)
			}
			a.ask(act.Partition)
		case produce.Finish:
			a.finish(now, act)
		case produce.Report:
			a.p.report(act.Err)
		default:
			a.tx.carryOut(act)
		}
	}
}

func (a *actor) onOpened(now time.Time, b *batch) {
	a.live[b.id] = b
	a.m.OnOpened(now, b.tp)
	a.onPressure(now)
}

func (a *actor) onClosed(now time.Time, b *batch) {
	b.closed, a.relieving = true, false
	a.piped += b.room
	a.m.OnBatch(now, b.entry())
}

// onWaiting takes note of a batch in a waiting area.
func (a *actor) onWaiting(now time.Time, b *batch) {
	a.live[b.id] = b
	a.m.OnBatch(now, produce.Batch{ID: b.id, Partition: b.tp, Count: 1, Since: b.since})
}

func (a *actor) closeOpen(tp kafka.TopicPartition) {
	q := a.parts[tp]
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.open != nil {
		q.closeLocked()
	}
}

func (a *actor) onSealed(now time.Time, b *batch) {
	b.sealed = true
	if a.live[b.id] == nil {
		a.p.release(b, true)
		return
	}
	a.m.OnSealed(now, b.id, len(b.wire))
}

// finish publishes the result of a batch, unless its records went elsewhere.
func (a *actor) finish(now time.Time, act produce.Finish) {
	b := a.live[act.Batch]
	if b == nil || b.tp.Partition == produce.WaitingArea && !b.part.topic.withdraw(b) {
		return // it was placed, or is just being placed, and lives on in its partitions
	}
	delete(a.live, b.id)
	b.part.queued.Add(-1)
	b.finish(act.Outcome)
	if b.closed {
		a.piped -= b.room
	}
	a.p.budget.give(b.room)
	a.onPressure(now)
	if b.sealed || b.tp.Partition == produce.WaitingArea || act.Outcome.Free {
		a.p.release(b, act.Outcome.Free)
	}
	a.flushes.settle(b)
}

// release lets go of a batch's memory, for the next batch if nobody reads it.
func (p *Producer) release(b *batch, free bool) {
	raw, wire := b.builder.Release(), b.wire
	b.wire = nil
	if !free {
		return
	}
	if cap(raw) > 0 {
		p.buffers.put(raw) // wire lies in it, if there is one
	} else if wire != nil {
		p.buffers.put(wire)
	}
}

func (a *actor) onFlush(now time.Time, done chan struct{}) {
	f := &flush{left: make(map[*batch]struct{}, len(a.live)), done: done}
	for _, b := range a.live {
		f.left[b] = struct{}{}
		b.urgent = true
	}
	if len(f.left) == 0 {
		close(done)
		return
	}
	a.flushes = append(a.flushes, f)
	a.m.OnFlush(now)
}

// onPressure sees to it that callers who wait for room get it.
func (a *actor) onPressure(now time.Time) {
	if a.p.budget.waiting.Load() > 0 {
		a.relieve(now)
	}
}

// relieve ends the linger of the fullest open batches, unless enough is on its
// way already: what is on its way will give room, and the open batches fill
// meanwhile. Closing them all would make batches of one record each.
func (a *actor) relieve(now time.Time) {
	if a.relieving || a.piped >= a.p.budget.size()/8 {
		return
	}
	coming, enough := a.piped, a.p.budget.size()/4
	for _, o := range openBatches(a.live) {
		if coming >= enough {
			return
		}
		a.m.OnFlushPartition(now, o.tp)
		coming += o.size
		a.relieving = true
	}
}

type openBatch struct {
	tp   kafka.TopicPartition
	size int64
}

// openBatches is those of the batches that can be closed, the fullest first.
func openBatches(live map[produce.BatchID]*batch) []openBatch {
	var open []openBatch
	for _, b := range live {
		if b.closed || b.tp.Partition == produce.WaitingArea {
			continue
		}
		b.part.mu.Lock()
		open = append(open, openBatch{b.tp, b.room})
		b.part.mu.Unlock()
	}
	slices.SortFunc(open, func(x, y openBatch) int {
		return cmp.Or(cmp.Compare(y.size, x.size), x.tp.Compare(y.tp))
	})
	return open
}

// onHurry ends the linger of the batches that somebody waits for.
func (a *actor) onHurry(now time.Time, receipts []Receipt) {
	for _, r := range receipts {
		if a.live[r.batch.id] == nil { // its records may have gone to partitions since
			r = r.now()
		}
		if a.live[r.batch.id] != nil {
			r.batch.urgent = true
			a.m.OnFlushPartition(now, r.batch.tp)
		}
	}
}

// onMoved takes note that the records of a waiting batch went to partitions.
func (a *actor) onMoved(now time.Time, b *batch) {
	delete(a.live, b.id)
	b.part.queued.Add(-1)
	for _, r := range b.placed {
		if b.urgent && a.live[r.batch.id] != nil {
			a.m.OnFlushPartition(now, r.batch.tp)
		}
	}
	a.flushes.inherit(b)
	if a.tx != nil {
		a.onPlacedInTx(b.placed)
	}
}

// close ends everything: what was accepted gets its result.
func (a *actor) close(cause error) {
	now := time.Now()
	a.p.budget.close(cluster.ErrClosed)
	a.p.endTopics(cluster.ErrClosed)
	for _, m := range a.p.inbox.takeLast() {
		m(a, now)
	}
	a.m.OnClose(cause)
	for {
		act, ok := a.m.Next(now)
		if !ok {
			break
		}
		switch act := act.(type) {
		case produce.Finish:
			a.finish(now, act)
		case produce.Return:
			a.tx.carryOut(act)
		}
	}
	for _, f := range a.flushes {
		close(f.done)
	}
	a.flushes = nil
}
