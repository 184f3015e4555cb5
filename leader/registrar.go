package leader

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// registrar writes registrations: a plain idempotent producer, shared by all
// roles. Losing its identity is nobody's loss of a role.
type registrar struct {
	kafka Kafka
	cfg   *Config
	topic *topic
	turn  chan struct{} // capacity 1: one record at a time
	pair  lead.Token    // owned by the turn, as all below
	seq   map[int32]int32
	in    map[string]bool // roles whose roster may have the member
}

func newRegistrar(k Kafka, cfg *Config, t *topic) *registrar {
	return &registrar{kafka: k, cfg: cfg, topic: t, turn: make(chan struct{}, 1), pair: lead.NoToken, in: map[string]bool{}}
}

// register appends a registration and returns its offset: the place in the
// roster. It is kafka.Offset(-1) where the broker knew the record already.
func (r *registrar) register(ctx context.Context, role string) (kafka.Offset, error) {
	return r.append(ctx, role, lead.Registration{Member: r.cfg.Member, At: r.wall()}.Append(nil))
}

// wall is the time for a registration; a clock before 1970 only shifts who
// waits how long.
func (r *registrar) wall() kafka.Timestamp { return max(0, r.cfg.now().Wall) }

// remove takes the member out of the roster.
func (r *registrar) remove(ctx context.Context, role string) error {
	_, err := r.append(ctx, role, nil)
	return err
}

// leave takes the member out of every roster that it may be in, as far as that
// can be done before ctx ends.
func (r *registrar) leave(ctx context.Context) error {
	if err := r.lock(ctx, ""); err != nil {
		return err
	}
	roles := slices.Sorted(maps.Keys(r.in))
	r.unlock()
	var errs []error
	for _, role := range roles {
		errs = append(errs, r.remove(ctx, role))
	}
	return errors.Join(errs...)
}

func (r *registrar) lock(ctx context.Context, role string) error {
	select {
	case r.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return failed(ErrProducer, role, "register", context.Cause(ctx))
	}
}

func (r *registrar) unlock() { <-r.turn }

func (r *registrar) append(ctx context.Context, role string, value []byte) (kafka.Offset, error) {
	if err := r.lock(ctx, role); err != nil {
		return -1, err
	}
	defer r.unlock()
	key := lead.Key{Kind: lead.KindRegistration, Role: role, Member: r.cfg.Member}.Append(nil)
	p, err := r.topic.partitionOf(role)
	if err != nil {
		return -1, failed(ErrInvalidConfig, role, "register", err)
	}
	if value != nil {
		r.in[role] = true
	}
	off, err := r.deliver(ctx, p, key, value)
	if err != nil { // the number may be used: the next record under it would be taken for this one
		r.pair = lead.NoToken
	}
	if err == nil && value == nil {
		delete(r.in, role)
	}
	return off, failed(ErrProducer, role, "register", err)
}

// deliver repeats the record until the broker has taken it, under one number as
// long as the identity lasts.
func (r *registrar) deliver(ctx context.Context, p int32, key, value []byte) (kafka.Offset, error) {
	var wrong *layout
	for tries := 1; ; tries++ {
		off, l, err := r.try(ctx, p, wrong, key, value)
		if err == nil {
			r.seq[p]++
			return off, nil
		}
		code := kafka.CodeOf(err)
		switch reaction := lead.React(code); {
		case code == 46: // DUPLICATE_SEQUENCE_NUMBER: it is there, the offset is not told
			r.seq[p]++
			return -1, nil
		case hopeless(err):
			return -1, err
		case reaction == lead.Lost, reaction == lead.Gap, reaction == lead.Ask:
			r.pair = lead.NoToken // the next try takes a new identity
		case code != 0 && reaction == lead.Unsure && code != -1 && code != 7 && code != 20, reaction == lead.Configured:
			return -1, err
		default:
			wrong = l
		}
		if serr := task.Sleep(ctx, backoff(tries)); serr != nil {
			return -1, errors.Join(serr, err)
		}
	}
}

func (r *registrar) try(ctx context.Context, p int32, wrong *layout, key, value []byte) (kafka.Offset, *layout, error) {
	if r.pair == lead.NoToken {
		if err := r.identify(ctx); err != nil {
			return -1, nil, err
		}
	}
	node, l, err := r.topic.leader(ctx, p, wrong)
	if err != nil {
		return -1, l, err
	}
	rec := outRecord{topic: l.id, partition: p, key: key, value: value, at: r.cfg.now().Wall, timeout: r.cfg.RequestTimeout}
	resp, err := rec.send(ctx, r.kafka, node, record.Stamp{ProducerID: r.pair.ID, ProducerEpoch: r.pair.Epoch, BaseSequence: r.seq[p]})
	if err != nil {
		return -1, l, err
	}
	if resp.ErrorCode == kerr.TopicAuthorizationFailed.Code {
		return -1, l, unauthorized(resp.ErrorCode, "registering", "WRITE on topic "+Topic)
	}
	return kafka.Offset(resp.BaseOffset), l, kafka.CodeError(resp.ErrorCode, resp.ErrorMessage)
}

func (r *registrar) identify(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, r.cfg.RequestTimeout)
	defer cancel()
	req := kmsg.NewPtrInitProducerIDRequest()
	resp, err := r.kafka.Request(ctx, req)
	if err != nil {
		return err
	}
	i, ok := resp.(*kmsg.InitProducerIDResponse)
	if !ok {
		return errors.New("the answer is none to InitProducerId")
	}
	if i.ErrorCode == kerr.ClusterAuthorizationFailed.Code {
		return unauthorized(i.ErrorCode, "registering", "WRITE on topic "+Topic+" (or IDEMPOTENT_WRITE on the cluster)")
	}
	if err := kafka.CodeError(i.ErrorCode, nil); err != nil {
		return err
	}
	r.pair, r.seq = lead.Token{ID: kafka.ProducerID(i.ProducerID), Epoch: kafka.ProducerEpoch(i.ProducerEpoch)}, map[int32]int32{}
	return nil
}

// outRecord is one record on its way to a partition of the topic.
type outRecord struct {
	topic      kafka.TopicID
	partition  int32
	key, value []byte
	headers    []kafka.Header
	at         kafka.Timestamp
	txn        *string       // the transactional id, nil for a plain record
	timeout    time.Duration // of one attempt
}

// send makes one attempt at one broker.
func (o outRecord) send(ctx context.Context, k Kafka, node kafka.NodeID, s record.Stamp) (*kmsg.ProduceResponseTopicPartition, error) {
	var b record.Builder
	b.Reset(nil)
	b.Append(o.at, o.key, o.value, o.headers)
	wire, _ := b.Seal(s, compress.None, nil, 0, nil)
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = o.txn, -1, int32(o.timeout.Milliseconds())
	t := kmsg.NewProduceRequestTopic()
	t.Topic, t.TopicID = Topic, o.topic
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = o.partition, wire
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	resp, err := k.RequestBroker(ctx, node, req, maxProduce)
	if err != nil {
		return nil, err
	}
	if o.txn != nil {
		if err := checkPin(resp, maxProduce); err != nil {
			return nil, err
		}
	}
	r, ok := resp.(*kmsg.ProduceResponse)
	if !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return nil, errors.New("the answer is not about the record")
	}
	return &r.Topics[0].Partitions[0], nil
}

// probe asks for an identity, which needs the right to write.
func (r *registrar) probe(ctx context.Context) error {
	if err := r.lock(ctx, ""); err != nil {
		return err
	}
	defer r.unlock()
	if r.pair != lead.NoToken {
		return nil
	}
	return failed(ErrProducer, "", "register", r.identify(ctx))
}
