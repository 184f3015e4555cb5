package cli

import (
	"bufio"
	"context"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/admin"
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

func listTopics(ctx context.Context, a *app, c *client, internal bool) error {
	topics, err := c.admin().ListTopics(ctx)
	if err != nil {
		return err
	}
	list := []listedTopic{}
	for i := range topics {
		t := &topics[i]
		if t.Internal && !internal {
			continue
		}
		one := listedTopic{Name: t.Name, Internal: t.Internal, Partitions: len(t.Partitions), Replicas: t.Replicas()}
		if !t.ID.IsZero() {
			one.ID = t.ID.String()
		}
		list = append(list, one)
	}
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

func deleteTopics(ctx context.Context, a *app, c *client, names []string, yes bool) error {
	if _, err := existing(ctx, c, names); err != nil {
		return err
	}
	if !yes {
		if err := a.confirm("delete " + strings.Join(names, ", ") + " and all records in it? [y/N] "); err != nil {
			return err
		}
	}
	work, cancel := a.changing()
	defer cancel()
	deleted, err := dropTopics(work, c, names)
	if len(deleted) > 0 {
		err = items(err, a.done(map[string][]string{"deleted": deleted}, "deleted "+strings.Join(deleted, ", ")))
	}
	return err
}

// dropTopics deletes topics, and waits until no broker shows them any more. It
// returns those that are deleted.
func dropTopics(ctx context.Context, c *client, names []string) ([]string, error) {
	var deleted []string
	var errs []error
	for _, r := range c.admin().DeleteTopics(ctx, admin.Topics(names...), admin.Visible) {
		if r.Err == nil {
			deleted = append(deleted, r.Item.Name)
			continue
		}
		what := "topic " + r.Item.Name
		errs = append(errs, changed(on(notDone(bare(r.Err), what, "deleted"), "Delete", what)))
	}
	return deleted, items(errs...)
}

// done prints the result of a change.
func (a *app) done(document any, text string) error {
	if a.stdout.json {
		return a.stdout.document(document)
	}
	return a.stdout.printf("%s", text)
}

// confirm asks on stderr and reads a line from stdin. A signal is a no.
func (a *app) confirm(question string) error {
	if _, err := a.notes.Write([]byte(question)); err != nil {
		return err
	}
	got := make(chan string, 1)
	a.tasks.Go(func(context.Context) error {
		answer, _ := bufio.NewReader(io.LimitReader(a.stdin, 100)).ReadString('\n')
		got <- answer
		return nil
	})
	select {
	case answer := <-got:
		if !strings.HasSuffix(answer, "\n") {
			a.notes.printf("") // the error has a line of its own
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return nil
		}
		return errNotConfirmed
	case <-a.stop.Done():
		a.notes.printf("")
		return context.Cause(a.stop)
	}
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

func growTopic(ctx context.Context, a *app, c *client, name string, partitions int32) error {
	infos, err := existing(ctx, c, []string{name})
	if err != nil {
		return err
	}
	if has := int32(len(infos[0].Partitions)); has >= partitions {
		return usagef("topic %s has %s already; a topic can only grow", name, count(int64(has), "partition"))
	}
	work, cancel := a.changing()
	defer cancel()
	more := map[string]admin.MorePartitions{name: {Total: partitions}}
	if err := c.admin().CreatePartitions(work, more, admin.Visible).Err(); err != nil {
		return changed(on(notDone(bare(err), "topic "+name, "grown"), "Alter", "topic "+name))
	}
	return a.done(map[string]any{"name": name, "partitions": partitions},
		name+" has "+count(int64(partitions), "partition")+" now")
}
