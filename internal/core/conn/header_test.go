package conn

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rows reads a table of testdata without its heading.
func rows(t testing.TB, name string) [][]string {
	t.Helper()
	f, err := os.Open("testdata/" + name)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out [][]string
	for s := bufio.NewScanner(f); s.Scan(); {
		out = append(out, strings.Split(s.Text(), "\t"))
	}
	if len(out) < 2 {
		t.Fatalf("%s is empty", name)
	}
	return out[1:]
}

func number(t testing.TB, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestC28HeadersAreThoseOfJava compares the header of every captured pair of
// API and version with the bytes that Java and the broker exchanged.
func TestC28HeadersAreThoseOfJava(t *testing.T) {
	for _, r := range rows(t, "headers.tsv") {
		key, version := int16(number(t, r[0])), int16(number(t, r[1]))
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		resp := req.ResponseKind()
		name := APIName(key) + " " + r[1]
		if got := RequestHeaderVersion(key, version, req.IsFlexible()); got != number(t, r[2]) {
			t.Errorf("%s: request header %d, want %s", name, got, r[2])
		}
		if got := ResponseHeaderVersion(key, resp.IsFlexible()); got != number(t, r[3]) {
			t.Errorf("%s: response header %d, want %s", name, got, r[3])
		}
		client := r[5]
		got, want := AppendHeader(nil, req, &client), unhex(t, r[7])
		if PutPrefix(got, len(got), int32(number(t, r[4]))); !bytes.Equal(got[4:], want[4:]) {
			t.Errorf("%s: header %x, want %x", name, got[4:], want[4:])
		}
		frame := unhex(t, r[8])
		body, err := Body(frame[4:], key, resp.IsFlexible())
		if err != nil || len(frame)-len(body) != number(t, r[9]) {
			t.Errorf("%s: the body begins at %d, want %s (%v)", name, len(frame)-len(body), r[9], err)
		}
	}
}

// B181: header 2 and 1 for flexible versions, but for the answers of ApiVersions
// and ControlledShutdown.
func TestB181C28EveryAPIHasItsHeaderVersions(t *testing.T) {
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		req := kmsg.RequestForKey(key)
		if req == nil {
			continue
		}
		for v := int16(0); v <= req.MaxVersion(); v++ {
			req.SetVersion(v)
			resp := req.ResponseKind()
			wantReq, wantResp := 1, 0
			if req.IsFlexible() {
				wantReq, wantResp = 2, 1
			}
			if key == 7 && v == 0 {
				wantReq = 0
			}
			if key == APIVersionsKey {
				wantResp = 0
			}
			if got := RequestHeaderVersion(key, v, req.IsFlexible()); got != wantReq {
				t.Errorf("%s %d: request header %d, want %d", APIName(key), v, got, wantReq)
			}
			if got := ResponseHeaderVersion(key, resp.IsFlexible()); got != wantResp {
				t.Errorf("%s %d: response header %d, want %d", APIName(key), v, got, wantResp)
			}
		}
	}
}

func TestC28AnAnswersTaggedFieldsAreSkipped(t *testing.T) {
	head := []byte{0, 0, 0, 9}
	for _, c := range []struct {
		tags string
		ok   bool
	}{
		{"00", true}, {"01" + "05" + "02" + "aabb", true}, {"02" + "0001ff" + "0100", true},
		{"", false}, {"01", false}, {"0100", false}, {"0100" + "7f", false}, {"ffffffff0f", false}, {"ffffffffffffffffff01", false},
		{"0100ffffffff0f", false},
	} {
		frame := append(append(bytes.Clone(head), unhex(t, c.tags)...), []byte("BODY")...)
		if !c.ok {
			frame = frame[:len(frame)-4]
		}
		body, err := Body(frame, 3, true)
		if (err == nil) != c.ok || c.ok && string(body) != "BODY" {
			t.Errorf("tags %q: body %q, error %v", c.tags, body, err)
		}
	}
	if _, err := Body([]byte{1, 2}, 3, false); err == nil {
		t.Error("a frame of two bytes has a body")
	}
}

func TestANullClientIDIsWrittenAsNull(t *testing.T) {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 1
	got, want := AppendHeader(nil, req, nil), unhex(t, "0000006e"+"00030001"+"00000001"+"ffff")
	if PutPrefix(got, len(got)+100, 1); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
}

// TestK19RequestsOfThisLayerAreThoseOfJava compares the body of each request
// that a connection makes with Java's at the same field values.
func TestK19RequestsOfThisLayerAreThoseOfJava(t *testing.T) {
	compared := map[int]int{}
	for _, r := range rows(t, "requests.tsv") {
		key, version, body := number(t, r[0]), int16(number(t, r[1])), unhex(t, r[3])
		req := made(t, int16(key), version, body)
		if req == nil {
			continue // fields that this layer never writes: see made
		}
		if got := req.AppendTo(nil); !bytes.Equal(got, body) {
			t.Errorf("%s %d %s: body %x, want %x", APIName(int16(key)), version, r[2], got, body)
		}
		compared[key]++
	}
	if compared[17] < 5 || compared[18] < 20 || compared[36] < 9 {
		t.Errorf("compared only %v", compared)
	}
}

// made makes the request of this layer with the field values of a body.
func made(t *testing.T, key, version int16, body []byte) kmsg.Request {
	want := kmsg.RequestForKey(key)
	want.SetVersion(version)
	if err := want.ReadFrom(body); err != nil {
		t.Fatal(err)
	}
	var req kmsg.Request
	switch w := want.(type) {
	case *kmsg.SASLHandshakeRequest:
		req = NewSASLHandshake(w.Mechanism)
	case *kmsg.SASLAuthenticateRequest:
		req = NewSASLAuthenticate(w.SASLAuthBytes)
	case *kmsg.ApiVersionsRequest:
		if w.ClusterID == nil && w.NodeID >= 0 {
			return nil // brokers refuse one without the other, and it is never written
		}
		id := Identity{Software: w.ClientSoftwareName, Version: w.ClientSoftwareVersion, Node: -1}
		if w.ClusterID != nil {
			id.ClusterID, id.Node = *w.ClusterID, 1
			if w.NodeID != 1 {
				id.Node = 1000
			}
		}
		made := NewAPIVersions(id, version)
		made.ClientSoftwareName, made.ClientSoftwareVersion = w.ClientSoftwareName, w.ClientSoftwareVersion
		req = made
	}
	req.SetVersion(version)
	return req
}
