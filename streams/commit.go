package streams

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// Keys and versions of the offset APIs: below the lowest ones brokers refuse
// members of Streams groups, from the id ones on topics go by their ids.
const (
	keyOffsetCommit = 8
	keyOffsetFetch  = 9

	lowestOffsets = 9
	idOffsets     = 10
)

// Codes of the offset APIs that the member's epoch explains.
const (
	codeIllegalGeneration = 22 // what transactional commits say for 113
	codeStaleEpoch        = 113
	codeUnstable          = 88
	codeUnknownTopicID    = 100
)

// NotOwnedError are partitions that were not committed, because no active task
// that reads them is owned: never, or no longer when the commit was repeated.
type NotOwnedError struct{ Partitions []kafka.TopicPartition }

func (e *NotOwnedError) Error() string {
	names := make([]string, len(e.Partitions))
	for i, tp := range e.Partitions {
		names[i] = tp.String()
	}
	return "ottla: streams: not committed, no owned task reads " + strings.Join(names, ", ")
}
func (*NotOwnedError) MayHaveHappened() bool { return false }

// Commit commits positions for partitions of owned active tasks, with the
// member's epoch. The broker checks no ownership at the present epoch, so
// partitions of other tasks are never sent: they are a [*NotOwnedError], the rest
// is committed. A commit that the epoch overtook is repeated once, for what is
// still owned, and one that a loss overtook is not: another member may have gone
// on from there. It tries again what may get better until ctx ends, or for a
// minute if it has no deadline.
//
// Errors: [kafka.ErrNotInGroup] without an epoch and after a loss, [*NotOwnedError],
// [*BrokerError], [*UnsupportedError], [*FailedError], [ErrClosed];
// [kafka.MayHaveHappened] counts every try.
func (m *Member) Commit(ctx context.Context, o map[kafka.TopicPartition]kafka.Commit) error {
	all := maps.Clone(o)
	var dropped []kafka.TopicPartition
	overtaken, open := false, false
	began := m.view.Load().snap.Incarnation
	err := m.coordinate(ctx, func(ctx context.Context) reply {
		v := m.view.Load()
		if !v.hasMeta || v.snap.Incarnation != began { // positions of before a loss are nobody's
			return reply{err: kafka.ErrNotInGroup}
		}
		dropped = append(dropped, m.dropForeign(all, v.owned)...)
		if len(all) == 0 {
			return reply{}
		}
		r := m.commitOnce(ctx, v.meta, all)
		open = open || r.open
		if r.code == codeStaleEpoch || r.code == codeIllegalGeneration {
			r.again, overtaken = !overtaken, true
			m.catchUp(ctx, v.meta.Generation)
		}
		return r
	})
	if err == nil && len(dropped) > 0 {
		slices.SortFunc(dropped, kafka.TopicPartition.Compare)
		err = &NotOwnedError{Partitions: dropped}
	}
	return leftOpen(err, open)
}

// coordinate calls the coordinator until ctx or the member ends.
func (m *Member) coordinate(ctx context.Context, ask func(context.Context) reply) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(m.tasks.Context(), func() { cancel(m.closed()) })()
	err := coordinate(ctx, m.kafka, m.cfg.Group, ask)
	if err != nil && m.tasks.Context().Err() != nil {
		return m.closed()
	}
	return err
}

// catchUp learns the epoch that overtook a commit, if no heartbeat did yet.
func (m *Member) catchUp(ctx context.Context, epoch int32) {
	if meta, ok := m.Metadata(); ok && meta.Generation == epoch {
		_, _ = m.Heartbeat(ctx) // its failure shows in the repeated commit
	}
}

// dropForeign takes out of a commit what no owned active task reads.
func (m *Member) dropForeign(all map[kafka.TopicPartition]kafka.Commit, owned Tasks) []kafka.TopicPartition {
	var out []kafka.TopicPartition
	for tp := range all {
		if !reads(m.cfg.Topology, owned.Active, tp) {
			out = append(out, tp)
		}
	}
	for _, tp := range out {
		delete(all, tp)
	}
	return out
}

// reads reports whether one of the tasks reads a partition.
func reads(t Topology, tasks []TaskID, tp kafka.TopicPartition) bool {
	return slices.ContainsFunc(tasks, func(id TaskID) bool {
		return id.Partition == tp.Partition &&
			slices.Contains(t.Partitions(id, func(string) int32 { return id.Partition + 1 }), tp)
	})
}

// commitOnce sends one OffsetCommit; the code is the first of a partition.
func (m *Member) commitOnce(ctx context.Context, meta kafka.GroupMetadata, all map[kafka.TopicPartition]kafka.Commit) reply {
	tps := slices.SortedFunc(maps.Keys(all), kafka.TopicPartition.Compare)
	version, ids, err := m.offsetsVersion(ctx, keyOffsetCommit, "OffsetCommit", tps)
	if err != nil {
		return reply{err: err}
	}
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.MemberID, req.Generation = version, meta.Group, meta.MemberID, meta.Generation
	if meta.InstanceID != "" {
		req.InstanceID = &meta.InstanceID
	}
	for _, tp := range tps {
		if n := len(req.Topics); n == 0 || req.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = tp.Topic, ids[tp.Topic]
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		c := all[tp]
		p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = tp.Partition, int64(c.Offset), int32(c.LeaderEpoch), &c.Metadata
		t := &req.Topics[len(req.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
	resp, err := m.kafka.RequestCoordinator(ctx, m.cfg.Group, req)
	if err != nil {
		return reply{err: err, open: kafka.MayHaveHappened(err)}
	}
	r, ok := resp.(*kmsg.OffsetCommitResponse)
	if !ok {
		return reply{open: true, err: &ProtocolError{Reason: "another answer than that of OffsetCommit"}}
	}
	return m.readCommitted(r, ids, tps)
}

// readCommitted reads an answer; every partition of tps has to be in it.
func (m *Member) readCommitted(r *kmsg.OffsetCommitResponse, ids map[string][16]byte, tps []kafka.TopicPartition) reply {
	names := namesOf(ids)
	codes := map[kafka.TopicPartition]int16{}
	for _, t := range r.Topics {
		for _, p := range t.Partitions {
			tp := kafka.TopicPartition{Topic: cmp.Or(t.Topic, names[t.TopicID]), Partition: p.Partition}
			codes[tp] = cmp.Or(codes[tp], p.ErrorCode)
		}
	}
	out, taken := reply{}, false
	for _, tp := range tps {
		code, answered := codes[tp]
		switch {
		case !answered:
			return reply{open: true, err: &ProtocolError{Reason: "OffsetCommit is not answered for " + tp.String()}}
		case code == 0:
			taken = true
		case out.code == 0:
			out = m.note(tp, code)
		}
	}
	out.open = taken
	return out
}

// namesOf are the topics of ids.
func namesOf(ids map[string][16]byte) map[[16]byte]string {
	names := map[[16]byte]string{}
	for name, id := range ids {
		names[id] = name
	}
	return names
}

// note is the reply for a partition's code. Topic ids that the broker does not
// know are looked up again.
func (m *Member) note(tp kafka.TopicPartition, code int16) reply {
	if code == codeUnknownTopicID {
		m.topics.forget()
	}
	where := "partition " + tp.String()
	return reply{code: code, message: &where, again: code == codeUnknownTopicID || code == codeUnstable}
}

// Committed are the positions that the group keeps for partitions, of owned tasks
// or not, with the member's epoch; open transactions are waited for. Partitions
// without one are missing in the answer. An error never stands for "no position":
// do not start at a reset policy's offset then. It tries again until ctx ends, or
// for a minute if it has no deadline.
//
// Errors: [kafka.ErrNotInGroup] without an epoch, [*BrokerError],
// [*UnsupportedError], [*FailedError], [ErrClosed].
func (m *Member) Committed(ctx context.Context, tps []kafka.TopicPartition) (map[kafka.TopicPartition]kafka.Commit, error) {
	tps = slices.Clone(tps)
	slices.SortFunc(tps, kafka.TopicPartition.Compare)
	tps = slices.Compact(tps)
	out := map[kafka.TopicPartition]kafka.Commit{}
	if len(tps) == 0 {
		return out, nil
	}
	err := m.coordinate(ctx, func(ctx context.Context) reply {
		meta, ok := m.Metadata()
		if !ok {
			return reply{err: kafka.ErrNotInGroup}
		}
		r := m.fetchOnce(ctx, meta, tps, out)
		r.again = r.again || r.code == codeStaleEpoch
		return r
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// fetchOnce sends one OffsetFetch.
func (m *Member) fetchOnce(ctx context.Context, meta kafka.GroupMetadata, tps []kafka.TopicPartition, out map[kafka.TopicPartition]kafka.Commit) reply {
	version, ids, err := m.offsetsVersion(ctx, keyOffsetFetch, "OffsetFetch", tps)
	if err != nil {
		return reply{err: err}
	}
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Version, req.RequireStable = version, true
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group, g.MemberID, g.MemberEpoch = meta.Group, &meta.MemberID, meta.Generation
	for _, tp := range tps {
		if n := len(g.Topics); n == 0 || g.Topics[n-1].Topic != tp.Topic {
			t := kmsg.NewOffsetFetchRequestGroupTopic()
			t.Topic, t.TopicID = tp.Topic, ids[tp.Topic]
			g.Topics = append(g.Topics, t)
		}
		t := &g.Topics[len(g.Topics)-1]
		t.Partitions = append(t.Partitions, tp.Partition)
	}
	req.Groups = append(req.Groups, g)
	resp, err := m.kafka.RequestCoordinator(ctx, m.cfg.Group, req)
	if err != nil {
		return reply{err: err}
	}
	r, ok := resp.(*kmsg.OffsetFetchResponse)
	if !ok || len(r.Groups) != 1 || r.Groups[0].Group != m.cfg.Group {
		return reply{err: &ProtocolError{Reason: "OffsetFetch is not answered for the one group"}}
	}
	if code := r.Groups[0].ErrorCode; code != 0 {
		return reply{code: code}
	}
	clear(out)
	return m.readFetched(&r.Groups[0], ids, tps, out)
}

// readFetched reads an answer into out; every partition of tps has to be in it.
func (m *Member) readFetched(g *kmsg.OffsetFetchResponseGroup, ids map[string][16]byte, tps []kafka.TopicPartition, out map[kafka.TopicPartition]kafka.Commit) reply {
	names := namesOf(ids)
	answered := map[kafka.TopicPartition]bool{}
	for _, t := range g.Topics {
		name := cmp.Or(t.Topic, names[t.TopicID])
		for _, p := range t.Partitions {
			tp := kafka.TopicPartition{Topic: name, Partition: p.Partition}
			if p.ErrorCode != 0 {
				return m.note(tp, p.ErrorCode)
			}
			answered[tp] = true
			if p.Offset >= 0 {
				out[tp] = kafka.Commit{Offset: kafka.Offset(p.Offset), LeaderEpoch: kafka.LeaderEpoch(p.LeaderEpoch), Metadata: deref(p.Metadata)}
			}
		}
	}
	for _, tp := range tps {
		if !answered[tp] {
			return reply{err: &ProtocolError{Reason: "OffsetFetch is not answered for " + tp.String()}}
		}
	}
	return reply{}
}

// offsetsVersion is the version for an offset API and the topic ids that it
// needs: where an id is not known topics go by their names.
func (m *Member) offsetsVersion(ctx context.Context, key int16, name string, tps []kafka.TopicPartition) (int16, map[string][16]byte, error) {
	hi, err := versionOf(ctx, m.kafka, m.cfg.Group, key, name)
	if err != nil {
		return 0, nil, err
	}
	if hi < lowestOffsets {
		return 0, nil, &UnsupportedError{Missing: name + " version 9", Hint: "the coordinator is older than streams groups: they need Kafka 4.2"}
	}
	if hi < idOffsets {
		return lowestOffsets, nil, nil
	}
	ids, err := m.topics.lookup(ctx, m.kafka, tps)
	if err != nil || ids == nil {
		return lowestOffsets, nil, err
	}
	return idOffsets, ids, nil
}

// topicIDs are the ids of topics that were committed to.
type topicIDs struct {
	mu  sync.Mutex
	ids map[string][16]byte // guarded by mu
}

func (t *topicIDs) forget() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.ids = nil
}

// known are the ids of all topics of tps, nil if one is missing.
func (t *topicIDs) known(tps []kafka.TopicPartition) map[string][16]byte {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := map[string][16]byte{}
	for _, tp := range tps {
		id, ok := t.ids[tp.Topic]
		if !ok {
			return nil
		}
		out[tp.Topic] = id
	}
	return out
}

// lookup gives the ids of topics, nil if the cluster does not tell all of them.
func (t *topicIDs) lookup(ctx context.Context, k Kafka, tps []kafka.TopicPartition) (map[string][16]byte, error) {
	if ids := t.known(tps); ids != nil {
		return ids, nil
	}
	req := kmsg.NewPtrMetadataRequest()
	req.AllowAutoTopicCreation = false
	for i, tp := range tps {
		if i == 0 || tps[i-1].Topic != tp.Topic {
			w := kmsg.NewMetadataRequestTopic()
			w.Topic = &tp.Topic
			req.Topics = append(req.Topics, w)
		}
	}
	r, err := answerOf[*kmsg.MetadataResponse](k.Request(ctx, req))
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	if t.ids == nil {
		t.ids = map[string][16]byte{}
	}
	for _, w := range r.Topics {
		if w.ErrorCode == 0 && w.TopicID != [16]byte{} {
			t.ids[deref(w.Topic)] = w.TopicID
		}
	}
	t.mu.Unlock()
	return t.known(tps), nil
}
