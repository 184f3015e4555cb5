//go:build kafka

package consumer

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ottla/ottla/kafka"
)

// A Java member and one of ottla share a group: they divide its partitions, the
// Java member's are taken over when it ends, and each goes on at what the other
// has committed.
func TestG10_G15OnKafkaJavaAndOttlaShareAGroup(t *testing.T) {
	const strategy = "partition.assignment.strategy=org.apache.kafka.clients.consumer."
	for _, one := range []struct {
		name, java string
		cfg        GroupConfig
	}{
		{"range", strategy + "RangeAssignor", GroupConfig{Assignors: []Assignor{Range}}},
		{"cooperative-sticky", strategy + "CooperativeStickyAssignor", GroupConfig{}},
		{"consumer", "group.protocol=consumer", GroupConfig{Protocol: kafka.ConsumerGroup}},
	} {
		t.Run(one.name, func(t *testing.T) {
			if one.name == "consumer" && len(protocols()) == 1 {
				t.Log("this broker has classic groups only")
				return
			}
			topic := "java-and-" + one.name
			onKafka(t, topic, 6)
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
			defer cancel()
			y := &tally{seen: map[string]int{}}
			cfg := one.cfg
			cfg.ID, cfg.Topics, cfg.SessionTimeout, cfg.CommitInterval = topic, []string{topic}, 10*time.Second, time.Second
			ours := run(t, cfg, y.handle)
			wait(ctx, t, "ottla's member", func() bool { return ours.c.Group().Stats().Partitions == 6 })

			type output struct {
				text string
				err  error
			}
			java := make(chan output, 1)
			go func() {
				out, err := broker.Tool("consumer.ConsoleConsumer", "--topic", topic, "--group", topic, "--max-messages", "150",
					"--timeout-ms", "90000", "--consumer-property", one.java)
				java <- output{out, err}
			}()
			wait(ctx, t, "the Java member", func() bool { return ours.c.Group().Stats().Partitions == 3 || len(java) > 0 })
			cl := realPeer(t)
			n := 0
			produce := func(count int) {
				for range count {
					cl.Produce(ctx, &kgo.Record{Topic: topic, Partition: int32(n % 6), Value: []byte(fmt.Sprint(n))}, nil)
					n++
				}
				if err := cl.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
			produce(300) // 150 for the Java member, which then ends
			began := time.Now()
			out := <-java
			t.Logf("Java's member ended after %v with %d bytes of output; %d records handled here; %+v", time.Since(began).Round(time.Second), len(out.text), y.distinct(), ours.c.Group().Stats())
			if out.err != nil {
				t.Fatalf("Java: %v\n%s", out.err, out.text)
			}
			for line := range strings.Lines(out.text) {
				v := strings.TrimSpace(line)
				if v != "" && strings.Trim(v, "0123456789") == "" {
					y.mu.Lock()
					y.seen[v]++
					y.mu.Unlock()
				}
			}
			wait(ctx, t, "the partitions of the Java member", func() bool { return ours.c.Group().Stats().Partitions == 6 })
			produce(300)
			wait(ctx, t, "600 records", func() bool { return y.distinct() == 600 })
			for v, times := range y.seen {
				if times > 1 {
					t.Errorf("%s was handled %d times, though both members ended in order", v, times)
				}
			}
			ours.stop(t)
		})
	}
}
