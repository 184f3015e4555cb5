package admin_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// start runs a cluster in memory for the examples.
func start() (a *admin.Admin, stop func()) {
	k, err := ottlatest.Start(ottlatest.Config{InMemory: true, Topics: map[string]int{"orders": 2}})
	if err != nil {
		log.Fatal(err)
	}
	c, err := cluster.Connect(context.Background(), k.ClientConfig())
	if err != nil {
		log.Fatal(err)
	}
	return admin.New(c), func() { c.Close(); k.Close() }
}

func Example() {
	a, stop := start()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, r := range a.CreateTopics(ctx, []admin.NewTopic{
		{Name: "payments", Partitions: 3, Configs: map[string]string{"cleanup.policy": "compact"}},
		{Name: "orders", Partitions: 3},
	}, admin.Visible) {
		switch {
		case errors.Is(r.Err, kerr.TopicAlreadyExists):
			fmt.Println(r.Item, "exists already")
		case r.Err != nil:
			fmt.Println(r.Item, "is", admin.OutcomeOf(r.Err), "because of", r.Err)
		default:
			fmt.Println(r.Item, "has", r.Value.Partitions, "partitions")
		}
	}
	// Output:
	// payments has 3 partitions
	// orders exists already
}

func ExampleAdmin_ListOffsets() {
	a, stop := start()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, r := range a.ListOffsets(ctx, map[kafka.TopicPartition]admin.OffsetAt{
		{Topic: "orders", Partition: 0}: admin.Latest,
		{Topic: "orders", Partition: 1}: admin.AtTime(time.Now().Add(-time.Hour)), // -1: no record is that young
	}, admin.ReadCommitted) {
		fmt.Println(r.Item, r.Value.Offset, r.Err)
	}
	// Output:
	// orders-0 0 <nil>
	// orders-1 -1 <nil>
}

func ExampleAdmin_AlterConfigs() {
	a, stop := start()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	topic := admin.TopicResource("orders")
	res := a.AlterConfigs(ctx, []admin.ConfigChange{{Resource: topic, Set: map[string]string{"retention.ms": "3600000"}}}, admin.Accepted)
	if err := res.Err(); err != nil {
		log.Fatal(err)
	}
	for _, c := range a.DescribeConfigs(ctx, []admin.Resource{topic})[0].Value {
		if c.Name == "retention.ms" {
			fmt.Println(c.Name, *c.Value, c.Source)
		}
	}
	// Output: retention.ms 3600000 DYNAMIC_TOPIC_CONFIG
}

func ExampleInDoubtError_Resolve() {
	a, stop := start()
	defer stop()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := a.CreateTopics(ctx, []admin.NewTopic{{Name: "audit"}}, admin.Visible).Err()
	var doubt *admin.InDoubtError
	if errors.As(err, &doubt) { // sent, and the answer lost
		outcome, err := doubt.Resolve(ctx)
		fmt.Println(outcome, err)
		return
	}
	fmt.Println(admin.OutcomeOf(err))
	// Output: done
}
