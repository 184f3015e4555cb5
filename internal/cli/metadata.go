package cli

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// asker sends a request to where it belongs.
type asker interface {
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
}

// metadataOf asks for the named topics, or for all if names is nil. It never
// makes a topic. An answer that is refused as a whole is an error.
func metadataOf(ctx context.Context, c asker, names []string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	if names != nil {
		req.Topics = []kmsg.MetadataRequestTopic{}
	}
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = &name
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, c)
	if err == nil {
		err = on(kafka.CodeError(resp.ErrorCode, nil), "Describe", "the cluster")
	}
	return resp, err
}

// topicInfo is a topic as metadata shows it.
type topicInfo struct {
	Name       string          `json:"name"`
	ID         string          `json:"id,omitempty"`
	Internal   bool            `json:"internal"`
	Partitions []partitionInfo `json:"partitions"`
}

// partitionInfo is a partition as metadata shows it. Leader is -1 without one.
type partitionInfo struct {
	Partition int32   `json:"partition"`
	Leader    int32   `json:"leader"`
	Epoch     int32   `json:"leader_epoch"`
	Replicas  []int32 `json:"replicas"`
	ISR       []int32 `json:"isr"`
	Offline   []int32 `json:"offline_replicas"`
}

// topicOf reads one topic of an answer.
func topicOf(t *kmsg.MetadataResponseTopic) (*topicInfo, error) {
	info := &topicInfo{Internal: t.IsInternal}
	if t.Topic != nil {
		info.Name = *t.Topic
	}
	if id := kafka.TopicID(t.TopicID); !id.IsZero() {
		info.ID = id.String()
	}
	if t.ErrorCode != 0 {
		return info, on(kafka.CodeError(t.ErrorCode, nil), "Describe", "topic "+info.Name)
	}
	for _, p := range t.Partitions {
		info.Partitions = append(info.Partitions, partitionInfo{
			Partition: p.Partition, Leader: p.Leader, Epoch: p.LeaderEpoch,
			Replicas: p.Replicas, ISR: p.ISR, Offline: append([]int32{}, p.OfflineReplicas...),
		})
	}
	slices.SortFunc(info.Partitions, func(a, b partitionInfo) int { return int(a.Partition) - int(b.Partition) })
	return info, nil
}

// numbers lists the partitions of the topic.
func (t *topicInfo) numbers() []int32 {
	var list []int32
	for _, p := range t.Partitions {
		list = append(list, p.Partition)
	}
	return list
}

// existing returns the named topics, in order. A name that no topic has is an
// error with near names.
func existing(ctx context.Context, c asker, names []string) ([]*topicInfo, error) {
	for _, name := range names {
		if err := checkTopicName(name); err != nil {
			return nil, err
		}
	}
	resp, err := metadataOf(ctx, c, names)
	if err != nil {
		return nil, err
	}
	found := map[string]*topicInfo{}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		if t.ErrorCode == kerr.UnknownTopicOrPartition.Code {
			continue
		}
		info, err := topicOf(t)
		if err != nil && t.ErrorCode != kerr.LeaderNotAvailable.Code {
			return nil, err
		}
		found[info.Name] = info
	}
	var infos []*topicInfo
	for _, name := range names {
		if found[name] == nil {
			return nil, unknownTopic(ctx, c, name)
		}
		infos = append(infos, found[name])
	}
	return infos, nil
}

// unknownTopicError is a topic that does not exist.
type unknownTopicError struct {
	name string
	near []string
}

func (e *unknownTopicError) Error() string {
	return fmt.Sprintf("topic %q does not exist%s; `ottla topics create %s` makes it, as does `ottla produce --create`",
		e.name, didYouMean(e.near), e.name)
}

func (e *unknownTopicError) Unwrap() error { return kerr.UnknownTopicOrPartition }

// unknownTopic is the error for a name, with the names near it.
func unknownTopic(ctx context.Context, c asker, name string) error {
	e := &unknownTopicError{name: name}
	if resp, err := metadataOf(ctx, c, nil); err == nil {
		e.near = near(name, namesIn(resp))
	}
	return e
}

// namesIn lists the topics of an answer.
func namesIn(resp *kmsg.MetadataResponse) []string {
	var names []string
	for _, t := range resp.Topics {
		if t.Topic != nil && !t.IsInternal {
			names = append(names, *t.Topic)
		}
	}
	slices.Sort(names)
	return names
}

// checkTopicName holds Kafka's rule for names of topics.
func checkTopicName(name string) error {
	legal := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '.' || r == '_' || r == '-'
	}
	if name == "" || name == "." || name == ".." || len(name) > 249 || strings.ContainsFunc(name, func(r rune) bool { return !legal(r) }) {
		return usagef("%q is no name of a topic: up to 249 of a-z A-Z 0-9 . _ -", name)
	}
	return nil
}
