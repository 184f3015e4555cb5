//go:build kafka

package transact

import (
	"context"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

var broker *realkafka.Cluster

func TestMain(m *testing.M) {
	os.Exit(sim.NoLeaks(func() int {
		return realkafka.Run(m, realkafka.Options{Brokers: 3}, func(c *realkafka.Cluster) { broker = c })
	}))
}

// On a real cluster of three brokers, with runners stopped and killed and once a
// broker killed and started again, the output is the input, once each.
func TestG41G42G43OnKafkaOutputIsInputExactlyOnce(t *testing.T) {
	protocols := []kafka.GroupKind{kafka.ClassicGroup, kafka.ConsumerGroup}
	if strings.HasPrefix(broker.Version(), "3.") {
		protocols = protocols[:1]
	}
	rounds := 5
	if os.Getenv("OTTLA_GROUP_CHAOS") != "" {
		rounds = 300
	}
	for _, protocol := range protocols {
		t.Run(protocol.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute+time.Duration(rounds)*4*time.Second)
			defer cancel()
			connect := func() *cluster.Cluster {
				c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(broker.Bootstrap(), ",")})
				if err != nil {
					t.Fatal(err)
				}
				return c
			}
			admin := connect()
			topic := "eos-" + protocol.String() + "-in"
			createTopics(ctx, t, admin, topic, topic[:len(topic)-2]+"out")
			defer admin.Close()
			done := make(chan struct{})
			go func() {
				defer close(done)
				if protocol != protocols[0] {
					return // one loss of a broker is enough for the short form
				}
				time.Sleep(3 * time.Second)
				if err := broker.Kill(2); err != nil {
					t.Error(err)
				}
				time.Sleep(2 * time.Second)
				if err := broker.Restart(2); err != nil {
					t.Error(err)
				}
			}()
			churn(ctx, t, connect, func(id string) Config {
				return configured(topic, topic+id, topic, protocol)
			}, rounds, rand.New(rand.NewPCG(rand.Uint64(), 4)))
			<-done
		})
	}
}

func TestKafkaB118AnUnknownCommitIsSettledBeforePositionsAreTaken(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	config := func() cluster.Config { return cluster.Config{Bootstrap: strings.Split(broker.Bootstrap(), ",")} }
	c, err := cluster.Connect(ctx, config())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	createTopics(ctx, t, c, "late-in", "late-out")
	unknownCommit(ctx, t, config, kafka.ClassicGroup, 3*time.Second)
}

func createTopics(ctx context.Context, t *testing.T, c *cluster.Cluster, names ...string) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range names {
		rt := kmsg.NewCreateTopicsRequestTopic()
		rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 4, 3
		req.Topics = append(req.Topics, rt)
	}
	if _, err := c.Request(ctx, req); err != nil {
		t.Fatal(err)
	}
}
