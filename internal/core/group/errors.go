package group

import (
	"errors"
	"fmt"
	"strings"

	"github.com/ottla/ottla/kafka"
)

// LostError says that partitions went without the member having its say.
type LostError struct {
	Group  string
	Reason string // in words
	Err    error  // what the broker said, nil if it said nothing
}

func (e *LostError) Error() string {
	s := "ottla: group " + e.Group + ": the partitions are lost: " + e.Reason
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Unwrap is what the broker said.
func (e *LostError) Unwrap() error { return e.Err }

// MayHaveHappened is false: nothing was sent on behalf of the error.
func (*LostError) MayHaveHappened() bool { return false }

// MemberError ends a member for good.
type MemberError struct {
	Group  string
	Detail string // both sides' values, and what to do
	Err    error  // what the broker said
}

func (e *MemberError) Error() string {
	s := "ottla: group " + e.Group + ": "
	if e.Err != nil {
		s += e.Err.Error()
	}
	if e.Detail != "" {
		s += " (" + e.Detail + ")"
	}
	return s
}

// Unwrap is what the broker said.
func (e *MemberError) Unwrap() error { return e.Err }

// Is matches kafka.ErrFenced where another instance took the place.
func (e *MemberError) Is(target error) bool {
	var be *kafka.BrokerError
	return target == kafka.ErrFenced && errors.As(e.Err, &be) &&
		(be.Code == codeFencedInstance || be.Code == codeUnreleasedInstance)
}

// As gives a VersionError where the coordinator knows the consumer protocol and
// has it switched off (G21).
func (e *MemberError) As(target any) bool {
	v, ok := target.(**kafka.VersionError)
	var be *kafka.BrokerError
	if !ok || !errors.As(e.Err, &be) || be.Code != codeUnsupportedVersion {
		return false
	}
	*v = &kafka.VersionError{API: 68, Name: "ConsumerGroupHeartbeat", ClientMax: 1, BrokerMin: -1, BrokerMax: -1}
	return true
}

// MayHaveHappened is false: the broker refused.
func (*MemberError) MayHaveHappened() bool { return false }

type notDone string

func (e notDone) Error() string       { return string(e) }
func (notDone) MayHaveHappened() bool { return false }

var (
	errLeft     error = notDone("ottla: the member left the group")
	errNotOwned error = notDone("ottla: the partition is not this member's")
)

// The codes that the rules name.
const (
	codeCoordinatorLoading int16 = 14
	codeIllegalGeneration  int16 = 22
	codeInconsistent       int16 = 23
	codeInvalidGroup       int16 = 24
	codeUnknownMember      int16 = 25
	codeInvalidSession     int16 = 26
	codeRebalancing        int16 = 27
	codeUnsupportedVersion int16 = 35
	codeGroupNotFound      int16 = 69
	codeMemberIDRequired   int16 = 79
	codeGroupFull          int16 = 81
	codeFencedInstance     int16 = 82
	codeUnstable           int16 = 88
	codeFencedEpoch        int16 = 110
	codeUnreleasedInstance int16 = 111
	codeUnsupportedAssign  int16 = 112
	codeStaleEpoch         int16 = 113
	codeInvalidRegex       int16 = 128
)

// memberError explains a code that ends the member.
func (m *Machine) memberError(code int16, message *string) error {
	e := &MemberError{Group: m.cfg.Group, Err: kafka.CodeError(code, message)}
	switch code {
	case codeInconsistent:
		e.Detail = "this member offers the assignors " + strings.Join(m.cfg.Assignors, ", ") + " of protocol type " + protocolType
	case codeInvalidSession:
		e.Detail = fmt.Sprintf("this member asks for %v; see group.min.session.timeout.ms and group.max.session.timeout.ms of the broker", m.cfg.Session)
	case codeFencedInstance, codeUnreleasedInstance:
		e.Detail = "another member has the instance id " + m.cfg.InstanceID
	case codeUnsupportedAssign:
		e.Detail = "this member asks for the assignor " + m.cfg.ServerAssignor
	case codeInvalidRegex:
		e.Detail = "the pattern is " + m.pattern
	}
	return e
}

// permanent reports whether a failed request would fail again.
func permanent(err error) bool {
	var version *kafka.VersionError
	var auth *kafka.AuthError
	var long *kafka.EncodeError
	return errors.As(err, &version) || errors.As(err, &auth) || errors.As(err, &long)
}
