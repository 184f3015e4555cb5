package producer

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// SuspectedDuplicateError is a batch that was acknowledged at an offset at or
// below one acknowledged before: the broker may have taken it for another one,
// and not written it.
type SuspectedDuplicateError = produce.DuplicateError

// reporter calls the user's functions, one after the other, on a goroutine that
// nobody waits for.
type reporter struct {
	tasks      *task.Group
	losses     atomic.Int64
	duplicates atomic.Int64

	mu      sync.Mutex
	queue   []error // guarded by mu
	running bool    // guarded by mu
}

func (p *Producer) report(err error) {
	var loss *kafka.DataLossError
	if errors.As(err, &loss) {
		p.reports.losses.Add(1)
	} else {
		p.reports.duplicates.Add(1)
	}
	if p.cfg.Logger != nil || p.cfg.Report != nil {
		p.reports.add(p, err)
	}
}

func (r *reporter) add(p *Producer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.queue = append(r.queue, err)
	if !r.running {
		r.running = r.tasks.Go(func(context.Context) error { r.run(p); return nil })
	}
}

func (r *reporter) run(p *Producer) {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 {
			r.running = false
			r.mu.Unlock()
			return
		}
		err := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		if p.cfg.Logger != nil {
			p.cfg.Logger.Warn("ottla: the log of a partition is not what it should be", "err", err)
		}
		if p.cfg.Report != nil {
			p.cfg.Report(err)
		}
	}
}

// Stats is what a producer has noticed so far, and what it holds.
type Stats struct {
	Buffered            int64 // bytes of records without a result
	DataLosses          int64 // times that a log had lost what was acknowledged
	SuspectedDuplicates int64 // batches that a broker may have taken for others
}

// Stats reads the counts. It blocks nobody.
func (p *Producer) Stats() Stats {
	return Stats{
		Buffered: p.budget.used.Load(), DataLosses: p.reports.losses.Load(), SuspectedDuplicates: p.reports.duplicates.Load(),
	}
}
