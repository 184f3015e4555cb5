//go:build kafka

package chaos

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// transactionTimeout is below the time of a take-over and its repairs: now and
// then a coordinator aborts a transaction of its own accord.
const transactionTimeout = 20 * time.Second

// perTransaction is how many records are in one, in three partitions.
const perTransaction = 12

// transact writes transactions of one transactional id until the run stops. Every
// third is aborted. Now and then the producer is dropped in the middle of one, or
// goes on as a zombie while another has taken its place. No transaction is left
// open.
func (r *run) transact(name string) {
	p := r.transactional(name)
	defer func() { _ = p.Close() }()
	for n := 0; r.ctx.Err() == nil; n++ {
		open := r.open(p, name, n)
		if open == nil {
			return
		}
		switch {
		case r.stopped(): // the last one leaves nothing open
			r.settle(open, false)
			return
		case n%10 == 4:
			_ = p.Close()
			p = r.transactional(name)
			open.is(notDone) // the next Begin sees to it
		case n%10 == 9:
			zombie := p
			p = r.transactional(name)
			r.fence(p, open)
			_ = zombie.Close()
		default:
			r.settle(open, n%3 != 2)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func (r *run) transactional(name string) *producer.Producer {
	p, err := producer.New(r.c, producer.Config{
		TransactionalID: name, TransactionTimeout: transactionTimeout, Partitioner: producer.Manual, Logger: r.log,
	})
	if err != nil {
		panic(err)
	}
	return p
}

// transaction is one that is open, and its records.
type transaction struct {
	*producer.Tx
	name   string
	values []string
	book   *book
}

func (t *transaction) is(o outcome) { t.book.transaction(t.values, o) }

// open begins the transaction with number n and writes its records.
func (r *run) open(p *producer.Producer, name string, n int) *transaction {
	tx, err := p.Begin(r.ctx)
	if r.ctx.Err() != nil {
		return nil // the test is over
	}
	if err != nil {
		r.t.Errorf("%s: begin %d: %v", name, n, err)
		return nil
	}
	t := &transaction{Tx: tx, name: fmt.Sprint(name, " ", n), book: r.book}
	for i := range perTransaction {
		at := (n + i/4) % partitions
		t.values = append(t.values, fmt.Sprintf("%s/%d/%d", name, at, n*perTransaction+i))
	}
	t.is(unknown)
	for i, v := range t.values {
		rec := kafka.Record{Topic: topic, Partition: int32((n + i/4) % partitions), Value: []byte(v)}
		if _, err := tx.Append(r.ctx, rec); err != nil && !errors.Is(err, kafka.ErrAbortable) {
			r.t.Errorf("%s: %s: %v", t.name, v, err)
		}
	}
	return t
}

// settle ends a transaction, until it is known how.
func (r *run) settle(t *transaction, commit bool) {
	var doubt bool
	if commit {
		err := t.Commit(r.ctx)
		if err == nil {
			t.is(done)
			return
		}
		doubt = kafka.MayHaveHappened(err)
		r.t.Logf("%s: commit, which may have happened: %v: %v", t.name, doubt, err)
	}
	for r.ctx.Err() == nil {
		err := t.Abort(r.ctx)
		switch {
		case err == nil:
			t.is(notDone)
			return
		case errors.Is(err, producer.ErrCommitted):
			if !doubt {
				r.t.Errorf("%s is committed and must not be", t.name)
			}
			t.is(done)
			return
		case !kafka.MayHaveHappened(err):
			r.t.Errorf("%s: abort: %v", t.name, err)
			return
		}
		r.t.Logf("%s: abort: %v", t.name, err)
		time.Sleep(100 * time.Millisecond)
	}
}

// fence begins and ends a transaction of a second producer with the same id.
// Afterwards the first one can do nothing more.
func (r *run) fence(second *producer.Producer, open *transaction) {
	tx, err := second.Begin(r.ctx)
	if err == nil {
		err = tx.Abort(r.ctx)
	}
	if err != nil {
		r.t.Errorf("%s: take-over: %v", open.name, err)
		return
	}
	ctx, cancel := context.WithTimeout(r.ctx, time.Minute)
	defer cancel()
	if err := open.Commit(ctx); err == nil {
		r.t.Errorf("%s: a zombie's commit succeeds", open.name)
	} else if kafka.MayHaveHappened(err) {
		r.t.Errorf("%s: a zombie's commit was refused and its outcome is told as unknown: %v", open.name, err)
	}
	open.is(notDone)
}
