package produce

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// Outcome is the result of a batch: done if Err is nil, otherwise not done or
// unknown, as kafka.MayHaveHappened says of Err.
type Outcome struct {
	Offset     kafka.Offset    // of the first record; -1 not known, also when done
	AppendTime kafka.Timestamp // the broker's time, -1 unless the topic uses it
	Err        error           // nil or a *kafka.OpError
	Free       bool            // nothing can read the batch's bytes any more
	Reasons    []Reason        // records that the broker names as the cause of Err
}

var errNoResult error = &kafka.ProtocolError{Addr: "the leader", What: "the answer to Produce lacks a partition that was asked for"}

// doubt is an error of a batch that may have been appended all the same.
type doubt struct{ error }

func (d doubt) Unwrap() error       { return d.error }
func (doubt) MayHaveHappened() bool { return true }

func (d doubt) Error() string {
	return "outcome unknown, it may have been written: " + d.error.Error()
}

// refusal is an error of a batch of which nothing was written.
type refusal struct{ error }

func (r refusal) Unwrap() error       { return r.error }
func (refusal) MayHaveHappened() bool { return false }

// final reports whether another try cannot help: the broker's code says so, or
// the two sides cannot talk to each other at all, or of this.
func final(err error) bool {
	var broker *kafka.BrokerError
	if errors.As(err, &broker) {
		return retry.Of(broker.Code) == retry.Fatal
	}
	var auth *kafka.AuthError
	var version *kafka.VersionError
	var recreated *kafka.RecreatedError
	var long *kafka.EncodeError
	var over hopeless
	return errors.As(err, &auth) || errors.As(err, &version) || errors.As(err, &recreated) ||
		errors.As(err, &long) || errors.As(err, &over)
}

// hopeless is an error that no further try can heal.
type hopeless struct{ error }

func (h hopeless) Unwrap() error         { return h.error }
func (h hopeless) MayHaveHappened() bool { return kafka.MayHaveHappened(h.error) }

// Final marks err as one that no further try can heal, such as that of a
// closed cluster, for OnFailure, OnIdentity and OnLeader.
func Final(err error) error { return hopeless{err} }

// vanished reports whether err says that the topic is not there.
func vanished(err error) bool {
	var broker *kafka.BrokerError
	return errors.As(err, &broker) && (broker.Code == 3 || broker.Code == 100)
}

// timeUp is the error of a batch whose delivery time ran out.
func (b *batch) timeUp(now time.Time) error {
	phase := kafka.PhaseQueue
	if b.maybe || b.state == flying {
		phase = kafka.PhaseAnswer
	}
	at := "the leader of " + b.Partition.String()
	if b.part.waitingArea() {
		at = "topic " + b.Partition.Topic
	}
	return &kafka.TimeoutError{
		Name: "Produce", Addr: at,
		Phase: phase, After: now.Sub(b.Since), Err: b.cause,
	}
}

// giveUp ends b with err. If it may have been appended, its sequences are
// never used again; else they are free. One that is followed by a batch that
// the broker has is there too.
func (b *batch) giveUp(err error) {
	p := b.part
	doubtful := b.maybe || b.state == flying
	switch {
	case b.told:
	case b.state == acked:
		p.m.finish(b, b.result)
	case doubtful && !p.m.cfg.Plain && p.queue.proved(b):
		p.m.finish(b, Outcome{Offset: -1, AppendTime: kafka.NoTimestamp})
		if b.state != flying {
			b.state, b.result = acked, Outcome{Offset: -1}
			p.retire()
		}
	default:
		b.fail(err, doubtful)
	}
}

func (b *batch) fail(err error, doubtful bool) {
	p := b.part
	out := Outcome{Offset: -1, AppendTime: kafka.NoTimestamp, Reasons: b.reasons}
	switch {
	case doubtful:
		err = inDoubt(err)
		out.Free = !b.lost && b.state != flying
	case kafka.MayHaveHappened(err): // err does not know that nothing was written
		err = refusal{err}
		fallthrough
	default:
		out.Free = !b.lost && b.state != sealing && b.state != splitting
	}
	out.Err = b.opError(err)
	p.m.finish(b, out)
	switch {
	case b.state == flying: // it is settled when its answer comes, which may still be good news
	case doubtful && !p.m.cfg.Plain:
		b.burn()
	default:
		p.torn = p.torn || b.stamped
		b.drop()
		p.retire()
	}
}

// burn leaves the sequences of b to nobody.
func (b *batch) burn() {
	if b.part.m.cfg.Plain {
		b.drop()
		return
	}
	b.state = gone
	b.part.leave()
	b.part.retire()
}

func inDoubt(err error) error {
	var r refusal
	if errors.As(err, &r) {
		err = r.error
	} else if kafka.MayHaveHappened(err) {
		return err
	}
	return doubt{err}
}

func (q queue) giveUpAll(err error) {
	for _, b := range slices.Clone(q) {
		b.giveUp(err)
	}
}

// giveUpWaiting leaves alone what is outstanding.
func (q queue) giveUpWaiting(err error) {
	for _, b := range slices.Clone(q) {
		if !b.away() {
			b.giveUp(err)
		}
	}
}

func (b *batch) opError(err error) error {
	at := b.part.leader
	return &kafka.OpError{Op: "produce", Broker: at, Topic: b.Partition.Topic, Partition: b.Partition.Partition, Err: err}
}

// drop takes b out of the queue of its partition.
func (b *batch) drop() {
	p := b.part
	if i := slices.Index(p.queue, b); i >= 0 {
		p.queue = slices.Delete(p.queue, i, i+1)
	}
	p.calm()
}

func (m *Machine) finish(b *batch, out Outcome) {
	b.told = true
	delete(m.batches, b.ID)
	m.emit(Finish{b.ID, out})
	if m.tx != nil && out.Err != nil {
		m.tx.OnFailed(out.Err)
	}
}

// DuplicateError is a batch that was acknowledged at an offset at or below one
// acknowledged before. That is how it looks when a broker takes a batch for
// another one: what it holds may be lost.
type DuplicateError struct {
	kafka.TopicPartition
	Offset       kafka.Offset // of the batch
	Acknowledged kafka.Offset // base offset acknowledged before
}

func (e *DuplicateError) Error() string {
	return fmt.Sprintf("ottla: a batch for %v was acknowledged at offset %d, behind one at offset %d: the broker may have taken it for another one, and not written it",
		e.TopicPartition, e.Offset, e.Acknowledged)
}
