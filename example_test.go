package ottla_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// start gives the examples a cluster of their own.
func start() *ottlatest.Cluster {
	c, err := ottlatest.Start(ottlatest.Config{Topics: map[string]int{"greetings": 3}})
	if err != nil {
		log.Fatal(err)
	}
	return c
}

// Records are written and read back.
func Example() {
	brokers := start()
	defer brokers.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()

	client, err := ottla.Connect(ctx, ottla.Config{Bootstrap: brokers.Bootstrap()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	producer, err := ottla.NewProducer(client, ottla.ProducerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	results, err := producer.Send(ctx, ottla.Record{Topic: "greetings", Key: []byte("k"), Value: []byte("hello")})
	if err != nil {
		log.Fatal(err)
	}

	reader, err := ottla.NewConsumer(client, ottla.ConsumerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	defer reader.Close()
	tp := ottla.TopicPartition{Topic: "greetings", Partition: results[0].Partition}
	if err := reader.Assign(ctx, map[ottla.TopicPartition]consumer.Start{tp: consumer.Earliest()}); err != nil {
		log.Fatal(err)
	}
	for record, err := range reader.Records(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Printf("%s at offset %d: %s\n", record.Key, record.Offset, record.Value)
		break
	}
	// Output: k at offset 0: hello
}

// Any request of the protocol goes to the broker or brokers that serve it.
func ExampleConnect() {
	brokers := start()
	defer brokers.Close()
	ctx := context.Background()

	client, err := ottla.Connect(ctx, ottla.Config{Bootstrap: brokers.Bootstrap()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	req := kmsg.NewPtrListOffsetsRequest() // each partition is asked of its leader
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "greetings"
	for i := range int32(3) {
		p := kmsg.NewListOffsetsRequestTopicPartition()
		p.Partition, p.Timestamp = i, -1 // the end
		topic.Partitions = append(topic.Partitions, p)
	}
	req.Topics = append(req.Topics, topic)
	resp, err := req.RequestWith(ctx, client)
	if err != nil {
		log.Fatal(err)
	}
	for _, p := range resp.Topics[0].Partitions {
		fmt.Printf("partition %d ends at %d\n", p.Partition, p.Offset)
	}
	// Output:
	// partition 0 ends at 0
	// partition 1 ends at 0
	// partition 2 ends at 0
}

// An error tells whether what failed may have happened all the same.
func ExampleNewProducer() {
	brokers := start()
	defer brokers.Close()
	ctx := context.Background()

	client, err := ottla.Connect(ctx, ottla.Config{Bootstrap: brokers.Bootstrap()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	producer, err := ottla.NewProducer(client, ottla.ProducerConfig{DeliveryTimeout: 500 * time.Millisecond})
	if err != nil {
		log.Fatal(err)
	}
	defer producer.Close()
	_, err = producer.Send(ctx, ottla.Record{Topic: "nowhere", Value: []byte("hello")})
	fmt.Println("unknown topic:", errors.Is(err, kerr.UnknownTopicOrPartition))
	fmt.Println("may have happened:", kafka.MayHaveHappened(err))
	// Output:
	// unknown topic: true
	// may have happened: false
}

// A closed client says so by an error that unwraps to net.ErrClosed.
func ExampleNewConsumer() {
	brokers := start()
	defer brokers.Close()
	ctx := context.Background()

	client, err := ottla.Connect(ctx, ottla.Config{Bootstrap: brokers.Bootstrap()})
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	reader, err := ottla.NewConsumer(client, ottla.ConsumerConfig{})
	if err != nil {
		log.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		log.Fatal(err)
	}
	_, err = reader.Poll(ctx)
	fmt.Println(errors.Is(err, net.ErrClosed))
	// Output: true
}
