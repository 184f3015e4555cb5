package ottlatest

import (
	"cmp"
	"net"
	"slices"

	"github.com/ottla/ottla/internal/sim/frame"
	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// own is the cluster's own client. It goes past listeners, faults and
// journal.
type own struct{ c *Cluster }

// ask sends one request of the cluster's own to a broker, past listener,
// faults and journal, and waits for the answer. Close ends it.
func (o own) ask(id kafka.NodeID, req kmsg.Request) (kmsg.Response, error) {
	if !o.c.begin() {
		return nil, ErrClosed
	}
	defer o.c.ops.Done()
	ours, theirs := net.Pipe()
	defer ours.Close()
	if !o.c.nodes[id].offer(theirs) {
		return nil, ErrClosed
	}
	if len(o.c.cfg.Users) > 0 {
		if err := o.login(ours); err != nil {
			return nil, err
		}
	}
	tagsOf(req).Set(ownTag, nil)
	return exchange(ours, req)
}

// ownTag is the tagged field by which faults know the cluster's own requests
// and leave them alone.
const ownTag = 0x6f74

func isOwn(req kmsg.Request) bool {
	found := false
	if t := tagsOf(req); t != nil {
		t.Each(func(key uint32, _ []byte) { found = found || key == ownTag })
	}
	return found
}

// tagsOf is the tagged fields of the requests that own sends, all of flexible
// versions.
func tagsOf(req kmsg.Request) *kmsg.Tags {
	switch req := req.(type) {
	case *kmsg.FetchRequest:
		return &req.UnknownTags
	case *kmsg.ListOffsetsRequest:
		return &req.UnknownTags
	case *kmsg.OffsetForLeaderEpochRequest:
		return &req.UnknownTags
	case *kmsg.MetadataRequest:
		return &req.UnknownTags
	case *kmsg.CreateTopicsRequest:
		return &req.UnknownTags
	case *kmsg.DeleteTopicsRequest:
		return &req.UnknownTags
	case *kmsg.CreatePartitionsRequest:
		return &req.UnknownTags
	}
	return nil
}

func (o own) login(nc net.Conn) error {
	hs := kmsg.NewPtrSASLHandshakeRequest()
	hs.Version, hs.Mechanism = 1, "PLAIN"
	if _, err := exchange(nc, hs); err != nil {
		return err
	}
	au := kmsg.NewPtrSASLAuthenticateRequest()
	au.Version, au.SASLAuthBytes = 1, []byte("\x00"+ownUser+"\x00"+o.c.password)
	_, err := exchange(nc, au)
	return err
}

func exchange(nc net.Conn, req kmsg.Request) (kmsg.Response, error) {
	if _, err := nc.Write(kmsg.NewRequestFormatter(kmsg.FormatterClientID(ownUser)).AppendRequest(nil, req, 0)); err != nil {
		return nil, err
	}
	raw, err := frame.Read(nc, 1<<30, nil)
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	body := raw[4:]
	if resp.IsFlexible() {
		body = body[1:]
	}
	return resp, resp.ReadFrom(body)
}

// topics is the leaders of every partition of every topic.
func (o own) topics() (map[string][]kafka.NodeID, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 9, nil
	resp, err := o.ask(0, req)
	if err != nil {
		return nil, err
	}
	out := map[string][]kafka.NodeID{}
	for _, t := range resp.(*kmsg.MetadataResponse).Topics {
		slices.SortFunc(t.Partitions, func(a, b kmsg.MetadataResponseTopicPartition) int { return cmp.Compare(a.Partition, b.Partition) })
		for _, p := range t.Partitions {
			out[*t.Topic] = append(out[*t.Topic], kafka.NodeID(p.Leader))
		}
	}
	return out, nil
}

func (o own) leaderOf(topic string, partition int32) (kafka.NodeID, error) {
	if l := o.c.Leader(topic, partition); l != kafka.NoNode {
		return l, nil
	}
	return 0, kerr.UnknownTopicOrPartition
}

func (o own) logStart(topic string, partition int32) (int64, error) {
	leader, err := o.leaderOf(topic, partition)
	if err != nil {
		return 0, err
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 6, -1
	t := kmsg.NewListOffsetsRequestTopic()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, -2, -1
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := o.ask(leader, req)
	if err != nil {
		return 0, err
	}
	got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return got.Offset, kafka.CodeError(got.ErrorCode, nil)
}

// fetch reads from offset at, and answers the bytes and the end of the log.
func (o own) fetch(topic string, partition int32, at int64) ([]byte, int64, error) {
	leader, err := o.leaderOf(topic, partition)
	if err != nil {
		return nil, 0, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxBytes, req.SessionEpoch = 12, -1, 64<<20, -1
	t := kmsg.NewFetchRequestTopic()
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, at, 64<<20, -1
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := o.ask(leader, req)
	if err != nil {
		return nil, 0, err
	}
	fr := resp.(*kmsg.FetchResponse)
	if err := kafka.CodeError(fr.ErrorCode, nil); err != nil {
		return nil, 0, err
	}
	got := fr.Topics[0].Partitions[0]
	return got.RecordBatches, got.HighWatermark, kafka.CodeError(got.ErrorCode, nil)
}
