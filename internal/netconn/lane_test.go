package netconn

import (
	"context"
	"errors"
	"fmt"
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
