//go:build kafka

package compat

import (
	"bytes"
	"fmt"
	"strings"
	"time"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/cli"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// feature is something that users do. try does it from end to end, on a topic
// of its own, and returns what they are told if it is not possible.
type feature struct {
	name string
	try  func(r *rig) error
}

var features = []feature{
	{"produce and consume with gzip", func(r *rig) error { return r.roundTrip(producer.Gzip) }},
	{"produce and consume with snappy", func(r *rig) error { return r.roundTrip(producer.Snappy) }},
	{"produce and consume with lz4", func(r *rig) error { return r.roundTrip(producer.LZ4) }},
	{"produce and consume with zstd", func(r *rig) error { return r.roundTrip(producer.Zstd) }},
	{"transactions, read committed", (*rig).transactions},
	{"groups of the classic protocol", func(r *rig) error { return r.group(kafka.ClassicGroup) }},
	{"groups of the consumer protocol", func(r *rig) error { return r.group(kafka.ConsumerGroup) }},
	{"offsets by time", func(r *rig) error { return r.offset(admin.AtTime(time.Now().Add(time.Hour)), -1) }},
	{"offset of the latest timestamp", func(r *rig) error { return r.offset(admin.MaxTimestamp, -1) }},
	{"first offset on local disks", func(r *rig) error { return r.offset(admin.EarliestLocal, 0) }},
	{"last offset in tiered storage", func(r *rig) error { return r.offset(admin.LatestTiered, -1) }},
	{"first offset that waits for its upload", func(r *rig) error { return r.offset(admin.EarliestPendingUpload, -1) }},
	{"topics with the brokers' defaults", func(r *rig) error {
		return r.admin.CreateTopics(r.ctx, []admin.NewTopic{{Name: r.topic()}}, admin.Visible).Err()
	}},
	{"more partitions", func(r *rig) error {
		return first(r.create, func() error {
			return r.admin.CreatePartitions(r.ctx, map[string]admin.MorePartitions{r.topic(): {Total: 2}}, admin.Visible).Err()
		})
	}},
	{"deletion of records", func(r *rig) error {
		return first(r.create, func() error {
			return r.admin.DeleteRecords(r.ctx, map[kafka.TopicPartition]kafka.Offset{{Topic: r.topic()}: 0}).Err()
		})
	}},
	{"topics by id", (*rig).topicByID},
	{"changes of settings", func(r *rig) error {
		return first(r.create, func() error {
			c := admin.ConfigChange{Resource: admin.TopicResource(r.topic()), Set: map[string]string{"retention.ms": "1000"}}
			return r.admin.AlterConfigs(r.ctx, []admin.ConfigChange{c}, admin.Accepted).Err()
		})
	}},
	{"producers of a partition", func(r *rig) error {
		return first(r.create, func() error {
			return r.admin.DescribeProducers(r.ctx, []kafka.TopicPartition{{Topic: r.topic()}}).Err()
		})
	}},
	{"list of transactions", func(r *rig) error {
		_, err := r.admin.ListTransactions(r.ctx, admin.TransactionFilter{})
		return err
	}},
	{"groups by state", func(r *rig) error {
		_, err := r.admin.Groups().List(r.ctx, admin.GroupFilter{States: []string{"Empty"}})
		return err
	}},
	{"groups by type", func(r *rig) error {
		_, err := r.admin.Groups().List(r.ctx, admin.GroupFilter{Types: []string{admin.ConsumerGroup}})
		return err
	}},
	{"deletion of single offsets of a group", func(r *rig) error {
		return first(r.create, r.commit, func() error {
			return r.admin.Groups().DeleteOffsets(r.ctx, "g-"+r.topic(), []kafka.TopicPartition{{Topic: r.topic()}}).Err()
		})
	}},
	{"deletion of groups", func(r *rig) error {
		return first(r.create, r.commit, func() error { return r.admin.Groups().Delete(r.ctx, []string{"g-" + r.topic()}).Err() })
	}},
	{"`ottla brokers`", func(r *rig) error { return r.ottla("", "brokers") }},
	{"`ottla topics create -p -r`, `list`, `describe`, `delete`", (*rig).topicsCommand},
	{"`ottla topics create` without `-p` or `-r`", func(r *rig) error { return r.ottla("", "topics", "create", r.topic()) }},
	{"`ottla topics grow`", func(r *rig) error {
		return first(r.create, func() error { return r.ottla("", "topics", "grow", r.topic(), "-p", "2") })
	}},
	{"`ottla topics config -c`", func(r *rig) error {
		return first(r.create, func() error { return r.ottla("", "topics", "config", r.topic(), "-c", "retention.ms=3600000") })
	}},
	{"`ottla produce`, `consume`, `offsets`", (*rig).dataCommands},
}

// first runs steps until one fails.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

// roundTrip writes three records with headers and reads them again.
func (r *rig) roundTrip(c producer.Compression) error {
	if err := r.create(); err != nil {
		return err
	}
	p, err := producer.New(r.client, producer.Config{Compression: c})
	if err != nil {
		return err
	}
	defer p.Close()
	value := []byte(strings.Repeat("a value that compresses ", 100))
	for i := range 3 {
		rec := kafka.Record{Topic: r.topic(), Value: value, Headers: []kafka.Header{{Key: "n", Value: []byte{byte(i)}}}}
		if _, err := p.Send(r.ctx, rec); err != nil {
			return err
		}
	}
	got, err := r.read(3)
	if err != nil {
		return err
	}
	for i, rec := range got {
		if !bytes.Equal(rec.Value, value) || rec.Headers[0].Value[0] != byte(i) {
			return fmt.Errorf("record %d came back as %v", i, rec)
		}
	}
	return nil
}

// read reads n records from the start of the feature's topic, committed ones.
func (r *rig) read(n int) ([]kafka.Record, error) {
	c, err := consumer.New(r.client, consumer.Config{})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	if err := c.Assign(r.ctx, map[kafka.TopicPartition]consumer.Start{{Topic: r.topic()}: consumer.Earliest()}); err != nil {
		return nil, err
	}
	var got []kafka.Record
	for rec, err := range c.Records(r.ctx) {
		if err != nil {
			return nil, err
		}
		if got = append(got, rec); len(got) == n {
			break
		}
	}
	return got, nil
}

// transactions aborts one and commits one, and reads what is committed.
func (r *rig) transactions() error {
	if err := r.create(); err != nil {
		return err
	}
	p, err := producer.New(r.client, producer.Config{TransactionalID: r.topic()})
	if err != nil {
		return err
	}
	defer p.Close()
	for _, end := range []string{"aborted", "committed"} {
		tx, err := p.Begin(r.ctx)
		if err != nil {
			return err
		}
		if _, err := tx.Send(r.ctx, kafka.Record{Topic: r.topic(), Value: []byte(end)}); err != nil {
			return err
		}
		finish := tx.Commit
		if end == "aborted" {
			finish = tx.Abort
		}
		if err := finish(r.ctx); err != nil {
			return err
		}
	}
	got, err := r.read(1)
	if err == nil && string(got[0].Value) != "committed" {
		err = fmt.Errorf("read %q", got[0].Value)
	}
	return err
}

// group joins a group, reads a record and commits.
func (r *rig) group(kind kafka.GroupKind) error {
	if err := first(r.create, func() error { return r.ottla("one\n", "produce", r.topic()) }); err != nil {
		return err
	}
	c, err := consumer.New(r.client, consumer.Config{Group: consumer.GroupConfig{ID: "g-" + r.topic(), Topics: []string{r.topic()}, Protocol: kind}})
	if err != nil {
		return err
	}
	defer c.Close()
	for rec, err := range c.Records(r.ctx) {
		if err != nil {
			return err
		}
		if string(rec.Value) != "one" {
			return fmt.Errorf("read %q", rec.Value)
		}
		return nil
	}
	return r.ctx.Err()
}

func (r *rig) offset(at admin.OffsetAt, want kafka.Offset) error {
	if err := r.create(); err != nil {
		return err
	}
	res := r.admin.ListOffsets(r.ctx, map[kafka.TopicPartition]admin.OffsetAt{{Topic: r.topic()}: at}, admin.ReadCommitted)
	if err := res.Err(); err != nil {
		return err
	}
	if res[0].Value.Offset != want {
		return fmt.Errorf("offset %d, want %d", res[0].Value.Offset, want)
	}
	return nil
}

func (r *rig) topicByID() error {
	if err := r.create(); err != nil {
		return err
	}
	named := r.admin.DescribeTopics(r.ctx, admin.Topics(r.topic()))
	ref := admin.TopicRef{ID: named[0].Value.ID}
	if ref.ID.IsZero() {
		ref.ID[0] = 1 // the broker has no ids: what it says to any will do
	}
	return first(r.admin.DescribeTopics(r.ctx, []admin.TopicRef{ref}).Err, func() error {
		return r.admin.DeleteTopics(r.ctx, []admin.TopicRef{ref}, admin.Visible).Err()
	})
}

// commit makes a group with one offset.
func (r *rig) commit() error {
	at := map[kafka.TopicPartition]kafka.Commit{{Topic: r.topic()}: {LeaderEpoch: kafka.NoEpoch}}
	return r.admin.Groups().AlterOffsets(r.ctx, "g-"+r.topic(), at).Err()
}

// commandError is a run of the command that did not end well.
type commandError struct {
	args   []string
	status int
	stderr string
}

func (e *commandError) Error() string { return strings.TrimSpace(e.stderr) }

// ottla runs the command, whose stdout must hold something where it has any to
// give.
func (r *rig) ottla(stdin string, args ...string) error {
	_, err := r.output(stdin, args...)
	return err
}

func (r *rig) output(stdin string, args ...string) (string, error) {
	var stdout, stderr bytes.Buffer
	args = append(args, "-b", r.kafka.Bootstrap(), "-q")
	if status := cli.Run(r.ctx, args, strings.NewReader(stdin), &stdout, &stderr); status != 0 {
		return "", &commandError{args, status, stderr.String()}
	}
	return stdout.String(), nil
}

func (r *rig) topicsCommand() error {
	if err := r.ottla("", "topics", "create", r.topic(), "-p", "2", "-r", "1"); err != nil {
		return err
	}
	for _, args := range [][]string{{"topics", "list"}, {"topics", "describe", r.topic()}} {
		out, err := r.output("", args...)
		if err == nil && !strings.Contains(out, r.topic()) {
			err = fmt.Errorf("ottla %s printed %q", strings.Join(args, " "), out)
		}
		if err != nil {
			return err
		}
	}
	return r.ottla("", "topics", "delete", r.topic(), "--yes")
}

func (r *rig) dataCommands() error {
	if err := first(r.create, func() error { return r.ottla("k:one\nk:two\n", "produce", r.topic(), "-K", ":") }); err != nil {
		return err
	}
	for want, args := range map[string][]string{
		"k one\nk two\n":             {"consume", r.topic(), "-e", "-f", `%k %s\n`},
		r.topic() + "\t0\t0\t2\t2\n": {"offsets", r.topic()},
	} {
		out, err := r.output("", args...)
		if err == nil && out != want {
			err = fmt.Errorf("ottla %s printed %q", strings.Join(args, " "), out)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
