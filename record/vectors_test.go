package record

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record/compress"
)

// vector is one file of a manifest.
type vector struct {
	File   string `json:"file"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
	Note   string `json:"note"`

	Expect *decoded `json:"expect"` // records-v2

	Java      *verdict `json:"java"`       // hostile, codecs
	RecordSet string   `json:"record_set"` // codecs: which records the bytes hold
	Digest    string   `json:"digest"`     // codecs: theirs

	data []byte
}

// decoded is what Kafka's reader made of a file.
type decoded struct {
	Batches  []wantBatch `json:"batches"`
	Consumed int         `json:"consumed"`
	Trailing int         `json:"trailing"`
}

// verdict is what Kafka's reader said of a file.
type verdict struct {
	Outcome  string      `json:"outcome"`
	Stage    string      `json:"stage"`
	Before   int         `json:"records_before"`
	Trailing int         `json:"trailing"`
	Batches  []wantBatch `json:"batches"`
}

type wantBatch struct {
	Pos           int          `json:"pos"`
	Size          int          `json:"size"`
	Magic         int8         `json:"magic"`
	BaseOffset    int64        `json:"base_offset"`
	LastOffset    int64        `json:"last_offset"`
	NextOffset    int64        `json:"next_offset"`
	Codec         string       `json:"codec"`
	TSType        string       `json:"ts_type"`
	BaseTS        int64        `json:"base_ts"`
	MaxTS         int64        `json:"max_ts"`
	CRC           string       `json:"crc"`
	LeaderEpoch   int32        `json:"leader_epoch"`
	PID           int64        `json:"pid"`
	Epoch         int16        `json:"epoch"`
	BaseSeq       int32        `json:"base_seq"`
	LastSeq       int32        `json:"last_seq"`
	Transactional bool         `json:"transactional"`
	Control       bool         `json:"control"`
	DeleteHorizon *int64       `json:"delete_horizon_ms"`
	Count         int          `json:"count"`
	Read          int          `json:"records_read"`
	Digest        string       `json:"digest"`
	Records       []wantRecord `json:"records"`
}

type wantRecord struct {
	Offset      int64               `json:"o"`
	Timestamp   int64               `json:"t"`
	Key         json.RawMessage     `json:"k"`
	Value       json.RawMessage     `json:"v"`
	Headers     [][]json.RawMessage `json:"h"`
	ControlType *string             `json:"control_type"`
}

// vectors reads the manifest of a folder and its files, and checks that they
// are what the manifest says.
func vectors(t testing.TB, folder string) []vector {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", folder, "manifest.json"))
	if err != nil {
		t.Fatal(err)
	}
	var vs []vector
	if err := json.Unmarshal(raw, &vs); err != nil {
		t.Fatal(err)
	}
	for i := range vs {
		vs[i].load(t, folder)
	}
	return vs
}

func (v *vector) load(t testing.TB, folder string) {
	t.Helper()
	if v.File == "" { // a description without a file
		return
	}
	data, err := os.ReadFile(filepath.Join("testdata", folder, v.File))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasSuffix(v.File, ".bin.gz") {
		z, err := gzip.NewReader(bytes.NewReader(data))
		if err != nil {
			t.Fatal(err)
		}
		if data, err = io.ReadAll(z); err != nil {
			t.Fatal(err)
		}
	}
	if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != v.SHA256 {
		t.Fatalf("%s/%s is damaged: sha256 %x, the manifest says %s", folder, v.File, sum, v.SHA256)
	}
	v.data = data
}

// all reads every record of a batch with Payload and Reader.
func all(b Batch, limit int) ([]kafka.Record, error) {
	if err := b.Verify(); err != nil {
		return nil, err
	}
	var d compress.Decompressor
	payload, err := b.Payload(&d, nil, limit)
	if err != nil {
		return nil, err
	}
	var r Reader
	var rec kafka.Record
	var recs []kafka.Record
	r.Reset(b, payload)
	for r.Next(&rec) {
		recs = append(recs, rec)
	}
	return recs, r.Err()
}

// digest is the digest of the manifests over records.
func digest(recs []kafka.Record) string {
	h := sha256.New()
	var n [8]byte
	number := func(v int64) { binary.BigEndian.PutUint64(n[:], uint64(v)); h.Write(n[:]) }
	length := func(v int) { binary.BigEndian.PutUint32(n[:], uint32(v)); h.Write(n[:4]) }
	text := func(b []byte) {
		if b == nil {
			length(-1)
			return
		}
		length(len(b))
		h.Write(b)
	}
	for i := range recs {
		r := &recs[i]
		number(int64(r.Offset))
		number(int64(r.Timestamp))
		text(r.Key)
		text(r.Value)
		length(len(r.Headers))
		for _, hd := range r.Headers {
			text(append([]byte{}, hd.Key...))
			text(hd.Value)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// checkHeader compares what a batch's header says.
func checkHeader(t *testing.T, b Batch, w *wantBatch) {
	t.Helper()
	check := func(name string, got, want any) {
		t.Helper()
		if got != want {
			t.Errorf("%s = %v, want %v", name, got, want)
		}
	}
	check("size", b.Size(), w.Size)
	check("message format", b.Magic(), w.Magic)
	check("last offset", int64(b.LastOffset()), w.LastOffset)
	check("next offset", int64(b.NextOffset()), w.NextOffset)
	check("codec", b.Codec().String(), w.Codec)
	check("timestamp type", b.TimestampType().String(), w.TSType)
	check("max timestamp", int64(b.MaxTimestamp()), w.MaxTS)
	check("crc", hex.EncodeToString(binary.BigEndian.AppendUint32(nil, b.CRC())), w.CRC)
	if w.Magic < 2 {
		checkOldHeader(t, b, w)
		return
	}
	check("base offset", int64(b.BaseOffset()), w.BaseOffset)
	check("base timestamp", int64(b.FirstTimestamp()), w.BaseTS)
	check("leader epoch", int32(b.LeaderEpoch()), w.LeaderEpoch)
	check("producer id", int64(b.ProducerID()), w.PID)
	check("producer epoch", int16(b.ProducerEpoch()), w.Epoch)
	check("base sequence", b.BaseSequence(), w.BaseSeq)
	check("last sequence", b.LastSequence(), w.LastSeq)
	check("transactional", b.Transactional(), w.Transactional)
	check("control", b.Control(), w.Control)
	check("count", b.Count(), w.Count)
	at, ok := b.DeleteHorizon()
	check("has delete horizon", ok, w.DeleteHorizon != nil)
	if ok && w.DeleteHorizon != nil {
		check("delete horizon", int64(at), *w.DeleteHorizon)
	}
}

// checkRecords compares a batch's records by digest.
func checkRecords(t *testing.T, b Batch, w *wantBatch) []kafka.Record {
	t.Helper()
	recs, err := all(b, 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(recs) != w.Read {
		t.Fatalf("%d records, want %d", len(recs), w.Read)
	}
	if got := digest(recs); got != w.Digest {
		for i := range min(len(recs), len(w.Records)) {
			t.Logf("record %d: %d @%d %x = %x %v, want %+v", i, recs[i].Offset, recs[i].Timestamp, recs[i].Key, recs[i].Value, recs[i].Headers, w.Records[i])
		}
		t.Fatalf("digest %s, want %s", got, w.Digest)
	}
	return recs
}

// Every buffer that Kafka's own builder and log cleaner made, every message set
// of Kafka's older clients and broker (F18), and every log segment of a broker,
// written by the clients of five projects: headers, records by digest, where the
// position goes (F15), log append time (F19), control batches (F13), cut tails
// (F16), codecs (F20), CRC (F21).
func TestF13_F15_F16_F18_F19_F20_F21JavaReadsTheSame(t *testing.T) {
	for folder, files := range map[string]int{"records-v2": 92, "records-legacy": 76, "segments": 55} {
		vs := vectors(t, folder)
		if len(vs) != files {
			t.Errorf("%s: %d files, want %d", folder, len(vs), files)
		}
		for i := range vs {
			t.Run(folder+"/"+vs[i].File, vs[i].read)
		}
	}
}

// read compares what Next and Reader make of a file with what Kafka's reader did.
func (v *vector) read(t *testing.T) {
	rest := v.data
	for i := range v.Expect.Batches {
		w := &v.Expect.Batches[i]
		if pos := len(v.data) - len(rest); pos != w.Pos {
			t.Fatalf("batch %d at %d, want %d", i, pos, w.Pos)
		}
		b, more, err := Next(rest)
		if err != nil || b.IsZero() {
			t.Fatalf("batch %d: %v", i, err)
		}
		checkHeader(t, b, w)
		recs := checkRecords(t, b, w)
		for k := range recs {
			if recs[k].TimestampType.String() != w.TSType || recs[k].LeaderEpoch != b.LeaderEpoch() {
				t.Errorf("record %d: %v, leader epoch %d", k, recs[k].TimestampType, recs[k].LeaderEpoch)
			}
		}
		if n := b.CountIn(payloadOf(t, b)); n != w.Read {
			t.Errorf("batch %d: %d records counted, want %d", i, n, w.Read)
		}
		checkMarkers(t, b, w)
		rest = more
	}
	if b, _, err := Next(rest); err != nil || !b.IsZero() {
		t.Errorf("behind the last batch: %v, %v", b, err)
	}
	if len(rest) != v.Expect.Trailing || len(v.data)-len(rest) != v.Expect.Consumed {
		t.Errorf("%d bytes left, want %d", len(rest), v.Expect.Trailing)
	}
}

// checkOldHeader compares what a message of format 0 or 1 says besides.
func checkOldHeader(t *testing.T, b Batch, w *wantBatch) {
	t.Helper()
	base, count := w.BaseOffset, 1
	if w.Codec != "none" { // what Kafka's reader says is from within
		base, count = -1, -1
	}
	if int64(b.BaseOffset()) != base || b.Count() != count {
		t.Errorf("base offset %d and %d records, want %d and %d", b.BaseOffset(), b.Count(), base, count)
	}
	if b.ProducerID() != -1 || b.ProducerEpoch() != -1 || b.BaseSequence() != -1 || b.LastSequence() != -1 ||
		b.LeaderEpoch() != kafka.NoEpoch || b.Transactional() || b.Control() {
		t.Error("the message claims a producer, a leader epoch or a transaction")
	}
	if _, ok := b.DeleteHorizon(); ok || b.FirstTimestamp() != b.MaxTimestamp() {
		t.Error("the message claims a delete horizon or a second timestamp")
	}
}

// checkMarkers compares the type of the first control record.
func checkMarkers(t *testing.T, b Batch, w *wantBatch) {
	t.Helper()
	if !b.Control() || len(w.Records) == 0 {
		return
	}
	typ, err := b.Marker(payloadOf(t, b))
	got := strings.ReplaceAll(strings.ToUpper(typ.String()), " ", "_")
	if strings.HasPrefix(got, "CONTROL_TYPE_") {
		got = "UNKNOWN"
	}
	if err != nil || got != *w.Records[0].ControlType {
		t.Errorf("marker %s, %v, want %s", got, err, *w.Records[0].ControlType)
	}
}
