package consumer

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// K9 and C24: the version sent is the highest of both sides; topics go by name
// up to 12 and by id from 13 on, and by name where a topic has no id.
func TestK9_C24FetchGoesByNameUpTo12AndByIDFrom13On(t *testing.T) {
	for _, c := range []struct {
		high, metadata int16
		want           int16
	}{{4, 13, 4}, {7, 13, 7}, {11, 13, 11}, {12, 13, 12}, {13, 13, 13}, {16, 13, 16}, {18, 13, 18}, {18, 9, 12}} {
		t.Run(fmt.Sprint("Fetch ", c.high, " Metadata ", c.metadata), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, cl := scripted(t, 1, 1)
				for _, b := range s.Brokers() {
					b.SetVersions(1, 0, c.high)
					b.SetVersions(3, 0, c.metadata)
				}
				s.Broker(1).Handle(1, fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) {
					if p.HighWatermark = 2; o < 2 {
						p.RecordBatches = wireBatch(0, 2, 2, record.NoProducer, 0, nil)
					}
				}))
				if c.metadata < 10 {
					for _, b := range s.Brokers() {
						b.EndAll(1) // the versions it told before are forgotten with the sockets
					}
				}
				cons, err := New(cl, Config{})
				if err != nil {
					t.Fatal(err)
				}
				defer cons.Close()
				if err := cons.Assign(t.Context(), map[kafka.TopicPartition]Start{tp("t", 0): AtOffset(0)}); err != nil {
					t.Fatal(err)
				}
				r := newReader(t, cons)
				r.until(t.Context(), 2)
				time.Sleep(2 * time.Second)
				fs := s.Broker(1).FramesOf(1)
				for _, f := range fs {
					rt := f.Req.(*kmsg.FetchRequest).Topics[0]
					byID := f.Req.GetVersion() >= 13
					if f.Req.GetVersion() != c.want || byID != (rt.Topic == "") || byID == (rt.TopicID == [16]byte{}) {
						t.Errorf("Fetch %d for topic %q, id %x; want version %d", f.Req.GetVersion(), rt.Topic, rt.TopicID, c.want)
					}
				}
				if s.Broker(1).OutOfRange() != 0 || len(fs) < 2 {
					t.Errorf("%d requests out of range, %d fetches", s.Broker(1).OutOfRange(), len(fs))
				}
			})
		})
	}
}
