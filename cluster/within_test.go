package cluster

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// TestA9C24APinnedRequestGoesOutAtItsVersionOnEveryRoute pins requests of each
// route to version 1, and to one that the brokers do not have.
func TestA9C24APinnedRequestGoesOutAtItsVersionOnEveryRoute(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.topic("t", 1, 2)
		r.answerOffsets()
		c := r.connect()
		describe := kmsg.NewPtrDescribeConfigsRequest()
		for _, name := range []string{"1", "2"} {
			d := kmsg.NewDescribeConfigsRequestResource()
			d.ResourceType, d.ResourceName = kmsg.ConfigResourceTypeBroker, name
			describe.Resources = append(describe.Resources, d)
		}
		finds := kmsg.NewPtrFindCoordinatorRequest()
		finds.CoordinatorKeys = []string{"g", "h"}
		deletes := kmsg.NewPtrDeleteGroupsRequest()
		deletes.Groups = []string{"g"}
		for _, req := range []kmsg.Request{
			listOffsets(tp("t", 0), tp("t", 1)), describe, finds, deletes,
			kmsg.NewPtrDescribeClusterRequest(), kmsg.NewPtrCreateTopicsRequest(), kmsg.NewPtrListGroupsRequest(),
			&kmsg.HeartbeatRequest{Group: "g"},
		} {
			for _, b := range r.sim.Brokers() {
				b.Forget()
			}
			mustDo(t, second(Within(c, 1, 1).Request(r.within(time.Minute), req)))
			n := 0
			for _, f := range r.sim.Frames() {
				if f.Key != req.Key() {
					continue
				}
				if n++; f.Version != 1 {
					t.Errorf("%s went out at version %d", kmsg.NameForKey(f.Key), f.Version)
				}
			}
			var ve *kafka.VersionError
			if _, err := Within(c, 99, 99).Request(r.within(time.Minute), req); !errors.As(err, &ve) || ve.ClientMin != 99 || n == 0 {
				t.Errorf("%s at version 99 after %d at 1: %v", kmsg.NameForKey(req.Key()), n, err)
			}
		}
	})
}

// TestANewBrokerIsAskedByACollect has a broker join that the map does not know.
func TestANewBrokerIsAskedByACollect(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		var both []sim.Node
		r.sim.Update(func(tp *sim.Topology) { both, tp.Nodes = tp.Nodes, tp.Nodes[:1] })
		c := r.connect()
		r.sim.Update(func(tp *sim.Topology) { tp.Nodes = both })
		ask := func(reach Reach) Reply {
			return c.Collect(r.within(time.Minute), []Question{{Broker: 2, Req: kmsg.NewPtrDescribeClusterRequest()}}, reach)[0]
		}
		if got := ask(OpenOnly); !errors.Is(got.Err, ErrUnknownBroker) {
			t.Errorf("without dialling: %v", got.Err)
		}
		if got := ask(Dial); got.Err != nil || r.sim.Broker(2).Count(60) != 1 {
			t.Errorf("%v", got.Err)
		}
	})
}
