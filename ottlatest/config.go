package ottlatest

import (
	"crypto/tls"
	"fmt"
	"time"
)

// Config says what cluster to start. The zero value is three brokers on free
// ports of 127.0.0.1, without topics, TLS or authentication, that create no
// topic by themselves.
type Config struct {
	Brokers   int    // number of brokers, ids from 0; 0 = 3
	Port      int    // broker i listens on Port+i of 127.0.0.1; 0 = free ports; not with InMemory
	ClusterID string // "" = "ottlatest"

	InMemory   bool          // listen in memory instead; the brokers are b0:9092, b1:9092, …
	Seed       uint64        // of the latencies in memory
	MaxLatency time.Duration // of a link in memory, one way; each has its own, from MaxLatency/20 up; 0 = 1 ms

	Topics            map[string]int    // topics to begin with and their partitions
	AutoCreate        bool              // create topics that clients ask for (auto.create.topics.enable)
	DefaultPartitions int               // of topics created without a number (num.partitions); 0 = 1
	Properties        map[string]string // broker properties that kfake knows, such as "message.max.bytes"

	Streams Streams // the coordinator of Streams groups

	TLS   *tls.Config // server side; nil = plaintext
	Users []User      // who may log in; none = nobody has to

	MaxRequestBytes int // larger requests end their connection (socket.request.max.bytes); 0 = 100 MiB
	Journal         int // how many of the latest requests Journal keeps; 0 = none (New: 100,000)
}

// User is somebody who may log in.
type User struct {
	Mechanism string // PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512
	Name      string
	Password  string
}

// withDefaults fills and checks a copy.
func (c Config) withDefaults() (Config, error) {
	if c.Brokers == 0 {
		c.Brokers = 3
	}
	if c.ClusterID == "" {
		c.ClusterID = "ottlatest"
	}
	if c.MaxLatency == 0 {
		c.MaxLatency = time.Millisecond
	}
	if c.DefaultPartitions == 0 {
		c.DefaultPartitions = 1
	}
	if c.MaxRequestBytes == 0 {
		c.MaxRequestBytes = 100 << 20
	}
	c.Streams = c.Streams.withDefaults()
	switch {
	case c.Brokers < 0 || c.Brokers > 1000:
		return c, fmt.Errorf("ottlatest: %d brokers: want 1 to 1000", c.Brokers)
	case c.Port < 0 || c.Port+c.Brokers > 1<<16:
		return c, fmt.Errorf("ottlatest: ports %d to %d do not exist", c.Port, c.Port+c.Brokers-1)
	case c.Port != 0 && c.InMemory:
		return c, fmt.Errorf("ottlatest: Port %d has no meaning with InMemory", c.Port)
	}
	for topic, n := range c.Topics {
		if n < 1 || topic == "" {
			return c, fmt.Errorf("ottlatest: topic %q with %d partitions", topic, n)
		}
	}
	for _, u := range c.Users {
		switch u.Mechanism {
		case "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512":
		default:
			return c, fmt.Errorf("ottlatest: user %q: mechanism %q is none of PLAIN, SCRAM-SHA-256, SCRAM-SHA-512", u.Name, u.Mechanism)
		}
	}
	return c, nil
}
