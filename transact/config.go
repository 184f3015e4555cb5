package transact

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/producer"
)

// Config says how to run. Consumer.Group.ID, Consumer.Group.Topics or Pattern,
// and Producer.TransactionalID are needed.
type Config struct {
	// Consumer reads. Its Group.Commits must be left alone: offsets are
	// committed in the transactions. Isolation must be read committed.
	Consumer consumer.Config
	// Producer writes. Its TransactionalID must belong to this process alone, and
	// stay the same when it restarts: the next one ends what this one left open.
	Producer producer.Config

	MaxRecords int           // records that one transaction takes in, after the batch that reaches it; 0 = 10,000
	Interval   time.Duration // the longest that a transaction collects; 0 = 100 ms
	Logger     *slog.Logger  // nil = silent
}

// Handler makes records of a batch and writes them through tx. An error aborts
// the transaction and ends the run.
//
// The handling of all batches of a transaction has to fit in
// Producer.TransactionTimeout, after which the coordinator aborts it and the run
// ends with [kafka.ErrFenced], and in Consumer.Group.ProcessingTimeout, after which
// the partitions go to others and the records are handled again.
type Handler func(ctx context.Context, b consumer.Batch, tx *producer.Tx) error

var (
	errCommits   = errors.New("ottla: transact: Consumer.Group.Commits must be left at its zero value: offsets are committed in the transactions")
	errIsolation = errors.New("ottla: transact: Consumer.Isolation must be ReadCommitted")
	errGroup     = errors.New("ottla: transact: Consumer.Group.ID is empty")
	errID        = errors.New("ottla: transact: Producer.TransactionalID is empty")
	errGone      = errors.New("ottla: transact: a partition went before its records were committed")
	errNumbers   = errors.New("ottla: transact: MaxRecords or Interval is negative")
)

func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Consumer.Group.Commits != consumer.CommitPolled:
		return c, errCommits
	case c.Consumer.Isolation != consumer.ReadCommitted:
		return c, errIsolation
	case c.Consumer.Group.ID == "":
		return c, errGroup
	case c.Producer.TransactionalID == "":
		return c, errID
	case c.MaxRecords < 0 || c.Interval < 0:
		return c, errNumbers
	}
	c.Consumer.Group.Commits = consumer.CommitManual
	if c.MaxRecords == 0 {
		c.MaxRecords = 10_000
	}
	if c.Interval == 0 {
		c.Interval = 100 * time.Millisecond
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c, nil
}

// Stats counts what a runner did.
type Stats struct {
	Committed, Aborted int64 // transactions
	Records            int64 // taken in by those that were committed
}
