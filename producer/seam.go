package producer

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// seam is what a producer needs of a cluster.
type seam interface {
	Topic(ctx context.Context, name string) (*cluster.Topic, error)
	CachedTopic(name string) (*cluster.Topic, bool)
	Leader(ctx context.Context, tp kafka.TopicPartition) (kafka.Broker, error)
	InvalidateLeader(tp kafka.TopicPartition)
	LearnLeader(tp kafka.TopicPartition, leader kafka.NodeID, epoch kafka.LeaderEpoch, endpoints []kafka.Broker) bool
	Request(ctx context.Context, req kmsg.Request) (kmsg.Response, error)
	Brokers() []kafka.Broker
	MetadataMaxAge() time.Duration
	NewRand() *rand.Rand
	// produce starts a request at a broker; done comes once and must not block.
	produce(ctx context.Context, at kafka.NodeID, req *produceRequest, done func(kmsg.Response, error))
	changes() watch
	closed() bool
}

// watch is a subscription to the changes of a cluster.
type watch interface {
	Ready() <-chan struct{}
	Take() []cluster.Event
	Close()
}

type clusterSeam struct{ *cluster.Cluster }

func (c clusterSeam) produce(ctx context.Context, at kafka.NodeID, req *produceRequest, done func(kmsg.Response, error)) {
	b := c.Broker(at)
	switch {
	case req.acks == acksNone:
		b.StartOneWay(ctx, req, func(err error) { done(nil, err) })
	case req.behind:
		b.StartOpen(ctx, req, done)
	default:
		b.Start(ctx, req, done)
	}
}

func (c clusterSeam) changes() watch { return c.Watch() }

func (c clusterSeam) closed() bool {
	select {
	case <-c.Done():
		return true
	default:
		return false
	}
}
