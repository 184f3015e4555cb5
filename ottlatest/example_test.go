package ottlatest_test

import (
	"context"
	"fmt"
	"log"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/producer"
)

// A cluster on loopback ports serves any client.
func Example() {
	ctx := context.Background()
	kafkas, err := ottlatest.Start(ottlatest.Config{Topics: map[string]int{"orders": 3}})
	if err != nil {
		log.Fatal(err)
	}
	defer kafkas.Close()

	client, err := cluster.Connect(ctx, kafkas.ClientConfig())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	n, err := client.PartitionCount(ctx, "orders")
	fmt.Println(len(kafkas.Bootstrap()), "brokers,", n, "partitions,", err)
	// Output: 3 brokers, 3 partitions, <nil>
}

// Records tells what the log holds, whatever the client was told. Here the
// answer to the first attempt is lost: the record is stored once all the same.
func ExampleCluster_Records() {
	ctx := context.Background()
	kafkas, err := ottlatest.Start(ottlatest.Config{Topics: map[string]int{"orders": 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer kafkas.Close()
	client, err := cluster.Connect(ctx, kafkas.ClientConfig())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	p, err := producer.New(client, producer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()

	send := func(value string) {
		if _, err := p.Send(ctx, kafka.Record{Topic: "orders", Value: []byte(value)}); err != nil {
			log.Fatal(err)
		}
	}
	send("first")
	kafkas.CloseAfter(0, ottlatest.Answers, 10) // the next answer is cut after ten bytes
	send("second")

	stored, err := kafkas.Records("orders", 0)
	if err != nil {
		log.Fatal(err)
	}
	for _, r := range stored {
		fmt.Printf("%d %s\n", r.Offset, r.Value)
	}
	// Output:
	// 0 first
	// 1 second
}

// Fail answers requests with a code: here the first two Produce requests meet
// a broker that is not the leader (code 6).
func ExampleCluster_Fail() {
	ctx := context.Background()
	kafkas, err := ottlatest.Start(ottlatest.Config{Topics: map[string]int{"orders": 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer kafkas.Close()
	client, err := cluster.Connect(ctx, kafkas.ClientConfig())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	p, err := producer.New(client, producer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()

	fault := kafkas.Fail(0, 6, 2, 0)
	_, err = p.Send(ctx, kafka.Record{Topic: "orders", Value: []byte("in the end")})
	fmt.Println(err, "after", fault.Hits(), "refusals")
	// Output: <nil> after 2 refusals
}

// StopBroker takes a broker away; its partitions get new leaders.
func ExampleCluster_StopBroker() {
	kafkas, err := ottlatest.Start(ottlatest.Config{Topics: map[string]int{"orders": 3}})
	if err != nil {
		log.Fatal(err)
	}
	defer kafkas.Close()
	fmt.Println("partition 1 is led by broker", kafkas.Leader("orders", 1))
	if err := kafkas.StopBroker(1); err != nil {
		log.Fatal(err)
	}
	fmt.Println("partition 1 is led by broker", kafkas.Leader("orders", 1))
	// Output:
	// partition 1 is led by broker 1
	// partition 1 is led by broker 2
}

// In a test, New fails the test by itself and closes the cluster with it. With
// InMemory it runs in the virtual time of a synctest bubble: the minute that
// the broker hangs passes at once.
func ExampleNew() {
	test := func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			ctx := t.Context()
			kafkas := ottlatest.New(t, ottlatest.Config{InMemory: true, Seed: 1, Topics: map[string]int{"orders": 1}})
			client, err := cluster.Connect(ctx, kafkas.ClientConfig())
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			c, err := consumer.New(client, consumer.Config{})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()

			kafkas.Hang(0)
			time.AfterFunc(time.Minute, func() { kafkas.Resume(0) })
			end, err := c.End(ctx, kafka.TopicPartition{Topic: "orders", Partition: 0})
			if err != nil || len(end) != 1 {
				t.Errorf("the end of the log: %v, %v", end, err)
			}
		})
	}
	_ = test // run by go test as func TestEnd(t *testing.T)
}
