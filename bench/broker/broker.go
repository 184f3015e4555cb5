// Package broker is a canned broker: any topic exists, every Fetch is answered
// at once with batches that were made beforehand, every Produce is
// acknowledged and forgotten. It costs little, so that what a client costs shows.
package broker

import (
	"bufio"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Parts is the number of partitions of a topic that holds records.
const Parts = 6

// Broker serves connections of one listener.
type Broker struct {
	l    net.Listener
	host string
	port int32

	mu     sync.Mutex
	topics map[string]*topic // by name
	ids    map[[16]byte]*topic
	nextID int64 // of producers
}

// topic is one that a client named. What it holds follows from its name,
// "SIZE-CODEC"; others are for producing only.
type topic struct {
	name string
	id   [16]byte
	log  *log
	mu   sync.Mutex
	ends [Parts]int64 // of what was produced
}

// parts is the number of partitions: one of the topic whose Metadata is measured.
func (t *topic) parts() int32 {
	if t.name == "requests" {
		return 1
	}
	return Parts
}

// Listen makes a broker on a free port of the loopback.
func Listen() (*Broker, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	a := l.Addr().(*net.TCPAddr)
	return &Broker{l: l, host: "127.0.0.1", port: int32(a.Port), topics: map[string]*topic{}, ids: map[[16]byte]*topic{}}, nil
}

// Addr is where the broker listens.
func (b *Broker) Addr() string { return net.JoinHostPort(b.host, strconv.Itoa(int(b.port))) }

// Serve answers until the listener fails.
func (b *Broker) Serve() error {
	for {
		c, err := b.l.Accept()
		if err != nil {
			return err
		}
		go func() {
			defer c.Close()
			_ = b.serve(c)
		}()
	}
}

// Close ends Serve.
func (b *Broker) Close() error { return b.l.Close() }

// topic is the topic of a name, which begins to exist.
func (b *Broker) topic(name string) *topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	if t == nil {
		sum := sha256.Sum256([]byte(name))
		t = &topic{name: name, id: [16]byte(sum[:16]), log: logOf(name)}
		b.topics[name], b.ids[t.id] = t, t
	}
	return t
}

// byID is the topic of an id that the broker gave out, nil if there is none.
func (b *Broker) byID(id [16]byte) *topic {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ids[id]
}

// names are those of all topics so far.
func (b *Broker) names() (names []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n := range b.topics {
		names = append(names, n)
	}
	return names
}

// frame is one request.
type frame struct {
	key, version int16
	correlation  int32
	body         []byte
}

func (b *Broker) serve(c net.Conn) error {
	r := bufio.NewReaderSize(c, 256<<10)
	var buf, out []byte
	for {
		var size [4]byte
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return err
		}
		n := int(int32(binary.BigEndian.Uint32(size[:])))
		if n < 10 || n > 100<<20 {
			return fmt.Errorf("a frame of %d bytes", n)
		}
		if cap(buf) < n {
			buf = make([]byte, n)
		}
		if _, err := io.ReadFull(r, buf[:n]); err != nil {
			return err
		}
		f, req, err := parse(buf[:n])
		if err != nil {
			return err
		}
		if fetch, ok := req.(*kmsg.FetchRequest); ok {
			if err := b.fetch(c, f, fetch); err != nil {
				return err
			}
			continue
		}
		resp := b.answer(req)
		if resp == nil {
			continue // acks 0
		}
		resp.SetVersion(f.version)
		out = head(out[:0], f, resp.IsFlexible())
		out = resp.AppendTo(out)
		binary.BigEndian.PutUint32(out, uint32(len(out)-4))
		if _, err := c.Write(out); err != nil {
			return err
		}
	}
}

// parse takes a request apart. It aliases b.
func parse(b []byte) (f frame, req kmsg.Request, err error) {
	f.key, f.version = int16(binary.BigEndian.Uint16(b)), int16(binary.BigEndian.Uint16(b[2:]))
	f.correlation = int32(binary.BigEndian.Uint32(b[4:]))
	if req = kmsg.RequestForKey(f.key); req == nil {
		return f, nil, fmt.Errorf("API %d", f.key)
	}
	req.SetVersion(f.version)
	body := b[8:]
	if n := int16(binary.BigEndian.Uint16(body)); n > 0 { // client id
		body = body[n:]
	}
	body = body[2:]
	if req.IsFlexible() {
		body = body[1:] // no tags
	}
	type unsafe interface{ UnsafeReadFrom([]byte) error }
	return f, req, req.(unsafe).UnsafeReadFrom(body)
}

// head begins an answer: room for its size, and its header.
func head(out []byte, f frame, flexible bool) []byte {
	out = append(out, 0, 0, 0, 0)
	out = binary.BigEndian.AppendUint32(out, uint32(f.correlation))
	if flexible && f.key != 18 {
		out = append(out, 0)
	}
	return out
}
