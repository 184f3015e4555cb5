package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/kafka"
)

// resetFlags are the flags of `groups reset`.
type resetFlags struct {
	topics []string
	to     string
	shift  int64
	dryRun bool
}

// resetLine is one line of `groups reset`.
type resetLine struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      *int64 `json:"from"` // null: nothing was committed
	To        int64  `json:"to"`
}

func groupsResetCommand(a *app) *cobra.Command {
	var f resetFlags
	cmd := &cobra.Command{
		Use:   "reset GROUP (--to POSITION | --shift N)",
		Short: "Move what a group without members has committed",
		Long: "Move what a group without members has committed: of the topics of --topic, else of every partition that it has\n" +
			"committed. A position outside of the log becomes the nearer end of it. A group that does not exist is made.",
		Example: "  ottla groups reset billing --topic events --to @-1h --dry-run\n  ottla groups reset report --topic events --to end && ottla groups reset report --shift -100",
		Args:    takes("GROUP"),
		RunE: func(cmd *cobra.Command, args []string) error {
			if (f.to == "") == !cmd.Flags().Changed("shift") {
				return usagef("groups reset: one of --to and --shift")
			}
			to, err := parsePosition(orStart(f.to), time.Now())
			if err != nil {
				return usagef("--to %v", err)
			}
			return a.withGroups(func(ctx context.Context, c *client, g *admin.Groups) error {
				return resetGroup(ctx, a, resetting{c: c, g: g, id: args[0], f: &f, to: to})
			})
		},
	}
	fs := cmd.Flags()
	fs.StringSliceVar(&f.topics, "topic", nil, "only these `TOPICS`, all partitions of them")
	fs.StringVar(&f.to, "to", "", "`POSITION`: start, end, an offset, -N for N before the end, or @TIME: RFC 3339, ms since 1970, or a duration back such as @-1h")
	fs.Int64Var(&f.shift, "shift", 0, "move by `N` offsets, back if negative")
	fs.BoolVar(&f.dryRun, "dry-run", false, "only show what would be moved")
	return outputFlag(cmd)
}

func orStart(s string) string {
	if s == "" {
		return "start"
	}
	return s
}

// resetting is one `groups reset`.
type resetting struct {
	c  *client
	g  *admin.Groups
	id string
	f  *resetFlags
	to position
}

func resetGroup(ctx context.Context, a *app, r resetting) error {
	committed, err := r.committed(ctx)
	if err != nil {
		return err
	}
	topics := r.f.topics
	if len(topics) == 0 {
		names := map[string]bool{}
		for tp := range committed {
			names[tp.Topic] = true
		}
		topics = slices.Sorted(maps.Keys(names))
	}
	if len(topics) == 0 {
		return fmt.Errorf("group %s has committed nothing; name topics with --topic", r.id)
	}
	infos, err := existing(ctx, r.c, topics)
	if err != nil {
		return err
	}
	lines := []resetLine{}
	offsets := map[kafka.TopicPartition]kafka.Commit{}
	for _, info := range infos {
		rows, err := offsetsOf(ctx, r.c, info, r.time())
		if err != nil {
			return err
		}
		for i := range rows {
			line, ok := r.line(&rows[i], committed)
			if !ok {
				continue
			}
			lines = append(lines, line)
			offsets[kafka.TopicPartition{Topic: line.Topic, Partition: line.Partition}] = kafka.Commit{Offset: kafka.Offset(line.To), LeaderEpoch: kafka.NoEpoch}
		}
	}
	if !r.f.dryRun {
		if err := r.alter(a, offsets); err != nil {
			return err
		}
	}
	return printReset(a, lines)
}

// committed is what the group has committed.
func (r *resetting) committed(ctx context.Context) (map[kafka.TopicPartition]int64, error) {
	all := r.g.Offsets(ctx, []string{r.id})
	if err := all.Err(); err != nil && !errors.Is(err, kerr.GroupIDNotFound) {
		return nil, on(err, "Describe", "group "+r.id)
	}
	found := map[kafka.TopicPartition]int64{}
	for _, one := range all {
		if err := r.add(found, one.Value); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// add takes in what is told of partitions. Where one that is to be moved has an
// error, nothing is moved: it would stay where it is without a word.
func (r *resetting) add(found map[kafka.TopicPartition]int64, told admin.Results[kafka.TopicPartition, kafka.Commit]) error {
	var errs []error
	for _, o := range told {
		switch {
		case o.Err == nil:
			found[o.Item] = int64(o.Value.Offset)
		case len(r.f.topics) == 0 || slices.Contains(r.f.topics, o.Item.Topic):
			errs = append(errs, fmt.Errorf("%s: what group %s has committed: %w", o.Item, r.id, o.Err))
		}
	}
	return items(errs...)
}

// time is what to ask ListOffsets for, -1 for nothing.
func (r *resetting) time() int64 {
	if r.to.kind == fromTime {
		return r.to.time.UnixMilli()
	}
	return -1
}

// line is where one partition goes; ok is false if it stays out of it.
func (r *resetting) line(row *partitionOffsets, committed map[kafka.TopicPartition]int64) (l resetLine, ok bool) {
	l = resetLine{Topic: row.Topic, Partition: row.Partition}
	from, has := committed[kafka.TopicPartition{Topic: row.Topic, Partition: row.Partition}]
	if has {
		l.From = &from
	}
	if !has && (r.f.to == "" || len(r.f.topics) == 0) {
		return l, false
	}
	switch {
	case r.f.to == "":
		l.To = from + r.f.shift
	case r.to.kind == fromStart:
		l.To = row.Start
	case r.to.kind == fromEnd:
		l.To = row.End - r.to.n
	case r.to.kind == fromOffset:
		l.To = r.to.n
	case row.At != nil && row.At.Offset >= 0:
		l.To = row.At.Offset
	default:
		l.To = row.End
	}
	l.To = min(max(l.To, row.Start), row.End)
	return l, true
}

// alter commits the new offsets.
func (r *resetting) alter(a *app, offsets map[kafka.TopicPartition]kafka.Commit) error {
	var errs []error
	for _, one := range r.g.AlterOffsets(a.work, r.id, offsets) {
		if one.Err != nil {
			errs = append(errs, changed(fmt.Errorf("%s: %w", one.Item, one.Err)))
		}
	}
	return items(errs...)
}

func printReset(a *app, lines []resetLine) error {
	if a.stdout.json {
		return a.stdout.document(lines)
	}
	var rows [][]string
	for _, l := range lines {
		from := "-"
		if l.From != nil {
			from = fmt.Sprint(*l.From)
		}
		rows = append(rows, []string{l.Topic, itoa(int(l.Partition)), from, fmt.Sprint(l.To)})
	}
	if len(rows) == 0 {
		return nil
	}
	return a.stdout.table(strings.Fields("TOPIC PARTITION FROM TO"), rows)
}
