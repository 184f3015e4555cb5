package model

import (
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// offsetsTopic holds the offsets of groups; a group's own part of it is named
// after the group.
const offsetsTopic = "__consumer_offsets:"

func offsetsPartition(group string) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: offsetsTopic + group}
}

// offsetsOf is the group whose offsets tp holds.
func offsetsOf(tp kafka.TopicPartition) (string, bool) {
	return strings.CutPrefix(tp.Topic, offsetsTopic)
}

// group is what the coordinator keeps of one group.
type group struct {
	member    *kafka.GroupMetadata // its only member; nil accepts everybody
	committed map[kafka.TopicPartition]kafka.Commit
	pending   map[kafka.ProducerID]*pendingOffsets
}

type pendingOffsets struct {
	epoch   kafka.ProducerEpoch
	commits map[kafka.TopicPartition]kafka.Commit
}

func (c *Cluster) group(name string) *group {
	g := c.groups[name]
	if g == nil {
		g = &group{committed: map[kafka.TopicPartition]kafka.Commit{}, pending: map[kafka.ProducerID]*pendingOffsets{}}
		c.groups[name] = g
	}
	return g
}

// SetMember says who alone may commit for a group as its member.
func (c *Cluster) SetMember(m kafka.GroupMetadata) { c.group(m.Group).member = &m }

// Committed is the position that a group has committed.
func (c *Cluster) Committed(group string, tp kafka.TopicPartition) (kafka.Commit, bool) {
	at, ok := c.group(group).committed[tp]
	return at, ok
}

// end decides the offsets of a producer's transaction.
func (g *group) end(id kafka.ProducerID, commit bool) {
	p := g.pending[id]
	delete(g.pending, id)
	if p == nil || !commit {
		return
	}
	for tp, at := range p.commits {
		g.committed[tp] = at
	}
}

// admits is the code for who says to be a member.
func (g *group) admits(member string, instance *string, generation int32) int16 {
	m := g.member
	switch {
	case m == nil || generation < 0 && member == "":
		return 0
	case instance != nil && *instance == m.InstanceID && member != m.MemberID:
		return kerr.FencedInstanceID.Code
	case member != m.MemberID:
		return kerr.UnknownMemberID.Code
	case generation == m.Generation:
		return 0
	case m.Kind == kafka.ConsumerGroup:
		return kerr.StaleMemberEpoch.Code
	}
	return kerr.IllegalGeneration.Code
}

func (c request) addOffsets(req *kmsg.AddOffsetsToTxnRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	if !c.coordinates(req.TransactionalID) {
		resp.ErrorCode = kerr.NotCoordinator.Code
		return resp
	}
	t := c.coord.txn(req.TransactionalID)
	code := t.mayAdd(pair{kafka.ProducerID(req.ProducerID), kafka.ProducerEpoch(req.ProducerEpoch)})
	if code == 0 {
		c.coord.add(t, offsetsPartition(req.Group))
	}
	if code == kerr.ProducerFenced.Code && req.Version < 2 {
		code = kerr.InvalidProducerEpoch.Code
	}
	resp.ErrorCode = code
	return resp
}

// addingCommit is the version of TxnOffsetCommit that enrols the group by
// itself (KIP-890), and abortableCommit the one that knows
// TRANSACTION_ABORTABLE.
const (
	addingCommit    = 5
	abortableCommit = 4
)

func (c request) txnOffsetCommit(req *kmsg.TxnOffsetCommitRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	code := c.commitOffsets(req)
	for _, t := range req.Topics {
		rt := kmsg.NewTxnOffsetCommitResponseTopic()
		rt.Topic = t.Topic
		for _, p := range t.Partitions {
			rp := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = p.Partition, code
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

func (c request) commitOffsets(req *kmsg.TxnOffsetCommitRequest) int16 {
	if !c.coordinates(req.Group) {
		return kerr.NotCoordinator.Code
	}
	g := c.group(req.Group)
	if code := g.admits(req.MemberID, req.InstanceID, req.Generation); code != 0 {
		return code
	}
	held := pair{kafka.ProducerID(req.ProducerID), kafka.ProducerEpoch(req.ProducerEpoch)}
	if code := c.mayCommit(req, g, held); code != 0 {
		return code
	}
	p := g.pending[held.id]
	if p == nil || p.epoch != held.epoch {
		p = &pendingOffsets{epoch: held.epoch, commits: map[kafka.TopicPartition]kafka.Commit{}}
		g.pending[held.id] = p
	}
	for _, t := range req.Topics {
		for _, at := range t.Partitions {
			commit := kafka.Commit{Offset: kafka.Offset(at.Offset), LeaderEpoch: kafka.LeaderEpoch(at.LeaderEpoch)}
			if at.Metadata != nil {
				commit.Metadata = *at.Metadata
			}
			p.commits[kafka.TopicPartition{Topic: t.Topic, Partition: at.Partition}] = commit
		}
	}
	return 0
}

// mayCommit asks the transaction's coordinator, as the group's does that knows
// of no open transaction of the producer.
func (c request) mayCommit(req *kmsg.TxnOffsetCommitRequest, g *group, held pair) int16 {
	if req.Version >= addingCommit && c.level == 0 {
		return kerr.UnsupportedVersion.Code
	}
	if p := g.pending[held.id]; p != nil && p.epoch == held.epoch {
		return 0
	}
	t := c.coord.txn(req.TransactionalID)
	if req.Version >= addingCommit {
		code := t.mayAdd(held)
		if code == 0 {
			c.coord.add(t, offsetsPartition(req.Group))
		}
		return epochCode(code)
	}
	if c.cfg.NoVerification {
		return 0
	}
	code := t.verify(held, offsetsPartition(req.Group))
	if code == kerr.TransactionAbortable.Code && req.Version < abortableCommit {
		code = kerr.InvalidTxnState.Code
	}
	return epochCode(code)
}

// epochCode is a fence in the words of who writes a log.
func epochCode(code int16) int16 {
	if code == kerr.ProducerFenced.Code {
		return kerr.InvalidProducerEpoch.Code
	}
	return code
}

func (c request) offsetFetch(req *kmsg.OffsetFetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	for _, want := range req.Groups {
		out := kmsg.NewOffsetFetchResponseGroup()
		out.Group = want.Group
		if !c.coordinates(want.Group) {
			out.ErrorCode = kerr.NotCoordinator.Code
			resp.Groups = append(resp.Groups, out)
			continue
		}
		for _, t := range want.Topics {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, i := range t.Partitions {
				tp := kafka.TopicPartition{Topic: c.named(t.Topic, t.TopicID), Partition: i}
				rt.Partitions = append(rt.Partitions, c.fetchOffset(c.group(want.Group), tp, req.RequireStable))
			}
			out.Topics = append(out.Topics, rt)
		}
		resp.Groups = append(resp.Groups, out)
	}
	return resp
}

func (c request) fetchOffset(g *group, tp kafka.TopicPartition, stable bool) kmsg.OffsetFetchResponseGroupTopicPartition {
	rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
	rp.Partition, rp.Offset = tp.Partition, -1
	if at, ok := g.committed[tp]; ok {
		rp.Offset, rp.LeaderEpoch, rp.Metadata = int64(at.Offset), int32(at.LeaderEpoch), kmsg.StringPtr(at.Metadata)
	}
	for _, p := range g.pending {
		if _, ok := p.commits[tp]; ok && stable {
			rp.ErrorCode = kerr.UnstableOffsetCommit.Code
		}
	}
	return rp
}
