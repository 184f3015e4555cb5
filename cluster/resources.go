package cluster

import (
	"context"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// toResources sends config resources to the broker that they are about;
// others to any broker to read them, to the controller to change them. A broker
// that the cluster does not name is unknown after one refresh.
func (a *attempts) toResources() (kmsg.Response, error) {
	s := splitByResource(a.req)
	if s == nil {
		return nil, opError(a.api, kafka.NoNode, ErrNotRouted)
	}
	r := &resourceRouter{c: a.c, s: s, change: a.req.Key() != describeConfigsKey}
	ofBroker, unknown := false, false
	for i := range s.len() {
		if id := r.broker(i); id >= 0 {
			_, known := a.c.snap.Load().Broker(id)
			ofBroker, unknown = true, unknown || !known
		}
	}
	if unknown { // it may be new
		if err := a.brokers(); err != nil {
			return nil, opError(a.api, kafka.NoNode, notAsked(err))
		}
	}
	if ofBroker {
		return a.spread(s, r)
	}
	if r.change {
		return a.toController()
	}
	return a.toAny()
}

const describeConfigsKey = 32

// Types of resources as the names of split items have them.
var (
	brokerConfig = strconv.Itoa(int(kmsg.ConfigResourceTypeBroker))
	brokerLogger = strconv.Itoa(int(kmsg.ConfigResourceTypeBrokerLogger))
)

// resourceRouter leads config resources to brokers.
type resourceRouter struct {
	c      *client
	s      split
	change bool         // and not only read
	other  kafka.Broker // where resources go that are about no broker
}

// broker is the broker that a resource is about, kafka.NoNode if it is about
// none. An empty name means all brokers: their defaults. A client of controllers
// reads the settings of each and reaches its loggers; settings of any node are
// changed by the active one.
func (r *resourceRouter) broker(i int) kafka.NodeID {
	kind, name, _ := strings.Cut(r.s.name(i), "/")
	if kind != brokerConfig && kind != brokerLogger {
		return kafka.NoNode
	}
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil || id < 0 || r.change && kind == brokerConfig && r.c.cfg.atControllers() {
		return kafka.NoNode
	}
	return kafka.NodeID(id)
}

func (r *resourceRouter) route(ctx context.Context, i int) (kafka.Broker, error) {
	if id := r.broker(i); id >= 0 {
		b, ok := r.c.snap.Load().Broker(id)
		if !ok {
			return b, ErrUnknownBroker
		}
		return b, nil
	}
	if r.other.Host != "" {
		return r.other, nil
	}
	b, err := r.c.controller(ctx)
	if err == nil {
		r.other = b
	}
	return b, err
}

func (r *resourceRouter) rejected(ctx context.Context, i int, b kafka.Broker, err error) bool {
	t := troubleOf(ctx, err)
	switch {
	case r.broker(i) >= 0:
		return false
	case t == overdue:
		r.c.inbox.post((*state).wantBrokers)
		return false
	case t != cut && !moved(err, retry.FindController):
		return false
	}
	r.c.invalidateController(b.ID)
	r.other = kafka.Broker{}
	return true
}

func (r *resourceRouter) refresh(context.Context, []int) {}
