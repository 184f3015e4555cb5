package streams

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// vector is one captured join of a Java member and its answer.
type vector struct {
	Group, Client, What string
	Key, Version        int16
	Request, Response   string
	Topology            string
}

func (v vector) bytes(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func (v vector) join(t testing.TB) *kmsg.StreamsGroupHeartbeatRequest {
	t.Helper()
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version = v.Version
	if err := req.ReadFrom(v.bytes(t, v.Request)); err != nil {
		t.Fatal(err)
	}
	return req
}

func topologyVectors(t testing.TB) map[string]vector {
	t.Helper()
	files, err := filepath.Glob("testdata/vectors/*.json")
	if err != nil || len(files) != 15 {
		t.Fatalf("%d vectors of 15, %v", len(files), err)
	}
	out := map[string]vector{}
	for _, f := range files {
		raw, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var v vector
		if err := json.Unmarshal(raw, &v); err != nil {
			t.Fatal(err)
		}
		out[strings.TrimSuffix(filepath.Base(f), ".json")] = v
	}
	return out
}

// scrambled is a topology as a program might build it: nothing in the order of
// the wire.
func scrambled(t Topology) Topology {
	out := Topology{Epoch: t.Epoch}
	for i := range t.Subtopologies {
		s := t.Subtopologies[len(t.Subtopologies)-1-i]
		n := Subtopology{
			ID: s.ID, Sources: backwards(s.Sources), RepartitionSinks: backwards(s.RepartitionSinks),
			Repartitions: backwards(s.Repartitions), Changelogs: backwards(s.Changelogs),
		}
		for _, g := range backwards(s.CopartitionGroups) {
			n.CopartitionGroups = append(n.CopartitionGroups, backwards(g))
		}
		out.Subtopologies = append(out.Subtopologies, n)
	}
	return out
}

func backwards[T any](s []T) []T {
	var out []T
	for i := range s {
		out = append(out, s[len(s)-1-i])
	}
	return out
}

// wireBytes are a topology's bytes in a request that holds nothing else.
func wireBytes(t *kmsg.StreamsGroupHeartbeatRequestTopology) []byte {
	req := kmsg.NewPtrStreamsGroupHeartbeatRequest()
	req.Version, req.Topology = 1, t
	return req.AppendTo(nil)
}

// The group's topology is compared byte for byte: with a hash that is off by one
// bucket a Go member is refused in a group of Java members.
func TestC17JavaOrderGivesJavasBytes(t *testing.T) {
	reordered := 0
	for name, v := range topologyVectors(t) {
		t.Run(name, func(t *testing.T) {
			req := v.join(t)
			built := scrambled(ReadTopology(req.Topology))
			built.JavaOrder = true
			canon, err := built.Canonical()
			if err != nil {
				t.Fatal(err)
			}
			got := wireBytes(canon.Wire())
			if want := v.bytes(t, v.Topology); !bytes.Contains(got, want) {
				t.Errorf("other bytes than Java:\n got %x\nwant %x", got, want)
			}
			req.Topology = canon.Wire()
			if whole := req.AppendTo(nil); !bytes.Equal(whole, v.bytes(t, v.Request)) {
				t.Error("the whole request differs from Java's")
			}
			built.JavaOrder = false
			if canon, err = built.Canonical(); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(wireBytes(canon.Wire()), got) {
				reordered++
			}
		})
	}
	if reordered < 2 {
		t.Errorf("only %d vectors tell Java's order from the sorted one", reordered)
	}
}

func lifecycle(t testing.TB) []vector {
	t.Helper()
	f, err := os.Open("testdata/vectors/lifecycle.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []vector
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var v vector
		if err := json.Unmarshal(lines.Bytes(), &v); err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	if len(out) != 103 {
		t.Fatalf("%d pairs of 103", len(out))
	}
	return out
}

// TestCapturedPairsAreReadAndWrittenAlike decodes all life-cycle pairs and
// writes them again.
func TestCapturedPairsAreReadAndWrittenAlike(t *testing.T) {
	for i, v := range lifecycle(t) {
		req := kmsg.RequestForKey(v.Key)
		req.SetVersion(v.Version)
		if err := req.ReadFrom(v.bytes(t, v.Request)); err != nil {
			t.Fatalf("%d %s: %v", i, v.What, err)
		}
		if got := req.AppendTo(nil); !bytes.Equal(got, v.bytes(t, v.Request)) {
			t.Errorf("%d %s: other request bytes", i, v.What)
		}
		resp := req.ResponseKind()
		if err := resp.ReadFrom(v.bytes(t, v.Response)); err != nil {
			t.Fatalf("%d %s: %v", i, v.What, err)
		}
		if got := resp.AppendTo(nil); !bytes.Equal(got, v.bytes(t, v.Response)) {
			t.Errorf("%d %s: other answer bytes", i, v.What)
		}
	}
}
