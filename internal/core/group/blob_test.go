package group

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/ottla/ottla/kafka"
)

// blob is what Java (kafka-clients 4.4.0) wrote or read.
type blob struct {
	Kind, Name string
	Version    *int16
	Hex        string
	Topics     []string
	UserData   string `json:"user_data"`
	Owned      []string
	Partitions []string
	Generation *int32
	Rack       *string
	Java       string // for bytes that nobody should write: accepted, or an error
}

func blobs(t testing.TB) []blob {
	t.Helper()
	data, err := os.ReadFile("testdata/blobs.json")
	if err != nil {
		t.Fatal(err)
	}
	var out []blob
	if err := json.Unmarshal(data, &out); err != nil || len(out) < 40 {
		t.Fatal(len(out), err)
	}
	return out
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	if s == "null" {
		return nil
	}
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestG10R18BlobsAreReadAndWrittenAsJavaDoes(t *testing.T) {
	for _, b := range blobs(t) {
		name := b.Kind + " " + b.Name
		wire := unhex(t, b.Hex)
		switch {
		case b.Kind == "subscription":
			checkSubscription(t, name, b, wire)
		case b.Kind == "assignment":
			checkAssignment(t, name, b, wire)
		}
	}
}

func checkSubscription(t *testing.T, name string, b blob, wire []byte) {
	s, err := ParseSubscription(wire)
	if b.Java != "" && !strings.HasPrefix(b.Java, "accepted") {
		if err == nil && (b.Name != "topic count -1" || len(s.Topics) > 0) { // null is no topic
			t.Errorf("%s: read as %+v, Java: %s", name, s, b.Java)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	rack := ""
	if b.Rack != nil {
		rack = *b.Rack
	}
	slices.SortFunc(s.Owned, kafka.TopicPartition.Compare)
	if !slices.Equal(s.Topics, b.Topics) || !slices.Equal(s.Owned, partitions(b.Owned)) || s.Rack != rack ||
		b.Generation != nil && s.Generation != *b.Generation {
		t.Errorf("%s: read as %+v, want %+v", name, s, b)
	}
	if b.Version == nil || *b.Version != blobVersion || b.Name == "generation -1, empty rack" {
		return
	}
	s.UserData = unhex(t, b.UserData)
	if got := s.Append(nil); !bytes.Equal(got, wire) {
		t.Errorf("%s: written\n%x, Java\n%x", name, got, wire)
	}
}

func checkAssignment(t *testing.T, name string, b blob, wire []byte) {
	tps, err := ParseAssignment(wire)
	if b.Java != "" && !strings.HasPrefix(b.Java, "accepted") && len(wire) > 0 {
		if err == nil {
			t.Errorf("%s: read as %v, Java: %s", name, tps, b.Java)
		}
		return
	}
	slices.SortFunc(tps, kafka.TopicPartition.Compare)
	if err != nil || !slices.Equal(tps, partitions(b.Partitions)) {
		t.Errorf("%s: read as %v, %v, want %v", name, tps, err, b.Partitions)
		return
	}
	if b.Version == nil || *b.Version != blobVersion || b.UserData != "null" {
		return
	}
	if got := AppendAssignment(nil, tps); !bytes.Equal(got, wire) {
		t.Errorf("%s: written\n%x, Java\n%x", name, got, wire)
	}
}

func TestG10StickyUserDataIsJavas(t *testing.T) {
	owned := partitions([]string{"a/0", "a/3", "b/1"})
	n := 0
	for _, b := range blobs(t) {
		if b.Kind != "user data" {
			continue
		}
		n++
		assignor, rest, _ := strings.Cut(b.Name, ",")
		generation := map[string]int32{"-1": -1, "0": 0, "31": 31}[rest[strings.LastIndexByte(rest, ' ')+1:]]
		wire := unhex(t, b.Hex)
		if got := stickyData(assignor, owned, generation); generation >= 0 && !bytes.Equal(got, wire) {
			t.Errorf("%s: written %x, Java %x", b.Name, got, wire)
		}
		old := Subscription{UserData: wire, Generation: NoGeneration, Owned: owned}
		tps, g := old.claim(assignor)
		if g != generation || !slices.Equal(tps, owned) {
			t.Errorf("%s: read as %v of %d", b.Name, tps, g)
		}
	}
	if n == 0 {
		t.Fatal("no vectors")
	}
}

func FuzzSubscription(f *testing.F) {
	for _, b := range blobs(f) {
		f.Add(unhex(f, b.Hex))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := ParseSubscription(data)
		if tps, err := ParseAssignment(data); err == nil && len(tps) > len(data) {
			t.Fatal("more partitions than bytes")
		}
		for _, a := range Assignors() {
			s.claim(a)
		}
		if err != nil {
			return
		}
		again, err := ParseSubscription(s.Append(nil))
		if err != nil || len(again.Topics) != len(s.Topics) || len(again.Owned) != len(s.Owned) {
			t.Fatalf("%+v was written as %+v, %v", s, again, err)
		}
	})
}
