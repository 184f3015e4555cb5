package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// blocking are all methods that wait, each so that it has to ask a broker.
var blocking = map[string]func(ctx context.Context, c *Cluster) error{
	"Topic":          func(ctx context.Context, c *Cluster) error { return second(c.Topic(ctx, "t")) },
	"PartitionCount": func(ctx context.Context, c *Cluster) error { return second(c.PartitionCount(ctx, "t")) },
	"Leader":         func(ctx context.Context, c *Cluster) error { return second(c.Leader(ctx, tp("t", 0))) },
	"RefreshIfStale": func(ctx context.Context, c *Cluster) error { return second(c.RefreshIfStale(ctx, "t")) },
	"Controller":     func(ctx context.Context, c *Cluster) error { return second(c.Controller(ctx)) },
	"TopicNames":     func(ctx context.Context, c *Cluster) error { return second(c.TopicNames(ctx)) },
	"TopicName":      func(ctx context.Context, c *Cluster) error { return second(c.TopicName(ctx, kafka.TopicID{1})) },
	"Coordinator":    func(ctx context.Context, c *Cluster) error { return second(c.Coordinator(ctx, GroupCoordinator, "g")) },
	"RequestCoordinator": func(ctx context.Context, c *Cluster) error {
		return second(c.RequestCoordinator(ctx, "g", kmsg.NewPtrHeartbeatRequest()))
	},
	"CoordinatorVersions": func(ctx context.Context, c *Cluster) error {
		_, _, _, err := c.CoordinatorVersions(ctx, "g", 12)
		return err
	},
	"FinalizedFeature": func(ctx context.Context, c *Cluster) error {
		_, _, err := c.FinalizedFeature(ctx, "metadata.version")
		return err
	},
	"Broker.Request": func(ctx context.Context, c *Cluster) error {
		return second(c.Broker(1).Request(ctx, kmsg.NewPtrDescribeClusterRequest()))
	},
	"Collect": func(ctx context.Context, c *Cluster) error {
		if r := c.Collect(ctx, questions(1), Dial)[0]; !errors.Is(r.Err, ErrUnknownBroker) {
			return r.Err
		}
		<-ctx.Done() // without a map there is nobody to ask
		return ctx.Err()
	},
	"Request any": func(ctx context.Context, c *Cluster) error {
		return second(c.Request(ctx, kmsg.NewPtrDescribeClusterRequest()))
	},
	"Request controller": func(ctx context.Context, c *Cluster) error {
		return second(c.Request(ctx, kmsg.NewPtrCreateTopicsRequest()))
	},
	"Request leaders": func(ctx context.Context, c *Cluster) error { return second(c.Request(ctx, listOffsets(tp("t", 0)))) },
	"Request group": func(ctx context.Context, c *Cluster) error {
		return second(c.Request(ctx, &kmsg.HeartbeatRequest{Group: "g"}))
	},
	"Request groups": func(ctx context.Context, c *Cluster) error {
		return second(c.Request(ctx, &kmsg.DescribeGroupsRequest{Groups: []string{"g", "h"}}))
	},
	"Request every broker": func(ctx context.Context, c *Cluster) error {
		return second(c.Request(ctx, kmsg.NewPtrListGroupsRequest()))
	},
	"Request resources": func(ctx context.Context, c *Cluster) error {
		return second(c.Request(ctx, &kmsg.DescribeConfigsRequest{Resources: []kmsg.DescribeConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeBroker, ResourceName: "1"}, {ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: "t"}}}))
	},
}

// silences are the places where a request can get stuck.
var silences = map[string]func(r *rig){
	"dial":      func(r *rig) { r.net.BlackHole("b1:9092", true) },
	"handshake": func(r *rig) { silent(r, 18) },
	"answer":    func(r *rig) { silent(r, 2, 3, 10, 12, 15, 16, 19, 32, 60) },
	"no broker": func(r *rig) { r.sim.Broker(1).Close() },
	"throttle": func(r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Throttle = 60_000 })
		silent(r, 2, 12, 15, 16, 19, 32, 60)
	},
}

func silent(r *rig, keys ...int16) {
	for _, key := range keys {
		r.sim.Broker(1).Handle(key, func(q *sim.Request) sim.Answer { return sim.Answer{Until: q.Done()} })
	}
}

// TestT12EveryBlockingCallReturnsWhenItsContextEnds holds the client in every
// place where a request can be stuck, for every method.
func TestT12EveryBlockingCallReturnsWhenItsContextEnds(t *testing.T) {
	for place, hold := range silences {
		for name, call := range blocking {
			t.Run(place+"/"+name, func(t *testing.T) {
				inBubble(t, 1, func(t *testing.T, r *rig) {
					hold(r)
					c := r.connect(func(cfg *Config) { cfg.Lazy = true })
					cause := errors.New("the caller has enough")
					ctx, cancel := context.WithCancelCause(t.Context())
					time.AfterFunc(700*time.Millisecond, func() { cancel(cause) })
					done := make(chan error, 1)
					go func() { done <- call(ctx, c) }()
					select {
					case err := <-done:
						checkEnded(t, ctx, place, err, cause)
					case <-time.After(710 * time.Millisecond):
						t.Error("still waits 10 ms after its context ended")
						<-done
					}
					// A context that has ended already: what is known may be told.
					cancel(cause)
					start := time.Now()
					err := call(ctx, c)
					if time.Since(start) > 0 || err != nil && !errors.Is(err, cause) && !errors.Is(err, context.Canceled) {
						t.Errorf("with a context that has ended: %v after %v", err, time.Since(start))
					}
				})
			})
		}
	}
}

// checkEnded looks at the error of a call that its context ended. Where
// requests get through, calls may also be done, or refused, before that.
func checkEnded(t *testing.T, ctx context.Context, place string, err, cause error) {
	t.Helper()
	if ctx.Err() == nil {
		if err != nil && place == "dial" {
			t.Errorf("ended before its context: %v", err)
		}
		return
	}
	if err == nil || !errors.Is(err, cause) && !errors.Is(err, context.Canceled) {
		t.Errorf("the cause is lost: %v", err)
	}
}

// TestK5CloseEndsEveryBlockingCall is the same for Close.
func TestK5CloseEndsEveryBlockingCall(t *testing.T) {
	for place, hold := range silences {
		inBubble(t, 1, func(t *testing.T, r *rig) {
			hold(r)
			c := r.connect(func(cfg *Config) { cfg.Lazy = true })
			type end struct {
				name string
				err  error
				at   time.Time
			}
			ends := make(chan end, len(blocking))
			for name, call := range blocking {
				if name == "Collect" {
					continue // it never waits for the client alone here
				}
				go func() {
					err := call(t.Context(), c)
					ends <- end{name, err, time.Now()}
				}()
			}
			time.Sleep(300 * time.Millisecond)
			early := len(ends)
			start := time.Now()
			c.Close()
			c.Close()
			synctest.Wait()
			if place == "dial" && early > 0 {
				t.Errorf("%s: %d calls ended by themselves", place, early)
			}
			for range len(blocking) - 1 {
				e := <-ends
				if early--; early >= 0 {
					continue
				}
				if !errors.Is(e.err, ErrClosed) || !errors.Is(e.err, net.ErrClosed) || e.at.Sub(start) > 0 {
					t.Errorf("%s, %s: %v after %v", place, e.name, e.err, e.at.Sub(start))
				}
			}
			for name, call := range blocking {
				if name == "Collect" {
					continue
				}
				if err := call(t.Context(), c); !errors.Is(err, ErrClosed) {
					t.Errorf("%s after Close: %v", name, err)
				}
			}
			done := make(chan error, 1)
			c.Broker(1).Start(t.Context(), kmsg.NewPtrHeartbeatRequest(), func(_ kmsg.Response, err error) { done <- err })
			if err := <-done; err == nil {
				t.Error("Start after Close")
			}
			if n := r.net.Open(); n != 0 && place != "dial" {
				t.Log(fmt.Sprint(n, " ends of sockets are open"))
			}
		})
	}
}

// TestC55AContextThatEndsConnectLeavesTheSilentAddressNamed has a broker that
// takes the connection and says nothing.
func TestC55AContextThatEndsConnectLeavesTheSilentAddressNamed(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Broker(1).Handle(18, func(q *sim.Request) sim.Answer { return sim.Answer{Until: q.Done()} })
		_, err := Connect(r.within(3*time.Second), r.config())
		if !errors.Is(err, context.DeadlineExceeded) || kafka.MayHaveHappened(err) || !strings.Contains(err.Error(), "b1:9092: no answer yet") {
			t.Errorf("%v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := Connect(ctx, r.config()); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

// TestC12ATableThatCannotBeReadNamesItsAddress has the answer to ApiVersions be
// no such answer.
func TestC12ATableThatCannotBeReadNamesItsAddress(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Broker(1).Handle(18, func(*sim.Request) sim.Answer { return sim.Answer{Body: []byte{0}} })
		_, err := Connect(r.within(time.Minute), r.config())
		var pe *kafka.ProtocolError
		if !errors.As(err, &pe) || pe.Addr != "b1:9092" {
			t.Errorf("%v", err)
		}
	})
}
