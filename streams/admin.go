package streams

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// Delete deletes an empty Streams group with its offsets, and its internal topics
// if internalTopics is set: repartition topics and changelogs, but no topic that
// is a source too. Topics that are gone already are no error.
//
// Errors: [*GroupTypeError] if there is no such group, [*BrokerError] with
// NON_EMPTY_GROUP while it has members, a [*kafka.OpError] for each topic that
// stayed, the group being deleted.
func Delete(ctx context.Context, c Kafka, group string, internalTopics bool) error {
	ctx, cancel := bounded(ctx)
	defer cancel()
	g, err := Describe(ctx, c, group, DescribeOptions{})
	if err != nil {
		return err
	}
	open := false
	err = coordinate(ctx, c, group, func(ctx context.Context) reply {
		version, err := versionOf(ctx, c, group, 42, "DeleteGroups (API 42)")
		if err != nil {
			return reply{err: err}
		}
		req := kmsg.NewPtrDeleteGroupsRequest()
		req.Version, req.Groups = min(version, req.MaxVersion()), []string{group}
		resp, err := c.RequestCoordinator(ctx, group, req)
		if err != nil {
			open = open || kafka.MayHaveHappened(err)
			return reply{err: err}
		}
		r, ok := resp.(*kmsg.DeleteGroupsResponse)
		if !ok || len(r.Groups) != 1 || r.Groups[0].Group != group {
			open = true
			return reply{err: &ProtocolError{Reason: "the answer is not about the one group"}}
		}
		if r.Groups[0].ErrorCode == codeGroupNotFound { // gone since it was described: an answer was lost
			return reply{}
		}
		return reply{code: r.Groups[0].ErrorCode, message: r.Groups[0].ErrorMessage}
	})
	if err != nil || !internalTopics {
		return leftOpen(err, open)
	}
	return leftOpen(deleteTopics(ctx, c, internalOf(g.Topology)), true) // the group is gone
}

// internalOf are the internal topics of a topology that are no sources.
func internalOf(t *Topology) []string {
	if t == nil {
		return nil
	}
	internal, sources := map[string]bool{}, map[string]bool{}
	for _, s := range t.Subtopologies {
		for _, topic := range append(slices.Clone(s.Repartitions), s.Changelogs...) {
			internal[topic.Name] = true
		}
		for _, topic := range s.Sources {
			sources[topic] = true
		}
	}
	maps.DeleteFunc(internal, func(topic string, _ bool) bool { return sources[topic] })
	return slices.Sorted(maps.Keys(internal))
}

func deleteTopics(ctx context.Context, c Kafka, topics []string) error {
	if len(topics) == 0 {
		return nil
	}
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.TimeoutMillis = 30_000
	for _, name := range topics {
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = &name
		req.Topics, req.TopicNames = append(req.Topics, t), append(req.TopicNames, name)
	}
	r, err := answerOf[*kmsg.DeleteTopicsResponse](c.Request(ctx, req))
	if err != nil {
		return err
	}
	answers := map[string]error{}
	for _, t := range r.Topics {
		answers[deref(t.Topic)] = kafka.CodeError(t.ErrorCode, t.ErrorMessage)
	}
	var errs []error
	for _, name := range topics {
		err, answered := answers[name]
		if !answered {
			err = errLeftOut
		}
		if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
			errs = append(errs, &kafka.OpError{Op: "delete topic", Broker: kafka.NoNode, Topic: name, Partition: -1, Err: err})
		}
	}
	return errors.Join(errs...)
}

// errLeftOut is an answer that does not speak of what was asked.
var errLeftOut error = &openError{&ProtocolError{Reason: "what was asked for is not in it"}}

// configPrefix is what brokers put before the names of a Streams group's
// settings.
const configPrefix = "streams."

// groupResource is the resource type of groups.
const groupResource kmsg.ConfigResourceType = 32

// GroupConfigs are the settings of a group, such as num.standby.replicas, their
// names without the prefix "streams.". Brokers 4.2 show built-in defaults for
// what the group does not set. Brokers without Streams groups are an
// [*UnsupportedError].
func GroupConfigs(ctx context.Context, c Kafka, group string) (map[string]string, error) {
	req := kmsg.NewPtrDescribeConfigsRequest()
	res := kmsg.NewDescribeConfigsRequestResource()
	res.ResourceType, res.ResourceName = groupResource, group
	req.Resources = append(req.Resources, res)
	r, err := answerOf[*kmsg.DescribeConfigsResponse](c.Request(ctx, req))
	if err != nil {
		return nil, err
	}
	if len(r.Resources) != 1 {
		return nil, errLeftOut
	}
	answer := &r.Resources[0]
	if err := kafka.CodeError(answer.ErrorCode, answer.ErrorMessage); err != nil {
		return nil, configsRefused(ctx, c, group, "configs of group ", err)
	}
	out := map[string]string{}
	for _, cfg := range answer.Configs {
		if name, ok := strings.CutPrefix(cfg.Name, configPrefix); ok {
			out[name] = deref(cfg.Value)
		}
	}
	return out, nil
}

// SetGroupConfigs sets settings of a group, their names without the prefix
// "streams."; the others stay. The group need not exist yet. A changed setting of
// the assignment causes a rebalance with the next heartbeat. Brokers without
// Streams groups are an [*UnsupportedError].
func SetGroupConfigs(ctx context.Context, c Kafka, group string, set map[string]string) error {
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = groupResource, group
	for _, name := range slices.Sorted(maps.Keys(set)) {
		cfg := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		value := set[name]
		cfg.Name, cfg.Value, cfg.Op = configPrefix+strings.TrimPrefix(name, configPrefix), &value, kmsg.IncrementalAlterConfigOpSet
		res.Configs = append(res.Configs, cfg)
	}
	req.Resources = append(req.Resources, res)
	r, err := answerOf[*kmsg.IncrementalAlterConfigsResponse](c.Request(ctx, req))
	if err != nil {
		return err
	}
	if len(r.Resources) != 1 {
		return errLeftOut
	}
	if err := kafka.CodeError(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage); err != nil {
		return configsRefused(ctx, c, group, "set configs of group ", err)
	}
	return nil
}

// configsRefused is why a broker refused the settings of a group: one without
// Streams groups speaks of a resource type or a name that it does not know.
func configsRefused(ctx context.Context, c Kafka, group, op string, err error) error {
	var missing *UnsupportedError
	if _, no := heartbeatVersion(ctx, c, group); errors.As(no, &missing) {
		return missing
	}
	return &kafka.OpError{Op: op + group, Broker: kafka.NoNode, Partition: -1, Err: err}
}
