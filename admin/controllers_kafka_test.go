//go:build kafka

package admin

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// TestKafkaA8ChangesThroughTheController makes, sets, grows and deletes a topic
// through the controller alone; the broker shows each in time.
func TestKafkaA8ChangesThroughTheController(t *testing.T) {
	if !from(3, 7) {
		t.Skip("controllers describe themselves from Kafka 3.7 on")
	}
	brokers, ctx := real(t)
	c, err := cluster.Connect(ctx, cluster.Config{BootstrapControllers: strings.Split(broker.Listener(realkafka.Controllers), ",")})
	mustDo(t, err)
	defer c.Close()
	a := New(c)
	now, err := a.DescribeCluster(ctx)
	if mustDo(t, err); now.ID != brokers.c.ID() || len(now.Brokers) != 1 || now.Brokers[0].Addr() != broker.Listener(realkafka.Controllers) || now.Controller != now.Brokers[0].ID {
		t.Errorf("cluster %+v", now)
	}
	create(t, ctx, a, "by-controller", 1)
	mustDo(t, a.AlterConfigs(ctx, []ConfigChange{{Resource: TopicResource("by-controller"), Set: map[string]string{"retention.ms": "7200000"}}}, Visible).Err())
	mustDo(t, a.CreatePartitions(ctx, map[string]MorePartitions{"by-controller": {Total: 3}}, Visible).Err())
	soon(t, ctx, func() bool {
		res := brokers.DescribeTopics(ctx, Topics("by-controller"))
		return res.Err() == nil && len(res[0].Value.Partitions) == 3 && value(t, ctx, brokers, TopicResource("by-controller"), "retention.ms") == "7200000"
	})
	if got := value(t, ctx, a, TopicResource("by-controller"), "retention.ms"); got != "7200000" {
		t.Errorf("the controller shows %q", got)
	}
	if got := value(t, ctx, a, BrokerResource(now.Controller), "process.roles"); got != "broker,controller" {
		t.Errorf("roles %q", got)
	}
	mustDo(t, a.AlterConfigs(ctx, []ConfigChange{{Resource: BrokerResource(now.Controller), Set: map[string]string{"log.cleaner.threads": "2"}}}, ValidateOnly).Err())
	mustDo(t, a.DeleteTopics(ctx, Topics("by-controller"), Visible).Err())
	soon(t, ctx, func() bool {
		return isUnknown(errors.Unwrap(brokers.DescribeTopics(ctx, Topics("by-controller")).Err()))
	})

	_, listed := a.ListTopics(ctx)
	_, produced := producer.New(c, producer.Config{})
	_, consumed := consumer.New(c, consumer.Config{})
	for what, err := range map[string]error{
		"topics": listed, "describe": a.DescribeTopics(ctx, Topics("t")).Err(), "a producer": produced, "a consumer": consumed,
		"offsets": a.ListOffsets(ctx, map[kafka.TopicPartition]OffsetAt{tp("t", 0): Latest}, ReadCommitted).Err(),
	} {
		if !errors.Is(err, kafka.ErrUnsupportedEndpointType) || OutcomeOf(err) != NotDone {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// soon waits until brokers show what a controller did.
func soon(t *testing.T, ctx context.Context, shown func() bool) {
	t.Helper()
	for !shown() {
		if ctx.Err() != nil {
			t.Fatal(context.Cause(ctx))
		}
		time.Sleep(20 * time.Millisecond)
	}
}
