package cluster_test

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// start runs a cluster in memory for the examples.
func start() (*ottlatest.Cluster, *cluster.Cluster) {
	k, err := ottlatest.Start(ottlatest.Config{InMemory: true, Topics: map[string]int{"orders": 4}})
	if err != nil {
		log.Fatal(err)
	}
	c, err := cluster.Connect(context.Background(), k.ClientConfig())
	if err != nil {
		log.Fatal(err)
	}
	return k, c
}

func ExampleConnect() {
	k, c := start()
	defer k.Close()
	defer c.Close()
	fmt.Println(c.ID(), len(c.Brokers()), "brokers")
	// Output: ottlatest 3 brokers
}

func ExampleCluster_Topic() {
	k, c := start()
	defer k.Close()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	t, err := c.Topic(ctx, "orders")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(t.Name, "has", t.Count(), "partitions")
	// Output: orders has 4 partitions
}

// Any message of Kafka's can be sent; it finds its brokers by itself.
func ExampleCluster_Request() {
	k, c := start()
	defer k.Close()
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = "orders"
	for id := range int32(4) {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = id, -1 // the end
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	resp, err := req.RequestWith(ctx, c) // a Cluster is a kmsg.Requestor
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range resp.Topics[0].Partitions {
		fmt.Println(p.Partition, p.Offset)
	}
	// Output:
	// 0 0
	// 1 0
	// 2 0
	// 3 0
}

func ExampleCluster_Coordinator() {
	k, c := start()
	defer k.Close()
	defer c.Close()
	b, err := c.Coordinator(context.Background(), cluster.GroupCoordinator, "billing")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(b.ID == k.Coordinator("billing"))
	// Output: true
}

func ExampleCluster_Watch() {
	k, c := start()
	defer k.Close()
	defer c.Close()
	ctx := context.Background()
	if _, err := c.Topic(ctx, "orders"); err != nil {
		log.Fatal(err)
	}
	w := c.Watch()
	defer w.Close()
	if err := k.AddPartitions("orders", 6); err != nil {
		log.Fatal(err)
	}
	c.InvalidateLeader(kafka.TopicPartition{Topic: "orders", Partition: 0}) // do not wait for the metadata age
	for range w.Ready() {
		for _, e := range w.Take() {
			if e.Kind == cluster.TopicGrew {
				fmt.Println(e.Topic, "grew from", e.Before, "to", e.After)
				return
			}
		}
	}
	// Output: orders grew from 4 to 6
}
