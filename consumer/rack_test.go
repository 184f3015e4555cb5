package consumer

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

func TestG16RacksAreReadFromMetadata(t *testing.T) {
	resp := kmsg.NewPtrMetadataResponse()
	for id, rack := range []*string{kmsg.StringPtr("x"), kmsg.StringPtr("y"), nil} {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Rack = int32(id), rack
		resp.Brokers = append(resp.Brokers, b)
	}
	topic := kmsg.NewMetadataResponseTopic()
	topic.Topic = kmsg.StringPtr("t")
	for _, p := range []int32{1, 0, 7} { // one that cannot be
		part := kmsg.NewMetadataResponseTopicPartition()
		part.Partition, part.Replicas = p, []int32{p, 2, 9}
		topic.Partitions = append(topic.Partitions, part)
	}
	resp.Topics = append(resp.Topics, topic, kmsg.NewMetadataResponseTopic())
	got := racksIn(resp)
	want := [][]string{{"x", "", ""}, {"y", "", ""}, nil}
	if len(got) != 1 || !slices.EqualFunc(got["t"], want, slices.Equal) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A leader asks where replicas are only if it is to look at racks, and the group
// works the same.
func TestG16ALeaderAsksForRacksOnlyWhenItIsToLookAtThem(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 2}, Journal: 10000}, func(ctx context.Context, w *world) {
		if _, err := w.c.Topic(ctx, "t"); err != nil {
			t.Fatal(err)
		}
		for _, aware := range []bool{false, true} {
			w.produce("t", 0, "a")
			before := len(w.k.Journal(3))
			c := w.consumer(Config{Rack: "x", Group: GroupConfig{ID: "g", Topics: []string{"t"}, RackAware: aware}})
			r := newReader(t, c)
			r.until(ctx, 1)
			if n := len(c.Assignment()); n != 2 {
				t.Errorf("%d partitions", n)
			}
			asked := 0
			for _, q := range w.k.Journal(3)[before:] {
				if req := q.Body.(*kmsg.MetadataRequest); len(req.Topics) == 1 && req.Topics[0].Topic != nil && *req.Topics[0].Topic == "t" {
					asked++
				}
			}
			if aware != (asked > 0) {
				t.Errorf("aware %v: asked %d times", aware, asked)
			}
			if err := c.Commit(ctx); err != nil {
				t.Error(err)
			}
			short, cancel := context.WithTimeout(ctx, 10*time.Second)
			_ = c.Shutdown(short)
			cancel()
		}
	})
}

func TestT7_G16RackAwareIsForClassicGroups(t *testing.T) {
	if _, err := (Config{Group: GroupConfig{ID: "g", Protocol: kafka.ConsumerGroup, RackAware: true}}).withDefaults(); err == nil {
		t.Error("taken")
	}
}
