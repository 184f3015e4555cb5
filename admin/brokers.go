package admin

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// Cluster is a cluster as one of its brokers describes it, or one of its
// controllers (see cluster.Config.BootstrapControllers).
type Cluster struct {
	ID         string
	Controller kafka.NodeID   // kafka.NoNode during an election; with KRaft some broker that passes requests on, or the active controller
	Brokers    []kafka.Broker // the controllers if the client is connected to those
}

// DescribeCluster describes the cluster. Brokers before 2.8 tell it in their
// metadata.
func (a *Admin) DescribeCluster(ctx context.Context) (Cluster, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrDescribeClusterRequest()
	if cluster.AtControllers(a.c) {
		req.EndpointType = 2
	}
	resp, err := req.RequestWith(ctx, a.c)
	if unsupported(err) {
		return a.clusterFromMetadata(ctx)
	}
	if err == nil {
		err = opError("describe cluster", "", kafka.CodeError(resp.ErrorCode, resp.ErrorMessage))
	}
	if err != nil {
		return Cluster{Controller: kafka.NoNode}, err
	}
	out := Cluster{ID: resp.ClusterID, Controller: kafka.NodeID(resp.ControllerID)}
	for _, b := range resp.Brokers {
		out.Brokers = append(out.Brokers, brokerOf(b.NodeID, b.Host, b.Port, b.Rack))
	}
	return out, nil
}

func (a *client) clusterFromMetadata(ctx context.Context) (Cluster, error) {
	resp, err := a.metadata(ctx, metadataRequest())
	if err != nil {
		return Cluster{Controller: kafka.NoNode}, err
	}
	out := Cluster{Controller: kafka.NodeID(resp.ControllerID)}
	if resp.ClusterID != nil {
		out.ID = *resp.ClusterID
	}
	for _, b := range resp.Brokers {
		out.Brokers = append(out.Brokers, brokerOf(b.NodeID, b.Host, b.Port, b.Rack))
	}
	return out, nil
}

func brokerOf(id int32, host string, port int32, rack *string) kafka.Broker {
	b := kafka.Broker{ID: kafka.NodeID(id), Host: host, Port: port}
	if rack != nil {
		b.Rack = *rack
	}
	return b
}
