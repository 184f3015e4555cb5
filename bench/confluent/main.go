// Command confluent measures confluent-kafka-go for the harness in the folder
// above, which builds and starts it. It needs cgo.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/ottla/ottla/bench/load"
	"github.com/ottla/ottla/internal/benchmark"
)

func main() {
	if len(os.Args) == 3 && os.Args[1] == "member" {
		if err := member(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	load.Main(map[string]load.Client{"confluent": consume, "confluent produce": produce})
}

func consume(_ context.Context, j load.Job) (load.Measured, error) {
	c, err := kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers": j.Addr, "group.id": "bench", "enable.auto.commit": false, "enable.auto.offset.store": false,
		"queued.min.messages": 100_000, "check.crcs": true, "broker.address.family": "v4",
	})
	return func(ctx context.Context, _ *load.Result) (n int, err error) {
		var tps []kafka.TopicPartition
		for p := range j.Parts {
			tps = append(tps, kafka.TopicPartition{Topic: &j.Topic, Partition: p, Offset: 0})
		}
		if err := c.Assign(tps); err != nil {
			return 0, err
		}
		for n < j.Records && ctx.Err() == nil {
			switch e := c.Poll(100).(type) {
			case *kafka.Message:
				if len(e.Value) != j.Size {
					return n, errors.New("a value has not the length it should have")
				}
				n++
			case kafka.Error:
				return n, e
			}
		}
		return n, ctx.Err()
	}, err
}

func produce(_ context.Context, j load.Job) (load.Measured, error) {
	p, err := kafka.NewProducer(&kafka.ConfigMap{
		"bootstrap.servers": j.Addr, "enable.idempotence": true, "acks": "all", "compression.type": j.Codec, "linger.ms": 5,
		"queue.buffering.max.messages": 1 << 20, "go.delivery.report.fields": "none", "broker.address.family": "v4",
	})
	values := benchmark.Values(j.Size, benchmark.Ring)
	return func(ctx context.Context, _ *load.Result) (done int, err error) {
		failed := make(chan error, 1)
		go func() {
			for i := 0; i < j.Records; i++ {
				m := kafka.Message{TopicPartition: kafka.TopicPartition{Topic: &j.Topic, Partition: kafka.PartitionAny}, Value: values[i%benchmark.Ring]}
				for {
					err := p.Produce(&m, nil)
					if err == nil {
						break
					}
					if k, ok := err.(kafka.Error); !ok || k.Code() != kafka.ErrQueueFull {
						failed <- err
						return
					}
					p.Flush(1)
				}
			}
		}()
		for done < j.Records {
			select {
			case e := <-p.Events():
				if m, ok := e.(*kafka.Message); ok {
					if m.TopicPartition.Error != nil {
						return done, m.TopicPartition.Error
					}
					done++
				} else if err, ok := e.(kafka.Error); ok && err.IsFatal() {
					return done, fmt.Errorf("fatal: %w", err)
				}
			case err := <-failed:
				return done, err
			case <-ctx.Done():
				return done, ctx.Err()
			}
		}
		return done, nil
	}, err
}
