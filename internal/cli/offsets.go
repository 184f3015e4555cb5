package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/kafka"
)

// partitionOffsets is one line of `offsets`.
type partitionOffsets struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Start     int64  `json:"start"`
	End       int64  `json:"end"`
	Stable    int64  `json:"stable"`
	// At is the first record at or after --at, absent without the flag.
	At *offsetAt `json:"at,omitempty"`
}

// offsetAt is a record found by time; both are -1 if there is none.
type offsetAt struct {
	Offset    int64 `json:"offset"`
	Timestamp int64 `json:"timestamp"`
}

func offsetsCommand(a *app) *cobra.Command {
	var at string
	cmd := &cobra.Command{
		Use:   "offsets TOPIC…",
		Short: "Show the first, the last stable and the end offset of partitions",
		Long: "Show the first, the last stable and the end offset of partitions.\n\n" +
			"START is the first record that is there, END the offset that the next record will get, STABLE the offset up to\n" +
			"which no transaction is open. With --at the first record at or after a time is shown too, -1 if there is none.",
		Example: "  ottla offsets events\n  ottla offsets events --at @-1h -o json",
		Args:    atLeast("TOPIC"),
		RunE: func(_ *cobra.Command, names []string) error {
			return a.withCluster(func(ctx context.Context, c *client) error { return showOffsets(ctx, a, c, names, at) })
		},
	}
	cmd.Flags().StringVar(&at, "at", "", "also the first record at or after `@TIME`: RFC 3339, milliseconds since 1970, or a duration back such as @-1h")
	return outputFlag(cmd)
}

func showOffsets(ctx context.Context, a *app, c *client, names []string, at string) error {
	when := int64(-1)
	if at != "" {
		t, err := parseTime(strings.TrimPrefix(at, "@"), time.Now())
		if err != nil {
			return usagef("--at %s: %v", at, err)
		}
		when = t.UnixMilli()
	}
	infos, err := existing(ctx, c, names)
	if err != nil {
		return err
	}
	list := []partitionOffsets{}
	for _, info := range infos {
		rows, err := offsetsOf(ctx, c, info, when)
		if err != nil {
			return err
		}
		list = append(list, rows...)
	}
	if a.stdout.json {
		return a.stdout.document(list)
	}
	heads := []string{"TOPIC", "PARTITION", "START", "STABLE", "END"}
	if at != "" {
		heads = append(heads, "AT", "TIMESTAMP")
	}
	var rows [][]string
	for _, p := range list {
		row := []string{p.Topic, itoa(int(p.Partition)), fmt.Sprint(p.Start), fmt.Sprint(p.Stable), fmt.Sprint(p.End)}
		if p.At != nil {
			row = append(row, fmt.Sprint(p.At.Offset), fmt.Sprint(p.At.Timestamp))
		}
		rows = append(rows, row)
	}
	return a.stdout.table(heads, rows)
}

// offsetsOf asks for the offsets of every partition of a topic; when below 0
// asks for no time.
func offsetsOf(ctx context.Context, c *client, info *topicInfo, when int64) ([]partitionOffsets, error) {
	start, err := listOffsets(ctx, c, info, admin.Earliest, admin.ReadUncommitted)
	if err != nil {
		return nil, err
	}
	end, err := listOffsets(ctx, c, info, admin.Latest, admin.ReadUncommitted)
	if err != nil {
		return nil, err
	}
	stable, err := listOffsets(ctx, c, info, admin.Latest, admin.ReadCommitted)
	if err != nil {
		return nil, err
	}
	var found map[int32]offsetAt
	if when >= 0 {
		if found, err = listOffsets(ctx, c, info, admin.OffsetAt(when), admin.ReadUncommitted); err != nil {
			return nil, err
		}
	}
	var rows []partitionOffsets
	for _, p := range info.numbers() {
		row := partitionOffsets{Topic: info.Name, Partition: p, Start: start[p].Offset, End: end[p].Offset, Stable: stable[p].Offset}
		if hit, ok := found[p]; ok {
			row.At = &hit
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// listOffsets asks the leaders of a topic for an offset of each partition.
func listOffsets(ctx context.Context, c *client, info *topicInfo, at admin.OffsetAt, level admin.Isolation) (map[int32]offsetAt, error) {
	asked := map[kafka.TopicPartition]admin.OffsetAt{}
	for _, p := range info.numbers() {
		asked[kafka.TopicPartition{Topic: info.Name, Partition: p}] = at
	}
	found := map[int32]offsetAt{}
	var failed []error
	for _, r := range c.admin().ListOffsets(ctx, asked, level) {
		if r.Err != nil {
			failed = append(failed, on(fmt.Errorf("%s: %w", r.Item, bare(r.Err)), "Describe", "topic "+info.Name))
		}
		found[r.Item.Partition] = offsetAt{Offset: int64(r.Value.Offset), Timestamp: int64(r.Value.Timestamp)}
	}
	return found, items(failed...)
}
