package ottla_test

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/ottla/ottla"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/producer"
)

// inUse is what the process holds. There are no descriptors to see but on Linux.
func inUse() (goroutines, descriptors int) {
	files, _ := os.ReadDir("/proc/self/fd")
	return runtime.NumGoroutine(), len(files)
}

// heap is what is reachable, in bytes.
func heap() uint64 {
	runtime.GC() // twice, as pools keep things for one
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

var errDial = errors.New("this dial fails")

// life is that of a client with a producer and a consumer. One dial in five
// fails, and all of them for a client that is hopeless.
func life(t *testing.T, brokers *ottlatest.Cluster, hopeless bool) {
	t.Helper()
	patience := time.Minute
	if hopeless {
		patience = 5 * time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var dials atomic.Int32
	client, err := ottla.Connect(ctx, ottla.Config{
		Bootstrap: brokers.Bootstrap(), ReconnectBackoff: time.Millisecond,
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if dials.Add(1)%5 == 1 || hopeless {
				return nil, errDial
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	if hopeless {
		if err == nil {
			t.Fatal("connected without a connection")
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	p, err := ottla.NewProducer(client, ottla.ProducerConfig{Compression: producer.Zstd})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	sent, err := p.Send(ctx, ottla.Record{Topic: "t", Value: make([]byte, 100)})
	if err != nil {
		t.Fatal(err)
	}
	c, err := ottla.NewConsumer(client, ottla.ConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.Assign(ctx, map[ottla.TopicPartition]consumer.Start{{Topic: "t"}: consumer.AtOffset(sent[0].Offset)}); err != nil {
		t.Fatal(err)
	}
	if batches, err := c.Poll(ctx); err != nil || len(batches) == 0 {
		t.Fatalf("%d batches, %v", len(batches), err)
	}
}

// lives are those of many clients, the brokers with them.
func lives(t *testing.T, clients int) {
	t.Helper()
	brokers, err := ottlatest.Start(ottlatest.Config{Topics: map[string]int{"t": 1}, Brokers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer brokers.Close()
	for round := range clients {
		life(t, brokers, round%10 == 9)
	}
}

// A goroutine, a socket or memory of a closed client that stays makes this
// fail.
func TestT16AThousandClientsLeaveNothingBehind(t *testing.T) {
	const clients, each = 1000, 6 << 10 // bytes; the brokers' state has half of that for each
	before := heap()
	goroutines, descriptors := inUse()
	lives(t, clients)
	g, d := inUse()
	for range 1000 {
		if g <= goroutines && d <= descriptors {
			break
		}
		time.Sleep(10 * time.Millisecond)
		g, d = inUse()
	}
	if g > goroutines || d > descriptors {
		t.Errorf("%d goroutines and %d descriptors are left, %d and %d were there before", g, d, goroutines, descriptors)
	}
	if after := heap(); after > before+clients*each {
		t.Errorf("%d bytes are reachable, %d were before %d clients", after, before, clients)
	}
}
