package meta

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// controllersEndpoint is the endpoint type of controllers in DescribeCluster.
const controllersEndpoint = 2

// DescribeControllers is the request that has a controller name all controllers
// (KIP-919). Controllers have no Metadata.
func DescribeControllers() *kmsg.DescribeClusterRequest {
	req := kmsg.NewPtrDescribeClusterRequest()
	req.EndpointType = controllersEndpoint
	return req
}

// Controllers is the answer to DescribeControllers in the form in which a [Map]
// takes it: controllers in place of brokers, the active one being the
// controller. An answer about anything else is MISMATCHED_ENDPOINT_TYPE.
func Controllers(resp *kmsg.DescribeClusterResponse) *kmsg.MetadataResponse {
	m := kmsg.NewPtrMetadataResponse()
	m.ErrorCode, m.ControllerID = resp.ErrorCode, resp.ControllerID
	if resp.ErrorCode == 0 && resp.EndpointType != controllersEndpoint {
		m.ErrorCode = kerr.MismatchedEndpointType.Code
	}
	if resp.ClusterID != "" {
		m.ClusterID = &resp.ClusterID
	}
	for i := range resp.Brokers {
		b := kmsg.NewMetadataResponseBroker()
		b.NodeID, b.Host, b.Port, b.Rack = resp.Brokers[i].NodeID, resp.Brokers[i].Host, resp.Brokers[i].Port, resp.Brokers[i].Rack
		m.Brokers = append(m.Brokers, b)
	}
	return m
}
