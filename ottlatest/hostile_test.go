package ottlatest

import (
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// hostile is bytes that no client sends, by what is wrong with them.
func hostile() map[string][]byte {
	framed := func(p []byte) []byte { return append(binary.BigEndian.AppendUint32(nil, uint32(len(p))), p...) }
	header := func(key, version int16) []byte {
		b := binary.BigEndian.AppendUint16(nil, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		return append(b, 0, 0, 0, 1, 0xff, 0xff)
	}
	return map[string][]byte{
		"huge length":      []byte("\x7f\xff\xff\xff\x00\x03"),
		"negative length":  []byte("\xff\xff\xff\xff\x00\x03"),
		"zero length":      make([]byte, 4),
		"above the limit":  binary.BigEndian.AppendUint32(nil, 100<<20+1),
		"half a frame":     framed(make([]byte, 1000))[:500],
		"unknown key":      framed(header(12345, 0)),
		"negative key":     framed(header(-1, 0)),
		"negative version": framed(append(header(3, -1), 0, 0, 0, 0)),
		"unknown version":  framed(append(header(3, 32000), make([]byte, 40)...)),
		"huge array":       framed(append(header(3, 4), 0x7f, 0xff, 0xff, 0xff)),
		"no body":          framed(header(0, 9)),
		"broker to broker": framed(append(header(4, 1), make([]byte, 60)...)),
		"HTTP":             []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
		"TLS":              []byte("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"),
	}
}

func TestHostileBytesEndTheirConnectionOnly(t *testing.T) {
	everywhere(t, Config{Topics: map[string]int{"t": 1}}, func(t *testing.T, c *Cluster) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		for name, raw := range hostile() {
			nc, err := c.Dial(t.Context(), "tcp", c.Bootstrap()[0])
			if err != nil {
				t.Fatal(err)
			}
			nc.Write(raw)
			if h, ok := nc.(interface{ CloseWrite() error }); ok {
				h.CloseWrite()
			}
			nc.SetReadDeadline(time.Now().Add(20 * time.Second))
			if _, err := io.ReadAll(nc); isTimeout(err) {
				t.Errorf("%s: the connection stays open", name)
			}
			nc.Close()
		}
		runtime.ReadMemStats(&after)
		if got := after.TotalAlloc - before.TotalAlloc; got > 16<<20 {
			t.Errorf("hostile bytes made the cluster allocate %d bytes", got)
		}
		if len(c.Journal()) > 3 {
			t.Errorf("accepted: %+v", c.Journal())
		}
		produce(t, peer(t, c), "t", 0, "alive")
		wantLog(t, c, "t", 0, "alive")
	})
}

func isTimeout(err error) bool {
	ne, ok := err.(net.Error)
	return ok && ne.Timeout()
}

// FuzzFrames sends arbitrary bytes to a broker, as they are and behind a
// proper header: the cluster has to survive them.
func FuzzFrames(f *testing.F) {
	for _, raw := range hostile() {
		f.Add(int16(3), int16(12), raw)
	}
	f.Add(int16(0), int16(9), []byte("\x00"))
	f.Add(int16(18), int16(3), kmsg.NewPtrApiVersionsRequest().AppendTo(nil))
	f.Fuzz(func(t *testing.T, key, version int16, body []byte) {
		synctest.Test(t, func(t *testing.T) {
			c := New(t, Config{Brokers: 1, InMemory: true, Topics: map[string]int{"t": 1}})
			for _, raw := range [][]byte{body, frameOf(key, version, body)} {
				nc, err := c.Dial(t.Context(), "tcp", c.Bootstrap()[0])
				if err != nil {
					t.Fatal(err)
				}
				nc.Write(raw)
				nc.SetReadDeadline(time.Now().Add(time.Second))
				io.Copy(io.Discard, nc)
				nc.Close()
			}
			if err := c.CreateTopic("alive", 1); err != nil {
				t.Fatal(err)
			}
		})
	})
}

func frameOf(key, version int16, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)+10))
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = binary.BigEndian.AppendUint16(b, uint16(version))
	return append(append(b, 0, 0, 0, 1, 0xff, 0xff), body...)
}
