package admin

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// TestA8ThroughControllersACreationIsOverWhenItIsAccepted fails where brokers,
// which this client cannot reach, are waited for.
func TestA8ThroughControllersACreationIsOverWhenItIsAccepted(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.without(3, 10, 75)
		b := r.sim.Broker(1)
		b.Handle(60, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeClusterResponse)
			one := kmsg.NewDescribeClusterResponseBroker()
			one.NodeID, one.Host, one.Port = 1, "b1", 9092
			resp.EndpointType, resp.ClusterID, resp.ControllerID = 2, "sim", 1
			resp.Brokers = append(resp.Brokers, one)
			return sim.Reply(resp)
		})
		r.makesTopics(nil)
		a := r.admin(func(c *cluster.Config) { c.Bootstrap, c.BootstrapControllers = nil, c.Bootstrap })
		mustDo(t, a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "t", Partitions: 1, Replicas: 1}}, Visible).Err())
		found, err := a.DescribeCluster(r.within(time.Minute))
		if mustDo(t, err); found.Controller != 1 || len(found.Brokers) != 1 {
			t.Errorf("cluster %+v", found)
		}
		b.Handle(19, func(*sim.Request) sim.Answer { return sim.Answer{End: sim.Close} })
		err = a.CreateTopics(r.within(time.Minute), []NewTopic{{Name: "u"}}, Visible).Err()
		var doubt *InDoubtError
		if !errors.As(err, &doubt) {
			t.Fatalf("a lost answer: %v", err)
		}
		began := time.Now()
		if o, err := doubt.Resolve(t.Context()); o != Unknown || !errors.Is(err, kafka.ErrUnsupportedEndpointType) || time.Since(began) > 0 {
			t.Errorf("resolved as %v after %v: %v", o, time.Since(began), err)
		}
		if p, err := producer.New(a.c, producer.Config{}); p != nil || !errors.Is(err, kafka.ErrUnsupportedEndpointType) {
			t.Errorf("a producer: %v", err)
		}
		if k, err := consumer.New(a.c, consumer.Config{}); k != nil || !errors.Is(err, kafka.ErrUnsupportedEndpointType) {
			t.Errorf("a consumer: %v", err)
		}
	})
}
