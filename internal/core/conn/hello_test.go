package conn

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// helloAnswer is the body of an ApiVersions answer in the form of a version:
// a code and triples of key, minimum and maximum.
func helloAnswer(form, code int16, triples ...[3]int16) []byte {
	r := kmsg.NewPtrApiVersionsResponse()
	r.Version, r.ErrorCode = form, code
	for _, t := range triples {
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = t[0], t[1], t[2]
		r.ApiKeys = append(r.ApiKeys, k)
	}
	return r.AppendTo(nil)
}

// script is what a broker answers to each ApiVersions version.
type script map[int16][]byte

// run plays a script and gives the versions asked and how it ended.
func (s script) run(t *testing.T, h *Hello) (asked []int16, err error) {
	t.Helper()
	for req, ok := h.Request(); ok; req, ok = h.Request() {
		if len(asked) > 6 {
			t.Fatalf("no end: asked %v", asked)
		}
		asked = append(asked, req.Version)
		if err := h.OnAnswer(s[req.Version]); err != nil {
			return asked, err
		}
	}
	return asked, nil
}

func TestC12ApiVersionsErrorLowersTheVersion(t *testing.T) {
	good := [][3]int16{{3, 0, 12}, {18, 0, 3}}
	for _, c := range []struct {
		name  string
		s     script
		asked []int16
		code  error // nil: a table
	}{
		{"35 with key 18", script{5: helloAnswer(0, 35, [3]int16{18, 0, 3}), 3: helloAnswer(3, 0, good...)}, []int16{5, 3}, nil},
		{"35 with an empty array", script{5: helloAnswer(0, 35), 0: helloAnswer(0, 0, good...)}, []int16{5, 0}, nil},
		{"35 naming the version that was asked", script{5: helloAnswer(0, 35, [3]int16{18, 0, 5})}, []int16{5}, kerr.UnsupportedVersion},
		{"35 naming a higher one", script{5: helloAnswer(0, 35, [3]int16{18, 0, 9})}, []int16{5}, kerr.UnsupportedVersion},
		{"35 down every step", script{
			5: helloAnswer(0, 35, [3]int16{18, 0, 4}), 4: helloAnswer(0, 35, [3]int16{18, 0, 2}),
			2: helloAnswer(0, 35, [3]int16{18, 0, 1}), 1: helloAnswer(0, 35), 0: helloAnswer(0, 35),
		}, []int16{5, 4, 2, 1, 0}, kerr.UnsupportedVersion},
		{"35 with a whole table", script{5: helloAnswer(0, 35, good...), 3: helloAnswer(3, 0, good...)}, []int16{5, 3}, nil},
		{"only key 18 is no table", script{5: helloAnswer(5, 0, [3]int16{18, 0, 3}), 3: helloAnswer(3, 0, good...)}, []int16{5, 3}, nil},
		{"58 with a null array", script{5: {0, 58, 0xff, 0xff, 0xff, 0xff}}, []int16{5}, kerr.SaslAuthenticationFailed},
		{"58 in its own form", script{5: helloAnswer(5, 58)}, []int16{5}, kerr.SaslAuthenticationFailed},
		{"31 and nothing else", script{5: {0, 31}}, []int16{5}, kerr.ClusterAuthorizationFailed},
	} {
		h := NewHello(Identity{Software: "ottla", Version: "1", Node: -1}, maxHello)
		asked, err := c.s.run(t, h)
		if fmt.Sprint(asked) != fmt.Sprint(c.asked) || c.code == nil && err != nil || !errors.Is(err, c.code) {
			t.Errorf("%s: asked %v, ended with %v; want %v, %v", c.name, asked, err, c.asked, c.code)
		}
		if r, ok := h.Versions().Range(3); c.code == nil && (!ok || r.Max != 12) {
			t.Errorf("%s: no table", c.name)
		}
	}
}

// TestR6AListOfNothingIsNoTable is an empty list with code 0, at every version.
func TestR6AListOfNothingIsNoTable(t *testing.T) {
	h := NewHello(Identity{}, maxHello)
	asked, err := script{5: helloAnswer(5, 0), 0: helloAnswer(0, 0, [3]int16{18, 0, 0})}.run(t, h)
	var pe *kafka.ProtocolError
	if !errors.As(err, &pe) || len(asked) != 2 {
		t.Errorf("asked %v: %v", asked, err)
	}
}

func TestB026TheFormOfVersion0IsReadAfterVersion4(t *testing.T) {
	for name, body := range map[string][]byte{"key 18": helloAnswer(0, 35, [3]int16{18, 0, 3}), "empty array": helloAnswer(0, 35)} {
		h := NewHello(Identity{}, 4)
		if err := h.OnAnswer(body); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		want := map[string]int16{"key 18": 3, "empty array": 0}[name]
		if req, ok := h.Request(); !ok || req.Version != want {
			t.Errorf("%s: next asks %v, want version %d", name, req, want)
		}
	}
	if ResponseHeaderVersion(APIVersionsKey, true) != 0 {
		t.Error("a flexible ApiVersions answer has header version 1")
	}
}

func TestC12GarbageIsAProtocolError(t *testing.T) {
	for _, body := range [][]byte{nil, {0}, {0, 0, 0xff}, {0, 35, 0x7f, 0xff, 0xff, 0xff}} {
		err := NewHello(Identity{}, 5).OnAnswer(body)
		var pe *kafka.ProtocolError
		if !errors.As(err, &pe) && !errors.Is(err, kerr.UnsupportedVersion) {
			t.Errorf("body %x: %v", body, err)
		}
	}
}

// TestB028ResetsLowerTheVersionAndAreRememberedForAnHour also is C10's memory.
func TestB028ResetsLowerTheVersionAndAreRememberedForAnHour(t *testing.T) {
	var m HelloMemory
	var asked []int16
	for more := true; more; more = m.OnReset(begin, begin, asked[len(asked)-1]) {
		asked = append(asked, m.Version(begin))
		if len(asked) > 10 {
			t.Fatalf("no end: %v", asked)
		}
	}
	if fmt.Sprint(asked) != "[5 5 3 0]" {
		t.Errorf("a broker that resets everything was asked %v", asked)
	}
	if v := m.Version(begin); v != 5 {
		t.Errorf("the next round begins at %d", v)
	}
	m.OnReset(begin, begin, 5)
	m.OnReset(begin, begin, 5)
	m.OnSuccess(begin, m.Version(begin))
	for _, c := range []struct {
		at   time.Duration
		want int16
	}{{0, 3}, {time.Hour - 1, 3}, {time.Hour, 5}} {
		if v := m.Version(begin.Add(c.at)); v != c.want {
			t.Errorf("after %v: version %d, want %d", c.at, v, c.want)
		}
	}
	m = HelloMemory{}
	m.OnReset(begin, begin, 5)
	m.OnSuccess(begin, 5)
	m.OnReset(begin, begin, 5)
	if v := m.Version(begin); v != 5 {
		t.Errorf("two resets with a success between lowered the version to %d", v)
	}
}

// TestB028SocketsThatAreLostTogetherCountOnce has four lanes that dial at once
// while the broker restarts: one reset each says nothing about versions.
func TestB028SocketsThatAreLostTogetherCountOnce(t *testing.T) {
	var m HelloMemory
	lost := begin.Add(time.Second)
	for lane := range 4 {
		if !m.OnReset(lost, begin, 5) {
			t.Errorf("lane %d is to try no other socket", lane)
		}
	}
	if v := m.Version(lost); v != 5 {
		t.Errorf("the version went down to %d", v)
	}
	m.OnReset(lost.Add(time.Second), lost, 5)
	if v := m.Version(lost); v != 3 {
		t.Errorf("after a second round of resets the version is %d, want 3", v)
	}
	m.OnReset(lost.Add(2*time.Second), lost.Add(time.Second), 3)
	if m.OnReset(lost.Add(2*time.Second), begin, 5); m.Version(lost) != 0 {
		t.Errorf("a lane that comes late raised the version to %d", m.Version(lost))
	}
}

// TestB028AVersionThatWorksNoMoreIsForgotten has another broker behind the
// address within the hour: it resets at the version that is remembered.
func TestB028AVersionThatWorksNoMoreIsForgotten(t *testing.T) {
	for _, known := range []int16{3, 0} {
		var m HelloMemory
		m.OnSuccess(begin, known)
		m.OnReset(begin, begin, m.Version(begin))
		if v := m.Version(begin); v != 5 {
			t.Errorf("after a reset at %d, which was remembered, it is asked at %d", known, v)
		}
	}
}

func TestC12AUseDoesNotProlongTheMemory(t *testing.T) {
	var m HelloMemory
	m.OnSuccess(begin, 3)
	m.OnSuccess(begin.Add(50*time.Minute), 3)
	if v := m.Version(begin.Add(time.Hour)); v != 5 {
		t.Errorf("version %d an hour after it was learned", v)
	}
	m.OnSuccess(begin.Add(2*time.Hour), 3)
	if v := m.Version(begin.Add(3*time.Hour - 1)); v != 3 {
		t.Errorf("version %d within an hour of when it was learned again", v)
	}
}

func TestC11NameAndVersionFitTheProtocolsPattern(t *testing.T) {
	pattern := regexp.MustCompile(`^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$`)
	for in, want := range map[string]string{
		"ottla": "ottla", "v0.1.0": "v0.1.0", "(devel)": "devel", "v1.0+dirty": "v1.0-dirty", "": "unknown", "é": "unknown",
		"-x-": "x", "a b_c": "a-b-c", "...": "unknown",
	} {
		if got := Clean(in); got != want || !pattern.MatchString(got) {
			t.Errorf("%q became %q, want %q", in, got, want)
		}
	}
	req := NewAPIVersions(Identity{Software: "my app", Version: "1.0 beta"}, 3)
	if req.ClientSoftwareName != "my-app" || req.ClientSoftwareVersion != "1.0-beta" {
		t.Errorf("%q %q", req.ClientSoftwareName, req.ClientSoftwareVersion)
	}
}

func TestClusterAndNodeAreSentBothOrNeither(t *testing.T) {
	for _, c := range []struct {
		cluster string
		node    kafka.NodeID
		both    bool
	}{{"c", 1, true}, {"c", 0, true}, {"c", -1, false}, {"", 1, false}, {"", -1, false}} {
		req := NewAPIVersions(Identity{ClusterID: c.cluster, Node: c.node}, 5)
		if both, neither := req.ClusterID != nil && req.NodeID >= 0, req.ClusterID == nil && req.NodeID == -1; both != c.both || neither == c.both {
			t.Errorf("%q %d: cluster %v, node %d", c.cluster, c.node, req.ClusterID, req.NodeID)
		}
	}
}

// FuzzHello gives any bytes as the answer: no panic, and an end.
func FuzzHello(f *testing.F) {
	f.Add(int16(5), helloAnswer(5, 0, [3]int16{3, 0, 12}))
	f.Add(int16(4), helloAnswer(0, 35, [3]int16{18, 0, 3}))
	f.Add(int16(3), []byte{0, 58, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, version int16, body []byte) {
		if version < 0 || version > 5 {
			return
		}
		h := NewHello(Identity{}, version)
		last := version + 1
		for req, ok := h.Request(); ok; req, ok = h.Request() {
			if req.Version >= last {
				t.Fatalf("asked at %d after %d", req.Version, last)
			}
			last = req.Version
			if err := h.OnAnswer(body); err != nil {
				if strings.TrimSpace(err.Error()) == "" {
					t.Fatal("an error without words")
				}
				return
			}
		}
	})
}

// FuzzBody gives any bytes as a frame.
func FuzzBody(f *testing.F) {
	f.Add([]byte{0, 0, 0, 1, 0, 9}, true)
	f.Add([]byte{0, 0, 0, 1, 2, 0, 1, 0xff, 1, 0, 9}, true)
	f.Fuzz(func(t *testing.T, frame []byte, flexible bool) {
		body, err := Body(frame, 3, flexible)
		if err == nil && len(body) > len(frame)-4 {
			t.Fatal("the body is longer than the frame")
		}
	})
}
