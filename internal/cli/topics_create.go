package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/kafka"
)

// newTopic says how a topic is to be made. Partitions and replicas of -1 are
// the brokers' defaults.
type newTopic struct {
	partitions int32
	replicas   int16
	configs    []string // name=value
	dryRun     bool
}

func topicsCreateCommand(a *app) *cobra.Command {
	n := newTopic{}
	cmd := &cobra.Command{
		Use:     "create NAME…",
		Short:   "Create topics",
		Long:    "Create topics, and wait until every broker knows them.",
		Example: "  ottla topics create orders -p 3 -c cleanup.policy=compact\n  ottla topics create audit -r 1 -c retention.ms=86400000 -o json",
		Args:    atLeast("NAME"),
		RunE: func(_ *cobra.Command, names []string) error {
			if n.partitions == 0 || n.partitions < -1 {
				return usagef("-p %d: at least one, or -1 for the brokers' default", n.partitions)
			}
			if n.replicas == 0 || n.replicas < -1 {
				return usagef("-r %d: at least one, or -1 for the brokers' default", n.replicas)
			}
			return a.withCluster(func(_ context.Context, c *client) error { return createTopics(a, c, names, n) })
		},
	}
	cmd.Flags().Int32VarP(&n.partitions, "partitions", "p", -1, "partitions of each topic; -1 is the brokers' default")
	cmd.Flags().Int16VarP(&n.replicas, "replicas", "r", -1, "replicas of each partition; -1 is the brokers' default")
	cmd.Flags().StringArrayVarP(&n.configs, "config-entry", "c", nil, "a setting of the topics, `NAME=VALUE`; repeatable")
	cmd.Flags().BoolVar(&n.dryRun, "dry-run", false, "only ask the brokers whether they would")
	return outputFlag(cmd)
}

func createTopics(a *app, c *client, names []string, n newTopic) error {
	work, cancel := a.changing()
	defer cancel()
	made, err := makeTopics(work, c, names, n)
	if len(made) == 0 {
		return err
	}
	return items(err, printMade(a, made, n))
}

// printMade shows the topics that were created.
func printMade(a *app, made []listedTopic, n newTopic) error {
	if a.stdout.json {
		return a.stdout.document(made)
	}
	verb := "created"
	if n.dryRun {
		verb = "would create"
	}
	for _, t := range made {
		text := ""
		if t.Partitions > 0 {
			text = fmt.Sprintf(": %s, %s", count(int64(t.Partitions), "partition"), count(int64(t.Replicas), "replica"))
		}
		if err := a.stdout.printf("%s %s%s", verb, t.Name, text); err != nil {
			return err
		}
	}
	return nil
}

// makeTopics creates topics and waits until every broker shows them. It returns
// those that were made.
func makeTopics(ctx context.Context, c *client, names []string, n newTopic) ([]listedTopic, error) {
	var topics []admin.NewTopic
	for _, name := range names {
		t, err := n.named(name)
		if err != nil {
			return nil, err
		}
		topics = append(topics, t)
	}
	mode := admin.Visible
	if n.dryRun {
		mode = admin.ValidateOnly
	}
	var made []listedTopic
	var errs []error
	for _, r := range c.admin().CreateTopics(ctx, topics, mode) {
		if r.Err != nil {
			errs = append(errs, changed(createError(r.Item, bare(r.Err))))
			continue
		}
		one := listedTopic{Name: r.Item, Partitions: int(max(r.Value.Partitions, 0)), Replicas: int(max(r.Value.Replicas, 0))}
		if !r.Value.ID.IsZero() {
			one.ID = r.Value.ID.String()
		}
		made = append(made, one)
	}
	return made, items(errs...)
}

// named is the topic of one name.
func (n *newTopic) named(name string) (admin.NewTopic, error) {
	t := admin.NewTopic{Name: name, Partitions: max(n.partitions, 0), Replicas: max(n.replicas, 0), Configs: map[string]string{}}
	for _, entry := range n.configs {
		key, value, ok := strings.Cut(entry, "=")
		if !ok {
			return t, usagef("-c %s: expected NAME=VALUE", entry)
		}
		t.Configs[key] = value
	}
	return t, checkTopicName(name)
}

// createError is why a topic was not created.
func createError(name string, err error) error {
	if errors.Is(err, kerr.TopicAlreadyExists) {
		return advise(fmt.Errorf("topic %s exists already: %w", name, err), "`ottla topics describe %s` shows it", name)
	}
	var old *kafka.VersionError
	if errors.As(err, &old) {
		return advise(err, "-p N and -r N say how many partitions and replicas")
	}
	return on(notDone(err, "topic "+name, "created"), "Create", "topic "+name)
}
