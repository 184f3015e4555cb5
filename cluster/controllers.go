package cluster

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/kafka"
)

// controllerAPIs are the APIs for clients that controllers serve themselves, in
// order of their keys.
var controllerAPIs = []int16{
	18, 19, 20, 29, 30, 31, 32, 33, 37, 38, 39, 40, 41, 43, 44, 45, 46, 49, 50, 51, 55, 57, 60, 64, 80, 81, 94,
}

// AtControllers reports whether the client is connected to controllers, see
// [Config.BootstrapControllers].
func AtControllers(c *Cluster) bool { return c.cfg.atControllers() }

func (c *Config) atControllers() bool { return len(c.BootstrapControllers) > 0 }

// seeds are the addresses to start from, in their canonical form.
func (c *Config) seeds() []string {
	if c.atControllers() {
		return c.BootstrapControllers
	}
	return c.Bootstrap
}

// unserved is the error of a request that the nodes of this client do not
// serve, whichever is asked.
func (c *Config) unserved(key int16) error {
	if c.atControllers() && !slices.Contains(controllerAPIs, key) {
		return kafka.ErrUnsupportedEndpointType
	}
	return nil
}

// mapRequest is the request for one refresh of the map. Controllers have no
// Metadata.
func (c *Config) mapRequest(r meta.Refresh) kmsg.Request {
	if c.atControllers() {
		return meta.DescribeControllers()
	}
	return metadataRequest(r)
}

// mapAnswer is the answer to a mapRequest.
func mapAnswer(resp kmsg.Response) *kmsg.MetadataResponse {
	if r, ok := resp.(*kmsg.DescribeClusterResponse); ok {
		return meta.Controllers(r)
	}
	return resp.(*kmsg.MetadataResponse)
}

// brokerError is a broker that was asked as a controller.
type brokerError struct{ err error }

func (e *brokerError) Error() string {
	return "controllers were asked for (bootstrap.controllers), and this is a broker (bootstrap.servers): " + e.err.Error()
}

func (e *brokerError) Unwrap() error { return e.err }
