package netconn

import (
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/ottla/ottla/internal/memnet"
)

// world is one peer and one scripted broker on a network in memory.
type world struct {
	net  *memnet.Network
	b    *broker
	cfg  *Config
	peer *Peer
}

// address of the broker in every world.
const address = "b1:9092"

// inWorld runs a test in virtual time. serve is the broker's script; cfg may be
// nil.
func inWorld(t *testing.T, cfg *Config, serve func(c *brokerConn), f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		n := memnet.New(1)
		ln, err := n.Listen(address)
		if err != nil {
			t.Fatal(err)
		}
		if cfg == nil {
			cfg = &Config{}
		}
		if cfg.Dial == nil {
			cfg.Dial = n.Dial
		}
		w := &world{net: n, cfg: cfg, b: newBrokerOn(t, ln, serve)}
		w.peer = newPeer(t, address, cfg)
		f(t, w)
	})
}

func (w *world) lane(k Kind) *Lane { return w.peer.Lane(k) }

// fast is the longest that an undisturbed request takes here.
const fast = 10 * time.Millisecond

// took runs f and gives how long it took, in the clock of the test.
func took(f func()) time.Duration {
	began := time.Now()
	f()
	return time.Since(began)
}

// mustBeFast asks on the lane and fails if that takes 10 ms or more.
func mustBeFast(t *testing.T, l *Lane, mark string) {
	t.Helper()
	if d := took(func() { ask(t, l, mark) }); d >= fast {
		t.Errorf("%s took %v", mark, d)
	}
}

// memConn is the broker's end of a connection in memory.
func (c *brokerConn) memConn() *memnet.Conn { return c.Conn.(*memnet.Conn) }

// silence reads and answers nothing until the connection ends.
func (c *brokerConn) silence() {
	buf := make([]byte, 4096)
	for {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

var _ net.Conn = (*memnet.Conn)(nil)
