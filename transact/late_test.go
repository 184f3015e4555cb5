package transact

import (
	"context"
	"encoding/binary"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// lateConn is a connection whose first EndTxn is held up on its way for a while,
// and arrives whatever became of who sent it.
type lateConn struct {
	net.Conn
	after time.Duration
	once  *sync.Once
	sent  chan struct{} // closed when EndTxn was written

	mu   sync.Mutex
	held bool // guarded by mu
}

func (c *lateConn) Write(frame []byte) (int, error) {
	if len(frame) > 6 && binary.BigEndian.Uint16(frame[4:]) == uint16(kmsg.EndTxn) {
		c.once.Do(func() { c.hold(frame) })
	}
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	if held {
		return len(frame), nil
	}
	return c.Conn.Write(frame)
}

func (c *lateConn) hold(frame []byte) {
	c.mu.Lock()
	c.held = true
	c.mu.Unlock()
	frame = append([]byte(nil), frame...)
	time.AfterFunc(c.after, func() {
		_, _ = c.Conn.Write(frame)
		_, _ = c.Conn.Read(make([]byte, 4)) // it was served
		_ = c.Conn.Close()
	})
	close(c.sent)
}

func (c *lateConn) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.held {
		return c.SetReadDeadline(time.Now()) // who reads is let go
	}
	return c.Conn.Close()
}

// unknownCommit has a runner of a group copy topic "late-in" to "late-out", and
// die while its commit is on the way. The commit arrives when another runner has
// its partitions, after twice the session timeout.
func unknownCommit(ctx context.Context, t *testing.T, config func() cluster.Config, protocol kafka.GroupKind, session time.Duration) {
	t.Helper()
	connect := func(cfg cluster.Config) *cluster.Cluster {
		c, err := cluster.Connect(ctx, cfg)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := connect(config())
	defer c.Close()
	feed(ctx, t, c, "late-in", 0, 40)
	slow, once, sent := config(), new(sync.Once), make(chan struct{})
	dial := slow.Dial
	if dial == nil {
		dial = (&net.Dialer{}).DialContext
	}
	slow.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &lateConn{Conn: conn, after: 2 * session, once: once, sent: sent}, nil
	}
	configure := func(id string) Config {
		cfg := configured("late", id, "late-in", protocol)
		cfg.Consumer.Group.SessionTimeout = session
		return cfg
	}
	first := start(ctx, t, connect(slow), configure("first"), copying("late-out"))
	select {
	case <-sent:
	case err := <-first.done:
		t.Fatal(err)
	}
	first.kill()
	second := start(ctx, t, connect(config()), configure("second"), copying("late-out"))
	verify(ctx, t, c, "late-out", 40)
	second.stop(t)
}

// Mutation: an OffsetFetch that does not ask for stable offsets, or a reset policy
// in place of the wait.
func TestB118_B119_P47AnUnknownCommitIsSettledBeforePositionsAreTaken(t *testing.T) {
	for _, protocol := range []kafka.GroupKind{kafka.ClassicGroup, kafka.ConsumerGroup} {
		t.Run(protocol.String(), func(t *testing.T) {
			inWorld(t, func(ctx context.Context, w *world) {
				unknownCommit(ctx, t, w.k.ClientConfig, protocol, 6*time.Second)
			})
		})
	}
}
