package producer_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/producer"
)

// example is an in-memory cluster with topic "orders" and a client of it.
func example(ctx context.Context) (*cluster.Cluster, func()) {
	c, err := ottlatest.Start(ottlatest.Config{InMemory: true, Topics: map[string]int{"orders": 3}})
	if err != nil {
		log.Fatal(err)
	}
	client, err := cluster.Connect(ctx, cluster.Config{Bootstrap: c.Bootstrap(), Dial: c.Dial})
	if err != nil {
		log.Fatal(err)
	}
	return client, func() { client.Close(); c.Close() }
}

// Send is for a few records whose results are wanted at once.
func ExampleProducer_Send() {
	ctx := context.Background()
	client, end := example(ctx)
	defer end()

	p, err := producer.New(client, producer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()

	results, err := p.Send(ctx, kafka.Record{Topic: "orders", Key: []byte("user-1"), Value: []byte("tea")})
	if err != nil {
		log.Fatal(err, kafka.MayHaveHappened(err))
	}
	fmt.Printf("%s-%d at offset %d\n", results[0].Topic, results[0].Partition, results[0].Offset)
	// Output: orders-2 at offset 0
}

// Append is for many records: it does not wait for the broker, and results can
// be read later, or not at all.
func ExampleProducer_Append() {
	ctx := context.Background()
	client, end := example(ctx)
	defer end()

	p, err := producer.New(client, producer.Config{Compression: producer.LZ4})
	if err != nil {
		log.Fatal(err)
	}
	var last producer.Receipt
	for i := range 1000 {
		last, err = p.Append(ctx, kafka.Record{Topic: "orders", Key: []byte("user-1"), Value: fmt.Append(nil, "order ", i)})
		if err != nil {
			log.Fatal(err)
		}
	}
	if err := p.Shutdown(ctx); err != nil { // delivers what was appended, then closes
		log.Fatal(err)
	}
	fmt.Println(last.Wait(ctx))
	// Output: 999 <nil>
}

// AppendAll takes the lock of a partition once for many records.
func ExampleProducer_AppendAll() {
	ctx := context.Background()
	client, end := example(ctx)
	defer end()

	p, err := producer.New(client, producer.Config{Partitioner: producer.Manual})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()

	receipts, err := p.AppendAll(ctx, []kafka.Record{
		{Topic: "orders", Partition: 1, Value: []byte("tea")},
		{Topic: "orders", Partition: 1, Value: []byte("milk")},
	}, nil)
	if err != nil {
		log.Fatal(err)
	}
	if err := p.Flush(ctx); err != nil {
		log.Fatal(err)
	}
	for _, r := range receipts {
		fmt.Println(r.Wait(ctx))
	}
	// Output:
	// 0 <nil>
	// 1 <nil>
}

// A transaction is visible to consumers of committed records as a whole, or not
// at all. After a failed Commit, Abort tells for certain.
func ExampleProducer_Begin() {
	ctx := context.Background()
	client, end := example(ctx)
	defer end()

	p, err := producer.New(client, producer.Config{TransactionalID: "billing-1"})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()

	tx, err := p.Begin(ctx)
	if err != nil {
		log.Fatal(err)
	}
	for _, v := range []string{"tea", "milk"} {
		if _, err := tx.Append(ctx, kafka.Record{Topic: "orders", Key: []byte("user-1"), Value: []byte(v)}); err != nil {
			log.Print(err)
		}
	}
	if err = tx.Commit(ctx); err != nil {
		err = tx.Abort(ctx)
	}
	switch {
	case err == nil:
		fmt.Println("settled")
	case errors.Is(err, producer.ErrCommitted):
		fmt.Println("the commit had gone through")
	case errors.Is(err, kafka.ErrFenced):
		log.Fatal("another producer has taken over: ", err)
	}
	// Output: settled
}
