package lead

import (
	"encoding/binary"
	"fmt"
	"unicode/utf8"

	"github.com/ottla/ottla/kafka"
)

// Kind is the kind of a record. There are no others, and never will be: older
// readers fail on a kind that they do not know.
type Kind int16

const (
	KindRegistration Kind = 0 // a member waits for a role
	KindLease        Kind = 1 // a member leads it
)

// version is the only version of keys and values.
const version = 0

// Key is the key of a record, which compaction keeps one value of.
type Key struct {
	Kind   Kind
	Role   string
	Member string // empty in the key of a lease, which a role has one of
}

// Registration is the value of a registration. A null value removes the member.
type Registration struct {
	Member string // the key's member counts, not this one
	At     kafka.Timestamp
}

// Lease is the value of a lease. A null value, never an empty one, clears it.
type Lease struct {
	Member   string // who leads
	Token    Token
	Granted  kafka.Timestamp
	Deadline kafka.Timestamp
}

// The parts that a DecodeError names.
const (
	PartKey          = "key"
	PartRegistration = "registration value"
	PartLease        = "lease value"
)

// DecodeError is a key or value that is not of the contract.
type DecodeError struct {
	Part string // key, registration value or lease value
	What string
}

func (e *DecodeError) Error() string { return "ottla: " + e.Part + ": " + e.What }

// MayHaveHappened is false: reading changes nothing.
func (*DecodeError) MayHaveHappened() bool { return false }

// Append appends the key's bytes to dst. The names must be good ones.
func (k Key) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, version)
	dst = binary.BigEndian.AppendUint16(dst, uint16(k.Kind))
	dst = appendString(dst, k.Role)
	if k.Kind == KindLease {
		return appendString(dst, "")
	}
	return appendString(dst, k.Member)
}

// Append appends the value's bytes to dst.
func (r Registration) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, version)
	dst = appendString(dst, r.Member)
	return binary.BigEndian.AppendUint64(dst, uint64(r.At))
}

// Append appends the value's bytes to dst.
func (l Lease) Append(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint16(dst, version)
	dst = appendString(dst, l.Member)
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.Token.ID))
	dst = binary.BigEndian.AppendUint16(dst, uint16(l.Token.Epoch))
	dst = binary.BigEndian.AppendUint64(dst, uint64(l.Granted))
	return binary.BigEndian.AppendUint64(dst, uint64(l.Deadline))
}

func appendString(dst []byte, s string) []byte {
	dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	return append(dst, s...)
}

// DecodeKey reads a key. The error is a [*DecodeError].
func DecodeKey(b []byte) (Key, error) {
	d := decoder{part: PartKey, rest: b}
	d.version()
	k := Key{Kind: Kind(d.uint16())}
	if d.what == "" && k.Kind != KindRegistration && k.Kind != KindLease {
		d.fail("kind %d does not exist", k.Kind)
	}
	k.Role = d.name("role")
	if k.Kind == KindRegistration {
		k.Member = d.name("member")
	} else if k.Member = d.string("member"); k.Member != "" {
		d.fail("a lease has no member in its key")
	}
	if err := d.end(); err != nil {
		return Key{}, err
	}
	return k, nil
}

// DecodeRegistration reads the value of a registration. The error is a
// [*DecodeError].
func DecodeRegistration(b []byte) (Registration, error) {
	d := decoder{part: PartRegistration, rest: b}
	d.version()
	r := Registration{Member: d.name("member"), At: kafka.Timestamp(d.uint64())}
	if err := d.end(); err != nil {
		return Registration{}, err
	}
	return r, nil
}

// DecodeLease reads the value of a lease. The error is a [*DecodeError].
func DecodeLease(b []byte) (Lease, error) {
	d := decoder{part: PartLease, rest: b}
	d.version()
	l := Lease{Member: d.name("member")}
	l.Token = Token{kafka.ProducerID(d.uint64()), kafka.ProducerEpoch(d.uint16())}
	if !l.Token.Valid() {
		d.fail("token %v is negative", l.Token)
	}
	l.Granted, l.Deadline = kafka.Timestamp(d.uint64()), kafka.Timestamp(d.uint64())
	if err := d.end(); err != nil {
		return Lease{}, err
	}
	return l, nil
}

// decoder takes fields off the front of rest until one of them is wrong.
type decoder struct {
	part string
	rest []byte
	what string // what was wrong first
}

func (d *decoder) fail(format string, args ...any) {
	if d.what == "" {
		d.what, d.rest = fmt.Sprintf(format, args...), nil
	}
}

func (d *decoder) take(n int) []byte {
	if len(d.rest) < n {
		d.fail("ends early")
		return nil
	}
	b := d.rest[:n]
	d.rest = d.rest[n:]
	return b
}

func (d *decoder) version() {
	if v := int16(d.uint16()); v != version {
		d.fail("version %d is not known", v)
	}
}

func (d *decoder) uint16() uint16 {
	if b := d.take(2); b != nil {
		return binary.BigEndian.Uint16(b)
	}
	return 0
}

func (d *decoder) uint64() uint64 {
	if b := d.take(8); b != nil {
		return binary.BigEndian.Uint64(b)
	}
	return 0
}

func (d *decoder) string(field string) string {
	n := int16(d.uint16())
	if n < 0 {
		d.fail("the %s's length is %d", field, n)
		return ""
	}
	b := d.take(int(n))
	if !utf8.Valid(b) {
		d.fail("the %s is not UTF-8", field)
		return ""
	}
	return string(b)
}

func (d *decoder) name(field string) string {
	s := d.string(field)
	if d.what == "" && (s == "" || len(s) > MaxName) {
		d.fail("the %s has %d bytes, it needs 1 to %d", field, len(s), MaxName)
	}
	return s
}

func (d *decoder) end() error {
	if len(d.rest) > 0 {
		d.fail("%d bytes are left over", len(d.rest))
	}
	if d.what != "" {
		return &DecodeError{d.part, d.what}
	}
	return nil
}
