package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

func topicsCommand(a *app) *cobra.Command {
	return family("topics", "List, create, describe, delete, grow and configure topics",
		topicsListCommand(a), topicsCreateCommand(a), topicsDescribeCommand(a),
		topicsDeleteCommand(a), topicsGrowCommand(a), topicsConfigCommand(a))
}

// listedTopic is one line of `topics list`.
type listedTopic struct {
	Name       string `json:"name"`
	ID         string `json:"id,omitempty"`
	Internal   bool   `json:"internal"`
	Partitions int    `json:"partitions"`
	Replicas   int    `json:"replicas"`
}

func topicsListCommand(a *app) *cobra.Command {
	var internal bool
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the topics",
		Example: "  ottla topics list\n  ottla topics list --internal -o json",
		Args:    takes(),
		RunE: func(*cobra.Command, []string) error {
			return a.withCluster(func(ctx context.Context, c *client) error { return listTopics(ctx, a, c, internal) })
		},
	}
	cmd.Flags().BoolVar(&internal, "internal", false, "also those that the brokers keep for themselves")
	return outputFlag(cmd)
}

func listTopics(ctx context.Context, a *app, c asker, internal bool) error {
	resp, err := metadataOf(ctx, c, nil)
	if err != nil {
		return err
	}
	list := []listedTopic{}
	for i := range resp.Topics {
		if resp.Topics[i].IsInternal && !internal {
			continue
		}
		info, err := topicOf(&resp.Topics[i])
		if err != nil && info.Name == "" {
			return err
		}
		list = append(list, listedTopic{
			Name: info.Name, ID: info.ID, Internal: info.Internal, Partitions: len(info.Partitions), Replicas: info.replicas(),
		})
	}
	slices.SortFunc(list, func(a, b listedTopic) int { return strings.Compare(a.Name, b.Name) })
	if a.stdout.json {
		return a.stdout.document(list)
	}
	var rows [][]string
	for _, t := range list {
		rows = append(rows, []string{t.Name, itoa(t.Partitions), itoa(t.Replicas)})
	}
	return a.stdout.table([]string{"NAME", "PARTITIONS", "REPLICAS"}, rows)
}

func topicsDescribeCommand(a *app) *cobra.Command {
	return outputFlag(&cobra.Command{
		Use:     "describe NAME…",
		Short:   "Show partitions, leaders and replicas",
		Example: "  ottla topics describe events\n  ottla topics describe events -o json",
		Args:    atLeast("NAME"),
		RunE: func(_ *cobra.Command, names []string) error {
			return a.withCluster(func(ctx context.Context, c *client) error { return describeTopics(ctx, a, c, names) })
		},
	})
}

func describeTopics(ctx context.Context, a *app, c asker, names []string) error {
	infos, err := existing(ctx, c, names)
	if err != nil {
		return err
	}
	if a.stdout.json {
		return a.stdout.document(infos)
	}
	var rows [][]string
	for _, t := range infos {
		for _, p := range t.Partitions {
			rows = append(rows, []string{
				t.Name, itoa(int(p.Partition)), leaderText(p.Leader), itoa(int(p.Epoch)),
				numbers(p.Replicas), numbers(p.ISR), numbers(p.Offline),
			})
		}
	}
	return a.stdout.table([]string{"TOPIC", "PARTITION", "LEADER", "EPOCH", "REPLICAS", "ISR", "OFFLINE"}, rows)
}

// leaderText is a leader in a table.
func leaderText(id int32) string {
	if id < 0 {
		return "none"
	}
	return itoa(int(id))
}

// numbers is a list in a table.
func numbers(list []int32) string {
	if len(list) == 0 {
		return "-"
	}
	var texts []string
	for _, n := range list {
		texts = append(texts, itoa(int(n)))
	}
	return strings.Join(texts, ",")
}

func topicsDeleteCommand(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete NAME…",
		Short:   "Delete topics and all their records",
		Example: "  ottla topics create old && ottla topics delete old --yes\n  ottla topics create older && echo yes | ottla topics delete older",
		Args:    atLeast("NAME"),
		RunE: func(_ *cobra.Command, names []string) error {
			return a.withCluster(func(ctx context.Context, c *client) error { return deleteTopics(ctx, a, c, names, yes) })
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return outputFlag(cmd)
}

func deleteTopics(ctx context.Context, a *app, c everyBroker, names []string, yes bool) error {
	if _, err := existing(ctx, c, names); err != nil {
		return err
	}
	if !yes {
		if err := a.confirm("delete " + strings.Join(names, ", ") + " and all records in it? [y/N] "); err != nil {
			return err
		}
	}
	if err := dropTopics(a.work, c, names, a.shared.timeout); err != nil {
		return err
	}
	for _, name := range names {
		err := await(ctx, c, name, func(t *kmsg.MetadataResponseTopic) bool {
			return t.ErrorCode == kerr.UnknownTopicOrPartition.Code
		})
		if err != nil {
			return err
		}
	}
	return a.done(map[string][]string{"deleted": names}, "deleted "+strings.Join(names, ", "))
}

// dropTopics deletes topics.
func dropTopics(ctx context.Context, c asker, names []string, timeout time.Duration) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = int32(min(timeout, 24*time.Hour).Milliseconds())
	req.TopicNames = names
	for _, name := range names {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c)
	if err != nil {
		return changed(on(err, "Delete", "topic "+strings.Join(names, ", ")))
	}
	for _, t := range resp.Topics {
		name := ""
		if t.Topic != nil {
			name = *t.Topic
		}
		if err := kafka.CodeError(t.ErrorCode, t.ErrorMessage); err != nil {
			return changed(on(err, "Delete", "topic "+name))
		}
	}
	return nil
}

// done prints the result of a change.
func (a *app) done(document any, text string) error {
	if a.stdout.json {
		return a.stdout.document(document)
	}
	return a.stdout.printf("%s", text)
}

// confirm asks on stderr and reads a line from stdin.
func (a *app) confirm(question string) error {
	if _, err := a.notes.Write([]byte(question)); err != nil {
		return err
	}
	var answer []byte
	one := make([]byte, 1)
	for len(answer) < 100 {
		n, err := a.stdin.Read(one)
		if n == 1 && one[0] != '\n' {
			answer = append(answer, one[0])
			continue
		}
		if n == 1 || err != nil {
			break
		}
	}
	switch strings.ToLower(strings.TrimSpace(string(answer))) {
	case "y", "yes":
		return nil
	}
	return errNotConfirmed
}

func topicsGrowCommand(a *app) *cobra.Command {
	var partitions int32
	cmd := &cobra.Command{
		Use:     "grow NAME -p N",
		Short:   "Raise the number of partitions of a topic to N",
		Long:    "Raise the number of partitions of a topic to N.\n\nKeyed records go to other partitions from then on; those that are there stay where they are.",
		Example: "  ottla topics create wide -p 2 && ottla topics grow wide -p 5\n  ottla topics create wider && ottla topics grow wider -p 3 -o json",
		Args:    takes("NAME"),
		RunE: func(_ *cobra.Command, args []string) error {
			if partitions < 1 {
				return usagef("topics grow: -p N is missing: the number of partitions that %s shall have", args[0])
			}
			return a.withCluster(func(ctx context.Context, c *client) error { return growTopic(ctx, a, c, args[0], partitions) })
		},
	}
	cmd.Flags().Int32VarP(&partitions, "partitions", "p", 0, "partitions that the topic shall have in all")
	return outputFlag(cmd)
}

func growTopic(ctx context.Context, a *app, c everyBroker, name string, partitions int32) error {
	infos, err := existing(ctx, c, []string{name})
	if err != nil {
		return err
	}
	if has := int32(len(infos[0].Partitions)); has >= partitions {
		return usagef("topic %s has %s already; a topic can only grow", name, count(int64(has), "partition"))
	}
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.TimeoutMillis = a.timeoutMillis()
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count, t.Assignment = name, partitions, nil
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(a.work, c)
	if err != nil {
		return changed(on(err, "Alter", "topic "+name))
	}
	for _, t := range resp.Topics {
		if err := kafka.CodeError(t.ErrorCode, t.ErrorMessage); err != nil {
			return changed(on(err, "Alter", "topic "+name))
		}
	}
	if err := await(ctx, c, name, ready(int(partitions))); err != nil {
		return err
	}
	return a.done(map[string]any{"name": name, "partitions": partitions},
		name+" has "+count(int64(partitions), "partition")+" now")
}

// ready is true for a topic that has its partitions, each with a leader.
func ready(partitions int) func(*kmsg.MetadataResponseTopic) bool {
	return func(t *kmsg.MetadataResponseTopic) bool {
		if t.ErrorCode != 0 || len(t.Partitions) < max(partitions, 1) {
			return false
		}
		return !slices.ContainsFunc(t.Partitions, func(p kmsg.MetadataResponseTopicPartition) bool { return p.Leader < 0 })
	}
}
