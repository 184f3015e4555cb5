package realkafka

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	readyWithin = 4 * time.Minute // of a start; three brokers on a machine under load took over two
	pollEvery   = 50 * time.Millisecond
)

// ready waits until every node serves and knows all of them, the coordinators
// answer (unless cold), and the finalized features are those asked for.
func (c *Cluster) ready(ctx context.Context, cold bool) error {
	ids := make([]int, len(c.state.Nodes))
	for i, n := range c.state.Nodes {
		ids[i] = n.ID
	}
	for _, n := range c.state.Nodes {
		if err := c.state.serves(ctx, n, ids); err != nil {
			return err
		}
	}
	addr := c.state.Nodes[0].addr(Plaintext)
	ranges, features, err := versionsOf(ctx, addr)
	if err != nil {
		return err
	}
	if err := c.state.Options.checkFeatures(c.inst.version, features); err != nil {
		return err
	}
	if cold {
		return nil
	}
	return c.state.wakeCoordinators(ctx, addr, ranges, features)
}

// serves waits until Metadata of n names all of ids.
func (s *state) serves(ctx context.Context, n *node, ids []int) error {
	return poll(ctx, pollEvery, func() error {
		if err := s.stillRuns(); err != nil {
			return errGiveUp{err}
		}
		known, err := brokersOf(ctx, n.addr(Plaintext))
		if err != nil {
			return fmt.Errorf("%s does not serve yet: %w", n, err)
		}
		for _, id := range ids {
			if !slices.Contains(known, id) {
				return fmt.Errorf("%s does not know broker %d yet, only %v", n, id, known)
			}
		}
		return nil
	})
}

// brokersOf asks one broker which brokers there are.
func brokersOf(ctx context.Context, addr string) ([]int, error) {
	m, err := metadata(ctx, addr)
	if err != nil {
		return nil, err
	}
	ids := make([]int, len(m.Brokers))
	for i, b := range m.Brokers {
		ids[i] = int(b.NodeID)
	}
	return ids, nil
}

// metadata asks for brokers and controller, in a version that every release
// speaks, and for no topics.
func metadata(ctx context.Context, addr string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 1
	req.Topics = []kmsg.MetadataRequestTopic{}
	resp, err := ask(ctx, addr, req)
	if err != nil {
		return nil, err
	}
	return resp.(*kmsg.MetadataResponse), nil
}

// ask sends one request over a connection of its own.
func ask(ctx context.Context, addr string, req kmsg.Request) (kmsg.Response, error) {
	w, err := dialWire(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer w.close()
	return w.do(req)
}

// versionsOf asks a broker for the highest version of each API and the
// finalized features; the latter exist from 2.4 on.
func versionsOf(ctx context.Context, addr string) (ranges map[int16]int16, features map[string]int, err error) {
	req := kmsg.NewPtrApiVersionsRequest()
	resp, err := ask(ctx, addr, req)
	if err != nil {
		return nil, nil, err
	}
	ranges = map[int16]int16{}
	for _, k := range resp.(*kmsg.ApiVersionsResponse).ApiKeys {
		ranges[k.ApiKey] = k.MaxVersion
	}
	features = map[string]int{}
	if ranges[req.Key()] < 3 {
		return ranges, features, nil
	}
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = 3, "realkafka", "1"
	if resp, err = ask(ctx, addr, req); err != nil {
		return nil, nil, err
	}
	for _, f := range resp.(*kmsg.ApiVersionsResponse).FinalizedFeatures {
		features[f.Name] = int(f.MaxVersionLevel)
	}
	return ranges, features, nil
}

// checkFeatures compares the finalized features with the wanted ones: a test
// that asks for one protocol must not silently run on another.
func (o Options) checkFeatures(v version, got map[string]int) error {
	want, exact := o.wantedFeatures(v)
	for _, name := range sortedKeys(want) {
		if got[name] == want[name] || got[name] > want[name] && !exact(name) {
			continue
		}
		return fmt.Errorf("Apache Kafka %s finalized %s at level %d, not at %d as wanted; all of its features: %v",
			v.text, name, got[name], want[name], got)
	}
	return nil
}

// Names that the warm-up uses on the brokers.
const (
	warmGroup         = "ottla-warm-up"
	warmTransactional = "ottla-warm-up"
	warmShareKey      = "ottla-warm-up:AAAAAAAAAAAAAAAAAAAAAQ:0"
)

// wakeCoordinators uses each coordinator once, which makes its topic and waits
// for it, so that tests do not meet that by chance.
func (s *state) wakeCoordinators(ctx context.Context, addr string, ranges map[int16]int16, features map[string]int) error {
	find := func(kind int8, key string) (string, error) { return coordinator(ctx, addr, ranges, kind, key) }
	steps := []func() error{func() error { return wakeGroups(ctx, find) }}
	if _, ok := ranges[int16(kmsg.InitProducerID)]; ok {
		steps = append(steps, func() error { return wakeTransactions(ctx, find) })
	}
	if features["share.version"] > 0 {
		steps = append(steps, func() error { _, err := find(2, warmShareKey); return err })
	}
	for _, step := range steps {
		err := poll(ctx, pollEvery, func() error {
			if err := s.stillRuns(); err != nil {
				return errGiveUp{err}
			}
			return step()
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// coordinator finds the address of a coordinator; kind is 0 for groups, 1 for
// transactions, 2 for shares.
func coordinator(ctx context.Context, addr string, ranges map[int16]int16, kind int8, key string) (string, error) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.Version = min(1, ranges[req.Key()])
	req.CoordinatorType, req.CoordinatorKey = kind, key
	if kind == 2 {
		req.Version, req.CoordinatorKeys = 6, []string{key}
	}
	answer, err := ask(ctx, addr, req)
	if err != nil {
		return "", err
	}
	resp := answer.(*kmsg.FindCoordinatorResponse)
	code, host, port := resp.ErrorCode, resp.Host, resp.Port
	for _, one := range resp.Coordinators {
		code, host, port = one.ErrorCode, one.Host, one.Port
	}
	if code != 0 {
		return "", fmt.Errorf("FindCoordinator of type %d answers error %d", kind, code)
	}
	return net.JoinHostPort(host, strconv.Itoa(int(port))), nil
}

type findCoordinator func(kind int8, key string) (addr string, err error)

func wakeGroups(ctx context.Context, find findCoordinator) error {
	addr, err := find(0, warmGroup)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.Group, req.Topics = 2, warmGroup, []kmsg.OffsetFetchRequestTopic{}
	answer, err := ask(ctx, addr, req)
	if err != nil {
		return err
	}
	if code := answer.(*kmsg.OffsetFetchResponse).ErrorCode; code != 0 {
		return fmt.Errorf("OffsetFetch answers error %d", code)
	}
	return nil
}

func wakeTransactions(ctx context.Context, find findCoordinator) error {
	addr, err := find(1, warmTransactional)
	if err != nil {
		return err
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr(warmTransactional), 1000
	answer, err := ask(ctx, addr, req)
	if err != nil {
		return err
	}
	if code := answer.(*kmsg.InitProducerIDResponse).ErrorCode; code != 0 {
		return fmt.Errorf("InitProducerId answers error %d", code)
	}
	return nil
}
