package meta

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FuzzMetadataAnswer merges whatever a broker may send, twice, and holds the
// invariants of the map.
func FuzzMetadataAnswer(f *testing.F) {
	name := "t"
	for _, v := range []int16{1, 9, 13} {
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = v
		resp.Brokers = []kmsg.MetadataResponseBroker{{NodeID: 1, Host: "b", Port: 1}}
		resp.ControllerID = 1
		resp.Topics = []kmsg.MetadataResponseTopic{{Topic: &name, TopicID: [16]byte{1}, Partitions: []kmsg.MetadataResponseTopicPartition{{Leader: 1}, {Partition: 3, Leader: 9}}}}
		f.Add(byte(v), resp.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version byte, body []byte) {
		resp := kmsg.NewPtrMetadataResponse()
		resp.Version = int16(version % 14)
		if resp.ReadFrom(body) != nil {
			return
		}
		now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		m := NewMap(Config{MaxAge: time.Minute, Patience: time.Second, Rebootstrap: time.Minute}, rand.New(rand.NewPCG(1, 1)), now)
		for range 2 {
			for _, rt := range resp.Topics {
				if rt.Topic != nil {
					m.Want(*rt.Topic, Need{Force: true, Track: true})
				}
			}
			now = now.Add(time.Second)
			if _, ok := m.Next(now); ok {
				_, _ = m.OnAnswer(now, "b:1", resp)
			}
			m.check(t)
		}
		for _, e := range m.TakeEvents() {
			if e.Kind == 0 || e.Kind.String() == "unknown" {
				t.Errorf("event %+v", e)
			}
		}
	})
}

// FuzzFindCoordinatorAnswer does the same for the answers of FindCoordinator.
func FuzzFindCoordinatorAnswer(f *testing.F) {
	for _, v := range []int16{0, 3, 6} {
		resp := kmsg.NewPtrFindCoordinatorResponse()
		resp.Version, resp.NodeID, resp.Host, resp.Port = v, 1, "b", 1
		resp.Coordinators = []kmsg.FindCoordinatorResponseCoordinator{{Key: "g", NodeID: 1, Host: "b", Port: 1}, {Key: "", ErrorCode: 15}}
		f.Add(byte(v), resp.AppendTo(nil))
	}
	f.Fuzz(func(t *testing.T, version byte, body []byte) {
		resp := kmsg.NewPtrFindCoordinatorResponse()
		resp.Version = int16(version % 7)
		if resp.ReadFrom(body) != nil {
			return
		}
		c := newCoordinators()
		c.Want(epoch, key("g"))
		c.Want(epoch, key(""))
		l, _ := c.Next(epoch)
		for _, found := range c.OnAnswer(epoch, l, resp) {
			if found.Err == nil && !reachable(found.Broker) {
				t.Errorf("a coordinator that cannot be reached: %+v", found)
			}
		}
		for k, b := range c.known {
			if !reachable(b) {
				t.Errorf("%v is cached as %+v", k, b)
			}
		}
	})
}
