package ottlatest

import (
	"fmt"

	"github.com/ottla/ottla/kafka"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// CreateTopic creates a topic. Partition p is led by broker p modulo the
// number of brokers, or by the next one that runs.
func (c *Cluster) CreateTopic(name string, partitions int) error {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version = 5
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(partitions), int16(min(len(c.nodes), 3))
	req.Topics = append(req.Topics, t)
	resp, err := own{c}.ask(c.nodes.controller(), req)
	if err == nil {
		one := resp.(*kmsg.CreateTopicsResponse).Topics[0]
		err = kafka.CodeError(one.ErrorCode, one.ErrorMessage)
	}
	if err != nil {
		return fmt.Errorf("ottlatest: create topic %s: %w", name, err)
	}
	placer{c}.place(name, 0)
	return nil
}

// DeleteTopic deletes a topic and its records.
func (c *Cluster) DeleteTopic(name string) error {
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TopicNames = 4, []string{name}
	resp, err := own{c}.ask(c.nodes.controller(), req)
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
	before := placer{c}.partitions(name)
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.Version = 2
	t := kmsg.NewCreatePartitionsRequestTopic()
	t.Topic, t.Count = name, int32(total)
	req.Topics = append(req.Topics, t)
	resp, err := own{c}.ask(c.nodes.controller(), req)
	if err == nil {
		one := resp.(*kmsg.CreatePartitionsResponse).Topics[0]
		err = kafka.CodeError(one.ErrorCode, one.ErrorMessage)
	}
	if err != nil {
		return fmt.Errorf("ottlatest: add partitions to %s: %w", name, err)
	}
	placer{c}.place(name, before)
	return nil
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
