package leader

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// verification is a broker's answer to whether it verifies transactions.
const verification = "transaction.partition.verification.enable"

// answerHolds is how old the brokers' answers may be when an epoch is taken.
const answerHolds = 10 * time.Minute

// verifier knows whether every broker verifies transactions when it appends:
// others append records of fenced producers.
type verifier struct {
	kafka Kafka
	cfg   *Config
	topic *topic
	event func(Event)

	mu     sync.Mutex
	at     time.Duration // local, of the last good answers; 0 before the first
	asking bool
	warned bool
}

// check asks every broker, unless all have answered within holds. One that does
// not verify is an error, one that may not say is told of.
func (v *verifier) check(ctx context.Context, holds time.Duration) error {
	now := v.cfg.now().Local
	if !v.due(now, holds) {
		return nil
	}
	l, err := v.topic.refresh(ctx, v.topic.known()) // a broker that is gone need not answer
	if err != nil {
		return err
	}
	off, err := v.unverified(ctx, l.brokers)
	switch {
	case retry.Unauthorized(kafka.CodeOf(err)):
		v.warn(err)
	case err != nil:
		return failed(ErrAdmin, "", "read "+verification, err)
	case len(off) > 0:
		return invalid("brokers %s do not verify transactions when they append (%s, Kafka 3.6 and later): a deposed leader's records could be committed; set AllowUnverified to lead all the same", strings.Join(off, ", "), verification)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.at = max(now, 1)
	return nil
}

// warn tells once that the right to ask is missing.
func (v *verifier) warn(err error) {
	v.mu.Lock()
	again := v.warned
	v.warned = true
	v.mu.Unlock()
	if !again {
		v.cfg.Logger.Warn("ottla: it cannot be told whether brokers verify transactions", "err", err)
		v.event(Event{Kind: EventUnverified, Term: -1, Rank: -1, Err: err})
	}
}

func (v *verifier) due(now, holds time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.cfg.AllowUnverified && (v.at == 0 || now-v.at >= holds)
}

// keep asks in time on a goroutine, so that who waits for its turn need not ask
// when it comes.
func (v *verifier) keep(tasks *task.Group) {
	const holds = answerHolds / 2
	v.mu.Lock()
	busy := v.asking
	v.asking = true
	v.mu.Unlock()
	if busy {
		return
	}
	if !v.due(v.cfg.now().Local, holds) || !tasks.Go(func(ctx context.Context) error {
		defer v.asked()
		_ = v.check(ctx, holds) // whoever takes an epoch asks again
		return nil
	}) {
		v.asked()
	}
}

func (v *verifier) asked() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.asking = false
}

// unverified lists the brokers that append records of fenced producers. A
// broker that does not say is an error, with the right that is missing.
func (v *verifier) unverified(ctx context.Context, brokers []kafka.NodeID) (off []string, err error) {
	for _, b := range brokers {
		req := kmsg.NewPtrDescribeConfigsRequest()
		r := kmsg.NewDescribeConfigsRequestResource()
		r.ResourceType, r.ResourceName, r.ConfigNames = kmsg.ConfigResourceTypeBroker, fmt.Sprint(b), []string{verification}
		req.Resources = append(req.Resources, r)
		ctx, cancel := context.WithTimeout(ctx, v.cfg.RequestTimeout)
		resp, err := v.kafka.RequestBroker(ctx, b, req, anyVersion)
		cancel()
		if err != nil {
			return nil, err
		}
		d, ok := resp.(*kmsg.DescribeConfigsResponse)
		if !ok || len(d.Resources) != 1 {
			return nil, errors.New("the answer is not about the broker")
		}
		if code := d.Resources[0].ErrorCode; retry.Unauthorized(code) {
			return nil, unauthorized(code, "reading "+verification, "DESCRIBE_CONFIGS on the cluster")
		} else if code != 0 {
			return nil, fmt.Errorf("broker %d: %w", b, kafka.CodeError(code, d.Resources[0].ErrorMessage))
		}
		on := false
		for _, c := range d.Resources[0].Configs {
			on = on || c.Name == verification && c.Value != nil && strings.EqualFold(*c.Value, "true")
		}
		if !on {
			off = append(off, fmt.Sprint(b))
		}
	}
	return off, nil
}
