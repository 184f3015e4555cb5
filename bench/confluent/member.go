package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/confluentinc/confluent-kafka-go/v2/kafka"

	"github.com/ottla/ottla/bench/load"
	"github.com/ottla/ottla/internal/benchmark"
)

// member is one member of a group: see load.Member.
func member(told string) error {
	var m load.Member
	if err := json.Unmarshal([]byte(told), &m); err != nil {
		return err
	}
	end := make(chan os.Signal, 1)
	signal.Notify(end, syscall.SIGTERM)
	c, err := kafka.NewConsumer(&kafka.ConfigMap{
		"bootstrap.servers": m.Addr, "group.id": m.Group, "auto.offset.reset": "earliest", "broker.address.family": "v4",
		"partition.assignment.strategy": "cooperative-sticky",
		"session.timeout.ms":            int(m.Session.Milliseconds()), "heartbeat.interval.ms": int(m.Heartbeat.Milliseconds()),
		"enable.auto.offset.store": false, "auto.commit.interval.ms": 1000, "check.crcs": true,
	})
	if err != nil {
		return err
	}
	if err := c.Subscribe(m.Topic, nil); err != nil {
		return err
	}
	before := benchmark.CPUTime()
	for n := 0; ; {
		select {
		case <-end:
			return c.Close()
		default:
		}
		switch e := c.Poll(50).(type) {
		case *kafka.Message:
			n++
			if m.Count == 0 {
				fmt.Println(e.TopicPartition.Partition, int64(e.TopicPartition.Offset))
			} else if n == m.Count {
				fmt.Println(int64(benchmark.CPUTime() - before))
			}
			if _, err := c.StoreMessage(e); err != nil && err.(kafka.Error).Code() != kafka.ErrState {
				return err
			}
		case kafka.Error:
			if e.IsFatal() {
				return e
			}
		}
	}
}
