package cli

import (
	"context"
	"errors"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
)

// groupFlags are the flags of commands that are members of a group.
type groupFlags struct {
	group    string
	protocol string
}

// kind is the protocol that --group-protocol names.
func (f *groupFlags) kind() (kafka.GroupKind, error) {
	switch f.protocol {
	case "", "classic":
		return kafka.ClassicGroup, nil
	case "consumer":
		return kafka.ConsumerGroup, nil
	}
	return 0, usagef("--group-protocol %s: classic or consumer", f.protocol)
}

// check refuses flags that make no sense in a group.
func (f *groupFlags) check(sel *selection) error {
	switch {
	case f.group == "" && f.protocol != "":
		return usagef("--group-protocol needs -g GROUP")
	case f.group == "":
		return nil
	case sel.partitions != nil:
		return usagef("-p and -g do not go together: the group assigns the partitions")
	case !sel.until.IsZero():
		return usagef("--until and -g do not go together")
	case sel.from.kind == fromOffset || sel.from.kind == fromEnd && sel.from.n > 0:
		return usagef("-o with -g says where partitions begin that the group has committed nothing of: start, end or @TIME")
	}
	return nil
}

// start is where partitions begin that the group has committed nothing of.
func (sel *selection) start() consumer.Start {
	switch sel.from.kind {
	case fromEnd:
		return consumer.Latest()
	case fromTime:
		return consumer.AtTime(sel.from.time)
	}
	return consumer.Earliest()
}

// groupReader prints records as a member of a group, and commits what was
// written out.
type groupReader struct {
	app     *app
	in      *consumer.Consumer
	sel     *selection
	line    []byte
	written []kafka.Record // not flushed yet
	records int64
	bytes   int64
}

// consumeGroup reads topics as a member of a group.
func (a *app) consumeGroup(ctx context.Context, c *client, topics []string, sel *selection, f *groupFlags) error {
	kind, err := f.kind()
	if err != nil {
		return err
	}
	cfg, _, err := c.settings.consumerConfig(sel.isolation)
	if err != nil {
		return err
	}
	if _, err := existing(ctx, c, topics); err != nil {
		return err
	}
	cfg.Reset = consumer.ResetNearest
	cfg.Group = consumer.GroupConfig{
		ID: f.group, Topics: topics, Protocol: kind, Start: sel.start(), Commits: consumer.CommitMarked,
	}
	in, err := consumer.New(c.Cluster, cfg)
	if err != nil {
		return err
	}
	defer in.Close()
	r := &groupReader{app: a, in: in, sel: sel}
	err = r.run(ctx)
	end, cancel := context.WithTimeout(a.work, min(a.shared.timeout, 10*time.Second))
	defer cancel()
	if shut := r.leave(end); err == nil {
		err = shut
	}
	if err == nil && a.interrupted() {
		a.notes.printf("ottla: interrupted: %s, %s read", count(r.records, "record"), size(r.bytes))
		return errStoppedInOrder
	}
	return err
}

// leave commits what was written and leaves the group. What was read and not
// written is nobody's work any more, so it is not waited for.
func (r *groupReader) leave(ctx context.Context) error {
	err := r.in.Group().Commit(ctx)
	if errors.Is(err, cluster.ErrClosed) {
		err = nil
	}
	return errors.Join(err, r.in.Close())
}

// run polls and prints.
func (r *groupReader) run(ctx context.Context) error {
	for {
		batches, err := pollFor(ctx, r.in, 200*time.Millisecond)
		full := false
		for i := range batches {
			if full {
				break
			}
			var printErr error
			if full, printErr = r.print(&batches[i]); printErr != nil {
				return printErr
			}
		}
		if flushErr := r.flush(); flushErr != nil || full {
			return flushErr
		}
		if gone := r.app.stdout.check(); gone != nil {
			return gone
		}
		switch {
		case r.app.interrupted():
			return nil
		case err != nil:
			return err
		case r.sel.toEnd && len(batches) == 0 && r.atEnd():
			return nil
		}
	}
}

// print writes a batch. full says that -c is reached.
func (r *groupReader) print(b *consumer.Batch) (full bool, err error) {
	for _, rec := range b.Records() {
		if r.sel.json {
			r.line = append(appendJSONRecord(r.line[:0], &rec), '\n')
		} else {
			r.line = r.sel.format.appendTo(r.line[:0], &rec)
		}
		if _, err := r.app.stdout.Write(r.line); err != nil {
			return false, err
		}
		r.written = append(r.written, kafka.Record{Topic: rec.Topic, Partition: rec.Partition, Offset: rec.Offset})
		r.records++
		r.bytes += int64(len(rec.Key) + len(rec.Value))
		if r.sel.most > 0 && r.records == r.sel.most {
			return true, nil
		}
	}
	return false, nil
}

// flush writes everything out, and marks it as done.
func (r *groupReader) flush() error {
	if err := r.app.stdout.flush(); err != nil {
		return err
	}
	r.in.Mark(r.written...)
	r.written = r.written[:0]
	return nil
}

// atEnd reports whether the member has partitions and has read all of them.
func (r *groupReader) atEnd() bool {
	tps := r.in.Assignment()
	for _, tp := range tps {
		if n, ok := r.in.Lag(tp); !ok || n > 0 {
			return false
		}
	}
	return len(tps) > 0 && r.in.Group().Stats().State == "stable"
}
