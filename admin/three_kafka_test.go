//go:build kafka

package admin

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// TestKafkaB275_R34WhatIsMadeCanBeUsedAtOnce makes and grows topics on three
// brokers and uses each at once in every way. OTTLA_ROUNDS sets how many.
func TestKafkaB275_R34WhatIsMadeCanBeUsedAtOnce(t *testing.T) {
	if !from(3, 9) {
		t.Skip("three brokers are started from Kafka 3.9 on")
	}
	rounds := 15
	if n, err := strconv.Atoi(os.Getenv("OTTLA_ROUNDS")); err == nil {
		rounds = n
	}
	a, ctx := at(t, realkafka.Start(t, realkafka.Options{Brokers: 3}))
	p, err := producer.New(a.c, producer.Config{Partitioner: producer.Manual, Linger: producer.NoLinger})
	mustDo(t, err)
	defer p.Close()
	for i := range rounds {
		mode := []Mode{Visible, Accepted}[i%2]
		name := fmt.Sprint("round-", i)
		mustDo(t, a.CreateTopics(ctx, []NewTopic{{Name: name, Partitions: 3, Replicas: 3}}, mode).Err())
		useAtOnce(t, ctx, a, p, name, 3, mode)
		mustDo(t, a.CreatePartitions(ctx, map[string]MorePartitions{name: {Total: 6}}, mode).Err())
		useAtOnce(t, ctx, a, p, name, 6, mode)
		mustDo(t, a.DeleteTopics(ctx, Topics(name), mode).Err())
	}
}

func useAtOnce(t *testing.T, ctx context.Context, a *Admin, p *producer.Producer, name string, partitions int32, mode Mode) {
	t.Helper()
	described := a.DescribeTopics(ctx, Topics(name))
	if mode == Visible && (described.Err() != nil || len(described[0].Value.Partitions) != int(partitions)) {
		t.Fatalf("%s: %+v", name, described)
	}
	at := map[kafka.TopicPartition]OffsetAt{}
	for part := range partitions {
		at[tp(name, part)] = Latest
	}
	mustDo(t, a.ListOffsets(ctx, at, ReadCommitted).Err())
	for part := range partitions {
		if _, err := p.Send(ctx, kafka.Record{Topic: name, Partition: part, Value: []byte("v")}); err != nil {
			t.Fatalf("%s-%d: %v", name, part, err)
		}
	}
}
