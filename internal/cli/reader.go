package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
)

// reader prints records until its spans, its count or a signal end it.
type reader struct {
	app   *app
	in    *consumer.Consumer
	sel   *selection
	spans map[kafka.TopicPartition]span // those that are not done

	line    []byte // of one record, used again
	records int64
	bytes   int64
	began   time.Time
}

// consume reads topics as sel says.
func (a *app) consume(ctx context.Context, c *client, topics []string, sel *selection) error {
	cfg, committed, err := c.settings.consumerConfig(sel.isolation)
	if err != nil {
		return err
	}
	infos, err := existing(ctx, c, topics)
	if err != nil {
		return err
	}
	spans, err := sel.spans(ctx, c, infos, committed)
	if err != nil {
		return err
	}
	in, err := consumer.New(c.Cluster, cfg)
	if err != nil {
		return err
	}
	defer in.Close()
	r := &reader{app: a, in: in, sel: sel, spans: spans, began: time.Now()}
	at := map[kafka.TopicPartition]consumer.Start{}
	for tp, s := range spans {
		if s.done() {
			delete(spans, tp)
			continue
		}
		at[tp] = consumer.AtOffset(s.next)
	}
	if err := in.Assign(ctx, at); err != nil {
		return err
	}
	err = r.run(ctx, c)
	if err == nil && a.interrupted() {
		a.notes.printf("ottla: interrupted: %s, %s read", count(r.records, "record"), size(r.bytes))
		return errStoppedInOrder
	}
	return err
}

// run polls and prints.
func (r *reader) run(ctx context.Context, c *client) error {
	for len(r.spans) > 0 {
		batches, err := pollFor(ctx, r.in, 200*time.Millisecond)
		for i := range batches {
			full, printErr := r.print(&batches[i])
			if printErr != nil {
				return printErr
			}
			if full {
				return r.app.stdout.flush()
			}
		}
		if outErr := cmp.Or(r.app.stdout.flush(), r.app.stdout.check()); outErr != nil {
			return outErr
		}
		if r.app.interrupted() {
			return nil
		}
		if err != nil {
			return r.whatExists(ctx, c, err)
		}
		if err := r.settle(ctx, c); err != nil {
			return err
		}
		r.app.notes.progress(time.Now(), r.progress)
	}
	return nil
}

// whatExists tells a topic that was deleted apart from one that cannot be
// reached.
func (r *reader) whatExists(ctx context.Context, c *client, err error) error {
	var op *kafka.OpError
	unknown := errors.Is(err, kerr.UnknownTopicOrPartition) || errors.Is(err, kerr.UnknownTopicID)
	if !unknown || !errors.As(err, &op) || op.Topic == "" {
		return err
	}
	_, now := existing(ctx, c, []string{op.Topic})
	var gone *unknownTopicError
	switch {
	case errors.As(now, &gone):
		return fmt.Errorf("topic %s was deleted while partition %d was read: nothing of it exists now: %w", op.Topic, op.Partition, err)
	case now == nil:
		return fmt.Errorf("topic %s was deleted while partition %d was read, and made again; -o start reads the new one: %w", op.Topic, op.Partition, err)
	}
	return err
}

// pollFor polls for at most d. Without records in that time it returns none.
func pollFor(ctx context.Context, in *consumer.Consumer, d time.Duration) ([]consumer.Batch, error) {
	short, cancel := context.WithTimeoutCause(ctx, d, errQuiet)
	defer cancel()
	batches, err := in.Poll(short)
	if err != nil && ctx.Err() == nil && errors.Is(err, errQuiet) {
		err = nil
	}
	return batches, err
}

// errQuiet is a time without records.
var errQuiet = errors.New("no records")

// print writes the records of a batch that are in its span. full says that -c
// is reached.
func (r *reader) print(b *consumer.Batch) (full bool, err error) {
	tp := b.TopicPartition()
	s, open := r.spans[tp]
	if !open {
		return false, nil
	}
	for offset, rec := range b.Records() {
		if s.stop != noStop && kafka.Offset(offset) >= s.stop {
			break
		}
		if r.beyond(&rec) {
			s.stop = kafka.Offset(offset)
			r.spans[tp] = s
			break
		}
		if r.sel.json {
			r.line = append(appendJSONRecord(r.line[:0], &rec), '\n')
		} else {
			r.line = r.sel.format.appendTo(r.line[:0], &rec)
		}
		if _, err := r.app.stdout.Write(r.line); err != nil {
			return false, err
		}
		r.records++
		r.bytes += int64(len(rec.Key) + len(rec.Value))
		if r.sel.most > 0 && r.records == r.sel.most {
			return true, nil
		}
	}
	return false, nil
}

// beyond reports whether a record is at or after --until.
func (r *reader) beyond(rec *kafka.Record) bool {
	return !r.sel.until.IsZero() && int64(rec.Timestamp) >= r.sel.until.UnixMilli()
}

// settle looks how far the partitions are, and ends those that are done. A
// position passes what is no record, such as markers of transactions, too.
func (r *reader) settle(ctx context.Context, c *client) error {
	if err := r.closeUntil(ctx, c); err != nil {
		return err
	}
	var finished []kafka.TopicPartition
	for tp, s := range r.spans {
		if s.stop == noStop {
			continue
		}
		at, err := r.in.Position(ctx, tp)
		if err != nil {
			return err
		}
		s.next = at
		r.spans[tp] = s
		if s.done() {
			delete(r.spans, tp)
			finished = append(finished, tp)
		}
	}
	if len(finished) > 0 {
		r.in.Remove(finished...)
	}
	return nil
}

// closeUntil fixes the ends of partitions once the time of --until has passed.
func (r *reader) closeUntil(ctx context.Context, c *client) error {
	if r.sel.until.IsZero() || time.Now().Before(r.sel.until) {
		return nil
	}
	waiting := map[string]*topicInfo{}
	for tp, s := range r.spans {
		if s.stop != noStop {
			continue
		}
		if waiting[tp.Topic] == nil {
			waiting[tp.Topic] = &topicInfo{Name: tp.Topic}
		}
		waiting[tp.Topic].Partitions = append(waiting[tp.Topic].Partitions, partitionInfo{Partition: tp.Partition})
	}
	for _, info := range waiting {
		ends, err := listOffsets(ctx, c, info, admin.Latest, admin.ReadUncommitted)
		if err != nil {
			return err
		}
		for p, at := range ends {
			tp := kafka.TopicPartition{Topic: info.Name, Partition: p}
			s := r.spans[tp]
			s.stop = kafka.Offset(at.Offset)
			r.spans[tp] = s
		}
	}
	return nil
}

// progress is the line on a terminal.
func (r *reader) progress() string {
	took := max(time.Since(r.began).Seconds(), 0.001)
	text := fmt.Sprintf("%d records, %s, %.0f records/s", r.records, size(r.bytes), float64(r.records)/took)
	left := int64(0)
	for _, s := range r.spans {
		if s.stop != noStop {
			left += int64(max(0, s.stop-s.next))
		}
	}
	if left > 0 && r.records > 0 {
		eta := time.Duration(float64(left) / (float64(r.records) / took) * float64(time.Second))
		return text + fmt.Sprintf(", %d to go, %s left", left, eta.Round(time.Second))
	}
	lag := int64(0)
	for tp := range r.spans {
		if n, ok := r.in.Lag(tp); ok {
			lag += n
		}
	}
	return text + fmt.Sprintf(", lag %d", lag)
}
