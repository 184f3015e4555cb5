package ottlatest

import (
	"context"
	"crypto/tls"
	"testing"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

func TestClientConfigIsReady(t *testing.T) {
	cert, _ := certificate(t)
	server := &tls.Config{Certificates: []tls.Certificate{cert}}
	for name, cfg := range map[string]Config{
		"plain":    {},
		"TLS":      {TLS: server},
		"SASL":     {Users: []User{{"SCRAM-SHA-256", "ann", "pw"}}},
		"SASL_SSL": {TLS: server, Users: []User{{"PLAIN", "ann", "pw"}}},
	} {
		cfg.Topics = map[string]int{"t": 3}
		t.Run(name, func(t *testing.T) {
			everywhere(t, cfg, func(t *testing.T, c *Cluster) {
				cl, err := cluster.Connect(t.Context(), c.ClientConfig())
				if err != nil {
					t.Fatal(err)
				}
				defer cl.Close()
				for p := range int32(3) {
					b, err := cl.Leader(context.Background(), kafka.TopicPartition{Topic: "t", Partition: p})
					if err != nil || b.ID != kafka.NodeID(p) {
						t.Errorf("leader of %d is %v, %v", p, b, err)
					}
				}
			})
		})
	}
}
