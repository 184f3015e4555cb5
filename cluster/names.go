package cluster

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// listing is the list of topic names as last told.
type listing struct {
	mu    sync.Mutex
	names []string  // guarded by mu
	at    time.Time // guarded by mu
}

func (l *listing) fresh(maxAge time.Duration) ([]string, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.at.IsZero() || time.Since(l.at) >= maxAge {
		return nil, false
	}
	return slices.Clone(l.names), true
}

func (l *listing) set(names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.names, l.at = names, time.Now()
}

// TopicNames are the names of all topics that this client may see, sorted,
// without internal ones. It is for patterns that the client matches itself:
// the list is asked for once for each Config.MetadataMaxAge, and nothing of it
// enters the map. It blocks for that request until ctx ends.
func (c *Cluster) TopicNames(ctx context.Context) ([]string, error) {
	if err := c.over(); err != nil {
		return nil, err
	}
	if names, ok := c.listing.fresh(c.cfg.MetadataMaxAge); ok {
		return names, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = nil // all
	req.AllowAutoTopicCreation = false
	resp, err := c.anyMetadata(ctx, req)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, t := range resp.Topics {
		if t.Topic != nil && !t.IsInternal && t.ErrorCode != kerr.UnknownTopicOrPartition.Code {
			names = append(names, *t.Topic)
		}
	}
	slices.Sort(names)
	c.listing.set(slices.Clone(names))
	return names, nil
}

// anyMetadata asks any broker beside the map. An answer that says nothing about
// this cluster is an error: one with a code, without brokers, or of another
// cluster.
func (c *client) anyMetadata(ctx context.Context, req *kmsg.MetadataRequest) (*kmsg.MetadataResponse, error) {
	got, err := c.attempts(ctx, req).routed()
	if err != nil {
		return nil, err
	}
	resp := got.(*kmsg.MetadataResponse)
	a := newAnswer()
	if !c.inbox.post(func(s *state) { _, err := s.topics.Judge(resp); a.give(err) }) {
		return nil, opError("Metadata", kafka.NoNode, ErrClosed)
	}
	if err := c.wait(ctx, a, nil); err != nil {
		return nil, opError("Metadata", kafka.NoNode, err)
	}
	return resp, nil
}

// TopicName is the name of a topic id: from the map, else by one request for
// that id. A broker that does not know the id says UNKNOWN_TOPIC_ID; one that
// has no ids at all is a [*kafka.VersionError].
func (c *Cluster) TopicName(ctx context.Context, id kafka.TopicID) (string, error) {
	if err := c.over(); err != nil {
		return "", err
	}
	if name, ok := c.snap.Load().Names[id]; ok {
		return name, nil
	}
	if id.IsZero() {
		return "", &kafka.OpError{Op: "metadata", Broker: kafka.NoNode, Partition: -1, Err: kafka.CodeError(kerr.UnknownTopicID.Code, nil)}
	}
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.TopicID = id
	req.Topics = []kmsg.MetadataRequestTopic{t}
	req.AllowAutoTopicCreation = false
	resp, err := c.anyMetadata(ctx, req)
	if err != nil {
		return "", err
	}
	code := kerr.UnknownTopicID.Code
	for _, t := range resp.Topics {
		switch {
		case t.TopicID != id:
		case t.ErrorCode != 0: // such as a right that is missing
			code = t.ErrorCode
		case t.Topic != nil:
			return *t.Topic, nil
		}
	}
	return "", &kafka.OpError{Op: "metadata", Broker: kafka.NoNode, Partition: -1, Err: kafka.CodeError(code, nil)}
}
