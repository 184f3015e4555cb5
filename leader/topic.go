package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// layout is the coordination topic as metadata told it. It never changes.
type layout struct {
	id      kafka.TopicID
	leaders []kafka.NodeID // by partition; NoNode without one
	brokers []kafka.NodeID
}

// topic knows the coordination topic. Its first sight is kept: another id or
// another number of partitions later on is a change that nobody may ignore.
type topic struct {
	kafka Kafka
	cfg   *Config
	turn  chan struct{} // capacity 1: one request for metadata at a time

	mu     sync.Mutex
	now    *layout // nil before the first load
	first  *layout
	change error // what became of the first sight
}

func newTopic(k Kafka, cfg *Config) *topic {
	return &topic{kafka: k, cfg: cfg, turn: make(chan struct{}, 1)}
}

// known is the layout without a request; nil before the first load.
func (t *topic) known() *layout {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now
}

// changed says what is not as it was at first: another topic under the name,
// or another number of partitions.
func (t *topic) changed() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.change
}

// load is the layout, asked for if it is not known.
func (t *topic) load(ctx context.Context) (*layout, error) {
	if l := t.known(); l != nil {
		return l, nil
	}
	return t.refresh(ctx, nil)
}

// ensure is load for who takes part: a topic that does not exist is created,
// but never in place of one that was there.
func (t *topic) ensure(ctx context.Context) (*layout, error) {
	l, err := t.load(ctx)
	if !errors.Is(err, kerr.UnknownTopicOrPartition) || t.known() != nil {
		return l, err
	}
	if err := t.create(ctx); err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		l, err := t.refresh(ctx, t.known())
		if err == nil && l.complete() || err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) && !errors.Is(err, kerr.LeaderNotAvailable) {
			return l, err
		}
		if serr := task.Sleep(ctx, backoff(tries)); serr != nil {
			return nil, failed(ErrClient, "", "metadata of "+Topic, errors.Join(serr, err))
		}
	}
}

// refresh asks again, unless somebody else has since stale was read.
func (t *topic) refresh(ctx context.Context, stale *layout) (*layout, error) {
	select {
	case t.turn <- struct{}{}:
		defer func() { <-t.turn }()
	case <-ctx.Done():
		return nil, failed(ErrClient, "", "metadata of "+Topic, context.Cause(ctx))
	}
	if l := t.known(); l != nil && l != stale {
		return l, nil
	}
	l, err := t.ask(ctx)
	if err != nil {
		return nil, failed(ErrClient, "", "metadata of "+Topic, err)
	}
	t.take(l)
	return l, nil
}

func (t *topic) take(l *layout) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.now = l
	switch {
	case t.first == nil:
		t.first = l
	case l.id != t.first.id:
		t.change = fmt.Errorf("%s was deleted and made anew: its id was %v and is %v", Topic, t.first.id, l.id)
	case len(l.leaders) != len(t.first.leaders):
		t.change = fmt.Errorf("%s has %d partitions and had %d: roles have moved, and other members may look for them elsewhere", Topic, len(l.leaders), len(t.first.leaders))
	default:
		t.change = nil
	}
}

func (l *layout) complete() bool {
	for _, n := range l.leaders {
		if n < 0 {
			return false
		}
	}
	return true
}

func (t *topic) ask(ctx context.Context) (*layout, error) {
	req := kmsg.NewPtrMetadataRequest()
	mt := kmsg.NewMetadataRequestTopic()
	mt.Topic = kmsg.StringPtr(Topic)
	req.Topics = append(req.Topics, mt)
	req.AllowAutoTopicCreation = false
	ctx, cancel := context.WithTimeout(ctx, t.cfg.RequestTimeout)
	defer cancel()
	resp, err := t.kafka.Request(ctx, req)
	if err != nil {
		return nil, err
	}
	m, ok := resp.(*kmsg.MetadataResponse)
	if !ok || len(m.Topics) != 1 {
		return nil, errors.New("the answer is not about the topic")
	}
	mt0 := m.Topics[0]
	if mt0.ErrorCode == kerr.TopicAuthorizationFailed.Code {
		return nil, unauthorized(mt0.ErrorCode, "metadata", "DESCRIBE on topic "+Topic)
	}
	if err := kafka.CodeError(mt0.ErrorCode, nil); err != nil {
		return nil, err
	}
	if len(mt0.Partitions) == 0 {
		return nil, errors.New("the topic has no partitions")
	}
	l := &layout{id: mt0.TopicID, leaders: make([]kafka.NodeID, len(mt0.Partitions))}
	for i := range l.leaders {
		l.leaders[i] = kafka.NoNode
	}
	for _, p := range mt0.Partitions {
		if p.Partition >= 0 && int(p.Partition) < len(l.leaders) {
			l.leaders[p.Partition] = kafka.NodeID(p.Leader)
		}
	}
	for _, b := range m.Brokers {
		l.brokers = append(l.brokers, kafka.NodeID(b.NodeID))
	}
	return l, nil
}

// create makes the topic; one that exists by then is as good.
func (t *topic) create(ctx context.Context) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.TimeoutMillis = int32(t.cfg.RequestTimeout.Milliseconds())
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = Topic, t.cfg.Partitions, t.cfg.Replication
	for _, kv := range [...][2]string{{"cleanup.policy", "compact"}, {"segment.ms", "3600000"}, {"min.cleanable.dirty.ratio", "0.1"}} {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = kv[0], kmsg.StringPtr(kv[1])
		ct.Configs = append(ct.Configs, c)
	}
	req.Topics = append(req.Topics, ct)
	resp, err := t.kafka.Request(ctx, req)
	if err != nil {
		return failed(ErrAdmin, "", "create "+Topic, err)
	}
	r, ok := resp.(*kmsg.CreateTopicsResponse)
	if !ok || len(r.Topics) != 1 {
		return failed(ErrAdmin, "", "create "+Topic, errors.New("the answer is not about the topic"))
	}
	switch code := r.Topics[0].ErrorCode; code {
	case kerr.TopicAlreadyExists.Code:
		return nil
	case kerr.TopicAuthorizationFailed.Code, kerr.ClusterAuthorizationFailed.Code:
		return failed(ErrAdmin, "", "", unauthorized(code, "create", "CREATE on topic "+Topic+" or on the cluster"))
	case kerr.InvalidReplicationFactor.Code:
		return failed(ErrAdmin, "", "create "+Topic, fmt.Errorf("%w; with fewer than %d brokers ask for fewer replicas (Config.Replication, `ottla lead --replicas`)",
			kafka.CodeError(code, r.Topics[0].ErrorMessage), t.cfg.Replication))
	default:
		return failed(ErrAdmin, "", "create "+Topic, kafka.CodeError(code, r.Topics[0].ErrorMessage))
	}
}

// partitionOf is the partition of a role in the topic as it was first seen.
func (t *topic) partitionOf(role string) (int32, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return lead.PartitionOf(produce.Murmur2([]byte(role)), int32(len(t.first.leaders)))
}

// leader is the leader of a partition. retry says that the one known proved
// wrong, so that metadata is asked for.
func (t *topic) leader(ctx context.Context, partition int32, wrong *layout) (kafka.NodeID, *layout, error) {
	l, err := t.load(ctx)
	if err == nil && l == wrong {
		l, err = t.refresh(ctx, wrong)
	}
	if err != nil {
		return kafka.NoNode, nil, err
	}
	if int(partition) >= len(l.leaders) || l.leaders[partition] < 0 {
		return kafka.NoNode, l, &kafka.NoLeaderError{TopicPartition: kafka.TopicPartition{Topic: Topic, Partition: partition}, Err: kerr.LeaderNotAvailable}
	}
	return l.leaders[partition], l, nil
}
