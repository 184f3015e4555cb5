package consumer_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/producer"
)

// A member of a group handles records until its context ends, and commits what it
// finished.
func ExampleConsumer_Run() {
	brokers, err := ottlatest.Start(ottlatest.Config{Topics: map[string]int{"orders": 1}})
	if err != nil {
		log.Fatal(err)
	}
	defer brokers.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	client, err := cluster.Connect(ctx, brokers.ClientConfig())
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	p, err := producer.New(client, producer.Config{})
	if err != nil {
		log.Fatal(err)
	}
	defer p.Close()
	if _, err := p.Send(ctx, kafka.Record{Topic: "orders", Value: []byte("two shirts")}); err != nil {
		log.Fatal(err)
	}

	c, err := consumer.New(client, consumer.Config{Group: consumer.GroupConfig{ID: "shop", Topics: []string{"orders"}}})
	if err != nil {
		log.Fatal(err)
	}
	err = c.Run(ctx, func(_ context.Context, b consumer.Batch) error {
		for offset, r := range b.Records() {
			fmt.Printf("%d: %s\n", offset, r.Value)
		}
		cancel() // an example has to end
		return nil
	})
	fmt.Println("ended:", err)
	// Output:
	// 0: two shirts
	// ended: <nil>
}

// The program at the top of docs/groups.md, its handler aside, stays short.
func TestT8TheSafeProgramHasTwentyLines(t *testing.T) {
	page, err := os.ReadFile("../docs/groups.md")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile("(?s)```go\n(package main.*?)func handle").FindSubmatch(page)
	if m == nil {
		t.Fatal("no program")
	}
	n := 0
	for line := range strings.Lines(string(m[1])) {
		if strings.TrimSpace(line) != "" {
			n++
		}
	}
	if n > 20 {
		t.Errorf("%d lines", n)
	}
}
