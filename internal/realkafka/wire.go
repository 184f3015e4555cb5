package realkafka

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// wire is one plain TCP connection that speaks Kafka's protocol, one request
// at a time. It is no part of the library, so that it does not share its faults.
type wire struct {
	conn   net.Conn
	format *kmsg.RequestFormatter
	sent   int32
}

const (
	wireTimeout  = 30 * time.Second // of an answer: a machine under load needs seconds
	maxWireFrame = 16 << 20
)

func dialWire(ctx context.Context, addr string) (*wire, error) {
	d := net.Dialer{Timeout: wireTimeout}
	conn, err := d.DialContext(ctx, "tcp4", addr)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("realkafka"))}, nil
}

func (w *wire) close() { _ = w.conn.Close() }

// do sends a request in the version that is set in it and reads the answer.
func (w *wire) do(req kmsg.Request) (kmsg.Response, error) {
	if err := w.conn.SetDeadline(time.Now().Add(wireTimeout)); err != nil {
		return nil, err
	}
	w.sent++
	if _, err := w.conn.Write(w.format.AppendRequest(nil, req, w.sent)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(w.conn, size[:]); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(size[:])
	if n < 4 || n > maxWireFrame {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	frame := make([]byte, n)
	if _, err := io.ReadFull(w.conn, frame); err != nil {
		return nil, err
	}
	if got := int32(binary.BigEndian.Uint32(frame)); got != w.sent {
		return nil, fmt.Errorf("answer %d to request %d", got, w.sent)
	}
	resp := req.ResponseKind()
	body := frame[4:]
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		var err error
		if body, err = skipTags(body); err != nil {
			return nil, err
		}
	}
	return resp, resp.ReadFrom(body)
}

// skipTags passes the tagged fields of a response header.
func skipTags(b []byte) ([]byte, error) {
	errCut := errors.New("cut response header")
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, errCut
	}
	b = b[n:]
	for range count {
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, errCut
		}
		b = b[n:]
		size, n := binary.Uvarint(b)
		if n <= 0 || size > uint64(len(b)-n) {
			return nil, errCut
		}
		b = b[n+int(size):]
	}
	return b, nil
}
