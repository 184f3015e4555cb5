package cluster

import (
	"testing"
	"testing/synctest"

	"github.com/ottla/ottla/kafka"
)

// What a request to a broker costs above its lane allocates nothing: finding the
// lane, and framing the error that there is not. The lane's own share is held in
// package netconn.
func TestFindingABrokersLaneAllocatesNothing(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		c := r.connect()
		b, ok := c.snap.Load().Broker(1)
		if !ok {
			t.Fatal("broker 1 is not known")
		}
		if n := testing.AllocsPerRun(100, func() {
			if _, err := c.peerOf(b); err != nil {
				t.Fatal(err)
			}
		}); n > 0 {
			t.Errorf("%v allocations to find a broker's peer", n)
		}
		synctest.Wait()
	})
	if n := testing.AllocsPerRun(100, func() {
		if err := opError("x", 1, nil); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations for no error", n)
	}
}

// The memory of addresses is bounded, however many a cluster goes through.
func TestTheMemoryOfAddressesIsBounded(t *testing.T) {
	p := newPool(nil, nil)
	p.closed = ErrClosed // no peer is made
	for port := range int32(2*mostAddrs + 5) {
		if _, err := p.of(kafka.Broker{Host: "H", Port: port}); err == nil {
			t.Fatal("a closed pool gave a peer")
		}
	}
	if n := len(p.addrs); n > mostAddrs || p.addrs[hostPort{"H", 2*mostAddrs + 4}] != "h:8196" {
		t.Errorf("%d addresses", n)
	}
}
