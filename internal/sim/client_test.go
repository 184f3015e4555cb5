package sim

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/producer"
)

func of(partition int32) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: "t", Partition: partition}
}

func TestT1ABrokerInTroubleDelaysNoOtherForProducerAndConsumer(t *testing.T) {
	for name, trouble := range map[string]func(k *ottlatest.Cluster){
		"hangs":        func(k *ottlatest.Cluster) { k.Hang(0) },
		"is cut off":   func(k *ottlatest.Cluster) { k.Partition(0) },
		"is slow":      func(k *ottlatest.Cluster) { k.SlowLink(0, 10) },
		"is not there": func(k *ottlatest.Cluster) { k.Partition(0); k.CloseConnections(0) },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 5, func(ctx context.Context, w *world) {
				t, p := w.t, w.manual()
				defer p.Close()
				for i := range int32(partitions) { // every lane is open
					if _, err := p.Send(ctx, kafka.Record{Topic: "t", Partition: i, Value: []byte("warm")}); err != nil {
						t.Fatal(err)
					}
				}
				at := map[kafka.TopicPartition]consumer.Start{}
				for i := range int32(partitions) {
					at[of(i)] = consumer.Earliest()
				}
				if err := w.c.Assign(ctx, at); err != nil {
					t.Fatal(err)
				}
				for got := 0; got < partitions; {
					bs, err := w.c.Poll(ctx)
					if err != nil {
						t.Fatal(err)
					}
					for _, b := range bs {
						got += b.Count()
					}
				}
				trouble(w.k)
				stuck, err := p.Append(ctx, kafka.Record{Topic: "t", Partition: 0, Value: make([]byte, 1000)})
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(2 * time.Second)
				for i := range int32(20) {
					w.passes(ctx, p, 1+i%2) // led by brokers 1 and 2
				}
				if _, err := stuck.Wait(ended()); err == nil {
					t.Error("the record for the broker in trouble went through: nothing was stuck")
				}
			})
		})
	}
}

// ended is a context that has ended.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// manual is a producer that puts records where they say and waits for no
// other.
func (w *world) manual() *producer.Producer {
	t := w.t
	t.Helper()
	p, err := producer.New(w.cl, producer.Config{Partitioner: producer.Manual, Linger: producer.NoLinger})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// passes sends one record to a partition and reads it, each within 10 ms: the
// links take up to 1 ms one way.
func (w *world) passes(ctx context.Context, p *producer.Producer, partition int32) {
	w.t.Helper()
	start := time.Now()
	if _, err := p.Send(ctx, kafka.Record{Topic: "t", Partition: partition, Value: []byte("quick")}); err != nil {
		w.t.Fatal(err)
	}
	if d := time.Since(start); d > 10*time.Millisecond {
		w.t.Errorf("partition %d: produced after %v", partition, d)
	}
	bs, err := w.c.Poll(ctx)
	if err != nil || len(bs) != 1 || bs[0].TopicPartition() != of(partition) {
		w.t.Fatalf("polled %v, %v", bs, err)
	}
	if d := time.Since(start); d > 20*time.Millisecond {
		w.t.Errorf("partition %d: consumed after %v", partition, d)
	}
}

func TestT12ProducerAndConsumerEndWithTheContext(t *testing.T) {
	calls := map[string]func(ctx context.Context, w *world, p *producer.Producer) error{
		"Send": func(ctx context.Context, _ *world, p *producer.Producer) error {
			_, err := p.Send(ctx, kafka.Record{Topic: "t", Value: []byte("x")})
			return err
		},
		"Append to an unknown topic, and Wait": func(ctx context.Context, _ *world, p *producer.Producer) error {
			r, err := p.Append(ctx, kafka.Record{Topic: "elsewhere", Value: []byte("x")})
			if err != nil {
				return err
			}
			_, err = r.Wait(ctx)
			return err
		},
		"Flush": func(ctx context.Context, _ *world, p *producer.Producer) error {
			if _, err := p.Append(ctx, kafka.Record{Topic: "t", Value: []byte("x")}); err != nil {
				return err
			}
			return p.Flush(ctx)
		},
		"Poll": func(ctx context.Context, w *world, _ *producer.Producer) error {
			if err := w.c.Assign(ctx, map[kafka.TopicPartition]consumer.Start{of(0): consumer.Earliest()}); err != nil {
				return err
			}
			_, err := w.c.Poll(ctx)
			return err
		},
		"End": func(ctx context.Context, w *world, _ *producer.Producer) error {
			_, err := w.c.End(ctx, of(0))
			return err
		},
		"Connect": func(ctx context.Context, w *world, _ *producer.Producer) error {
			c, err := cluster.Connect(ctx, w.k.ClientConfig())
			if err == nil {
				c.Close()
			}
			return err
		},
	}
	for name, call := range calls {
		t.Run(name, func(t *testing.T) {
			inWorld(t, 5, func(ctx context.Context, w *world) {
				t, p := w.t, w.manual()
				defer p.Close()
				for id := range kafka.NodeID(3) {
					w.k.Partition(id)
				}
				ctx, cancel := context.WithTimeout(ctx, 777*time.Millisecond)
				defer cancel()
				start := time.Now()
				err := call(ctx, w, p)
				if d := time.Since(start); d < 777*time.Millisecond || d > 787*time.Millisecond {
					t.Errorf("returned after %v with %v", d, err)
				}
				if !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("the error is %v", err)
				}
			})
		})
	}
}
