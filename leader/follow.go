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

// unreadable is a record that is none of the contract.
type unreadable struct {
	partition int32
	offset    kafka.Offset
	err       error
}

func (e *unreadable) Error() string {
	return fmt.Sprintf("%s-%d offset %d: %v", Topic, e.partition, e.offset, e.err)
}
func (e *unreadable) Unwrap() error { return e.err }

const (
	committed   = 1 // isolation levels
	uncommitted = 0
	earliest    = -2 // timestamps of ListOffsets
	latest      = -1
)

// follower reads the partitions of the coordination topic: each once to its
// end, and from then on all that one broker leads by one long poll.
type follower struct {
	kafka Kafka
	cfg   *Config
	topic *topic
	tasks *task.Group
	event func(Event)

	mu    sync.Mutex
	parts map[int32]*partition
	loops map[kafka.NodeID]bool // running
}

func newFollower(k Kafka, cfg *Config, t *topic, tasks *task.Group, event func(Event)) *follower {
	return &follower{kafka: k, cfg: cfg, topic: t, tasks: tasks, event: event, parts: map[int32]*partition{}, loops: map[kafka.NodeID]bool{}}
}

// partition is the partition, followed from now on. It does not wait for the
// first read; sync does.
func (f *follower) partition(id int32) *partition {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.parts[id]
	if p == nil {
		p = newPartition(id, f.cfg, f.event)
		f.parts[id] = p
	}
	return p
}

// sync reads a partition to the last stable offset of now, and returns the
// local time at which that was sampled. What the log holds beyond is then known
// too: as signs of life of holders.
func (f *follower) sync(ctx context.Context, p *partition) (at time.Duration, err error) {
	select {
	case p.turn <- struct{}{}:
		defer func() { <-p.turn }()
	case <-ctx.Done():
		return 0, failed(ErrClient, "", "read "+Topic, context.Cause(ctx))
	}
	var wrong *layout
	for tries := 1; ; tries++ {
		node, l, err := f.topic.leader(ctx, p.id, wrong)
		if err == nil {
			p.belongs(l.id)
			at, err = f.toEnd(ctx, node, p)
		}
		if err == nil {
			f.follow(node)
			return at, nil
		}
		p.failed(err)
		if ctx.Err() != nil || !worthwhile(err) {
			return 0, failed(ErrClient, "", fmt.Sprintf("read %s-%d", Topic, p.id), err)
		}
		wrong = l
		if serr := task.Sleep(ctx, backoff(tries)); serr != nil {
			return 0, failed(ErrClient, "", fmt.Sprintf("read %s-%d", Topic, p.id), errors.Join(err, serr))
		}
	}
}

// worthwhile reports whether reading may do better at another try.
func worthwhile(err error) bool {
	if hopeless(err) {
		return false
	}
	code := kafka.CodeOf(err)
	return code == 0 || code == 1 || code == -1 || lead.React(code) == lead.Again || lead.React(code) == lead.Elsewhere
}

// toEnd makes one attempt at sync at one broker.
func (f *follower) toEnd(ctx context.Context, node kafka.NodeID, p *partition) (time.Duration, error) {
	if p.view().next < 0 {
		start, err := f.listOffset(ctx, node, p.id, earliest, uncommitted)
		if err != nil {
			return 0, err
		}
		p.position(start)
	}
	at, was := p.now().Local, p.view()
	stable, err := f.listOffset(ctx, node, p.id, latest, committed)
	if err != nil {
		return 0, err
	}
	if stable < was.next {
		err := fmt.Errorf("the log was cut: it ends at %d, and %d was read", stable, was.next)
		p.reset(err)
		return 0, err
	}
	for p.view().next < stable {
		if err := f.step(ctx, node, p); err != nil {
			return 0, err
		}
	}
	high, err := f.listOffset(ctx, node, p.id, latest, uncommitted)
	if err != nil {
		return 0, err
	}
	p.reached(at, high)
	return at, f.peek(ctx, node, p, high)
}

// step reads one answer's worth. One without any progress is an error, unless
// the broker asked for silence.
func (f *follower) step(ctx context.Context, node kafka.NodeID, p *partition) error {
	for {
		at, sent := p.view().next, f.cfg.now().Local
		resp, err := f.fetchFrom(ctx, node, fetchOf(committed, 0), map[int32]kafka.Offset{p.id: at}, p.view().topic)
		if err != nil {
			return err
		}
		err = f.take(p, resp, at, sent)
		if err != nil || p.view().next > at {
			return err
		}
		if err := standstill(ctx, resp, at); err != nil {
			return err
		}
	}
}

// standstill is for an answer without progress where the log goes on: an error,
// unless the broker asked for silence, which it keeps.
func standstill(ctx context.Context, resp *kmsg.FetchResponse, at kafka.Offset) error {
	if resp.ThrottleMillis <= 0 {
		return fmt.Errorf("no progress at offset %d, although the log goes on", at)
	}
	return task.Sleep(ctx, time.Duration(resp.ThrottleMillis)*time.Millisecond)
}

// take applies one partition's part of an answer to what was asked from an
// offset on, which says how the log was at by.
func (f *follower) take(p *partition, resp *kmsg.FetchResponse, from kafka.Offset, by time.Duration) error {
	a, err := answerFor(resp, p)
	if err != nil {
		return err
	}
	if a.ErrorCode == kerr.OffsetOutOfRange.Code {
		err := kafka.CodeError(a.ErrorCode, nil)
		p.reset(fmt.Errorf("the log does not reach to where it was read: %w", err))
		return err
	}
	if a.ErrorCode == kerr.TopicAuthorizationFailed.Code {
		return failed(ErrClient, "", "", unauthorized(a.ErrorCode, "following", "READ on topic "+Topic))
	}
	if err := kafka.CodeError(a.ErrorCode, nil); err != nil {
		return err
	}
	return p.apply(a, from, by)
}

// peek looks at what is not committed between the position and the high
// watermark.
func (f *follower) peek(ctx context.Context, node kafka.NodeID, p *partition, high kafka.Offset) error {
	for at := p.view().next; at < high; {
		req := fetchOf(uncommitted, 0)
		resp, err := f.fetchFrom(ctx, node, req, map[int32]kafka.Offset{p.id: at}, p.view().topic)
		if err != nil {
			return err
		}
		a, err := answerFor(resp, p)
		if err != nil {
			return err
		}
		if err := kafka.CodeError(a.ErrorCode, nil); err != nil {
			return err
		}
		next, err := p.peek(a, at)
		if err == nil && next <= at {
			err = standstill(ctx, resp, at)
		}
		if err != nil {
			return err
		}
		at = next
	}
	return nil
}

func fetchOf(isolation int8, wait time.Duration) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID, req.MinBytes, req.MaxBytes, req.SessionEpoch = -1, 1, 16<<20, -1
	req.MaxWaitMillis, req.IsolationLevel = int32(wait.Milliseconds()), isolation
	return req
}

func (f *follower) fetchFrom(ctx context.Context, node kafka.NodeID, req *kmsg.FetchRequest, at map[int32]kafka.Offset, id kafka.TopicID) (*kmsg.FetchResponse, error) {
	t := kmsg.NewFetchRequestTopic()
	t.Topic, t.TopicID = Topic, id
	for p, off := range at {
		fp := kmsg.NewFetchRequestTopicPartition()
		fp.Partition, fp.FetchOffset, fp.PartitionMaxBytes = p, int64(off), 1<<20
		fp.CurrentLeaderEpoch, fp.LastFetchedEpoch, fp.LogStartOffset = -1, -1, -1
		t.Partitions = append(t.Partitions, fp)
	}
	req.Topics = append(req.Topics, t)
	pin := int16(anyVersion)
	if id.IsZero() {
		pin = 12 // beyond it topics go by id
	}
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RequestTimeout+time.Duration(req.MaxWaitMillis)*time.Millisecond)
	defer cancel()
	resp, err := f.kafka.RequestBroker(ctx, node, req, pin)
	if err != nil {
		return nil, err
	}
	r, ok := resp.(*kmsg.FetchResponse)
	if !ok {
		return nil, errors.New("the answer is none to Fetch")
	}
	return r, kafka.CodeError(r.ErrorCode, nil)
}

// answerFor is a partition's part of an answer.
func answerFor(resp *kmsg.FetchResponse, p *partition) (*kmsg.FetchResponseTopicPartition, error) {
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if a := &resp.Topics[i].Partitions[j]; a.Partition == p.id {
				return a, nil
			}
		}
	}
	return nil, fmt.Errorf("the answer lacks partition %d", p.id)
}

func (f *follower) listOffset(ctx context.Context, node kafka.NodeID, partition int32, timestamp int64, isolation int8) (kafka.Offset, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID, req.IsolationLevel = -1, isolation
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = Topic
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, timestamp, -1
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	ctx, cancel := context.WithTimeout(ctx, f.cfg.RequestTimeout)
	defer cancel()
	resp, err := f.kafka.RequestBroker(ctx, node, req, anyVersion)
	if err != nil {
		return 0, err
	}
	r, ok := resp.(*kmsg.ListOffsetsResponse)
	if !ok || len(r.Topics) != 1 || len(r.Topics[0].Partitions) != 1 {
		return 0, errors.New("the answer is not about the partition")
	}
	a := r.Topics[0].Partitions[0]
	if a.ErrorCode == kerr.TopicAuthorizationFailed.Code {
		return 0, failed(ErrClient, "", "", unauthorized(a.ErrorCode, "reading offsets", "DESCRIBE on topic "+Topic))
	}
	return kafka.Offset(a.Offset), kafka.CodeError(a.ErrorCode, nil)
}
