package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// longestInput is how long the input of a transaction may take unless
// transaction.timeout.ms says otherwise: the most that brokers allow by default.
const longestInput = 15 * time.Minute

// checkTx checks --tx beside the other flags.
func (f *produceFlags) checkTx(cmd *cobra.Command) error {
	if !cmd.Flags().Changed("tx") {
		return nil
	}
	switch {
	case f.tx == "":
		return usagef(`--tx "": expected a transactional id`)
	case f.keepGoing:
		return usagef("--tx and --keep-going do not go together: a transaction is all or nothing")
	case f.acks != "" && durabilities[f.acks] != producer.Idempotent:
		return usagef("--tx and --acks %s do not go together: a transaction needs all in-sync replicas", f.acks)
	}
	return nil
}

// appender takes records: a producer, or a transaction of one.
type appender interface {
	AppendAll(ctx context.Context, rs []kafka.Record, to []producer.Receipt) ([]producer.Receipt, error)
}

// transaction is the one that all records go into. A nil one is none.
type transaction struct {
	of *producer.Producer // chosen by the first record
	tx *producer.Tx
}

// output is where a record goes.
func (w *writer) output(r *kafka.Record) (appender, error) {
	p, err := w.producerFor(r)
	t := w.tx
	switch {
	case err != nil:
		return nil, err
	case t == nil:
		return p, nil
	case t.tx == nil:
		t.of = p
		t.tx, err = p.Begin(w.halt)
		return t.tx, err
	case t.of != p:
		return nil, &refusedError{errors.New("with --tx either all records name their partition or none does")}
	}
	return t.tx, nil
}

// commit makes the records visible. An outcome that is not known is looked into
// once.
func (t *transaction) commit(ctx context.Context) error {
	if t == nil || t.tx == nil {
		return nil
	}
	err := t.tx.Commit(ctx)
	if err == nil || !kafka.MayHaveHappened(err) {
		return err
	}
	switch found := t.tx.Abort(ctx); {
	case errors.Is(found, producer.ErrCommitted):
		return nil
	case found == nil:
		return &refusedError{fmt.Errorf("not committed: %w", err)}
	}
	return err
}

// abort gives the records up. One that does not get through is left to the
// coordinator, which aborts the transaction at its timeout: nothing of it was
// committed.
func (t *transaction) abort(ctx context.Context) {
	if t != nil && t.tx != nil {
		_ = t.tx.Abort(ctx)
	}
}

// end commits if all is well, and else aborts and tells the status.
func (w *writer) end() error {
	t := &w.tally
	interrupted := w.app.interrupted()
	if t.refused+t.unknown == 0 && !interrupted && w.inputErr == nil {
		err := w.tx.commit(w.app.work)
		if err != nil {
			w.app.notes.printf("ottla: %s", oneLine(w.app.explain(err)))
			w.app.detail(err)
			return &toldError{map[bool]int{true: statusUnknown, false: statusFailed}[kafka.MayHaveHappened(err)]}
		}
		return nil
	}
	w.tx.abort(w.app.work)
	text := fmt.Sprintf("%s written, %d refused, %d unknown", count(t.written, "record"), t.refused, t.unknown)
	if interrupted {
		text = "interrupted: " + text
	}
	if w.cutOff != "" && interrupted {
		text += "; the input from " + w.cutOff + " on was not sent"
	}
	if w.tx != nil {
		text += "; the transaction is aborted: none of them becomes visible"
	}
	w.app.notes.printf("ottla: %s", text)
	switch {
	case t.unknown > 0 && w.tx == nil:
		return &toldError{statusUnknown}
	case interrupted:
		return errStoppedInOrder
	}
	return &toldError{statusFailed}
}
