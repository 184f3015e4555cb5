package serve

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/memnet"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// inBubble runs f in virtual time with a client of a model of two brokers.
func inBubble(t *testing.T, cfg model.Config, f func(ctx context.Context, s *Server, c *cluster.Cluster)) {
	synctest.Test(t, func(t *testing.T) {
		nw := memnet.New(1)
		var ls []net.Listener
		for _, addr := range []string{"b1:9092", "b2:9092"} {
			l, err := nw.Listen(addr)
			if err != nil {
				t.Fatal(err)
			}
			ls = append(ls, l)
		}
		cfg.Brokers = 2
		m := model.New(cfg)
		m.CreateTopic("t", 2)
		s := Start(t, m, ls...)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: s.Seeds(), Dial: nw.Dial})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		f(ctx, s, c)
	})
}

// TestTheClientWritesToTheModelAndReadsItBack also loses an answer and lets a
// request come twice: the model knows them again.
func TestTheClientWritesToTheModelAndReadsItBack(t *testing.T) {
	inBubble(t, model.Config{TransactionVersion: 2}, func(ctx context.Context, s *Server, c *cluster.Cluster) {
		s.SetFaults(func(r *sim.Request) Fault {
			switch {
			case r.Key != 0:
				return Fault{}
			case r.Nth == 1:
				return Fault{Mute: true, Again: time.Second}
			case r.Nth == 2:
				return Fault{Lost: true, Delay: time.Millisecond}
			}
			return Fault{Delay: time.Millisecond}
		})
		p, err := producer.New(c, producer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer p.Close()
		for _, v := range []string{"a", "b", "c", "d"} {
			if _, err := p.Send(ctx, kafka.Record{Topic: "t", Key: []byte(v), Value: []byte(v)}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(2 * time.Second)
		logged := map[string]int{}
		s.Model(func(m *model.Cluster) {
			for i := range int32(2) {
				for _, r := range m.Records(kafka.TopicPartition{Topic: "t", Partition: i}) {
					logged[string(r.Value)]++
				}
			}
		})
		co, err := consumer.New(c, consumer.Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer co.Close()
		at := map[kafka.TopicPartition]consumer.Start{}
		for i := range int32(2) {
			at[kafka.TopicPartition{Topic: "t", Partition: i}] = consumer.Earliest()
		}
		if err := co.Assign(ctx, at); err != nil {
			t.Fatal(err)
		}
		read := map[string]int{}
		for n := 0; n < 4; {
			bs, err := co.Poll(ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range bs {
				for _, r := range b.Records() {
					read[string(r.Value)]++
					n++
				}
			}
		}
		for _, v := range []string{"a", "b", "c", "d"} {
			if logged[v] != 1 || read[v] != 1 {
				t.Errorf("%s is %d times in the log and was read %d times", v, logged[v], read[v])
			}
		}
	})
}

func TestAKilledBrokerIsNotThereUntilItIsRevived(t *testing.T) {
	inBubble(t, model.Config{}, func(ctx context.Context, s *Server, c *cluster.Cluster) {
		if _, err := c.PartitionCount(ctx, "t"); err != nil {
			t.Fatal(err)
		}
		s.Kill(1)
		s.Kill(2)
		short, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		if _, err := c.PartitionCount(short, "u"); err == nil {
			t.Error("a request goes through with all brokers down")
		}
		s.Revive(2)
		s.Model(func(m *model.Cluster) { m.CreateTopic("u", 3) })
		if n, err := c.PartitionCount(ctx, "u"); n != 3 || err != nil {
			t.Errorf("%d partitions after the return of a broker (%v)", n, err)
		}
	})
}
