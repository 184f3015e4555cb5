package consumer

import (
	"context"
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// A reset that comes while the user has a batch goes on when the batch is used
// up, however it was taken. Mutations: a way to take that does not release; no
// kick when a partition waited for it.
func TestF32AResetGoesOnWhenTheUserHasTheBatch(t *testing.T) {
	ways := map[string]func(context.Context, *Consumer, func(kafka.Offset) bool){
		"Poll": func(ctx context.Context, c *Consumer, got func(kafka.Offset) bool) {
			for {
				batches, err := c.Poll(ctx)
				if err != nil {
					return
				}
				for _, b := range batches {
					for o := range b.Records() {
						if !got(kafka.Offset(o)) {
							return
						}
					}
				}
			}
		},
		"Batches": func(ctx context.Context, c *Consumer, got func(kafka.Offset) bool) {
			for b := range c.Batches(ctx) {
				for o := range b.Records() {
					if !got(kafka.Offset(o)) {
						return
					}
				}
			}
		},
		"Records": func(ctx context.Context, c *Consumer, got func(kafka.Offset) bool) {
			for r, err := range c.Records(ctx) {
				if err != nil || !got(r.Offset) {
					return
				}
			}
		},
	}
	for name, read := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, c := scripted(t, 1, 1)
				batch := sample(t, 3, 10, compress.None).Bytes()
				s.Broker(1).Handle(1, fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) {
					p.HighWatermark = 100
					if o == 3 { // retention took what comes next
						p.ErrorCode = 1
						return
					}
					p.RecordBatches = append([]byte(nil), batch...)
					binary.BigEndian.PutUint64(p.RecordBatches, uint64(o))
				}))
				s.Broker(1).Handle(2, func(r *sim.Request) sim.Answer {
					resp := r.Response().(*kmsg.ListOffsetsResponse)
					rt, rp := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
					rt.Topic, rp.Offset = "t", 80
					rt.Partitions = append(rt.Partitions, rp)
					resp.Topics = append(resp.Topics, rt)
					return sim.Reply(resp)
				})
				cons, err := New(c, Config{Budget: 16 << 10, PartitionMaxBytes: 4 << 10}) // the log has no end
				if err != nil {
					t.Fatal(err)
				}
				defer cons.Close()
				if err := cons.Assign(t.Context(), map[kafka.TopicPartition]Start{tp("t", 0): AtOffset(0)}); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				var offsets []kafka.Offset
				read(ctx, cons, func(o kafka.Offset) bool {
					offsets = append(offsets, o)
					time.Sleep(2 * time.Second) // the broker says out of range meanwhile
					return o < 80
				})
				if len(offsets) != 4 || offsets[2] != 2 || offsets[3] != 80 {
					t.Errorf("read %v, want 0, 1, 2 and 80", offsets)
				}
			})
		})
	}
}
