package producer

import (
	"bytes"
	"encoding/hex"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// ours is the request with the same fields as one that was decoded.
func ours(in *kmsg.ProduceRequest) *produceRequest {
	r := &produceRequest{version: in.Version, acks: in.Acks, timeout: in.TimeoutMillis}
	for _, t := range in.Topics {
		name := t.Topic
		if in.Version >= idsProduce {
			name = hex.EncodeToString(t.TopicID[:])
		}
		for _, p := range t.Partitions {
			r.add(kafka.TopicPartition{Topic: name, Partition: p.Partition}, t.TopicID, p.Records)
		}
	}
	return r
}

// The bodies that Java 4.4.0 makes for every version, without the
// transactional id that this client does not send.
func TestK19ProduceBodyIsThatOfJavaInEveryVersion(t *testing.T) {
	data, err := os.ReadFile("testdata/bodies.tsv")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[int16]int{}
	for line := range strings.Lines(string(data)) {
		f := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if f[0] != "0" {
			continue
		}
		body, err := hex.DecodeString(f[7])
		version, err2 := strconv.Atoi(f[2])
		in := kmsg.NewPtrProduceRequest()
		in.SetVersion(int16(version))
		if err != nil || err2 != nil || in.ReadFrom(body) != nil || !bytes.Equal(in.AppendTo(nil), body) {
			t.Fatalf("version %d, %s: the vector does not decode", version, f[6])
		}
		in.TransactionID = nil
		seen[int16(version)]++
		if got, want := ours(in).AppendTo(nil), in.AppendTo(nil); !bytes.Equal(got, want) {
			t.Errorf("version %d, %s:\n% x\nwant\n% x", version, f[6], got, want)
		}
	}
	for v := int16(3); v <= idsProduce; v++ {
		if seen[v] != 2 {
			t.Errorf("%d bodies of version %d", seen[v], v)
		}
	}
}

func TestK19ProduceBodyIsTheOneThatJavasProducerSent(t *testing.T) {
	for _, c := range []struct {
		file    string
		at      int
		version int16
	}{{"00-Produce-v9-2", 37, 9}, {"00-Produce-v11-2", 37, 11}, {"00-Produce-v13-2", 29, 13}, {"00-Produce-v13-3", 29, 13}} {
		frame, err := os.ReadFile("testdata/" + c.file + ".req.bin")
		if err != nil {
			t.Fatal(err)
		}
		in := kmsg.NewPtrProduceRequest()
		in.SetVersion(c.version)
		if err := in.ReadFrom(frame[c.at:]); err != nil || in.TransactionID != nil {
			t.Fatalf("%s: %v, transactional id %v", c.file, err, in.TransactionID)
		}
		r := ours(in)
		if got := r.AppendTo(nil); !bytes.Equal(got, frame[c.at:]) {
			t.Errorf("%s:\n% x\nwant\n% x", c.file, got, frame[c.at:])
		}
		// Before 3.0 Java's default was acks 1.
		if r.timeout != int32(defaults(t).RequestTimeout.Milliseconds()) || r.acks != acksAll && c.version > 9 {
			t.Errorf("%s: Java's defaults are timeout %d ms and acks %d", c.file, r.timeout, r.acks)
		}
	}
}

func defaults(t *testing.T) Config {
	cfg, err := Config{}.withDefaults()
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func TestK19InitProducerIdBodyIsTheOneThatJavasIdempotentProducerSent(t *testing.T) {
	for file, at := range map[string]int{"22-InitProducerID-v5-1": 29, "22-InitProducerID-v5-3": 50} {
		frame, err := os.ReadFile("testdata/" + file + ".req.bin")
		if err != nil {
			t.Fatal(err)
		}
		req := identityRequest()
		req.SetVersion(5)
		if got := req.AppendTo(nil); !bytes.Equal(got, frame[at:]) {
			t.Errorf("%s: % x, want % x", file, got, frame[at:])
		}
	}
}

func TestK9ProduceNamesTopicsUnlessEachHasAnId(t *testing.T) {
	var r produceRequest
	r.add(kafka.TopicPartition{Topic: "a"}, kafka.TopicID{1}, []byte("x"))
	if v := r.MaxVersion(); v != 13 {
		t.Errorf("with ids up to version %d", v)
	}
	r.add(kafka.TopicPartition{Topic: "b"}, kafka.TopicID{}, []byte("x"))
	if v := r.MaxVersion(); v != 12 {
		t.Errorf("with one id missing up to version %d", v)
	}
}

// A connection that repeats a Produce by itself, and is then told 47 or 45, hides
// that the first copy may be in the log.
func TestP12NobodyBelowTheMachineRepeatsAProduce(t *testing.T) {
	if c := retry.ClassOfRequest(&produceRequest{}); c.Repeatable() {
		t.Errorf("a Produce is %v", c)
	}
}

// Copying a batch into the frame makes this fail.
func TestC36BatchesAreWrittenWhereTheyLie(t *testing.T) {
	a, b := []byte("first batch"), []byte("second batch")
	for version := int16(3); version <= idsProduce; version++ {
		r := &produceRequest{version: version, acks: -1}
		r.add(kafka.TopicPartition{Topic: "t", Partition: 1}, kafka.TopicID{1}, a)
		r.add(kafka.TopicPartition{Topic: "u", Partition: 2}, kafka.TopicID{2}, b)
		parts := r.AppendBuffers(net.Buffers{[]byte("header")})
		if string(parts[0]) != "header" || !bytes.Equal(slices.Concat(parts[1:]...), r.AppendTo(nil)) {
			t.Fatalf("version %d: the parts are not the body", version)
		}
		for _, wire := range [][]byte{a, b} {
			if !slices.ContainsFunc(parts, func(p []byte) bool { return len(p) == len(wire) && &p[0] == &wire[0] }) {
				t.Errorf("version %d: %q was copied", version, wire)
			}
		}
	}
}
