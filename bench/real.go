package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/bench/load"
	"github.com/ottla/ottla/cluster"
)

const (
	kafkaVersion = "4.4.0"
	script       = "../scripts/kafka"
	clusterName  = "bench"
)

// realRecords is how many records of a size a real broker holds.
func realRecords(size int) int {
	if size > 512 {
		return 400_000
	}
	return 2_000_000
}

// startReal starts a Kafka on the broker's core, with little to keep.
func startReal(ctx context.Context) (addr string, stop func(), err error) {
	cmd := pinned(ctx, brokerCore, script, "up", "--name", clusterName, "--brokers", "1", "--version", kafkaVersion,
		"-c", "log.retention.check.interval.ms=5000", "-c", "log.segment.delete.delay.ms=1000")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	stop = func() { _ = exec.Command(script, "down", clusterName).Run() }
	if err != nil {
		stop()
		return "", nil, err
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	last := strings.Fields(lines[len(lines)-1])
	addr, _, _ = strings.Cut(last[len(last)-1], ",")
	return addr, stop, nil
}

// fill makes the topics of the cells on a real broker, and fills those that
// are read, with batches of 64 KiB.
func fill(ctx context.Context, bin, addr string, cells []cell, scale float64) error {
	cl, err := cluster.Connect(ctx, cluster.Config{Bootstrap: []string{addr}})
	if err != nil {
		return err
	}
	defer cl.Close()
	for _, c := range cells {
		if c.place != "real" {
			continue
		}
		if err := createTopic(ctx, cl, c); err != nil {
			return err
		}
		if c.op != "consume" {
			continue
		}
		j := load.Job{Client: "ottla fill", Op: "fill", Size: c.size, Codec: c.codec, Addr: addr, Topic: c.topic(), Parts: parts}
		j.Records = entry{}.records(c, scale) + 4096*parts // partitions are not equally full
		if r := measure(ctx, bin, 1, j); r.Err != "" {
			return fmt.Errorf("filling %s: %s", j.Topic, r.Err)
		}
	}
	return nil
}

func createTopic(ctx context.Context, cl *cluster.Cluster, c cell) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = c.topic(), parts, 1
	if c.op == "produce" { // nobody reads it
		for _, kv := range [][2]string{{"retention.bytes", "16777216"}, {"segment.bytes", "33554432"}, {"file.delete.delay.ms", "1000"}} {
			cfg := kmsg.NewCreateTopicsRequestTopicConfig()
			cfg.Name, cfg.Value = kv[0], &kv[1]
			t.Configs = append(t.Configs, cfg)
		}
	}
	req.Topics = append(req.Topics, t)
	resp, err := cl.Request(ctx, req)
	if err != nil {
		return err
	}
	if rt := resp.(*kmsg.CreateTopicsResponse).Topics[0]; rt.ErrorCode != 0 {
		return fmt.Errorf("creating %s: code %d", t.Topic, rt.ErrorCode)
	}
	return nil
}
