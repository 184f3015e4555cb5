package ottlatest

import (
	"cmp"
	"fmt"
	"net"
	"slices"

	"github.com/ottla/ottla/internal/sim/frame"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ask sends one request of the cluster's own to a broker, past listener,
// faults and journal, and waits for the answer. Close ends it.
func (c *Cluster) ask(id kafka.NodeID, req kmsg.Request) (kmsg.Response, error) {
	if !c.begin() {
		return nil, ErrClosed
	}
	defer c.ops.Done()
	ours, theirs := net.Pipe()
	defer ours.Close()
	if !c.nodes[id].offer(theirs) {
		return nil, ErrClosed
	}
	if len(c.cfg.Users) > 0 {
		if err := c.login(ours); err != nil {
			return nil, err
		}
	}
	return exchange(ours, req)
}

func (c *Cluster) login(nc net.Conn) error {
	hs := kmsg.NewPtrSASLHandshakeRequest()
	hs.Version, hs.Mechanism = 1, "PLAIN"
	if _, err := exchange(nc, hs); err != nil {
		return err
	}
	au := kmsg.NewPtrSASLAuthenticateRequest()
	au.Version, au.SASLAuthBytes = 1, []byte("\x00"+ownUser+"\x00"+c.password)
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

func (c *Cluster) controller() kafka.NodeID { return kafka.NodeID(len(c.nodes) - 1) }

// CreateTopic creates a topic. Partition p is led by broker p modulo the
// number of brokers, or by the next one that runs.
func (c *Cluster) CreateTopic(name string, partitions int) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 4
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(partitions), int16(min(len(c.nodes), 3))
	req.Topics = append(req.Topics, t)
	resp, err := c.ask(c.controller(), req)
	if err == nil {
		one := resp.(*kmsg.CreateTopicsResponse).Topics[0]
		err = kafka.CodeError(one.ErrorCode, one.ErrorMessage)
	}
	if err != nil {
		return fmt.Errorf("ottlatest: create topic %s: %w", name, err)
	}
	c.place(name, 0)
	return nil
}

// DeleteTopic deletes a topic and its records.
func (c *Cluster) DeleteTopic(name string) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TopicNames = 3, []string{name}
	resp, err := c.ask(c.controller(), req)
	if err == nil {
		err = kafka.CodeError(resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode, nil)
	}
	if err != nil {
		return fmt.Errorf("ottlatest: delete topic %s: %w", name, err)
	}
	return nil
}

// AddPartitions makes a topic grow to so many partitions in all, whose leaders
// are placed as CreateTopic does.
func (c *Cluster) AddPartitions(name string, total int) error {
	before := c.partitions(name)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version = 1
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = name, int32(total)
	req.Topics = append(req.Topics, t)
	resp, err := c.ask(c.controller(), req)
	if err == nil {
		one := resp.(*kmsg.CreatePartitionsResponse).Topics[0]
		err = kafka.CodeError(one.ErrorCode, one.ErrorMessage)
	}
	if err != nil {
		return fmt.Errorf("ottlatest: add partitions to %s: %w", name, err)
	}
	c.place(name, before)
	return nil
}

// partitions is how many partitions a topic has, 0 if there is none.
func (c *Cluster) partitions(topic string) int32 {
	for p := int32(0); ; p++ {
		if c.Leader(topic, p) == kafka.NoNode {
			return p
		}
	}
}

// place puts the leaders of new partitions, from first on, in their places:
// kfake's choice is random. It moves those in place, too, so that the leader
// epoch of every new partition is 1.
func (c *Cluster) place(topic string, first int32) {
	for p := first; c.Leader(topic, p) != kafka.NoNode; p++ {
		c.moveHome(topic, p)
	}
}

// placeAstray moves only leaders that are not in their places.
func (c *Cluster) placeAstray(topic string) {
	for p := int32(0); ; p++ {
		switch c.Leader(topic, p) {
		case kafka.NoNode:
			return
		case c.nextRunning(int(p)):
		default:
			c.moveHome(topic, p)
		}
	}
}

func (c *Cluster) moveHome(topic string, p int32) {
	if to := c.nextRunning(int(p)); to != kafka.NoNode {
		c.MoveLeader(topic, p, to) // fails only for a topic deleted meanwhile
	}
}

// Leader is the broker that leads a partition, kafka.NoNode if there is no
// such partition or the cluster is closed.
func (c *Cluster) Leader(topic string, partition int32) kafka.NodeID {
	if !c.begin() {
		return kafka.NoNode
	}
	defer c.ops.Done()
	return kafka.NodeID(c.kfake.LeaderFor(topic, partition))
}

// MoveLeader makes a broker the leader of a partition and raises the leader
// epoch.
func (c *Cluster) MoveLeader(topic string, partition int32, to kafka.NodeID) error {
	if !c.begin() {
		return ErrClosed
	}
	defer c.ops.Done()
	if err := c.kfake.MoveTopicPartition(topic, partition, int32(to)); err != nil {
		return fmt.Errorf("ottlatest: move %s-%d to broker %d: %w", topic, partition, to, err)
	}
	return nil
}

// Coordinator is the broker that coordinates a group or transactional id,
// kafka.NoNode if the cluster is closed.
func (c *Cluster) Coordinator(key string) kafka.NodeID {
	if !c.begin() {
		return kafka.NoNode
	}
	defer c.ops.Done()
	return kafka.NodeID(c.kfake.CoordinatorFor(key))
}

// MoveCoordinators moves the coordinators of all groups and transactional ids
// to other brokers, by chance.
func (c *Cluster) MoveCoordinators() { c.kfake.RehashCoordinators() }

// topics is the leaders of every partition of every topic.
func (c *Cluster) topics() (map[string][]kafka.NodeID, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version, req.Topics = 7, nil
	resp, err := c.ask(0, req)
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

// Records is what the log of a partition holds, oldest first: every record
// that a broker stored, those of aborted transactions included, markers not.
// The records belong to the caller.
func (c *Cluster) Records(topic string, partition int32) ([]kafka.Record, error) {
	var out []kafka.Record
	at, err := c.logStart(topic, partition)
	for err == nil {
		var data []byte
		var end int64
		if data, end, err = c.fetch(topic, partition, at); err != nil {
			break
		}
		before := at
		if out, at, err = appendRecords(out, data, at); err != nil || at >= end || at == before {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("ottlatest: records of %s-%d: %w", topic, partition, err)
	}
	for i := range out {
		out[i].Topic, out[i].Partition = topic, partition
	}
	return out, nil
}

func (c *Cluster) leaderOf(topic string, partition int32) (kafka.NodeID, error) {
	if l := c.Leader(topic, partition); l != kafka.NoNode {
		return l, nil
	}
	return 0, kerr.UnknownTopicOrPartition
}

func (c *Cluster) logStart(topic string, partition int32) (int64, error) {
	leader, err := c.leaderOf(topic, partition)
	if err != nil {
		return 0, err
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 4, -1
	t := kmsg.NewListOffsetsRequestTopic()
	p := kmsg.NewListOffsetsRequestTopicPartition()
	p.Partition, p.Timestamp, p.CurrentLeaderEpoch = partition, -2, -1
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := c.ask(leader, req)
	if err != nil {
		return 0, err
	}
	got := resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0]
	return got.Offset, kafka.CodeError(got.ErrorCode, nil)
}

// fetch reads from offset at, and answers the bytes and the end of the log.
func (c *Cluster) fetch(topic string, partition int32, at int64) ([]byte, int64, error) {
	leader, err := c.leaderOf(topic, partition)
	if err != nil {
		return nil, 0, err
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxBytes, req.SessionEpoch = 11, -1, 64<<20, -1
	t := kmsg.NewFetchRequestTopic()
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes, p.CurrentLeaderEpoch = partition, at, 64<<20, -1
	t.Topic, t.Partitions = topic, append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := c.ask(leader, req)
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

// appendRecords decodes what one fetch gave and says where to go on.
func appendRecords(out []kafka.Record, data []byte, at int64) ([]kafka.Record, int64, error) {
	var d compress.Decompressor
	for {
		b, rest, err := record.Next(data)
		if err != nil || b.IsZero() {
			return out, at, err
		}
		data = rest
		if err := b.Verify(); err != nil {
			return nil, 0, err
		}
		at = int64(b.NextOffset())
		if b.Control() {
			continue
		}
		payload, err := b.Payload(&d, nil, 0)
		if err != nil {
			return nil, 0, err
		}
		var r record.Reader
		var rec kafka.Record
		for r.Reset(b, payload); r.Next(&rec); {
			out = append(out, rec.Clone())
		}
		if err := r.Err(); err != nil {
			return nil, 0, err
		}
	}
}
