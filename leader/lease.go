package leader

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// leaseWriter carries out what a lead.Writer asks for: the lease of one
// leadership, record after record. Its turn serialises all that is written
// under the pair.
type leaseWriter struct {
	e         *Elector
	role      string
	partition int32
	turn      chan struct{} // capacity 1
	w         *lead.Writer  // owned by the turn
	where     *layout       // that the last request to the partition went by
	term      kafka.Offset  // -1 until the grant is written
}

// leaseRecord is what is to be written: from is the granted-at instant, zero
// Member a tombstone.
type leaseRecord struct {
	from  lead.Now
	clear bool
}

func (l *leaseWriter) lock(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *leaseWriter) unlock() { <-l.turn }

// write writes one record in a transaction of its own. The caller has the
// turn. alive is asked before each request; its error ends the write there.
func (l *leaseWriter) write(ctx context.Context, rec leaseRecord, alive func() error) error {
	l.w.Begin(l.e.cfg.now().Local)
	return l.run(ctx, rec, alive)
}

// join appends the record to the transaction of the pair's user.
func (l *leaseWriter) join(ctx context.Context, rec leaseRecord, alive func() error) error {
	l.w.Join(l.e.cfg.now().Local)
	return l.run(ctx, rec, alive)
}

func (l *leaseWriter) run(ctx context.Context, rec leaseRecord, alive func() error) error {
	var last int16
	for {
		act, ok := l.w.Next()
		if !ok {
			return l.result()
		}
		if err := alive(); err != nil {
			l.w.GiveUp(false)
			return err
		}
		if act.Attempt > 1 {
			if err := task.Sleep(ctx, pause(last, act.Attempt-1)); err != nil {
				l.w.GiveUp(false)
				return &late{act.Step, l.w.MayHaveHappened(), err}
			}
		}
		a, err := l.send(ctx, act, rec)
		if hopeless(err) {
			l.w.GiveUp(kafka.MayHaveHappened(err))
			return err
		}
		if err != nil {
			a = lead.Answer{Code: lead.NoAnswer, Unsent: !kafka.MayHaveHappened(err)}
		}
		last = a.Code
		l.w.OnAnswer(l.e.cfg.now().Local, a)
		if err != nil && ctx.Err() != nil {
			l.w.GiveUp(false)
			return &late{act.Step, l.w.MayHaveHappened(), err}
		}
	}
}

// result is the error of a write that is over.
func (l *leaseWriter) result() error {
	o, step, code, cause := l.w.Outcome()
	if o == lead.Written {
		return nil
	}
	if cause == nil {
		cause = kafka.CodeError(code, nil)
	}
	err := &writeError{step: step, outcome: o, err: cause, maybe: l.w.MayHaveHappened()}
	switch code {
	case kerr.TransactionalIDAuthorizationFailed.Code:
		err.err = unauthorized(code, step.String(), fmt.Sprintf("WRITE on transactional id %q", l.role))
	case kerr.TopicAuthorizationFailed.Code, kerr.ClusterAuthorizationFailed.Code:
		err.err = unauthorized(code, step.String(), "WRITE on topic "+Topic)
	}
	return err
}

// writeError is a lease that was not written, by what the broker said.
type writeError struct {
	step    lead.Step
	outcome lead.Outcome
	err     error
	maybe   bool
}

func (e *writeError) Error() string         { return fmt.Sprintf("%v: %v", e.step, e.err) }
func (e *writeError) Unwrap() error         { return e.err }
func (e *writeError) MayHaveHappened() bool { return e.maybe }

// late is a lease that was not written in time.
type late struct {
	step  lead.Step
	maybe bool
	err   error
}

func (e *late) Error() string         { return fmt.Sprintf("%v: out of time: %v", e.step, e.err) }
func (e *late) Unwrap() error         { return e.err }
func (e *late) MayHaveHappened() bool { return e.maybe }

// send carries out one action. Each request gets at most half of the time that
// is left, so that one that hangs is repeated.
func (l *leaseWriter) send(ctx context.Context, act lead.Action, rec leaseRecord) (lead.Answer, error) {
	timeout := l.e.cfg.RequestTimeout
	if end, ok := ctx.Deadline(); ok {
		timeout = min(timeout, max(time.Until(end)/2, time.Millisecond))
	}
	if act.Step == lead.Produce {
		return l.produce(ctx, timeout, act, rec)
	}
	if act.Move {
		l.e.coords.forget(l.role)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	switch act.Step {
	case lead.Reinit:
		pair, code, err := l.e.coords.init(ctx, l.role, act.Pair, l.e.cfg.transactionTimeout())
		return lead.Answer{Code: code, Pair: pair}, err
	case lead.Add:
		return l.add(ctx, act)
	default:
		return l.end(ctx, act)
	}
}

func (l *leaseWriter) add(ctx context.Context, act lead.Action) (lead.Answer, error) {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = l.role, int64(act.Pair.ID), int16(act.Pair.Epoch)
	t := kmsg.NewAddPartitionsToTxnRequestTopic()
	t.Topic, t.Partitions = Topic, []int32{l.partition}
	req.Topics = append(req.Topics, t)
	resp, err := l.e.coords.ask(ctx, l.role, req, maxAdd)
	if err != nil {
		return lead.Answer{}, err
	}
	r, ok := resp.(*kmsg.AddPartitionsToTxnResponse)
	if !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return lead.Answer{}, errors.New("the answer is not about the partition")
	}
	return lead.Answer{Code: r.Topics[0].Partitions[0].ErrorCode}, nil
}

func (l *leaseWriter) end(ctx context.Context, act lead.Action) (lead.Answer, error) {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = l.role, int64(act.Pair.ID), int16(act.Pair.Epoch)
	req.Commit = act.Step == lead.Commit
	resp, err := l.e.coords.ask(ctx, l.role, req, maxEnd)
	if err != nil {
		return lead.Answer{}, err
	}
	r, ok := resp.(*kmsg.EndTxnResponse)
	if !ok {
		return lead.Answer{}, errors.New("the answer is none to EndTxn")
	}
	return lead.Answer{Code: r.ErrorCode}, nil
}

func (l *leaseWriter) produce(ctx context.Context, timeout time.Duration, act lead.Action, rec leaseRecord) (lead.Answer, error) {
	var wrong *layout
	if act.Move {
		wrong = l.where
	}
	node, where, err := l.e.topic.leader(ctx, l.partition, wrong)
	l.where = where
	if err != nil {
		return lead.Answer{}, &unsent{err}
	}
	out := outRecord{topic: where.id, partition: l.partition, key: lead.Key{Kind: lead.KindLease, Role: l.role}.Append(nil), at: rec.from.Wall, txn: &l.role, timeout: timeout}
	if !rec.clear {
		out.value = lead.Grant(l.e.cfg.Member, act.Pair, rec.from.Wall, l.e.cfg.Lease).Append(nil)
		out.headers = l.headers()
	}
	resp, err := out.send(ctx, l.e.kafka, node, record.Stamp{
		ProducerID: act.Pair.ID, ProducerEpoch: act.Pair.Epoch, BaseSequence: act.Sequence, Transactional: true,
	})
	if err != nil {
		return lead.Answer{}, err
	}
	return lead.Answer{Code: resp.ErrorCode, Offset: kafka.Offset(resp.BaseOffset)}, nil
}

// headers are what a lease says beside the contract. The grant has no term:
// its own offset is the term.
func (l *leaseWriter) headers() []kafka.Header {
	hs := []kafka.Header{{Key: lead.HeaderIncarnation, Value: l.e.incarnation}, {Key: lead.HeaderTxn, Value: []byte("1")}}
	if l.term >= 0 {
		hs = append(hs, kafka.Header{Key: lead.HeaderTerm, Value: binary.BigEndian.AppendUint64(nil, uint64(l.term))})
	}
	if l.e.cfg.Address != "" {
		hs = append(hs, kafka.Header{Key: lead.HeaderAddress, Value: []byte(l.e.cfg.Address)})
	}
	return hs
}

// burn makes the pair useless, by two re-inits: after one of them a re-init
// with the pair would be answered with the new one. A successor's mint does
// the same. It is looked for before each, for a fenced re-init aborts what the
// successor has open; until the local time given it is waited for.
func (l *leaseWriter) burn(ctx context.Context, until time.Duration) error {
	pair, answered := l.w.Pair(), true
	for done, tries := 0, 1; done < 2; tries++ {
		wait, over := l.succeeded(ctx, pair, answered)
		if over {
			return nil
		}
		code, err := kerr.ConcurrentTransactions.Code, error(nil)
		if !wait && (done > 0 || l.e.cfg.now().Local >= until) {
			var got lead.Token
			got, code, err = l.e.coords.init(ctx, l.role, pair, l.e.cfg.transactionTimeout())
			answered = err == nil
			if answered && code == 0 {
				pair, done, tries = got, done+1, 0
				continue
			}
		}
		switch r := lead.React(code); {
		case hopeless(err):
			return err
		case err == nil && r == lead.Lost:
			return nil
		case err == nil && r != lead.Again && r != lead.Elsewhere && r != lead.Unsure:
			return kafka.CodeError(code, nil)
		case err != nil || r != lead.Again:
			l.e.coords.forget(l.role)
		}
		if serr := task.Sleep(ctx, pause(code, tries)); serr != nil {
			return errors.Join(serr, err, kafka.CodeError(code, nil))
		}
	}
	return nil
}

// succeeded asks the coordinator whether it has another pair by now. After a
// re-init without an answer that may be this process's own. wait says that a
// transaction is being ended. Where it cannot be told, as before Kafka 3.0,
// nothing is said.
func (l *leaseWriter) succeeded(ctx context.Context, pair lead.Token, answered bool) (wait, over bool) {
	ctx, cancel := context.WithTimeout(ctx, l.e.cfg.RequestTimeout)
	defer cancel()
	d, code, err := l.e.coords.describeOnce(ctx, l.role)
	if err != nil || code != 0 {
		return false, false
	}
	return strings.HasPrefix(d.State, lead.StatePrepare), d.Pair != pair && (answered || d.State != lead.StateEmpty)
}
