package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

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
			return a.withCluster(func(ctx context.Context, c *client) error { return createTopics(ctx, a, c, names, n) })
		},
	}
	cmd.Flags().Int32VarP(&n.partitions, "partitions", "p", -1, "partitions of each topic; -1 is the brokers' default")
	cmd.Flags().Int16VarP(&n.replicas, "replicas", "r", -1, "replicas of each partition; -1 is the brokers' default")
	cmd.Flags().StringArrayVarP(&n.configs, "config-entry", "c", nil, "a setting of the topics, `NAME=VALUE`; repeatable")
	cmd.Flags().BoolVar(&n.dryRun, "dry-run", false, "only ask the brokers whether they would")
	return outputFlag(cmd)
}

func createTopics(ctx context.Context, a *app, c everyBroker, names []string, n newTopic) error {
	made, err := makeTopics(ctx, a, c, names, n)
	if err != nil {
		return err
	}
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

// makeTopics creates topics and waits until every broker shows them.
func makeTopics(ctx context.Context, a *app, c everyBroker, names []string, n newTopic) ([]listedTopic, error) {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = a.timeoutMillis()
	req.ValidateOnly = n.dryRun
	for _, name := range names {
		if err := checkTopicName(name); err != nil {
			return nil, err
		}
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, n.partitions, n.replicas
		for _, entry := range n.configs {
			key, value, ok := strings.Cut(entry, "=")
			if !ok {
				return nil, usagef("-c %s: expected NAME=VALUE", entry)
			}
			one := kmsg.NewCreateTopicsRequestTopicConfig()
			one.Name, one.Value = key, &value
			t.Configs = append(t.Configs, one)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(a.work, c)
	if err != nil {
		return nil, changed(on(err, "Create", "topic "+strings.Join(names, ", ")))
	}
	var made []listedTopic
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if err := createError(t); err != nil {
			return nil, changed(err)
		}
		one := listedTopic{Name: t.Topic, Partitions: int(max(t.NumPartitions, 0)), Replicas: int(max(t.ReplicationFactor, 0))}
		if id := kafka.TopicID(t.TopicID); !id.IsZero() {
			one.ID = id.String()
		}
		if !n.dryRun {
			if err := await(ctx, c, t.Topic, ready(one.Partitions)); err != nil {
				return nil, err
			}
		}
		made = append(made, one)
	}
	return made, nil
}

// createError is why a topic was not created.
func createError(t *kmsg.CreateTopicsResponseTopic) error {
	err := kafka.CodeError(t.ErrorCode, t.ErrorMessage)
	switch t.ErrorCode {
	case 0:
		return nil
	case kerr.TopicAlreadyExists.Code:
		return advise(fmt.Errorf("topic %s exists already: %w", t.Topic, err), "`ottla topics describe %s` shows it", t.Topic)
	}
	return on(fmt.Errorf("topic %s is not created: %w", t.Topic, err), "Create", "topic "+t.Topic)
}
