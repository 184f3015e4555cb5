package leader

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// The highest versions of the lease writer's requests: below KIP-890 part 2,
// where a pair stays the same from its acquisition to its end.
const (
	maxProduce = 11
	maxAdd     = 3
	maxEnd     = 4
	anyVersion = -1
)

// minInit is the first version of InitProducerId that takes a pair (KIP-360).
const minInit = 3

// coordinators sends requests to the coordinators of transactional ids.
type coordinators struct {
	kafka   Kafka
	timeout time.Duration

	mu    sync.Mutex
	nodes map[string]kafka.NodeID
}

// find is the coordinator of an id.
func (c *coordinators) find(ctx context.Context, id string) (kafka.NodeID, error) {
	c.mu.Lock()
	node, ok := c.nodes[id]
	c.mu.Unlock()
	if ok {
		return node, nil
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = int8(kafka.TransactionCoordinator)
	req.CoordinatorKey, req.CoordinatorKeys = id, []string{id}
	resp, err := c.kafka.Request(ctx, req)
	if err != nil {
		return kafka.NoNode, err
	}
	r, ok := resp.(*kmsg.FindCoordinatorResponse)
	if !ok {
		return kafka.NoNode, errors.New("the answer is none to FindCoordinator")
	}
	code, found := r.ErrorCode, r.NodeID
	if len(r.Coordinators) > 0 {
		code, found = r.Coordinators[0].ErrorCode, r.Coordinators[0].NodeID
	}
	if code == kerr.TransactionalIDAuthorizationFailed.Code {
		return kafka.NoNode, unauthorized(code, "finding the coordinator", fmt.Sprintf("DESCRIBE on transactional id %q", id))
	}
	if err := kafka.CodeError(code, nil); err != nil {
		return kafka.NoNode, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.nodes[id] = kafka.NodeID(found)
	return kafka.NodeID(found), nil
}

// forget drops what is known of an id's coordinator.
func (c *coordinators) forget(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.nodes, id)
}

// ask sends one request to the coordinator of id, once.
func (c *coordinators) ask(ctx context.Context, id string, req kmsg.Request, pin int16) (kmsg.Response, error) {
	node, err := c.find(ctx, id)
	if err != nil {
		return nil, &unsent{err}
	}
	resp, err := c.kafka.RequestBroker(ctx, node, req, pin)
	if err != nil {
		c.forget(id)
		return nil, err
	}
	return resp, checkPin(resp, pin)
}

// checkPin finds out that the client below does not keep to a bound.
func checkPin(resp kmsg.Response, pin int16) error {
	if pin >= 0 && resp.GetVersion() > pin {
		return invalid("%s was sent in version %d by a client that must be capped at %d", kmsg.NameForKey(resp.Key()), resp.GetVersion(), pin)
	}
	return nil
}

// unsent is an error before anything was sent.
type unsent struct{ error }

func (e *unsent) Unwrap() error         { return e.error }
func (e *unsent) MayHaveHappened() bool { return false }

// init sends InitProducerId for an id: a mint with lead.NoToken, else a re-init
// with the own pair. The error is about the way there; the code is the answer.
func (c *coordinators) init(ctx context.Context, id string, pair lead.Token, timeoutMillis int32) (lead.Token, int16, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &id, timeoutMillis
	req.ProducerID, req.ProducerEpoch = int64(pair.ID), int16(pair.Epoch)
	resp, err := c.ask(ctx, id, req, anyVersion)
	if err != nil {
		return lead.NoToken, 0, err
	}
	r, ok := resp.(*kmsg.InitProducerIDResponse)
	if !ok {
		return lead.NoToken, 0, errors.New("the answer is none to InitProducerId")
	}
	if r.Version < minInit {
		return lead.NoToken, 0, failed(ErrInvalidConfig, id, "", fmt.Errorf("the brokers take InitProducerId up to version %d; leadership needs %d (Kafka 2.5)", r.Version, minInit))
	}
	return lead.Token{ID: kafka.ProducerID(r.ProducerID), Epoch: kafka.ProducerEpoch(r.ProducerEpoch)}, r.ErrorCode, nil
}

// describe asks for the pair and the state of an id.
func (c *coordinators) describe(ctx context.Context, id string) (lead.Epoch, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var last error
	for tries := 1; ; tries++ {
		e, code, err := c.describeOnce(ctx, id)
		switch r := lead.React(code); {
		case err == nil && code == kerr.TransactionalIDNotFound.Code:
			return lead.Epoch{Pair: lead.NoToken}, nil
		case err == nil && code == 0:
			return e, nil
		case err == nil && code == kerr.TransactionalIDAuthorizationFailed.Code:
			return lead.Epoch{}, failed(ErrAdmin, id, "", unauthorized(code, "describing the transaction", fmt.Sprintf("DESCRIBE on transactional id %q", id)))
		case err == nil && r != lead.Again && r != lead.Elsewhere:
			return lead.Epoch{}, failed(ErrAdmin, id, "describe the transaction", kafka.CodeError(code, nil))
		case err == nil:
			last = kafka.CodeError(code, nil)
		case hopeless(err):
			return lead.Epoch{}, failed(ErrAdmin, id, "describe the transaction", err)
		default:
			last = err
		}
		c.forget(id)
		if err := task.Sleep(ctx, backoff(tries)); err != nil {
			return lead.Epoch{}, failed(ErrAdmin, id, "describe the transaction", last)
		}
	}
}

func (c *coordinators) describeOnce(ctx context.Context, id string) (lead.Epoch, int16, error) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := c.ask(ctx, id, req, anyVersion)
	if err != nil {
		return lead.Epoch{}, 0, err
	}
	r, ok := resp.(*kmsg.DescribeTransactionsResponse)
	if !ok || len(r.TransactionStates) != 1 {
		return lead.Epoch{}, 0, errors.New("the answer is not about the transactional id")
	}
	s := r.TransactionStates[0]
	pair := lead.Token{ID: kafka.ProducerID(s.ProducerID), Epoch: kafka.ProducerEpoch(s.ProducerEpoch)}
	if !pair.Valid() {
		pair = lead.NoToken
	}
	return lead.Epoch{Pair: pair, State: s.State}, s.ErrorCode, nil
}

// pause is backoff after an answer. Markers, which code 51 waits for, are
// written within milliseconds, or not before replicas are back: for the first
// tenths of a second the pauses stay short.
func pause(code int16, n int) time.Duration {
	const short, tries = 3, 24 // 8 ms at most
	if code != kerr.ConcurrentTransactions.Code {
		return backoff(n)
	}
	return backoff(max(min(n, short), n-tries+short))
}

// backoff is how long try number n waits before it is repeated: from 2 ms, as
// markers of the last transaction are written within a few, to half a second.
func backoff(n int) time.Duration {
	d := min(2*time.Millisecond<<min(n-1, 8), 500*time.Millisecond)
	return d + time.Duration(jitter(int64(d/4)))
}
