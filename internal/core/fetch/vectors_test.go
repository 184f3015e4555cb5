package fetch

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// frameVector is one request and its answer, and what Java reads in it.
type frameVector struct {
	Name           string
	Version        int16
	ReqHeader      int `json:"req_header"`
	RespHeader     int `json:"resp_header"`
	Error          int16
	Partitions     []partVector
	ResponseSHA256 string `json:"response_sha256"`
	RequestSHA256  string `json:"request_sha256"`
	req, resp      []byte
}

type partVector struct {
	Topic     string
	TopicID   string `json:"topic_id"`
	Partition int32
	Error     int16
	HW, LSO   kafka.Offset
	Aborted   [][2]int64
	Batches   []batchVector
}

// batchVector is [base, next, producer id, transactional, control type, count, digest].
type batchVector struct {
	base, next    kafka.Offset
	pid           int64
	transactional bool
	control       string
	count         int
	digest        string
}

func (b *batchVector) UnmarshalJSON(data []byte) error {
	var raw [7]any
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	b.base, b.next = kafka.Offset(raw[0].(float64)), kafka.Offset(raw[1].(float64))
	b.pid, b.transactional = int64(raw[2].(float64)), raw[3].(float64) == 1
	b.control, b.count, b.digest = raw[4].(string), int(raw[5].(float64)), raw[6].(string)
	return nil
}

func readVectors(t testing.TB) []frameVector {
	t.Helper()
	return append(readArchive(t, "fetch-frames"), readArchive(t, "fetch-old-frames")...)
}

func readArchive(t testing.TB, name string) (vs []frameVector) {
	t.Helper()
	f, err := os.Open("testdata/" + name + ".tar.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	zr, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for tr := tar.NewReader(zr); ; {
		h, err := tr.Next()
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if files[h.Name], err = io.ReadAll(tr); err != nil {
			t.Fatal(err)
		}
	}
	if err := json.Unmarshal(files["manifest.json"], &vs); err != nil {
		t.Fatal(err)
	}
	for i := range vs {
		v := &vs[i]
		v.req, v.resp = files[v.Name+".req.bin"], files[v.Name+".resp.bin"]
		if sum(v.req) != v.RequestSHA256 || sum(v.resp) != v.ResponseSHA256 {
			t.Fatalf("%s: the file is damaged", v.Name)
		}
	}
	return vs
}

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

// request is the body of the request frame.
func (v *frameVector) request(t testing.TB) *kmsg.FetchRequest {
	t.Helper()
	b := v.req[4+2+2+4:]
	b = b[2+binary.BigEndian.Uint16(b):] // client id
	if v.ReqHeader >= 2 {
		b = b[1:]
	}
	req := kmsg.NewPtrFetchRequest()
	req.Version = v.Version
	if err := req.ReadFrom(b); err != nil {
		t.Fatal(err)
	}
	return req
}

// answer is the body of the response frame, in memory of its own.
func (v *frameVector) answer(t testing.TB) *kmsg.FetchResponse {
	t.Helper()
	at := 8
	if v.RespHeader >= 1 {
		at++
	}
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = v.Version
	if err := resp.UnsafeReadFrom(append([]byte(nil), v.resp[at:]...)); err != nil {
		t.Fatal(err)
	}
	return resp
}

// name is what the test calls a topic: its id where frames have no names.
func (p *partVector) name() string {
	if p.TopicID != "" {
		return p.TopicID
	}
	return p.Topic
}

func idOf(t testing.TB, name string) (id kafka.TopicID) {
	t.Helper()
	b, err := base64.RawURLEncoding.DecodeString(name)
	if err != nil || len(b) != len(id) {
		t.Fatalf("topic id %q: %v", name, err)
	}
	copy(id[:], b)
	return id
}

// visible is what a reader at offset from must be given of p, by the rules, as
// offsets and digests of batches; the test keeps them in a list of its own.
func (p *partVector) visible(rc bool) (want []batchVector, end kafka.Offset) {
	end = -1
	for i, b := range p.Batches {
		end = b.next
		if b.control != "" || b.count == 0 {
			continue
		}
		if rc && b.transactional && p.isAborted(i) {
			continue
		}
		want = append(want, b)
	}
	return want, end
}

// isAborted looks for an aborted transaction around batch i: one of its
// producer that began at or below it, with no abort marker in between.
func (p *partVector) isAborted(i int) bool {
	b := p.Batches[i]
	for _, a := range p.Aborted {
		if a[0] != b.pid || kafka.Offset(a[1]) > b.base {
			continue
		}
		open := true
		for _, m := range p.Batches[:i] {
			if m.pid == b.pid && m.control == "ABORT" && m.base >= kafka.Offset(a[1]) {
				open = false
			}
		}
		if open {
			return true
		}
	}
	return false
}

func TestF10ToF18EveryCapturedAnswerIsReadAsJavaReadsIt(t *testing.T) {
	versions := map[int16]bool{}
	filtered := 0
	vs := readVectors(t)
	for i := range vs {
		v := &vs[i]
		versions[v.Version] = true
		t.Run(v.Name, func(t *testing.T) { filtered += v.run(t) })
	}
	if len(vs) != 163+54+56 || !versions[0] || !versions[18] {
		t.Errorf("%d vectors, versions %v", len(vs), versions)
	}
	if filtered < 50 {
		t.Errorf("only %d batches were filtered in all", filtered)
	}
}

// assign gives the machine the partitions of the answer, at the offsets that
// the request names.
func (v *frameVector) assign(t *testing.T, r *rig) map[kafka.TopicPartition]kafka.Offset {
	at, starts := map[kafka.TopicPartition]kafka.Offset{}, map[kafka.TopicPartition]Start{}
	infos := map[string]TopicInfo{}
	for _, rt := range v.request(t).Topics {
		name := rt.Topic
		if v.Version >= 13 {
			name = kafka.TopicID(rt.TopicID).String()
		}
		for _, rp := range rt.Partitions {
			at[tp(name, rp.Partition)] = kafka.Offset(rp.FetchOffset)
		}
	}
	for i := range v.Partitions {
		p := &v.Partitions[i]
		if _, ok := at[tp(p.name(), p.Partition)]; !ok { // named earlier in the session
			at[tp(p.name(), p.Partition)] = p.Batches[0].base
		}
	}
	for tp, o := range at {
		starts[tp] = AtOffset(o)
		ti := infos[tp.Topic]
		for len(ti.Partitions) <= int(tp.Partition) {
			ti.Partitions = append(ti.Partitions, PartitionInfo{Leader: 1, Epoch: 0})
		}
		if v.Version >= 13 {
			ti.ID = idOf(t, tp.Topic)
		}
		infos[tp.Topic] = ti
	}
	r.m.Assign(starts)
	r.step()
	r.settleLookups(infos)
	return at
}

func (v *frameVector) run(t *testing.T) (filtered int) {
	cfg := testConfig()
	rc := v.request(t).IsolationLevel == 1
	if !rc {
		cfg.Isolation = ReadUncommitted
	}
	if v.Version >= 4 && strings.HasPrefix(v.Name, "tx-r") && strings.HasPrefix(v.Name, "tx-rc") != rc {
		t.Fatal("the request's isolation level is not that of its name")
	}
	r := newRig(t, cfg)
	at := v.assign(t, r)
	a, ok := maybe[*FetchAction](r)
	if !ok {
		if len(at) > 0 {
			t.Fatal("no fetch went out")
		}
		return 0
	}
	r.m.OnFetch(r.now, a.ID, v.answer(t), nil)
	r.check()
	batches := map[kafka.TopicPartition][]string{}
	for {
		l, ok := r.m.Take(r.now)
		if !ok {
			break
		}
		payload, err := r.dec.Decode(l.Batch, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.m.Deliver(l)
		l.Release()
		for _, g := range recordsOf(l, payload) {
			if g.o < at[l.TopicPartition] {
				t.Errorf("offset %d is below the position", g.o)
			}
		}
		batches[l.TopicPartition] = append(batches[l.TopicPartition], digest(t, l.Batch, payload))
	}
	for i := range v.Partitions {
		p := &v.Partitions[i]
		want, end := p.visible(rc)
		filtered += len(p.Batches) - len(want)
		id := tp(p.name(), p.Partition)
		got := batches[id]
		if len(got) != len(want) {
			t.Fatalf("%s: %d batches, want %d", id, len(got), len(want))
		}
		for i := range want {
			if got[i] != want[i].digest {
				t.Errorf("%s: batch %d at %d differs from Java's reading", id, i, want[i].base)
			}
		}
		if end < 0 {
			end = at[id]
		}
		if p.Error == 0 && r.position(id) != end {
			t.Errorf("%s: position %d, want %d", id, r.position(id), end)
		}
		if p.Error != 0 && r.position(id) != at[id] {
			t.Errorf("%s: position %d moved by an error", id, r.position(id))
		}
	}
	// A broker does not convert zstd for versions 0 to 3, which is told (76).
	old := slices.ContainsFunc(v.Partitions, func(p partVector) bool { return p.Error == kerr.UnsupportedCompressionType.Code })
	if err := r.err(); errors.Is(err, kerr.UnsupportedCompressionType) != old || err != nil && !old {
		t.Errorf("the user sees %v", err)
	}
	return filtered
}

// digest is the manifest's digest of a batch.
func digest(t testing.TB, b record.Batch, payload []byte) string {
	t.Helper()
	h := sha256.New()
	field := func(b []byte) {
		n := int32(len(b))
		if b == nil {
			n = -1
		}
		_ = binary.Write(h, binary.BigEndian, n)
		h.Write(b)
	}
	var rd record.Reader
	var rec kafka.Record
	rd.Reset(b, payload)
	for rd.Next(&rec) {
		_ = binary.Write(h, binary.BigEndian, [2]int64{int64(rec.Offset), int64(rec.Timestamp)})
		field(rec.Key)
		field(rec.Value)
		_ = binary.Write(h, binary.BigEndian, int32(len(rec.Headers)))
		for _, hd := range rec.Headers {
			field([]byte(hd.Key))
			field(hd.Value)
		}
	}
	if err := rd.Err(); err != nil {
		t.Error(err)
	}
	return hex.EncodeToString(h.Sum(nil))
}

func TestVectorsAreAllUsed(t *testing.T) {
	kinds := map[string]int{}
	for _, v := range readVectors(t) {
		kind, _, ok := strings.Cut(v.Name, "-v")
		if !ok {
			t.Error(errors.New(v.Name))
		}
		kinds[kind]++
	}
	for _, k := range []string{"tx-rc", "tx-ru", "tx-rc-from-middle", "cut", "cut-header", "first-over-limit", "errors", "old-topics", "mixed-log-mixed"} {
		if kinds[k] == 0 {
			t.Error(fmt.Errorf("no vector of kind %s", k))
		}
	}
}
