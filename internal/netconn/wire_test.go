package netconn

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// parts is a Produce whose records stand in buffers of their own.
type parts struct {
	kmsg.ProduceRequest
	records [][]byte
}

func (p *parts) AppendBuffers(b net.Buffers) net.Buffers {
	size := 0
	for _, r := range p.records {
		size += len(r)
	}
	head := binary.BigEndian.AppendUint16(nil, 0xffff) // no transactional id, version 8
	head = append(head, 0xff, 0xff, 0, 0, 0x75, 0x30, 0, 0, 0, 1, 0, 1, 't', 0, 0, 0, 1, 0, 0, 0, 0)
	head = binary.BigEndian.AppendUint32(head, uint32(size))
	return append(append(b, head), p.records...)
}

// AppendTo must not be used where AppendBuffers is there.
func (p *parts) AppendTo([]byte) []byte { panic("AppendTo of a request with buffers") }

func vectored() *Call {
	p := &parts{records: [][]byte{bytes.Repeat([]byte("a"), 70_000), bytes.Repeat([]byte("b"), 1), nil, bytes.Repeat([]byte("c"), 300_000)}}
	p.Acks = -1
	c := NewCall(context.Background(), p)
	c.Min, c.Max = 8, 8
	return c
}

// checkRecords holds that the broker saw the parts in one frame, whole.
func checkRecords(t *testing.T, b *broker) {
	t.Helper()
	got := b.requests(0)
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(8)
	if len(got) != 1 || req.ReadFrom(got[0].Body) != nil || len(req.Topics) != 1 {
		t.Fatalf("the broker saw %d Produce", len(got))
	}
	records := req.Topics[0].Partitions[0].Records
	if len(records) != 370_001 || bytes.Count(records, []byte("a")) != 70_000 || records[70_000] != 'b' || records[70_001] != 'c' {
		t.Errorf("%d bytes of records", len(records))
	}
}

func TestC36LargeBodiesAreWrittenFromTheirOwnMemory(t *testing.T) {
	b := newBroker(t, (*brokerConn).echo)
	p := newPeer(t, b.addr(), &Config{})
	if _, err := p.Lane(Produce).Do(within(t, time.Minute), vectored()); err != nil {
		t.Fatal(err)
	}
	checkRecords(t, b)
	ask(t, p.Lane(Produce), "in step")
}

// TestC36LargeBodiesAreNotCopied sends 4 MiB over TCP, whose write is vectored:
// no buffer of that size is made.
func TestC36LargeBodiesAreNotCopied(t *testing.T) {
	const size = 4 << 20
	b := newBroker(t, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		head, in := make([]byte, 12), make([]byte, 64<<10)
		out := frameOf(gotRequest{Key: 0, Version: 8}, kmsg.NewPtrProduceResponse())
		for {
			if _, err := io.ReadFull(c, head); err != nil {
				return
			}
			for left := int(binary.BigEndian.Uint32(head)) - 8; left > 0; {
				n, err := c.Read(in[:min(left, len(in))])
				if err != nil {
					return
				}
				left -= n
			}
			copy(out[4:8], head[8:])
			c.Write(out)
		}
	})
	l := newPeer(t, b.addr(), &Config{}).Lane(Produce)
	p := &parts{records: [][]byte{make([]byte, size/2), make([]byte, size/2)}}
	p.Acks = -1
	do := func() {
		c := NewCall(context.Background(), p)
		c.Min, c.Max = 8, 8
		if _, err := l.Do(within(t, time.Minute), c); err != nil {
			t.Fatal(err)
		}
	}
	do()
	if got := allocated(20, do); got > size/4 {
		t.Errorf("%d bytes are allocated for a request of %d", got, size)
	}
}

// TestC36ARequestIsOneWrite counts the writes of a connection that has no
// vectored one.
func TestC36ARequestIsOneWrite(t *testing.T) {
	cfg := &Config{}
	inWorld(t, cfg, (*brokerConn).echo, func(t *testing.T, w *world) {
		writes := 0
		dial := cfg.Dial
		cfg.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			c, err := dial(ctx, network, addr)
			return &writeCounter{Conn: c, n: &writes}, err
		}
		ask(t, w.lane(Produce), "m")
		if writes != 2 {
			t.Errorf("%d writes for ApiVersions and Metadata", writes)
		}
		if _, err := w.lane(Produce).Do(context.Background(), vectored()); err != nil || writes != 3 {
			t.Errorf("%d writes after a Produce in parts (%v)", writes, err)
		}
		checkRecords(t, w.b)
	})
}

type writeCounter struct {
	net.Conn
	n *int
}

func (c *writeCounter) Write(b []byte) (int, error) {
	*c.n++
	return c.Conn.Write(b)
}

// TestC33AFetchAnswerKeepsItsBuffer has answers of other requests behind it,
// which must not write into it.
func TestC33AFetchAnswerKeepsItsBuffer(t *testing.T) {
	b := newBroker(t, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			resp := reply(g)
			if f, ok := resp.(*kmsg.FetchResponse); ok {
				part := kmsg.NewFetchResponseTopicPartition()
				part.RecordBatches = bytes.Repeat([]byte{byte(g.ID)}, 50_000)
				topic := kmsg.NewFetchResponseTopic()
				topic.Topic = "t"
				topic.Partitions = append(topic.Partitions, part)
				f.Topics = append(f.Topics, topic)
			}
			c.answer(g, resp)
		}
	})
	p := newPeer(t, b.addr(), &Config{})
	l := p.Lane(Fetch)
	var kept [][]byte
	for i := range 10 {
		resp, err := l.Do(within(t, time.Minute), NewCall(context.Background(), kmsg.NewPtrFetchRequest()))
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches)
		ask(t, l, fmt.Sprint(i))
	}
	for i, k := range kept {
		if want := byte(1 + 2*i); len(k) != 50_000 || k[0] != want || bytes.Count(k, []byte{want}) != len(k) {
			t.Errorf("answer %d was written over", i)
		}
	}
}

// TestF46AFetchAnswerIsReadIntoItsCallersBuffer, and one of a caller that gave up
// is not: the buffer may be in use again.
func TestF46AFetchAnswerIsReadIntoItsCallersBuffer(t *testing.T) {
	hold := make(chan struct{})
	b := newBroker(t, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			f := reply(g).(*kmsg.FetchResponse)
			part := kmsg.NewFetchResponseTopicPartition()
			part.RecordBatches = bytes.Repeat([]byte{byte(g.ID)}, 50_000)
			topic := kmsg.NewFetchResponseTopic()
			topic.Partitions = append(topic.Partitions, part)
			f.Topics = append(f.Topics, topic)
			if g.ID > 1 {
				<-hold
			}
			c.answer(g, f)
		}
	})
	l := newPeer(t, b.addr(), &Config{}).Lane(Fetch)
	buf := make([]byte, 100_000)
	asked := 0
	call := func() *Call {
		req := kmsg.NewPtrFetchRequest()
		req.MaxBytes = 60_000
		c := NewCall(context.Background(), req)
		c.Buffer = func(n int) []byte { asked++; return buf[:n] }
		return c
	}
	resp, err := l.Do(within(t, time.Minute), call())
	if err != nil {
		t.Fatal(err)
	}
	got := resp.(*kmsg.FetchResponse).Topics[0].Partitions[0].RecordBatches
	clear(buf)
	if asked != 1 || len(got) != 50_000 || bytes.Count(got, []byte{0}) != len(got) {
		t.Errorf("asked %d times; the answer lies elsewhere", asked)
	}
	ctx, cancel := context.WithCancel(within(t, time.Minute))
	cancelled := make(chan struct{})
	go func() {
		defer close(cancelled)
		if _, err := l.Do(ctx, call()); err == nil {
			t.Error("a call that was given up had an answer")
		}
	}()
	for l.Stats().InFlight == 0 {
		time.Sleep(time.Millisecond)
	}
	cancel()
	<-cancelled
	close(hold)
	if _, err := l.Do(within(t, time.Minute), NewCall(context.Background(), kmsg.NewPtrFetchRequest())); err != nil {
		t.Fatal(err)
	}
	if asked != 1 || bytes.Count(buf, []byte{0}) != len(buf) {
		t.Errorf("asked %d times; the answer to a call that was given up went into its buffer", asked)
	}
}

// TestF46ALossWithinTheCallersBufferEndsTheCall, as the connection that was lost
// may still write to it. The mutation that it finds: the Fetch is sent again, and
// its second answer, too large for what the caller gives, lies elsewhere; then the
// caller takes the buffer for that of the answer, and uses it again.
func TestF46ALossWithinTheCallersBufferEndsTheCall(t *testing.T) {
	answerOf := func(g gotRequest, n int) []byte {
		part := kmsg.NewFetchResponseTopicPartition()
		part.RecordBatches = make([]byte, n)
		topic := kmsg.NewFetchResponseTopic()
		topic.Partitions = append(topic.Partitions, part)
		f := kmsg.NewPtrFetchResponse()
		f.Topics = append(f.Topics, topic)
		return frameOf(g, f)
	}
	b := newBroker(t, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			if c.n == 0 {
				frame := answerOf(g, 50_000)
				c.Write(frame[:len(frame)/2])
				return
			}
			c.Write(answerOf(g, 500_000))
		}
	})
	l := newPeer(t, b.addr(), &Config{}).Lane(Fetch)
	asked := 0
	req := kmsg.NewPtrFetchRequest()
	req.MaxBytes = 60_000
	c := NewCall(context.Background(), req)
	c.Buffer = func(n int) []byte { asked++; return make([]byte, n) }
	resp, err := l.Do(within(t, time.Minute), c)
	var lost *kafka.ConnError
	if resp != nil || !errors.As(err, &lost) || asked != 1 || len(b.requests(1)) != 1 {
		t.Errorf("%v, with an answer: %v; asked for %d buffers, sent %d times", err, resp != nil, asked, len(b.requests(1)))
	}
}

// TestC29AnAnswersByteFieldsAreTheCallersOwn has answers of other requests
// behind each. The mutation that it finds: an answer that is decoded out of the
// reader's buffer, as kmsg's ReadFrom does not copy byte fields.
func TestC29AnAnswersByteFieldsAreTheCallersOwn(t *testing.T) {
	b := newBroker(t, func(c *brokerConn) {
		if !c.hello() {
			return
		}
		for g, ok := c.next(); ok; g, ok = c.next() {
			resp := reply(g)
			if r, ok := resp.(*kmsg.SyncGroupResponse); ok {
				r.MemberAssignment = bytes.Repeat([]byte{byte(g.ID)}, 100)
			}
			c.answer(g, resp)
		}
	})
	l := newPeer(t, b.addr(), &Config{}).Lane(Join)
	var kept [][]byte
	for range 10 {
		resp, err := l.Do(within(t, time.Minute), NewCall(context.Background(), kmsg.NewPtrSyncGroupRequest()))
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, resp.(*kmsg.SyncGroupResponse).MemberAssignment)
	}
	for i, k := range kept {
		if want := byte(1 + i); bytes.Count(k, []byte{want}) != 100 {
			t.Errorf("answer %d was written over: %x", i, k)
		}
	}
}

func TestTheJournalKeepsEnvelopesOnly(t *testing.T) {
	b := newBroker(t, (*brokerConn).echo)
	j := NewJournal(3)
	p := newPeer(t, b.addr(), &Config{Journal: j})
	ask(t, p.Lane(General), "a-secret-topic")
	es := j.Entries()
	if len(es) != 3 || es[0].API != 18 || !es[0].Answer || es[1].API != 3 || es[1].Answer || es[2].ID != es[1].ID || es[2].Size < 20 || es[2].Kind != General {
		t.Errorf("%s", j)
	}
	if s := j.String(); bytes.Contains([]byte(s), []byte("secret")) || !bytes.Contains([]byte(s), []byte("-> "+b.addr()+"/general Metadata v13")) {
		t.Errorf("%s", s)
	}
	if (*Journal)(nil).Entries() != nil {
		t.Error("a nil journal has entries")
	}
}

// canned answers every request with the same bytes, so that the broker's side
// costs and allocates nothing.
func canned(c *brokerConn) {
	if !c.hello() {
		return
	}
	g, ok := c.next()
	if !ok {
		return
	}
	out := frameOf(g, reply(g))
	in := make([]byte, 1<<16)
	size := 0
	for {
		if _, err := c.Write(out); err != nil {
			return
		}
		n, err := c.Read(in)
		if err != nil {
			return
		}
		if size == 0 {
			size = 4 + int(binary.BigEndian.Uint32(in))
		}
		for ; n >= 2*size; n -= size { // pipelined: answer each
			copy(out[4:8], in[8:12])
			if _, err := c.Write(out); err != nil {
				return
			}
			copy(in, in[size:n])
		}
		copy(out[4:8], in[8:12])
	}
}

// TestARequestAllocatesLittle holds what one round trip of a Metadata costs
// beyond the response that the caller gets.
func TestARequestAllocatesLittle(t *testing.T) {
	b := newBroker(t, canned)
	p := newPeer(t, b.addr(), &Config{})
	c := metadata("mark")
	do := func() {
		if _, err := p.Lane(General).Do(context.Background(), c); err != nil {
			t.Fatal(err)
		}
	}
	do()
	runtime.GC()
	// The response, its bytes, its cluster id: three. What the race detector or
	// the scheduler add from time to time is below one.
	if n := testing.AllocsPerRun(2000, do); n > 4 {
		t.Errorf("%v allocations for one request", n)
	}
}

func BenchmarkMetadataClosedLoop(b *testing.B) {
	br := newBroker(b, canned)
	p := newPeer(b, br.addr(), &Config{})
	c := metadata("mark")
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Lane(General).Do(context.Background(), c); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkPingPong is what the same bytes cost without a client.
func BenchmarkPingPong(b *testing.B) {
	br := newBroker(b, canned)
	c, err := net.Dial("tcp", br.addr())
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	buf := make([]byte, 1<<16)
	round := func(frame []byte) {
		if _, err := c.Write(frame); err != nil {
			b.Fatal(err)
		}
		if _, err := c.Read(buf); err != nil {
			b.Fatal(err)
		}
	}
	hello, meta := kmsg.NewPtrApiVersionsRequest(), metadata("mark").Req
	hello.SetVersion(3)
	meta.SetVersion(12)
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("ottla"))
	round(f.AppendRequest(nil, hello, 0))
	frame := f.AppendRequest(nil, meta, 1)
	b.ReportAllocs()
	for b.Loop() {
		round(frame)
	}
}

func BenchmarkMetadataPipelined(b *testing.B) {
	br := newBroker(b, (*brokerConn).echo)
	p := newPeer(b, br.addr(), &Config{})
	b.ReportAllocs()
	b.SetParallelism(32)
	b.RunParallel(func(pb *testing.PB) {
		c := metadata("mark")
		for pb.Next() {
			if _, err := p.Lane(General).Do(context.Background(), c); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestK18AnOpenSocketIsTwoGoroutines counts those of five lanes, and that none
// is left after an idle limit.
func TestK18AnOpenSocketIsTwoGoroutines(t *testing.T) {
	inWorld(t, nil, (*brokerConn).echo, func(t *testing.T, w *world) {
		for k := range Kind(kinds) {
			ask(t, w.lane(k), "m")
		}
		time.Sleep(time.Second)
		if n := goroutines("(*Lane).write(", "(*socket).read("); n != 2*kinds {
			t.Errorf("%d goroutines for %d sockets", n, kinds)
		}
		if n := goroutines("/internal/netconn."); n != 2*kinds+3+kinds { // the test and who waits for it, the broker and one for each of its sockets
			t.Errorf("%d goroutines in all", n)
		}
		time.Sleep(4 * time.Minute)
		if n := goroutines("(*Lane).write(", "(*socket).read("); n != 0 {
			t.Errorf("%d goroutines without a socket", n)
		}
	})
}

// goroutines counts those of the bubble that are in one of these functions.
func goroutines(in ...string) (n int) {
	buf := make([]byte, 1<<20)
	buf = buf[:runtime.Stack(buf, true)]
	for _, stack := range strings.Split(string(buf), "\n\n") {
		head, _, _ := strings.Cut(stack, "\n")
		if strings.Contains(head, "synctest bubble") && slices.ContainsFunc(in, func(f string) bool { return strings.Contains(stack, f) }) {
			n++
		}
	}
	return n
}

// allocated is how many bytes one run of f allocates, of the whole process.
func allocated(runs int, f func()) int {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range runs {
		f()
	}
	runtime.ReadMemStats(&after)
	return int(after.TotalAlloc-before.TotalAlloc) / runs
}
