package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/kafka"
)

// consumeFlags are the flags of `ottla consume`.
type consumeFlags struct {
	offset     string
	until      string
	toEnd      bool
	count      int64
	partitions string
	isolation  string
	format     string
	json       bool
	groupFlags
}

func consumeCommand(a *app) *cobra.Command {
	var f consumeFlags
	cmd := &cobra.Command{
		Use:   "consume TOPIC…",
		Short: "Print the records of topics",
		Long: "Print the records of topics, from the start unless -o says otherwise, and go on until a signal.\n\n" +
			"FORMAT has kcat's letters: %t topic, %p partition, %o offset, %k key, %s value, %K and %S their lengths (-1 for\n" +
			"null), %T timestamp in ms, %h headers, %% a percent sign; and the escapes \\t \\n \\r \\\\ \\xNN.",
		Example: "  ottla consume events -o -5 -e -f '%p %o %k %s\\n'\n  ottla consume events -g report -e",
		Args:    atLeast("TOPIC"),
		RunE: func(cmd *cobra.Command, topics []string) error {
			if f.json && cmd.Flags().Changed("format") {
				return usagef("--json and -f do not go together")
			}
			sel, err := f.selection(time.Now())
			if err != nil {
				return err
			}
			if err := f.check(sel); err != nil {
				return err
			}
			return a.withCluster(func(ctx context.Context, c *client) error {
				if f.group != "" {
					return a.consumeGroup(ctx, c, topics, sel, &f.groupFlags)
				}
				return a.consume(ctx, c, topics, sel)
			})
		},
	}
	fs := cmd.Flags()
	fs.StringVarP(&f.offset, "offset", "o", "start", "where to begin: start, end, `N`, -N for the last N of each partition, or @TIME: RFC 3339, ms since 1970, or a duration back such as @-1h")
	fs.StringVar(&f.until, "until", "", "stop at the first record at or after `@TIME`, in each partition")
	fs.BoolVarP(&f.toEnd, "exit", "e", false, "stop at the end as it is at the start (read committed: the last stable offset)")
	fs.Int64VarP(&f.count, "count", "c", 0, "stop after `N` records")
	fs.StringVarP(&f.partitions, "partitions", "p", "", "only these partitions, `0,1,4-7`")
	fs.StringVarP(&f.group, "group", "g", "", "as a member of consumer `GROUP`: go on where it stands, commit what was written out")
	fs.StringVar(&f.protocol, "group-protocol", "", "`PROTOCOL` of the group: classic (default) or consumer (KIP-848)")
	fs.StringVar(&f.isolation, "isolation", "", "`LEVEL`: committed (default) or uncommitted")
	fs.StringVarP(&f.format, "format", "f", `%s\n`, "`FORMAT` of a record")
	fs.BoolVar(&f.json, "json", false, "print one JSON object a line")
	return cmd
}

// selection is what is read and how it is printed.
type selection struct {
	from       position
	until      time.Time // zero: no limit
	toEnd      bool
	most       int64   // records; 0: no limit
	partitions []int32 // nil: all
	isolation  string  // committed, uncommitted, or "" for the property's
	format     recordFormat
	json       bool
}

// selection checks the flags.
func (f *consumeFlags) selection(now time.Time) (*selection, error) {
	s := &selection{toEnd: f.toEnd, most: f.count, isolation: f.isolation, json: f.json}
	var err error
	if s.from, err = parsePosition(f.offset, now); err != nil {
		return nil, usagef("-o %v", err)
	}
	if f.until != "" {
		if s.until, err = parseTime(strings.TrimPrefix(f.until, "@"), now); err != nil {
			return nil, usagef("--until %q: %v", f.until, err)
		}
	}
	if f.count < 0 {
		return nil, usagef("-c %d: a number of records", f.count)
	}
	if f.partitions != "" {
		if s.partitions, err = parsePartitions(f.partitions); err != nil {
			return nil, usagef("-p %v", err)
		}
	}
	if f.isolation != "" && f.isolation != "committed" && f.isolation != "uncommitted" {
		return nil, usagef("--isolation %s: committed or uncommitted", f.isolation)
	}
	s.format, err = parseFormat(f.format)
	return s, err
}

// span is what is read of one partition.
type span struct {
	next kafka.Offset
	stop kafka.Offset // noStop: it goes on
}

// noStop is a span without an end.
const noStop kafka.Offset = -1

// done reports whether everything is read.
func (s span) done() bool { return s.stop != noStop && s.next >= s.stop }

// spans finds where reading begins and ends in each partition, by the
// positions that the cluster tells now.
func (sel *selection) spans(ctx context.Context, c *client, infos []*topicInfo, committed bool) (map[kafka.TopicPartition]span, error) {
	all := map[kafka.TopicPartition]span{}
	for _, info := range infos {
		info, err := sel.chosen(info)
		if err != nil {
			return nil, err
		}
		rows, err := offsetsOf(ctx, c, info, sel.time())
		if err != nil {
			return nil, err
		}
		var ends map[int32]offsetAt
		if !sel.until.IsZero() {
			if ends, err = listOffsets(ctx, c, info, admin.AtTime(sel.until), admin.ReadUncommitted); err != nil {
				return nil, err
			}
		}
		for _, row := range rows {
			end := row.End
			if committed {
				end = row.Stable
			}
			one, err := sel.span(&row, end)
			if err != nil {
				return nil, err
			}
			if at, ok := ends[row.Partition]; ok && at.Offset >= 0 && (one.stop == noStop || kafka.Offset(at.Offset) < one.stop) {
				one.stop = kafka.Offset(at.Offset)
			}
			all[kafka.TopicPartition{Topic: row.Topic, Partition: row.Partition}] = one
		}
	}
	return all, nil
}

// time is what to ask ListOffsets for, -1 for nothing.
func (sel *selection) time() int64 {
	if sel.from.kind == fromTime {
		return sel.from.time.UnixMilli()
	}
	return -1
}

// chosen keeps the partitions of -p.
func (sel *selection) chosen(info *topicInfo) (*topicInfo, error) {
	if sel.partitions == nil {
		return info, nil
	}
	kept := *info
	kept.Partitions = nil
	for _, p := range sel.partitions {
		i := slices.IndexFunc(info.Partitions, func(one partitionInfo) bool { return one.Partition == p })
		if i < 0 {
			return nil, fmt.Errorf("topic %s has no partition %d: its %s go from 0 to %d",
				info.Name, p, count(int64(len(info.Partitions)), "partition"), len(info.Partitions)-1)
		}
		kept.Partitions = append(kept.Partitions, info.Partitions[i])
	}
	return &kept, nil
}

// span finds beginning and end of one partition; end is where it ends now.
func (sel *selection) span(row *partitionOffsets, end int64) (span, error) {
	next := row.Start
	switch sel.from.kind {
	case fromStart:
	case fromEnd:
		next = max(row.Start, end-sel.from.n)
	case fromOffset:
		next = sel.from.n
		if next < row.Start || next > row.End {
			return span{}, &kafka.OutOfRangeError{
				TopicPartition: kafka.TopicPartition{Topic: row.Topic, Partition: row.Partition},
				Position:       kafka.Offset(next), Start: kafka.Offset(row.Start), End: kafka.Offset(row.End),
			}
		}
	case fromTime:
		next = end
		if row.At != nil && row.At.Offset >= 0 {
			next = row.At.Offset
		}
	}
	one := span{next: kafka.Offset(next), stop: noStop}
	if sel.toEnd || !sel.until.IsZero() && !sel.until.After(time.Now()) {
		one.stop = kafka.Offset(end)
	}
	return one, nil
}
