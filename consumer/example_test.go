package consumer_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/producer"
)

// example is an in-memory cluster with three records in topic "orders" and a
// client of it.
func example(ctx context.Context) (*cluster.Cluster, func()) {
	c, err := ottlatest.Start(ottlatest.Config{InMemory: true, Topics: map[string]int{"orders": 1}})
	if err != nil {
		log.Fatal(err)
	}
	client, err := cluster.Connect(ctx, cluster.Config{Bootstrap: c.Bootstrap(), Dial: c.Dial})
	if err != nil {
		log.Fatal(err)
	}
	p, err := producer.New(client, producer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	for _, v := range []string{"tea", "milk", "sugar"} {
		if _, err := p.Send(ctx, kafka.Record{Topic: "orders", Value: []byte(v)}); err != nil {
			log.Fatal(err)
		}
	}
	return client, func() { client.Close(); c.Close() }
}

var orders = kafka.TopicPartition{Topic: "orders", Partition: 0}

// Records ranges over records one after the other.
func ExampleConsumer_Records() {
	ctx := context.Background()
	client, end := example(ctx)
	defer end()

	c, err := consumer.New(client, consumer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	err = c.Assign(ctx, map[kafka.TopicPartition]consumer.Start{orders: consumer.Earliest()})
	if err != nil {
		log.Fatal(err)
	}

	for r, err := range c.Records(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(r.Offset, string(r.Value))
		if r.Offset == 2 {
			break
		}
	}
	position, err := c.Position(ctx, orders)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("next is", position)
	// Output:
	// 0 tea
	// 1 milk
	// 2 sugar
	// next is 3
}

// Poll hands out batches, which is the fastest way to read: nothing is
// allocated for a record. Batches and an error come side by side.
func ExampleConsumer_Poll() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	client, end := example(ctx)
	defer end()

	c, err := consumer.New(client, consumer.Config{Isolation: consumer.ReadCommitted})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	if err := c.Assign(ctx, map[kafka.TopicPartition]consumer.Start{orders: consumer.AtOffset(1)}); err != nil {
		log.Fatal(err)
	}

	bytes, records := 0, 0
	for records < 2 {
		batches, err := c.Poll(ctx)
		for _, b := range batches {
			for _, r := range b.Records() {
				bytes += len(r.Value)
				records++
			}
		}
		if bad := (*kafka.UnreadableError)(nil); errors.As(err, &bad) {
			log.Println("skipping what cannot be read:", bad)
			err = c.Seek(bad.TopicPartition, consumer.AtOffset(bad.Next))
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	fmt.Println(records, "records,", bytes, "bytes")
	// Output: 2 records, 9 bytes
}

// The ends of a partition, and offsets by time, are looked up for any
// partition, assigned or not.
func ExampleConsumer_End() {
	ctx := context.Background()
	client, end := example(ctx)
	defer end()

	c, err := consumer.New(client, consumer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	ends, err := c.End(ctx, orders)
	if err != nil {
		log.Fatal(err)
	}
	young, err := c.OffsetsForTimes(ctx, map[kafka.TopicPartition]time.Time{orders: time.Now().Add(time.Hour)})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("end", ends[orders], "younger than in an hour:", len(young))
	// Output: end 3 younger than in an hour: 0
}
