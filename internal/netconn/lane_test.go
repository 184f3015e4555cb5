package netconn

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/kafka"
)

func TestC10EverySocketBeginsWithApiVersions(t *testing.T) {
	b := newBroker(t, (*brokerConn).echo)
	p := newPeer(t, b.addr(), &Config{})
	for k := range Kind(kinds) {
		ask(t, p.Lane(k), k.String())
	}
	if n := b.accepted(); n != kinds {
		t.Fatalf("%d sockets for %d lanes", n, kinds)
	}
	for _, c := range b.conns {
		if g := c.got[0]; g.Key != conn.APIVersionsKey || g.Version != 5 {
			t.Errorf("first request of a socket: API %d version %d", g.Key, g.Version)
		}
		if g := c.got[0]; g.Client != "ottla" {
			t.Errorf("client id %q", g.Client)
		}
	}
}

func TestC1OneSocketServesEveryGoroutine(t *testing.T) {
	b := newBroker(t, (*brokerConn).echo)
	p := newPeer(t, b.addr(), &Config{})
	var wg sync.WaitGroup
	for g := range 32 {
		wg.Go(func() {
			for i := range 20 {
				ask(t, p.Lane(General), fmt.Sprintf("%d-%d", g, i))
			}
		})
	}
	wg.Wait()
	if n := b.accepted(); n != 1 {
		t.Errorf("%d sockets", n)
	}
}

func TestC9ADialErrorNamesTheAddressAndTheCause(t *testing.T) {
	b := newBroker(t, (*brokerConn).echo)
	b.stop()
	p := newPeer(t, b.addr(), &Config{})
	_, err := p.Lane(General).Do(within(t, 10*time.Second), metadata("m"))
	var de *kafka.DialError
	if !errors.As(err, &de) || de.Addr != b.addr() || !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("error %v", err)
	}
	if kafka.MayHaveHappened(err) {
		t.Error("nothing was sent, yet it may have happened")
	}
}

func TestC41ARestartBetweenTwoRequestsIsInvisible(t *testing.T) {
	b := newBroker(t, func(c *brokerConn) {
		if c.n > 0 {
			c.echo()
			return
		}
		if c.hello() {
			g, _ := c.next()
			c.answer(g, reply(g))
			c.next() // the second request is read, and lost
		}
	})
	p := newPeer(t, b.addr(), &Config{})
	ask(t, p.Lane(General), "one")
	ask(t, p.Lane(General), "two")
	if n := b.accepted(); n != 2 {
		t.Errorf("%d sockets, want 2", n)
	}
}

func TestC43AMutationIsNotSentTwice(t *testing.T) {
	b := newBroker(t, func(c *brokerConn) {
		if c.hello() {
			c.next()
		}
	})
	p := newPeer(t, b.addr(), &Config{})
	_, err := p.Lane(General).Do(within(t, 10*time.Second), NewCall(context.Background(), kmsg.NewPtrCreateTopicsRequest()))
	var ce *kafka.ConnError
	if !errors.As(err, &ce) || !kafka.MayHaveHappened(err) || ce.Written == 0 || !ce.First {
		t.Errorf("error %v", err)
	}
	if n := len(b.requests(19)); n != 1 {
		t.Errorf("the broker saw CreateTopics %d times", n)
	}
}

// TestK3ANameIsResolvedByTheSystem has neither a dialer nor a resolver of the
// user's.
func TestK3ANameIsResolvedByTheSystem(t *testing.T) {
	b := newBroker(t, (*brokerConn).echo)
	_, port, err := net.SplitHostPort(b.addr())
	if err != nil {
		t.Fatal(err)
	}
	ask(t, newPeer(t, "localhost:"+port, &Config{}).Lane(General), "m")
}

// TestC11TheVersionIsThatOfTheModule is that of the program's own module, or of
// the one that it depends on.
func TestC11TheVersionIsThatOfTheModule(t *testing.T) {
	own := &debug.BuildInfo{Main: debug.Module{Path: modulePath, Version: "v1.2.3"}}
	user := &debug.BuildInfo{Main: debug.Module{Path: "example.com/app", Version: "v9.9.9"},
		Deps: []*debug.Module{{Path: "example.com/other", Version: "v8.8.8"}, {Path: modulePath, Version: "v1.2.3"}}}
	replaced := &debug.BuildInfo{Deps: []*debug.Module{{Path: modulePath, Version: "v1.2.3", Replace: &debug.Module{Path: "../ottla", Version: ""}}}}
	for info, want := range map[*debug.BuildInfo]string{own: "v1.2.3", user: "v1.2.3", replaced: "v1.2.3", {}: "unknown"} {
		if got := moduleVersion(info); got != want {
			t.Errorf("%+v: %q, want %q", info, got, want)
		}
	}
	if v := (&Config{SoftwareVersion: "7"}).softwareVersion(); v != "7" {
		t.Errorf("set to 7, it is %q", v)
	}
}

// TestTheQueueLosesNoCall plays every operation against a plain list.
func TestTheQueueLosesNoCall(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 50 {
		var q callQueue
		var want []*Call
		for range 400 {
			switch n := rng.IntN(10); {
			case n < 5:
				c := &Call{}
				q.push(c)
				want = append(want, c)
			case n < 8 && len(want) > 0:
				if c := q.pop(); c != want[0] {
					t.Fatal("not the oldest")
				}
				want = want[1:]
			case n == 8 && len(want) > 0:
				i := rng.IntN(len(want))
				q.remove(want[i])
				want = slices.Delete(slices.Clone(want), i, i+1)
			case n == 9:
				back := []*Call{{}, {}}[:rng.IntN(3)]
				q.putBack(back)
				want = append(slices.Clone(back), want...)
			}
			if got := q.waiting(func(*Call) bool { return true }); q.len() != len(want) || !slices.Equal(got, want) {
				t.Fatalf("%d calls, want %d", q.len(), len(want))
			}
		}
	}
}
