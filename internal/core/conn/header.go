package conn

import (
	"encoding/binary"
	"errors"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// RequestHeaderVersion is the header version of a request: 0 only for
// ControlledShutdown 0, 2 with a flexible body, else 1.
func RequestHeaderVersion(key, version int16, flexible bool) int {
	switch {
	case key == 7 && version == 0:
		return 0
	case flexible:
		return 2
	default:
		return 1
	}
}

// ResponseHeaderVersion is the header version of an answer: 1 with a flexible
// body, else 0. An ApiVersions answer always has header version 0, since it is
// read before the version is agreed on.
func ResponseHeaderVersion(key int16, flexible bool) int {
	if flexible && key != APIVersionsKey {
		return 1
	}
	return 0
}

// AppendHeader appends the length prefix and the header of req at its present
// version, the length and the correlation id still zero. clientID nil is a null
// client id.
func AppendHeader(dst []byte, req kmsg.Request, clientID *string) []byte {
	key, version := req.Key(), req.GetVersion()
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint16(dst, uint16(key))
	dst = binary.BigEndian.AppendUint16(dst, uint16(version))
	dst = append(dst, 0, 0, 0, 0)
	h := RequestHeaderVersion(key, version, req.IsFlexible())
	if h == 0 {
		return dst
	}
	if clientID == nil {
		dst = append(dst, 0xff, 0xff)
	} else {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(*clientID)))
		dst = append(dst, *clientID...)
	}
	if h == 2 {
		dst = append(dst, 0) // no tagged fields
	}
	return dst
}

// PutPrefix writes the length and the correlation id of the frame that begins
// at frame[0]; size is that of all of it, its other buffers included.
func PutPrefix(frame []byte, size int, id int32) {
	binary.BigEndian.PutUint32(frame, uint32(size-4))
	binary.BigEndian.PutUint32(frame[8:], uint32(id))
}

var errShortHeader = errors.New("the answer ends inside of its header")

// Body cuts the header, correlation id included, off the frame of an answer,
// whose length prefix is gone already.
func Body(frame []byte, key int16, flexible bool) ([]byte, error) {
	if len(frame) < 4 {
		return nil, errShortHeader
	}
	body := frame[4:]
	if ResponseHeaderVersion(key, flexible) == 0 {
		return body, nil
	}
	return skipTags(body)
}

// skipTags skips the tagged fields at the start of b.
func skipTags(b []byte) ([]byte, error) {
	n, b, ok := uvarint(b)
	for ; ok && n > 0; n-- {
		if _, b, ok = uvarint(b); !ok {
			break
		}
		var size uint64
		if size, b, ok = uvarint(b); !ok || size > uint64(len(b)) {
			return nil, errShortHeader
		}
		b = b[size:]
	}
	if !ok {
		return nil, errShortHeader
	}
	return b, nil
}

// uvarint reads an unsigned varint of 32 bits.
func uvarint(b []byte) (uint64, []byte, bool) {
	n, size := binary.Uvarint(b)
	if size <= 0 || size > 5 {
		return 0, nil, false
	}
	return n, b[size:], true
}
