//go:build kafka

package consumer

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// B175, F19: on a topic with the broker's clock every record of a batch has the
// time of its append, whatever the producer said.
func TestKafkaB175_F19LogAppendTime(t *testing.T) {
	topic := "append-time"
	ctx, c := onKafka(t, topic, 1)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeTopic, topic
	cfg := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	cfg.Name, cfg.Value = "message.timestamp.type", kmsg.StringPtr("LogAppendTime")
	res.Configs = append(res.Configs, cfg)
	req.Resources = append(req.Resources, res)
	resp, err := c.Request(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if code := resp.(*kmsg.IncrementalAlterConfigsResponse).Resources[0].ErrorCode; code != 0 {
		t.Fatal(kerr.ErrorForCode(code))
	}
	peer := realPeer(t, kgo.ProducerBatchCompression(kgo.ZstdCompression()), kgo.ProducerLinger(50*time.Millisecond))
	cons := realConsumer(t, c, Config{}, map[kafka.TopicPartition]Start{tp(topic, 0): Earliest()})
	start := time.Now().Add(-time.Minute)
	next := kafka.Offset(0)
	// The leader may take the setting a moment after the answer: the first batches
	// may still have the producer's times.
	for appended := 0; appended < 3; {
		var rs []*kgo.Record
		for i := range 20 {
			rs = append(rs, &kgo.Record{Topic: topic, Value: fmt.Append(nil, i), Timestamp: start.Add(-time.Duration(i) * time.Hour)})
		}
		if err := peer.ProduceSync(ctx, rs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
		for end := next + 20; next < end; {
			bs, err := cons.Poll(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range bs {
				next = b.Next()
				if b.TimestampType() == kafka.CreateTime && appended == 0 {
					continue
				}
				appended++
				for o, r := range b.Records() {
					if r.TimestampType != kafka.LogAppendTime || r.Timestamp != b.MaxTimestamp() || r.Timestamp.Time().Before(start) {
						t.Errorf("offset %d: %v %v, the batch has %v", o, r.TimestampType, r.Timestamp.Time(), b.MaxTimestamp().Time())
					}
				}
			}
		}
	}
}
