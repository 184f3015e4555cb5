package cluster

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// A Fetch of a follower must not wait behind that of a consumer, nor one that
// does not wait behind either.
func TestRequestBrokerPinsTheVersionAndKeepsFetchesApart(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		c := r.connect()
		fetch := func(wait int32) kmsg.Request {
			req := kmsg.NewPtrFetchRequest()
			req.MaxWaitMillis = wait
			return req
		}
		must2 := func(resp kmsg.Response, err error) kmsg.Response { return must(t, resp, err) }
		must2(c.Broker(1).Request(r.within(1e10), fetch(500)))
		must2(c.RequestBroker(r.within(1e10), 1, fetch(500), -1))
		must2(c.RequestBroker(r.within(1e10), 1, fetch(0), 11))
		resp := must2(c.RequestBroker(r.within(1e10), 1, kmsg.NewPtrEndTxnRequest(), 3))
		if resp.GetVersion() != 3 {
			t.Errorf("EndTxn pinned to 3 was answered in version %d", resp.GetVersion())
		}
		got := map[string]int64{}
		for _, s := range c.Stats().Connections {
			got[s.Purpose] = s.Requests
		}
		if got["fetch"] == 0 || got["follow"] == 0 || got["follow"] != got["fetch"] {
			t.Errorf("requests by purpose: %v", got)
		}
		conns, versions := map[int]bool{}, []int16{}
		for _, f := range r.sim.Frames() {
			if f.Key == 1 {
				conns[f.Conn] = true
				versions = append(versions, f.Version)
			}
		}
		if len(conns) != 3 || versions[2] != 11 {
			t.Errorf("three kinds of fetches on %d connections, versions %v", len(conns), versions)
		}
		if _, err := c.RequestBroker(r.within(1e10), 77, fetch(0), -1); err == nil || kafka.MayHaveHappened(err) {
			t.Errorf("an unknown broker: %v", err)
		}
	})
}
