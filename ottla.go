// Package ottla is a Kafka client.
//
// [Connect] gives a [Client]: one handle on a cluster, safe for concurrent use
// and meant to be shared by everything in a process. Producers and consumers
// stand on it and share its connections. Any request of the protocol goes
// through its Request method.
//
// The zero value of every Config is the safe default: producers are idempotent
// and wait for all replicas, consumers read committed records.
//
// This package is a front door: it holds no logic, only the everyday names of
// the packages cluster, producer, consumer, admin and kafka.
package ottla

import (
	"context"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

type (
	// Client is a handle on one cluster; see [cluster.Cluster].
	Client = cluster.Cluster
	// Config says how to reach a cluster; see [cluster.Config].
	Config = cluster.Config
	// Producer writes records; see [producer.Producer].
	Producer = producer.Producer
	// ProducerConfig is the configuration of a Producer; see [producer.Config].
	ProducerConfig = producer.Config
	// Consumer reads records; see [consumer.Consumer].
	Consumer = consumer.Consumer
	// ConsumerConfig is the configuration of a Consumer; see [consumer.Config].
	ConsumerConfig = consumer.Config
	// GroupConfig makes a Consumer a member of a group; see [consumer.GroupConfig].
	GroupConfig = consumer.GroupConfig
	// Batch is what a Consumer reads; see [consumer.Batch].
	Batch = consumer.Batch
	// Admin asks about a cluster and changes it; see [admin.Admin].
	Admin = admin.Admin
	// Record is one record; see [kafka.Record].
	Record = kafka.Record
	// Header is a header of a record; see [kafka.Header].
	Header = kafka.Header
	// TopicPartition names a partition; see [kafka.TopicPartition].
	TopicPartition = kafka.TopicPartition
	// Offset is a position in a partition; see [kafka.Offset].
	Offset = kafka.Offset
)

// ErrClosed is what calls on a closed Client, Producer or Consumer return. It
// unwraps to net.ErrClosed.
var ErrClosed = cluster.ErrClosed

// Connect reaches the cluster of cfg and loads its map; see [cluster.Connect].
func Connect(ctx context.Context, cfg Config) (*Client, error) { return cluster.Connect(ctx, cfg) }

// NewProducer makes a producer on c; see [producer.New].
func NewProducer(c *Client, cfg ProducerConfig) (*Producer, error) { return producer.New(c, cfg) }

// NewConsumer makes a consumer on c; see [consumer.New].
func NewConsumer(c *Client, cfg ConsumerConfig) (*Consumer, error) { return consumer.New(c, cfg) }

// NewAdmin makes an Admin on c; see [admin.New].
func NewAdmin(c *Client) *Admin { return admin.New(c) }
