package cluster

import (
	"bytes"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/meta"

	"github.com/ottla/ottla/kafka"
)

// vector is the body of a request as Java writes it.
type vector struct {
	key, version int16
	from         string
	body         []byte
}

func vectors(t *testing.T) []vector {
	t.Helper()
	raw, err := os.ReadFile("testdata/requests.tsv")
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	for _, line := range strings.Split(strings.TrimSpace(string(raw)), "\n") {
		f := strings.Split(line, "\t")
		if strings.HasPrefix(line, "#") {
			continue
		}
		key, err1 := strconv.Atoi(f[0])
		version, err2 := strconv.Atoi(f[1])
		body, err3 := hex.DecodeString(f[3])
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatalf("bad line %q", line)
		}
		vs = append(vs, vector{int16(key), int16(version), f[2], body})
	}
	return vs
}

// decode reads a vector into the request of its API.
func (v vector) decode(t *testing.T) kmsg.Request {
	t.Helper()
	req := kmsg.RequestForKey(v.key)
	req.SetVersion(v.version)
	if err := req.ReadFrom(v.body); err != nil {
		t.Fatalf("API %d version %d (%s): %v", v.key, v.version, v.from, err)
	}
	return req
}

func (v vector) equal(t *testing.T, req kmsg.Request) {
	t.Helper()
	req.SetVersion(v.version)
	if got := req.AppendTo(nil); !bytes.Equal(got, v.body) {
		t.Errorf("%s version %d (%s):\n got %x\nwant %x", kmsg.NameForKey(v.key), v.version, v.from, got, v.body)
	}
}

// TestK19MetadataIsByteForByteJavas compares the refreshes that this layer
// makes with Java's of the same topics and flag.
func TestK19MetadataIsByteForByteJavas(t *testing.T) {
	seen := 0
	for _, v := range vectors(t) {
		if v.key != 3 || v.version < 1 {
			continue
		}
		java := v.decode(t).(*kmsg.MetadataRequest)
		refresh, ok := asRefresh(java)
		if !ok {
			continue // all topics, topic ids, authorized operations, or creation in a cluster refresh: never asked here
		}
		seen++
		v.equal(t, metadataRequest(refresh))
	}
	if seen < 10 {
		t.Errorf("only %d requests of Java's could be compared", seen)
	}
}

func asRefresh(java *kmsg.MetadataRequest) (meta.Refresh, bool) {
	r := meta.Refresh{Create: java.AllowAutoTopicCreation || java.Version < 4}
	if java.Topics == nil || java.IncludeTopicAuthorizedOperations || java.IncludeClusterAuthorizedOperations {
		return r, false
	}
	for _, t := range java.Topics {
		if t.Topic == nil || t.TopicID != [16]byte{} {
			return r, false
		}
		r.Topics = append(r.Topics, *t.Topic)
	}
	return r, len(r.Topics) > 0 || !java.AllowAutoTopicCreation
}

// TestK19AClusterRefreshNamesNoTopicsAndNeverAll holds the form that Java has
// no default for: an empty list, which is not null.
func TestK19AClusterRefreshNamesNoTopicsAndNeverAll(t *testing.T) {
	for version, want := range map[int16]string{1: "00000000", 4: "0000000000", 8: "00000000000000", 9: "0100000000", 11: "01000000", 13: "01000000"} {
		req := metadataRequest(meta.Refresh{Create: true})
		req.SetVersion(version)
		if got := hex.EncodeToString(req.AppendTo(nil)); got != want {
			t.Errorf("version %d: %s, want %s", version, got, want)
		}
	}
}

func TestK19FindCoordinatorIsByteForByteJavas(t *testing.T) {
	seen := 0
	for _, v := range vectors(t) {
		if v.key != 10 {
			continue
		}
		java := v.decode(t).(*kmsg.FindCoordinatorRequest)
		l := meta.Lookup{Kind: kafka.CoordinatorKind(java.CoordinatorType), Keys: java.CoordinatorKeys}
		if v.version < batchLookup {
			l.Keys = []string{java.CoordinatorKey}
		}
		if len(l.Keys) == 0 {
			continue // Java's default looks for nothing
		}
		seen++
		req, _ := lookupRequest(l)
		v.equal(t, req)
	}
	if seen < 10 {
		t.Errorf("only %d requests of Java's could be compared", seen)
	}
}

// TestK19TheWholeOfASplitRequestIsByteForByteJavas decodes Java's requests,
// splits them, and takes all parts together again: no field may be lost, and
// nullable lists stay what they are.
func TestK19TheWholeOfASplitRequestIsByteForByteJavas(t *testing.T) {
	seen := make(map[int16]int)
	for _, v := range vectors(t) {
		req := v.decode(t)
		for _, s := range splitsOf(req) {
			if s.len() == 0 {
				continue
			}
			if one, ok := s.(interface{ alone() bool }); ok && one.alone() && s.len() > 1 {
				continue // one request for each item
			}
			if asksNothing(req) {
				continue
			}
			at := make([]int, s.len())
			for i := range at {
				at[i] = i
			}
			seen[v.key]++
			v.equal(t, s.part(at))
		}
	}
	for _, key := range []int16{0, 1, 2, 9, 15, 21, 23, 24, 32, 33, 42, 44, 61, 65, 69, 77, 89, 90} {
		if seen[key] == 0 {
			t.Errorf("no request of %s was compared", kmsg.NameForKey(key))
		}
	}
}

func splitsOf(req kmsg.Request) []split {
	var out []split
	if s := splitByLeader(req); s != nil {
		out = append(out, s)
	}
	if s := splitByKey(req); s != nil {
		out = append(out, s)
	}
	if s := splitByResource(req); s != nil {
		out = append(out, s)
	}
	return out
}

// asksNothing reports whether a request lacks what would lead it to a broker:
// a topic without partitions, no group, no key.
func asksNothing(req kmsg.Request) bool {
	switch r := req.(type) {
	case *kmsg.ProduceRequest:
		for _, t := range r.Topics {
			if len(t.Partitions) == 0 {
				return true
			}
		}
	case *kmsg.OffsetFetchRequest:
		return r.Version >= 8 && len(r.Groups) == 0
	case *kmsg.FindCoordinatorRequest:
		return r.Version >= 4 && len(r.CoordinatorKeys) == 0
	}
	return false
}

// TestK19RequestsToEveryBrokerAreByteForByteJavas holds that a copy for one
// more broker is the same request, and that forms filled from one another
// change nothing at the version that has only one of them.
func TestK19RequestsToEveryBrokerAreByteForByteJavas(t *testing.T) {
	for _, v := range vectors(t) {
		req := v.decode(t)
		v.equal(t, copyOf(req))
		if !asksNothing(req) {
			v.equal(t, bothForms(req))
		}
	}
}
