package kafka

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Sentinels, for errors.Is. cluster.ErrClosed stands in package cluster, since
// it unwraps to net.ErrClosed.
var (
	ErrFenced        error = notDone("ottla: fenced: another instance took over this identity, or the coordinator took it back")
	ErrAbortable     error = notDone("ottla: the transaction can only be aborted")
	ErrBufferFull    error = notDone("ottla: the producer's buffer is full")
	ErrNotInGroup    error = notDone("ottla: not a member of the group")
	ErrNoTransaction error = notDone("ottla: no transaction is open")

	// ErrUnsupportedEndpointType is a request that controllers do not serve
	// (KIP-919). It was not sent.
	ErrUnsupportedEndpointType error = notDone("ottla: the client is connected to controllers, which do not serve this: connect to brokers (bootstrap.servers) for it")
)

// notDone is a sentinel for calls that are refused before anything is sent.
type notDone string

func (e notDone) Error() string       { return string(e) }
func (notDone) MayHaveHappened() bool { return false }

// MayHaveHappened reports whether what failed with err may have taken effect
// in the cluster all the same. It is false only where err proves that nothing
// happened: nothing was written, or the broker's answer rejects the request.
// An error that says nothing about it may have happened, and of several joined
// errors one that may have is enough.
func MayHaveHappened(err error) bool {
	may, said := outcomeOf(err)
	return may || !said
}

// outcomeOf is what the first error of a chain that knows says; said is false
// if none does.
func outcomeOf(err error) (may, said bool) {
	switch e := err.(type) {
	case interface{ MayHaveHappened() bool }:
		return e.MayHaveHappened(), true
	case *kerr.Error:
		return codeMayHaveHappened(e.Code), true
	case interface{ Unwrap() error }:
		return outcomeOf(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, part := range e.Unwrap() {
			m, s := outcomeOf(part)
			may, said = may || m, said || s
		}
	}
	return may, said
}

// codeMayHaveHappened holds the three codes that do not say whether the broker
// applied the request.
func codeMayHaveHappened(code int16) bool {
	return code == kerr.UnknownServerError.Code || code == kerr.RequestTimedOut.Code ||
		code == kerr.NotEnoughReplicasAfterAppend.Code
}

// OpError says which operation failed, and where. Empty and negative fields
// are unknown or do not apply.
type OpError struct {
	Op        string // "produce", "fetch", "metadata", …
	Broker    NodeID
	Topic     string
	Partition int32
	Err       error
}

func (e *OpError) Error() string {
	var b strings.Builder
	b.WriteString("ottla: ")
	b.WriteString(e.Op)
	if e.Topic != "" {
		b.WriteString(" " + e.Topic)
		if e.Partition >= 0 {
			b.WriteString("-" + strconv.Itoa(int(e.Partition)))
		}
	}
	if e.Broker >= 0 {
		b.WriteString(" at broker " + strconv.Itoa(int(e.Broker)))
	}
	return b.String() + ": " + strings.TrimPrefix(e.Err.Error(), "ottla: ")
}

func (e *OpError) Unwrap() error         { return e.Err }
func (e *OpError) MayHaveHappened() bool { return MayHaveHappened(e.Err) }

// BrokerError is an error code in a broker's answer. errors.Is matches the
// value of package kerr with the same code; a code that kerr does not know
// matches none.
type BrokerError struct {
	Code    int16
	Message string // the broker's own text, if it sent one
}

// CodeOf is the broker's error code that err is about, 0 if it is about none.
func CodeOf(err error) int16 {
	var be *BrokerError
	if errors.As(err, &be) {
		return be.Code
	}
	return 0
}

// CodeError is the error for a code of an answer, nil for code 0. message may
// be nil or empty.
func CodeError(code int16, message *string) error {
	if code == 0 {
		return nil
	}
	e := &BrokerError{Code: code}
	if message != nil {
		e.Message = *message
	}
	return e
}

func (e *BrokerError) known() *kerr.Error {
	ke := kerr.TypedErrorForCode(e.Code)
	if ke != nil && ke.Code == e.Code {
		return ke
	}
	return nil
}

func (e *BrokerError) Error() string {
	name, text := "error code "+strconv.Itoa(int(e.Code)), "unknown to this version of ottla"
	if ke := e.known(); ke != nil {
		name, text = ke.Message, ke.Description
	}
	if e.Code == kerr.UnsupportedVersion.Code {
		text = "the broker is too old for this, or has the feature switched off"
	}
	if e.Message != "" {
		text = e.Message
	}
	return name + " (" + strconv.Itoa(int(e.Code)) + "): " + text
}

func (e *BrokerError) Unwrap() error {
	if ke := e.known(); ke != nil {
		return ke
	}
	return nil
}

func (e *BrokerError) MayHaveHappened() bool {
	return codeMayHaveHappened(e.Code) || e.known() == nil
}

// DialError is a connect that failed before any request was sent.
type DialError struct {
	Addr  string   // the address asked for
	Tried []string // every resolved IP address that was tried, in order
	Err   error    // the reason, of each address if there were several
}

func (e *DialError) Error() string {
	reason := "unknown reason"
	if e.Err != nil { // without what the line says already
		reason = strings.TrimPrefix(e.Err.Error(), "ottla: ")
		reason = strings.ReplaceAll(reason, " at "+e.Addr, "")
	}
	if len(e.Tried) == 1 {
		reason = strings.TrimPrefix(reason, "dial tcp "+e.Tried[0]+": ")
	}
	if len(e.Tried) == 0 || len(e.Tried) == 1 && e.Tried[0] == e.Addr {
		return "ottla: dial " + e.Addr + ": " + reason
	}
	return "ottla: dial " + e.Addr + " (tried " + strings.Join(e.Tried, ", ") + "): " + reason
}

func (e *DialError) Unwrap() error       { return e.Err }
func (*DialError) MayHaveHappened() bool { return false }

// AuthError is a refused authentication. It is never retried as if the network
// had failed.
type AuthError struct {
	Addr      string
	Mechanism string   // the mechanism that was used or wanted
	Offered   []string // what the broker offers, if it said so
	Message   string   // the broker's text, or a fixed one
	Err       error    // the broker's code or the mechanism's error; may be nil
}

func (e *AuthError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "ottla: authentication at %s with %s failed", e.Addr, e.Mechanism)
	if e.Message != "" {
		b.WriteString(": " + e.Message)
	} else if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	if e.Offered != nil {
		offers := "nothing"
		if len(e.Offered) > 0 {
			offers = strings.Join(e.Offered, ", ")
		}
		b.WriteString(" (the broker offers " + offers + ")")
	}
	return b.String()
}

func (e *AuthError) Unwrap() error       { return e.Err }
func (*AuthError) MayHaveHappened() bool { return false }

// VersionError is a request that client and broker have no common version for,
// or that the broker does not have at all. Nothing was sent.
type VersionError struct {
	API        int16
	Name       string // Kafka's name of the API
	Addr       string
	ClientMin  int16
	ClientMax  int16
	BrokerMin  int16 // -1 with BrokerMax -1: the broker does not have the API
	BrokerMax  int16
	Constraint string // what lowers ClientMax or raises ClientMin, if anything does
	Controller bool   // the node at Addr is a controller (KIP-919), which is no broker
}

// Is finds ErrUnsupportedEndpointType where a controller was asked for what only
// brokers serve.
func (e *VersionError) Is(target error) bool {
	return target == ErrUnsupportedEndpointType && e.Controller && e.BrokerMax < 0
}

func (e *VersionError) Error() string {
	if e.Controller && e.BrokerMax < 0 {
		return fmt.Sprintf("ottla: %s (API %d): at %s is a controller, which does not serve it: name brokers (bootstrap.servers) for it", e.Name, e.API, e.Addr)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "ottla: %s (API %d): the broker at %s ", e.Name, e.API, e.Addr)
	if e.BrokerMax < 0 {
		b.WriteString("does not have it")
	} else {
		fmt.Fprintf(&b, "speaks versions %d to %d", e.BrokerMin, e.BrokerMax)
	}
	fmt.Fprintf(&b, ", this client %d to %d", e.ClientMin, e.ClientMax)
	if e.Constraint != "" {
		b.WriteString(" (" + e.Constraint + ")")
	}
	switch {
	case e.BrokerMax < 0:
		b.WriteString("; the broker is too old for this, or has it switched off")
	case e.BrokerMax < e.ClientMin:
		b.WriteString("; the broker is too old for this")
	case e.ClientMax < e.BrokerMin:
		b.WriteString("; this client is too old for the broker")
	}
	return b.String()
}

func (*VersionError) MayHaveHappened() bool { return false }

// EncodeError is a request that was not sent because Kafka's encoding cannot
// hold it: a string in it, or the whole, is too long.
type EncodeError struct {
	Name  string // Kafka's name of the API
	Field string // that is too long, such as "Groups.Group"; empty = the request as a whole
	Size  int    // in bytes
	Limit int    // of Kafka's protocol, in bytes
}

func (e *EncodeError) Error() string {
	what := e.Field
	if what == "" {
		what = "the request"
	}
	return fmt.Sprintf("ottla: %s was not sent: %s has %d bytes, and Kafka's protocol allows %d", e.Name, what, e.Size, e.Limit)
}

// MayHaveHappened is false: nothing was sent.
func (*EncodeError) MayHaveHappened() bool { return false }

// Phase is where a request was when its time ran out.
type Phase uint8

const (
	PhaseQueue     Phase = iota // waiting for its turn on the socket
	PhaseDial                   // connecting, TLS included
	PhaseHandshake              // ApiVersions and SASL
	PhaseWrite                  // written in part
	PhaseAnswer                 // written, no answer
)

// String is the phase in words.
func (p Phase) String() string {
	return [...]string{"queue", "dial", "handshake", "write", "answer"}[p]
}

// TimeoutError is a request whose time ran out. Err keeps the cause, such as
// that of a cancelled context.
type TimeoutError struct {
	Name  string // Kafka's name of the API
	Addr  string
	Phase Phase
	After time.Duration // how long the phase lasted; 0 if not known
	Err   error         // may be nil
}

func (e *TimeoutError) Error() string {
	s := "ottla: " + e.Name + " at " + e.Addr + ": time ran out in phase " + e.Phase.String()
	if e.After > 0 {
		s += " after " + e.After.Round(time.Millisecond).String()
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *TimeoutError) Unwrap() error         { return e.Err }
func (e *TimeoutError) MayHaveHappened() bool { return e.Phase >= PhaseWrite }

// Timeout makes the error one that net.Error users recognise.
func (*TimeoutError) Timeout() bool { return true }

// ConnError is a socket that was lost with a request on it.
type ConnError struct {
	Name    string // Kafka's name of the API
	Addr    string
	Lane    string
	Written int64 // bytes of this request that were written
	Read    int64 // bytes of its answer that were read
	First   bool  // it was the first request on the socket
	Err     error // io.EOF if the broker closed
}

func (e *ConnError) Error() string {
	s := fmt.Sprintf("ottla: %s at %s (%s lane): %v after %d bytes written and %d read",
		e.Name, e.Addr, e.Lane, e.Err, e.Written, e.Read)
	if e.First {
		s += ", first request on the socket"
	}
	return s
}

func (e *ConnError) Unwrap() error         { return e.Err }
func (e *ConnError) MayHaveHappened() bool { return e.Written > 0 }

// ProtocolError is an answer that no Kafka broker sends.
type ProtocolError struct {
	Addr  string
	What  string // what was wrong
	First []byte // the first bytes of it, 16 at most
	Err   error  // may be nil
}

func (e *ProtocolError) Error() string {
	s := "ottla: protocol error at " + e.Addr + ": " + e.What
	if len(e.First) > 0 {
		s += fmt.Sprintf(" (first bytes %x %q)", e.First, e.First)
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

func (e *ProtocolError) Unwrap() error       { return e.Err }
func (*ProtocolError) MayHaveHappened() bool { return true }

// NoLeaderError is a partition without a leader that the client knows.
type NoLeaderError struct {
	TopicPartition
	Err error // why, if a broker said so
}

func (e *NoLeaderError) Error() string {
	s := "ottla: " + e.TopicPartition.String() + " has no leader"
	if e.Partition < 0 {
		s = "ottla: topic " + e.Topic + " has no partition with a leader"
	}
	if e.Err != nil {
		s += ": " + strings.TrimPrefix(e.Err.Error(), "ottla: ")
	}
	return s
}

func (e *NoLeaderError) Unwrap() error       { return e.Err }
func (*NoLeaderError) MayHaveHappened() bool { return false }

// TooLargeError is a record that does not fit.
type TooLargeError struct {
	TopicPartition
	Size    int   // bytes of the record as it would be written
	Wire    int   // bytes after compression, 0 if it did not come to that
	Limit   int   // bytes allowed, 0 if the broker refused and did not say
	Refused error // the broker's code, nil if the client's own limit refused it
}

func (e *TooLargeError) Error() string {
	s := fmt.Sprintf("ottla: record of %d bytes for %s is too large", e.Size, e.TopicPartition)
	if e.Wire > 0 {
		s += fmt.Sprintf(" (%d bytes compressed)", e.Wire)
	}
	if e.Refused != nil {
		return s + ": refused by the broker: " + e.Refused.Error()
	}
	return s + fmt.Sprintf(": the limit of this client is %d bytes", e.Limit)
}

func (e *TooLargeError) Unwrap() error       { return e.Refused }
func (*TooLargeError) MayHaveHappened() bool { return false }

// DataLossError is a log that was cut below an offset that had been
// acknowledged or read.
type DataLossError struct {
	TopicPartition
	Position  Offset // where this client was
	Remaining Offset // up to where the log still agrees, -1 if not known
}

func (e *DataLossError) Error() string {
	if e.Remaining < 0 {
		return fmt.Sprintf("ottla: data of %s was lost before offset %d", e.TopicPartition, e.Position)
	}
	return fmt.Sprintf("ottla: data of %s was lost: position %d, the log agrees up to %d",
		e.TopicPartition, e.Position, e.Remaining)
}

// OutOfRangeError is a position outside of the log.
type OutOfRangeError struct {
	TopicPartition
	Position Offset
	Start    Offset // first offset of the log
	End      Offset // offset after the last record
}

func (e *OutOfRangeError) Error() string {
	return fmt.Sprintf("ottla: offset %d of %s is out of range: the log holds %d to %d",
		e.Position, e.TopicPartition, e.Start, e.End)
}

func (*OutOfRangeError) MayHaveHappened() bool { return false }

// UnreadableError is a record batch that is in the log and cannot be read: its
// checksum is wrong, or it cannot be decompressed, or its records make no sense.
// A consumer stops its partition there; a seek to Next goes on behind it.
type UnreadableError struct {
	TopicPartition
	Offset Offset // where reading stopped
	Next   Offset // the offset behind what cannot be read
	Err    error  // why
}

func (e *UnreadableError) Error() string {
	why := "no reason is known"
	if e.Err != nil {
		why = strings.TrimPrefix(e.Err.Error(), "ottla: ")
	}
	return fmt.Sprintf("ottla: %s cannot be read from offset %d (next offset %d): %s",
		e.TopicPartition, e.Offset, e.Next, why)
}

func (e *UnreadableError) Unwrap() error { return e.Err }

// MayHaveHappened is false: reading changes nothing.
func (*UnreadableError) MayHaveHappened() bool { return false }

// RecreatedError is a topic that was deleted and created again under its name.
type RecreatedError struct {
	Topic string
	Old   TopicID
	New   TopicID
}

func (e *RecreatedError) Error() string {
	return fmt.Sprintf("ottla: topic %s was deleted and created again (id %s is %s now)", e.Topic, e.Old, e.New)
}

func (*RecreatedError) MayHaveHappened() bool { return false }
