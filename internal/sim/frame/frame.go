// Package frame is the broker's side of Kafka framing, for the brokers that
// tests and ottlatest run: it reads request frames from bytes that nobody has
// checked and writes response frames.
package frame

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// step is how much memory a length prefix alone may reserve.
const step = 64 << 10

// headerSize is the least a request has: key, version, correlation id and
// the length of the client id.
const headerSize = 10

// ErrFrame is the cause of every error about bytes that are no request.
var ErrFrame = errors.New("not a Kafka request")

// Request is a request frame whose header was read. Its slices alias Raw.
type Request struct {
	Key, Version int16
	Correlation  int32
	ClientID     string // empty also stands for null
	Body         []byte // after the header; of an unknown key: with the tags
	Raw          []byte // the frame without its length prefix
}

// Read reads one frame without its prefix into buf, which it grows as bytes
// arrive and never by what the prefix promises. A length below a request
// header or above limit is an ErrFrame. io.EOF means that no byte came.
func Read(r io.Reader, limit int, buf []byte) ([]byte, error) {
	var prefix [4]byte
	if _, err := io.ReadFull(r, prefix[:]); err != nil {
		return nil, err
	}
	size := int64(int32(binary.BigEndian.Uint32(prefix[:])))
	if size < headerSize || size > int64(limit) {
		return nil, fmt.Errorf("%w: length %d (first bytes %q)", ErrFrame, size, prefix)
	}
	buf = buf[:0]
	for len(buf) < int(size) {
		at := len(buf)
		n := min(int(size)-at, max(step, at)) // at most doubles
		buf = append(buf, make([]byte, n)...)
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			if err == io.EOF {
				err = io.ErrUnexpectedEOF
			}
			return nil, err
		}
	}
	return buf, nil
}

// Parse reads the header of a frame. It keeps raw. The header of a key that
// kmsg does not know is read as if it had no tags.
func Parse(raw []byte) (Request, error) {
	if len(raw) < headerSize {
		return Request{}, fmt.Errorf("%w: %d bytes", ErrFrame, len(raw))
	}
	r := Request{
		Key:         int16(binary.BigEndian.Uint16(raw)),
		Version:     int16(binary.BigEndian.Uint16(raw[2:])),
		Correlation: int32(binary.BigEndian.Uint32(raw[4:])),
		Raw:         raw,
	}
	n := int(int16(binary.BigEndian.Uint16(raw[8:])))
	rest := raw[headerSize:]
	if n > len(rest) || n < -1 {
		return Request{}, fmt.Errorf("%w: client id of %d bytes in a frame of %d", ErrFrame, n, len(raw))
	}
	if n > 0 {
		r.ClientID, rest = string(rest[:n]), rest[n:]
	}
	if r.flexible() {
		var ok bool
		if rest, ok = skipTags(rest); !ok {
			return Request{}, fmt.Errorf("%w: bad header tags", ErrFrame)
		}
	}
	r.Body = rest
	return r, nil
}

func (r Request) flexible() bool {
	req := kmsg.RequestForKey(r.Key)
	if req == nil || r.Version < 0 {
		return false
	}
	req.SetVersion(r.Version)
	return req.IsFlexible()
}

func skipTags(b []byte) ([]byte, bool) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return nil, false
	}
	b = b[n:]
	for range count {
		_, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, false
		}
		size, m := binary.Uvarint(b[n:])
		if m <= 0 || size > uint64(len(b)-n-m) {
			return nil, false
		}
		b = b[n+m+int(size):]
	}
	return b, true
}

// Decode decodes the body at the request's version. Byte fields of the result
// alias the body, strings do not. An unknown key, a negative version or a body that does not parse is an
// ErrFrame.
func (r Request) Decode() (kmsg.Request, error) {
	req := kmsg.RequestForKey(r.Key)
	if req == nil || r.Version < 0 {
		return nil, fmt.Errorf("%w: API key %d version %d", ErrFrame, r.Key, r.Version)
	}
	req.SetVersion(r.Version)
	if err := req.ReadFrom(r.Body); err != nil {
		return nil, fmt.Errorf("%w: %s version %d: %w", ErrFrame, kmsg.NameForKey(r.Key), r.Version, err)
	}
	return req, nil
}

// AppendResponse appends the frame that answers correlation id with resp at
// the version resp has.
func AppendResponse(dst []byte, correlation int32, resp kmsg.Response) []byte {
	flexible := resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions)
	at := len(dst)
	dst = appendHeader(dst, correlation, flexible)
	return seal(resp.AppendTo(dst), at)
}

// AppendBody appends a frame with a raw body behind the response header of a
// request of that key and version.
func AppendBody(dst []byte, r Request, correlation int32, body []byte) []byte {
	at := len(dst)
	dst = appendHeader(dst, correlation, r.flexible() && r.Key != int16(kmsg.ApiVersions))
	return seal(append(dst, body...), at)
}

func appendHeader(dst []byte, correlation int32, flexible bool) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlation))
	if flexible {
		dst = append(dst, 0)
	}
	return dst
}

func seal(dst []byte, at int) []byte {
	binary.BigEndian.PutUint32(dst[at:], uint32(len(dst)-at-4))
	return dst
}
