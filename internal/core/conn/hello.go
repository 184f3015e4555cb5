package conn

import (
	"encoding/binary"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// rememberFor is how long a lower ApiVersions version of an address is
// remembered.
const rememberFor = time.Hour

// maxHello is the ApiVersions version that a fresh address is asked at.
const maxHello int16 = 5

// resetsAllowed is how many lost sockets it takes to ask at a lower version.
const resetsAllowed = 2

// Identity is what a connection tells about this client, and what it expects
// of the broker.
type Identity struct {
	Software  string // KIP-511
	Version   string
	ClusterID string       // the cluster that is expected (KIP-1242), empty = none
	Node      kafka.NodeID // the node that is expected, with ClusterID
}

// Clean makes s fit the pattern that brokers demand of a software name or
// version: letters, digits, dots and dashes, beginning and ending with a
// letter or digit. What does not fit becomes a dash; "unknown" if nothing is
// left.
func Clean(s string) string {
	b := []byte(s)
	for i, c := range b {
		if !isAlnum(c) && c != '-' && c != '.' {
			b[i] = '-'
		}
	}
	if out := strings.Trim(string(b), "-."); out != "" {
		return out
	}
	return "unknown"
}

func isAlnum(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// HelloMemory is what is remembered of one address between sockets: the
// ApiVersions version that works there. The zero value remembers nothing.
type HelloMemory struct {
	version int16
	until   time.Time
	resets  int       // in a row at the version asked last
	resetAt time.Time // the last that counted
	lowered int16
	low     bool // lowered holds
}

// Version is the version to begin with.
func (m *HelloMemory) Version(now time.Time) int16 {
	if m.low {
		return m.lowered
	}
	if now.Before(m.until) {
		return m.version
	}
	return maxHello
}

// OnReset takes note that the broker closed a new socket, opened at began, in
// answer to ApiVersions at that version, without a byte. It reports whether
// another socket is to be tried at once: after two resets above version 3 at 3,
// then at 0. Sockets that are lost together, as in a restart, count once.
func (m *HelloMemory) OnReset(now, began time.Time, version int16) bool {
	if m.low && version > m.lowered || version > 3 && began.Before(m.resetAt) {
		return true
	}
	m.resets++
	m.resetAt = now
	switch {
	case version > 3 && m.resets < resetsAllowed:
		return true
	case version > 3:
		m.lowered, m.low = 3, true
		return true
	case m.low && version > 0:
		m.lowered = 0
		return true
	}
	*m = HelloMemory{} // a remembered version that works no more is forgotten as well
	return false
}

// OnSuccess takes note of the version that was answered with a table. One
// below the highest is remembered for an hour.
func (m *HelloMemory) OnSuccess(now time.Time, version int16) {
	m.resets, m.low = 0, false
	if version >= maxHello {
		m.until = time.Time{}
		return
	}
	if m.version != version || !now.Before(m.until) {
		m.version, m.until = version, now.Add(rememberFor)
	}
}

// Hello is the ApiVersions exchange of one new socket: ask, and ask again at a
// lower version until the broker gives its table. Every repetition is strictly
// lower, so it ends.
type Hello struct {
	id      Identity
	version int16
	table   Versions
	done    bool
	pause   int32 // milliseconds
	after   bool  // the pause is the client's to make
}

// NewHello begins at the given version.
func NewHello(id Identity, version int16) *Hello { return &Hello{id: id, version: version} }

// Request is the request to send next; ok is false once the table is there.
func (h *Hello) Request() (req *kmsg.ApiVersionsRequest, ok bool) {
	if h.done {
		return nil, false
	}
	return NewAPIVersions(h.id, h.version), true
}

// NewAPIVersions makes an ApiVersions request at the given version.
func NewAPIVersions(id Identity, version int16) *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version = version
	req.ClientSoftwareName, req.ClientSoftwareVersion = Clean(id.Software), Clean(id.Version)
	req.ClusterID, req.NodeID = nil, -1
	if id.ClusterID != "" && id.Node >= 0 {
		req.ClusterID, req.NodeID = kmsg.StringPtr(id.ClusterID), int32(id.Node)
	}
	return req
}

// Version is the version of the request that was answered last, or is to be
// sent next.
func (h *Hello) Version() int16 { return h.version }

// Versions is the broker's table, once Request gives nothing more.
func (h *Hello) Versions() Versions { return h.table }

// Throttle is the throttle of the last answer in milliseconds, and whether it
// is the client's to keep.
func (h *Hello) Throttle() (ms int32, after bool) { return h.pause, h.after }

// OnAnswer takes the body of the answer. An error ends the connect: a
// [*kafka.BrokerError], or a [*kafka.ProtocolError] without an address.
func (h *Hello) OnAnswer(body []byte) error {
	resp, err := readHello(body, h.version)
	if err != nil {
		return err
	}
	h.pause, h.after = resp.Throttle()
	hint, only := helloHint(resp)
	switch {
	case resp.ErrorCode != 0 && resp.ErrorCode != unsupportedVersion:
		return kafka.CodeError(resp.ErrorCode, nil)
	case resp.ErrorCode == 0 && !only:
		h.table, h.done = NewVersions(resp), true
		return nil
	case h.version == 0 || hint >= h.version:
		if resp.ErrorCode != 0 {
			return kafka.CodeError(resp.ErrorCode, nil)
		}
		return &kafka.ProtocolError{What: "the ApiVersions answer lists no API but ApiVersions itself"}
	default:
		h.version = max(hint, 0)
		return nil
	}
}

const unsupportedVersion = 35

// readHello decodes an answer. Code 35 comes in the form of version 0,
// whatever was asked.
func readHello(body []byte, version int16) (*kmsg.ApiVersionsResponse, error) {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.Version = version
	if len(body) >= 2 && binary.BigEndian.Uint16(body) == unsupportedVersion {
		resp.Version = 0
	}
	if err := resp.ReadFrom(body); err != nil {
		if len(body) >= 2 {
			if code := int16(binary.BigEndian.Uint16(body)); code != 0 {
				return nil, kafka.CodeError(code, nil)
			}
		}
		return nil, &kafka.ProtocolError{
			What:  "the ApiVersions answer cannot be decoded at version " + itoa(int64(version)),
			First: body[:min(len(body), 16)], Err: err,
		}
	}
	return resp, nil
}

// helloHint is the highest ApiVersions version that an answer names, -1 if
// none; only says that it lists nothing else.
func helloHint(resp *kmsg.ApiVersionsResponse) (hint int16, only bool) {
	hint, only = -1, true
	for _, k := range resp.ApiKeys {
		if k.ApiKey == APIVersionsKey {
			hint = k.MaxVersion
		} else {
			only = false
		}
	}
	return hint, only
}
