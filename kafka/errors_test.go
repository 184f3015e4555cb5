package kafka

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
)

// The three outcomes: only an error that proves that nothing happened may say so.
func TestMayHaveHappenedIsFalseOnlyForProof(t *testing.T) {
	for _, c := range []struct {
		name string
		err  error
		want bool
	}{
		{"dial", &DialError{Addr: "a:1", Err: io.EOF}, false},
		{"authentication", &AuthError{}, false},
		{"version", &VersionError{}, false},
		{"timeout in queue", &TimeoutError{Phase: PhaseQueue}, false},
		{"timeout in handshake", &TimeoutError{Phase: PhaseHandshake}, false},
		{"timeout in write", &TimeoutError{Phase: PhaseWrite}, true},
		{"timeout of the answer", &TimeoutError{Phase: PhaseAnswer}, true},
		{"socket lost before a byte", &ConnError{Err: io.EOF}, false},
		{"socket lost after a byte", &ConnError{Err: io.EOF, Written: 1}, true},
		{"protocol", &ProtocolError{}, true},
		{"rejected", CodeError(kerr.NotLeaderForPartition.Code, nil), false},
		{"unknown server error", CodeError(-1, nil), true},
		{"request timed out", CodeError(7, nil), true},
		{"not enough replicas after append", CodeError(20, nil), true},
		{"code unknown to kerr", CodeError(9999, nil), true},
		{"bare kerr value", kerr.NotController, false},
		{"bare kerr timeout", kerr.RequestTimedOut, true},
		{"fenced", ErrFenced, false},
		{"any other error", io.ErrUnexpectedEOF, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := MayHaveHappened(c.err); got != c.want {
				t.Errorf("MayHaveHappened(%v) = %v", c.err, got)
			}
			framed := fmt.Errorf("more: %w", &OpError{Op: "produce", Topic: "t", Partition: 1, Broker: 2, Err: c.err})
			if got := MayHaveHappened(framed); got != c.want {
				t.Errorf("framed in an OpError: MayHaveHappened = %v", got)
			}
			if !errors.Is(framed, c.err) {
				t.Error("the OpError hides what it frames")
			}
		})
	}
}

// Of joined errors, as of a commit of several partitions, the one that proves
// least decides, whatever their order.
func TestMayHaveHappenedOfJoinedErrorsIsThatOfEach(t *testing.T) {
	not := &OpError{Op: "commit", Err: &DialError{Addr: "a:1", Err: io.EOF}}
	may := &OpError{Op: "commit", Err: &ConnError{Err: io.EOF, Written: 1}}
	mute := errors.New("mute")
	for _, c := range []struct {
		err  error
		want bool
	}{
		{errors.Join(not, may), true}, {errors.Join(may, not), true}, {fmt.Errorf("%w, %w", not, fmt.Errorf("deep: %w", may)), true},
		{errors.Join(not, not), false}, {errors.Join(mute, not), false}, {errors.Join(not, mute), false}, {errors.Join(mute, mute), true},
		{errors.Join(kerr.NotController, kerr.RequestTimedOut), true},
	} {
		if got := MayHaveHappened(c.err); got != c.want {
			t.Errorf("MayHaveHappened(%v) = %v", c.err, got)
		}
	}
}

func TestBrokerErrorIsTheKerrValueOfItsCode(t *testing.T) {
	text := "no such topic here"
	err := CodeError(kerr.UnknownTopicOrPartition.Code, &text)
	if !errors.Is(err, kerr.UnknownTopicOrPartition) {
		t.Error("errors.Is does not find the kerr value")
	}
	if s := err.Error(); !strings.Contains(s, text) || !strings.Contains(s, "UNKNOWN_TOPIC_OR_PARTITION") {
		t.Errorf("message %q lacks the name or the broker's text", s)
	}
	if CodeError(0, nil) != nil {
		t.Error("code 0 is an error")
	}
}

// A code that kerr does not know must not pass for UNKNOWN_SERVER_ERROR.
func TestCodeOfFindsTheBrokersCode(t *testing.T) {
	inner := CodeError(3, nil)
	for err, want := range map[error]int16{
		inner: 3, &OpError{Op: "x", Broker: NoNode, Partition: -1, Err: inner}: 3, errors.New("lost"): 0, nil: 0,
	} {
		if got := CodeOf(err); got != want {
			t.Errorf("%v: %d, want %d", err, got, want)
		}
	}
}

func TestUnknownCodeMatchesNoKerrValue(t *testing.T) {
	err := CodeError(9999, nil)
	if errors.Is(err, kerr.UnknownServerError) {
		t.Error("code 9999 passes for -1")
	}
	if !strings.Contains(err.Error(), "9999") {
		t.Errorf("message %q hides the code", err)
	}
}

func TestVersionErrorSaysWhichSideIsOld(t *testing.T) {
	for _, c := range []struct {
		err  VersionError
		want string
	}{
		{VersionError{API: 1, Name: "Fetch", ClientMin: 4, ClientMax: 9, BrokerMin: 10, BrokerMax: 12}, "this client is too old"},
		{VersionError{API: 1, Name: "Fetch", ClientMin: 10, ClientMax: 12, BrokerMin: 4, BrokerMax: 9}, "the broker is too old"},
		{VersionError{API: 88, Name: "StreamsGroupHeartbeat", BrokerMin: -1, BrokerMax: -1}, "too old for this, or has it switched off"},
	} {
		if s := c.err.Error(); !strings.Contains(s, c.want) {
			t.Errorf("%q lacks %q", s, c.want)
		}
	}
}

func TestANestedErrorNamesTheLibraryOnce(t *testing.T) {
	inner := &UnreachableError{Addrs: []string{"b1:9092"}, Errs: []error{&DialError{Addr: "b1:9092", Err: io.EOF}}}
	for _, err := range []error{inner, &NoLeaderError{TopicPartition: TopicPartition{Topic: "t"}, Err: inner}, &OpError{Op: "x", Broker: NoNode, Err: inner}} {
		if s := err.Error(); strings.Count(s, "ottla: ") != 1 || !strings.HasPrefix(s, "ottla: ") {
			t.Errorf("%q", s)
		}
	}
}

func TestADialErrorSaysEverythingOnce(t *testing.T) {
	refused := errors.New("dial tcp 10.0.0.1:9092: connect: connection refused")
	late := &TimeoutError{Name: "ApiVersions", Addr: "b1:9092", Phase: PhaseAnswer, After: 1164784573}
	for want, err := range map[string]error{
		"ottla: dial b1:9092 (tried 10.0.0.1:9092): connect: connection refused":      &DialError{Addr: "b1:9092", Tried: []string{"10.0.0.1:9092"}, Err: refused},
		"ottla: dial b1:9092: ApiVersions: time ran out in phase answer after 1.165s": &DialError{Addr: "b1:9092", Err: late},
		"ottla: dial b1:9092: unknown reason":                                         &DialError{Addr: "b1:9092"},
	} {
		if err.Error() != want {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
}
