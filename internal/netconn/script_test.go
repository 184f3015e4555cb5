package netconn

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/conn"
	"github.com/ottla/ottla/internal/task"
)

// errTestOver is the cause with which tests close their peers.
var errTestOver = errors.New("the test is over")

// broker is a scripted broker: serve runs for every connection.
type broker struct {
	t     testing.TB
	ln    net.Listener
	serve func(c *brokerConn)
	tasks *task.Group

	outOfRange atomic.Int64 // requests at versions that no client may send

	mu    sync.Mutex
	conns []*brokerConn
}

// brokerConn is one connection with the requests that came on it.
type brokerConn struct {
	net.Conn
	b *broker
	n int // how many connections came before

	mu    sync.Mutex
	got   []gotRequest
	table map[int16]conn.Range // as it was told to the client, nil before
}

type gotRequest struct {
	Key, Version int16
	ID           int32
	Client       string
	Body         []byte
	At           time.Time
}

func newBroker(t testing.TB, serve func(c *brokerConn)) *broker {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newBrokerOn(t, ln, serve)
}

func newBrokerOn(t testing.TB, ln net.Listener, serve func(c *brokerConn)) *broker {
	b := &broker{t: t, ln: ln, serve: serve, tasks: task.New(context.Background())}
	b.tasks.Go(func(context.Context) error {
		for {
			c, err := ln.Accept()
			if err != nil {
				return nil
			}
			b.mu.Lock()
			bc := &brokerConn{Conn: c, b: b, n: len(b.conns)}
			b.conns = append(b.conns, bc)
			b.mu.Unlock()
			b.tasks.Go(func(context.Context) error {
				defer bc.Close()
				b.serve(bc)
				return nil
			})
		}
	})
	t.Cleanup(b.stop)
	return b
}

func (b *broker) stop() {
	b.ln.Close()
	b.mu.Lock()
	for _, c := range b.conns {
		c.Close()
	}
	b.mu.Unlock()
	b.tasks.Wait()
	if n := b.outOfRange.Swap(0); n > 0 {
		b.t.Errorf("C27: %d requests at versions that the broker does not have", n)
	}
}

func (b *broker) addr() string { return b.ln.Addr().String() }

// accepted is how many connections came.
func (b *broker) accepted() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.conns)
}

// requests are the requests with that key on all connections, -1 for all.
func (b *broker) requests(key int16) (out []gotRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		c.mu.Lock()
		for _, g := range c.got {
			if key < 0 || g.Key == key {
				out = append(out, g)
			}
		}
		c.mu.Unlock()
	}
	return out
}

// next reads one request; ok is false when the connection ended.
func (c *brokerConn) next() (g gotRequest, ok bool) {
	var size [4]byte
	if _, err := io.ReadFull(c.Conn, size[:]); err != nil {
		return g, false
	}
	frame := make([]byte, binary.BigEndian.Uint32(size[:]))
	if _, err := io.ReadFull(c.Conn, frame); err != nil {
		return g, false
	}
	g.Key, g.Version = int16(binary.BigEndian.Uint16(frame)), int16(binary.BigEndian.Uint16(frame[2:]))
	g.ID = int32(binary.BigEndian.Uint32(frame[4:]))
	body := frame[8:]
	req := kmsg.RequestForKey(g.Key)
	if req != nil {
		req.SetVersion(g.Version)
	}
	n := int(binary.BigEndian.Uint16(body))
	g.Client, body = string(body[2:2+n]), body[2+n:]
	if req != nil && req.IsFlexible() {
		body = body[1:]
	}
	g.Body, g.At = body, time.Now()
	c.mu.Lock()
	c.got = append(c.got, g)
	c.checkRangeLocked(g)
	c.mu.Unlock()
	return g, true
}

// checkRangeLocked holds C27: no request at a version that the broker does not
// have, over the whole suite.
func (c *brokerConn) checkRangeLocked(g gotRequest) {
	if g.Key == conn.APIVersionsKey {
		return
	}
	if r, ok := c.table[g.Key]; c.table != nil && (!ok || g.Version < r.Min || g.Version > r.Max) {
		c.b.outOfRange.Add(1)
	}
}

// told keeps the table of an ApiVersions answer.
func (c *brokerConn) told(resp kmsg.Response) {
	v, ok := resp.(*kmsg.ApiVersionsResponse)
	if !ok || v.ErrorCode != 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.table = map[int16]conn.Range{}
	for _, k := range v.ApiKeys {
		c.table[k.ApiKey] = conn.Range{Min: k.MinVersion, Max: k.MaxVersion}
	}
}

// frameOf is an answer to g as it goes over the wire.
func frameOf(g gotRequest, resp kmsg.Response) []byte {
	resp.SetVersion(g.Version)
	b := binary.BigEndian.AppendUint32(make([]byte, 4, 64), uint32(g.ID))
	if conn.ResponseHeaderVersion(g.Key, resp.IsFlexible()) == 1 {
		b = append(b, 0)
	}
	b = resp.AppendTo(b)
	binary.BigEndian.PutUint32(b, uint32(len(b)-4))
	return b
}

func (c *brokerConn) answer(g gotRequest, resp kmsg.Response) bool {
	c.told(resp)
	_, err := c.Write(frameOf(g, resp))
	return err == nil
}

// table is an ApiVersions answer with every API of kmsg in every version.
func table() *kmsg.ApiVersionsResponse {
	resp := kmsg.NewPtrApiVersionsResponse()
	for k := int16(0); k <= kmsg.MaxKey; k++ {
		req := kmsg.RequestForKey(k)
		if req == nil {
			continue
		}
		a := kmsg.NewApiVersionsResponseApiKey()
		a.ApiKey, a.MaxVersion = k, req.MaxVersion()
		resp.ApiKeys = append(resp.ApiKeys, a)
	}
	return resp
}

// hello answers the ApiVersions request that every connection begins with.
func (c *brokerConn) hello() bool {
	g, ok := c.next()
	return ok && g.Key == conn.APIVersionsKey && c.answer(g, table())
}

// echo answers every request with an empty answer; Metadata answers carry the
// client's topic name as cluster id, so that each answer shows its request.
func (c *brokerConn) echo() {
	if !c.hello() {
		return
	}
	for g, ok := c.next(); ok && c.answer(g, reply(g)); g, ok = c.next() {
	}
}

func reply(g gotRequest) kmsg.Response {
	resp := kmsg.ResponseForKey(g.Key)
	if m, ok := resp.(*kmsg.MetadataResponse); ok {
		req := kmsg.NewPtrMetadataRequest()
		req.SetVersion(g.Version)
		if req.ReadFrom(g.Body) == nil && len(req.Topics) > 0 {
			m.ClusterID = req.Topics[0].Topic
		}
	}
	if v, ok := resp.(*kmsg.ApiVersionsResponse); ok {
		*v = *table()
	}
	return resp
}

// newPeer makes a peer of addr that ends with the test.
func newPeer(t testing.TB, addr string, cfg *Config) *Peer {
	t.Helper()
	tasks := task.New(context.Background())
	p := NewPeer(tasks, addr, cfg)
	t.Cleanup(func() {
		p.Close(errTestOver)
		tasks.Wait()
	})
	return p
}

// metadata is a call that its answer can be told by.
func metadata(mark string) *Call {
	req := kmsg.NewPtrMetadataRequest()
	topic := kmsg.NewMetadataRequestTopic()
	topic.Topic = kmsg.StringPtr(mark)
	req.Topics = append(req.Topics, topic)
	return NewCall(context.Background(), req)
}

func markOf(resp kmsg.Response) string {
	if m, ok := resp.(*kmsg.MetadataResponse); ok && m.ClusterID != nil {
		return *m.ClusterID
	}
	return ""
}

// within is a context for a call that must not hang.
func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// ask sends a marked Metadata and checks the mark of the answer.
func ask(t testing.TB, l *Lane, mark string) {
	t.Helper()
	resp, err := l.Do(within(t, time.Minute), metadata(mark))
	if err != nil {
		t.Fatalf("ask %s: %v", mark, err)
	}
	if got := markOf(resp); got != mark {
		t.Fatalf("ask %s: the answer is for %q", mark, got)
	}
}

// outcome is what Done was given.
type outcome struct {
	resp kmsg.Response
	err  error
}

// start sends a call and gives where its outcome will be.
func start(l *Lane, c *Call) chan outcome {
	ch := make(chan outcome, 2) // a second Done would be seen
	c.Done = func(resp kmsg.Response, err error) { ch <- outcome{resp, err} }
	l.Send(c)
	return ch
}

func await(t testing.TB, ch chan outcome) outcome {
	t.Helper()
	select {
	case o := <-ch:
		return o
	case <-time.After(time.Minute):
		t.Fatal("the call is not over after 10 s")
		return outcome{}
	}
}
