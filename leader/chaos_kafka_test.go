//go:build kafka

package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// TestKafkaChaos has five members campaign for three roles while brokers are
// killed and paused and members are suspended, cut off and replaced. Each
// leader appends (term, n) through its bound producer. Read back committed,
// terms never go back and no two leaders' writes interleave. OTTLA_CHAOS says
// how long, 20 s by default.
func TestKafkaChaos(t *testing.T) {
	length := 20 * time.Second
	if d, err := time.ParseDuration(os.Getenv("OTTLA_CHAOS")); err == nil {
		length = d
	}
	cl := dialKafka(t)
	topic := fmt.Sprint("chaos", time.Now().UnixNano())
	createTopic(t, cl, topic)
	roles := []string{topic + "-x", topic + "-y", topic + "-z"}
	ctx, stop := context.WithTimeout(t.Context(), length+3*time.Minute)
	defer stop()
	stopped := make(chan struct{})
	var wg sync.WaitGroup
	for i := range 5 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			chaosMember(ctx, t, i, roles, topic, stopped)
		}()
	}
	end := time.Now().Add(length)
	for n := 1; time.Now().Before(end); n++ {
		victim := 1 + n%3
		var err error
		if n%2 == 0 {
			err = real.Pause(victim)
			time.Sleep(3 * time.Second)
			err = errors.Join(err, real.Resume(victim))
		} else {
			err = real.Kill(victim)
			time.Sleep(time.Second)
			err = errors.Join(err, real.Restart(victim))
		}
		if err != nil {
			t.Error(err)
		}
		time.Sleep(2 * time.Second)
	}
	close(stopped)
	wg.Wait()
	checkChaos(t, topic, roles)
}

// chaosMember is a process: it leads whichever roles it wins, and is suspended
// now and then.
func chaosMember(ctx context.Context, t *testing.T, i int, roles []string, topic string, stopped <-chan struct{}) {
	var pause sync.RWMutex
	clock := systemClock()
	cl, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(real.Bootstrap(), ","), RequestTimeout: 3 * time.Second})
	if err != nil {
		t.Error(err)
		return
	}
	defer cl.Close()
	e, err := Open(cl, Config{Member: fmt.Sprint("m", i), Lease: 6 * time.Second, RequestTimeout: 3 * time.Second, now: func() lead.Now {
		pause.RLock()
		defer pause.RUnlock()
		return clock()
	}})
	if err != nil {
		t.Error(err)
		return
	}
	defer e.Close()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	for _, role := range roles {
		wg.Add(1)
		go func() {
			defer wg.Done()
			_ = e.Run(ctx, role, func(ctx context.Context, tm *Term) error {
				for n := 0; ctx.Err() == nil; n++ {
					_ = tm.Transact(ctx, func(ctx context.Context, tx *producer.Tx) error {
						_, err := tx.Append(ctx, kafka.Record{Topic: topic, Key: []byte(role), Value: []byte(fmt.Sprint(tm.Number(), " ", n))})
						return err
					})
					_ = sleep(ctx, 50*time.Millisecond)
					if n == 40 && i%2 == 0 {
						return nil // and a hand-over
					}
				}
				return nil
			})
		}()
	}
	for running := true; running; {
		select {
		case <-stopped:
			running = false
		case <-time.After(time.Duration(5+i) * time.Second):
			pause.Lock() // the process does nothing for longer than a lease
			time.Sleep(7 * time.Second)
			pause.Unlock()
		}
	}
	cancel()
	wg.Wait()
}

// checkChaos reads everything back.
func checkChaos(t *testing.T, topic string, roles []string) {
	cl := dialKafka(t)
	c, err := consumer.New(cl, consumer.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx := within(t, 2*time.Minute)
	at := map[kafka.TopicPartition]consumer.Start{}
	ends := map[kafka.TopicPartition]kafka.Offset{}
	for p := range int32(2) {
		at[kafka.TopicPartition{Topic: topic, Partition: p}] = consumer.Earliest()
	}
	if err := c.Assign(ctx, at); err != nil {
		t.Fatal(err)
	}
	for tp := range at {
		end, err := c.End(ctx, tp)
		if err != nil {
			t.Fatal(err)
		}
		ends[tp] = end[tp]
	}
	type last struct{ term, n int64 }
	got, count := map[string]last{}, map[string]int{}
	reading, caughtUp := context.WithCancel(ctx)
	defer caughtUp()
	go func() { // what comes last may be an aborted record, which is not given out
		defer caughtUp()
		for tp, end := range ends {
			for pos := kafka.Offset(0); pos < end && ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
				pos, _ = c.Position(ctx, tp)
			}
		}
	}()
	for r, err := range c.Records(reading) {
		if reading.Err() != nil {
			break
		}
		if err != nil {
			t.Error(err)
			break
		}
		var l last
		if _, err := fmt.Sscan(string(r.Value), &l.term, &l.n); err != nil {
			t.Fatal(err)
		}
		before := got[string(r.Key)]
		if l.term < before.term || l.term == before.term && l.n <= before.n && count[string(r.Key)] > 0 {
			t.Errorf("role %s: term %d n %d after term %d n %d", r.Key, l.term, l.n, before.term, before.n)
		}
		got[string(r.Key)] = l
		count[string(r.Key)]++
	}
	for _, role := range roles {
		t.Logf("%s: %d records, last of term %d", role, count[role], got[role].term)
		if count[role] == 0 {
			t.Errorf("nobody wrote for %s", role)
		}
	}
}
