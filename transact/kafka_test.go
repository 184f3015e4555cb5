//go:build kafka

package transact

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

var broker *realkafka.Cluster

// With the variable set this binary is a member of a group in a process of its
// own.
func TestMain(m *testing.M) {
	if text := os.Getenv(partVariable); text != "" {
		os.Exit(perform(text))
	}
	os.Exit(sim.NoLeaks(func() int {
		return realkafka.Run(m, realkafka.Options{Brokers: 3, Props: map[string]string{
			"group.consumer.session.timeout.ms":    fmt.Sprint(calm.Milliseconds()),
			"group.consumer.heartbeat.interval.ms": "1000",
			"group.consumer.migration.policy":      "bidirectional",
			"broker.session.timeout.ms":            "6000", // or a busy machine is taken for dead brokers
			"broker.heartbeat.interval.ms":         "1000",
		}}, func(c *realkafka.Cluster) { broker = c })
	}))
}

func connect(ctx context.Context, t *testing.T) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(broker.Bootstrap(), ",")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

func create(ctx context.Context, t *testing.T, c *cluster.Cluster, partitions int32, names ...string) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range names {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, partitions, 3
		req.Topics = append(req.Topics, rt)
	}
	resp, err := c.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	for _, rt := range resp.(*kmsg.CreateTopicsResponse).Topics {
		if err := kerr.ErrorForCode(rt.ErrorCode); err != nil {
			t.Fatal(err)
		}
	}
}

// hasten gives a group of the consumer protocol a shorter session timeout than the
// brokers have.
func hasten(ctx context.Context, t *testing.T, c *cluster.Cluster, group string, to time.Duration) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	cfg := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	cfg.Name, cfg.Value = "consumer.session.timeout.ms", kmsg.StringPtr(fmt.Sprint(to.Milliseconds()))
	res.Configs = append(res.Configs, cfg)
	req.Resources = append(req.Resources, res)
	resp, err := c.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if err := kerr.ErrorForCode(resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode); err != nil {
		t.Fatal(err)
	}
}

// ends are the ends of the partitions of a topic.
func ends(ctx context.Context, t *testing.T, c *cluster.Cluster, topic string) map[int32]kafka.Offset {
	t.Helper()
	in, err := consumer.New(c, consumer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	at := all(topic)
	found, err := in.End(ctx, slices.Collect(maps.Keys(at))...)
	if err != nil {
		t.Fatal(err)
	}
	byPartition := map[int32]kafka.Offset{}
	for tp, end := range found {
		byPartition[tp.Partition] = end
	}
	return byPartition
}

func all(topic string) map[kafka.TopicPartition]consumer.Start {
	at := map[kafka.TopicPartition]consumer.Start{}
	for p := range int32(chaosPartitions) {
		at[kafka.TopicPartition{Topic: topic, Partition: p}] = consumer.Earliest()
	}
	return at
}

// exactlyOnce holds that a topic holds the numbers below n once each, as far as
// readers of committed records see it, and waits until it holds that many.
func exactlyOnce(ctx context.Context, t *testing.T, c *cluster.Cluster, topic string, n int) {
	t.Helper()
	in, err := consumer.New(c, consumer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if err := in.Assign(ctx, all(topic)); err != nil {
		t.Fatal(err)
	}
	seen := map[string]int{}
	twice := 0
	count := func(batches []consumer.Batch, err error) {
		if err != nil && ctx.Err() == nil {
			t.Logf("reading %s: %v", topic, err)
		}
		for _, b := range batches {
			for o, r := range b.Records() {
				if seen[string(r.Value)]++; seen[string(r.Value)] > 1 {
					if twice++; twice <= 5 {
						t.Errorf("%s is in %s twice, again at %d of partition %d", r.Value, topic, o, r.Partition)
					}
				}
			}
		}
	}
	for len(seen) < n && ctx.Err() == nil {
		count(in.Poll(ctx))
	}
	short, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	count(in.Poll(short))
	missing := 0
	for i := range n {
		if seen[fmt.Sprint(i)] == 0 {
			if missing++; missing <= 5 {
				t.Errorf("%d is missing in %s", i, topic)
			}
		}
	}
	if len(seen) > n || missing > 0 || twice > 0 {
		t.Errorf("%s holds %d different records of %d; %d are missing, %d came twice", topic, len(seen), n, missing, twice)
	}
}

func TestKafkaB118AnUnknownCommitIsSettledBeforePositionsAreTaken(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	config := func() cluster.Config { return cluster.Config{Bootstrap: strings.Split(broker.Bootstrap(), ",")} }
	c, err := cluster.Connect(ctx, config())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	create(ctx, t, c, 4, "late-in", "late-out")
	unknownCommit(ctx, t, config, kafka.ClassicGroup, 3*time.Second)
}
