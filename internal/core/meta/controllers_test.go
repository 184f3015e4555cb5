package meta

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// TestA8ControllersAreMergedAsTheBrokersOfTheMap fails where an answer about
// brokers is taken for one about controllers.
func TestA8ControllersAreMergedAsTheBrokersOfTheMap(t *testing.T) {
	now := time.Unix(0, 0)
	m := NewMap(Config{MaxAge: time.Minute}, rand.New(rand.NewPCG(1, 2)), now)
	resp := kmsg.NewPtrDescribeClusterResponse()
	resp.EndpointType, resp.ClusterID, resp.ControllerID = DescribeControllers().EndpointType, "c", 2
	rack := "r"
	for id := int32(1); id <= 2; id++ {
		b := kmsg.NewDescribeClusterResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = id, "h", 9000+id, &rack
		resp.Brokers = append(resp.Brokers, b)
	}
	merge := func() (Verdict, *Snapshot) {
		v, _ := m.OnAnswer(now, "h:9001", Controllers(resp))
		m.check(t)
		return v, m.Snapshot()
	}
	v, s := merge()
	if b, ok := s.Broker(2); v != Merged || !ok || b != (kafka.Broker{ID: 2, Host: "h", Port: 9002, Rack: "r"}) || s.Controller != 2 || s.ClusterID != "c" || len(s.Brokers) != 2 {
		t.Errorf("%v, %+v", v, s)
	}
	resp.ControllerID = -1
	if v, s = merge(); v != Merged || s.Controller != 2 {
		t.Errorf("during an election: %v, controller %d", v, s.Controller)
	}
	m.InvalidateController(2)
	if v, s = merge(); v != Merged || s.Controller != kafka.NoNode {
		t.Errorf("during an election, the old one rejected: %v, controller %d", v, s.Controller)
	}
	resp.ControllerID, resp.EndpointType = 1, 1
	if v, s = merge(); v != Refused || s.Controller != kafka.NoNode || Controllers(resp).ErrorCode != kerr.MismatchedEndpointType.Code {
		t.Errorf("an answer about brokers: %v, controller %d", v, s.Controller)
	}
	resp.EndpointType, resp.ClusterID = 2, "other"
	if v, _ = merge(); v != OtherCluster {
		t.Errorf("another cluster: %v", v)
	}
	resp.ErrorCode, resp.ClusterID, resp.Brokers = kerr.ClusterAuthorizationFailed.Code, "", nil
	if v, _ = merge(); v != Refused || len(m.Snapshot().Brokers) != 2 {
		t.Errorf("a refusal: %v, %v", v, m.Snapshot().Brokers)
	}
}
