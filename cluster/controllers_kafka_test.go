//go:build kafka

package cluster

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/kafka"
)

// describeQuorum asks the active controller who votes.
func describeQuorum() *kmsg.DescribeQuorumRequest {
	req := kmsg.NewPtrDescribeQuorumRequest()
	rt := kmsg.NewDescribeQuorumRequestTopic()
	rt.Topic, rt.Partitions = "__cluster_metadata", []kmsg.DescribeQuorumRequestTopicPartition{{}}
	req.Topics = append(req.Topics, rt)
	return req
}

func TestKafkaA8TheControllerOfARealCluster(t *testing.T) {
	if broker.Version() < "3.7" {
		t.Skip("controllers describe themselves from Kafka 3.7 on")
	}
	brokers, ctx := real(t)
	c, err := Connect(ctx, Config{BootstrapControllers: strings.Split(broker.Listener(realkafka.Controllers), ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	active, err := c.Controller(ctx)
	if err != nil || c.ID() != brokers.ID() || active.Addr() != broker.Listener(realkafka.Controllers) {
		t.Errorf("cluster %q, controller %v, %v", c.ID(), active, err)
	}
	resp, err := c.Request(ctx, describeQuorum())
	if err != nil || resp.(*kmsg.DescribeQuorumResponse).Topics[0].Partitions[0].LeaderID != int32(active.ID) {
		t.Errorf("quorum %+v, %v", resp, err)
	}
	peer, err := c.peerOf(active)
	if err != nil {
		t.Fatal(err)
	}
	table, err := peer.Versions(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for key := range routes {
		if key == 1 { // Fetch: controllers have it for each other
			continue
		}
		if _, has := table.Range(key); has && !slices.Contains(controllerAPIs, key) || !has && slices.Contains(controllerAPIs, key) && broker.Version() >= "4.4" {
			t.Errorf("the controller has %s: %v", conn.APIName(key), has)
		}
	}
	if _, err = c.Topic(ctx, "t"); !errors.Is(err, kafka.ErrUnsupportedEndpointType) {
		t.Errorf("a topic: %v", err)
	}
	if _, err = c.Broker(active.ID).Request(ctx, kmsg.NewPtrMetadataRequest()); !errors.Is(err, kafka.ErrUnsupportedEndpointType) {
		t.Errorf("metadata of a controller: %v", err)
	}
}

func TestKafkaA8TheWrongKindOfAddressIsToldSo(t *testing.T) {
	if broker.Version() < "3.7" {
		t.Skip("controllers describe themselves from Kafka 3.7 on")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if c, err := Connect(ctx, Config{BootstrapControllers: []string{broker.Bootstrap()}}); !errors.Is(err, kerr.MismatchedEndpointType) {
		t.Errorf("a broker as a controller: %v, %v", c, err)
	}
	if c, err := Connect(ctx, Config{Bootstrap: strings.Split(broker.Listener(realkafka.Controllers), ",")}); !errors.Is(err, kafka.ErrUnsupportedEndpointType) {
		t.Errorf("a controller as a broker: %v, %v", c, err)
	}
}

// followsTheController kills the active controller of three and asks on.
func followsTheController(t *testing.T, ctx context.Context, three *realkafka.Cluster) {
	c, err := Connect(ctx, Config{BootstrapControllers: strings.Split(three.Listener(realkafka.Controllers), ",")})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := len(c.Brokers()); n != 3 {
		t.Fatalf("%d controllers", n)
	}
	leader := func() int32 {
		t.Helper()
		resp, err := c.Request(ctx, describeQuorum())
		if err != nil {
			t.Fatal(err)
		}
		q := resp.(*kmsg.DescribeQuorumResponse)
		if q.ErrorCode != 0 || q.Topics[0].Partitions[0].ErrorCode != 0 {
			t.Fatalf("quorum %+v", q)
		}
		return q.Topics[0].Partitions[0].LeaderID
	}
	old := leader()
	if err := three.Kill(int(old)); err != nil {
		t.Fatal(err)
	}
	if now := leader(); now == old {
		t.Errorf("controller %d was killed and leads", now)
	}
}
