package cli

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/ottla/ottla/kafka"
)

func TestRecordsAsJSON(t *testing.T) {
	r := sampleRecord()
	want := `{"topic":"t","partition":3,"offset":42,"timestamp":1700000000000,"key":"k","value":"v v","headers":[["a","1"],["b",null]]}`
	if got := string(appendJSONRecord(nil, r)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	r = &kafka.Record{Topic: "t", Value: []byte{0xff, 0}, Headers: []kafka.Header{{Key: "\xfe", Value: []byte{}}}}
	want = `{"topic":"t","partition":0,"offset":0,"timestamp":0,"key":null,"value":{"base64":"/wA="},"headers":[[{"base64":"/g=="},""]]}`
	if got := string(appendJSONRecord(nil, r)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

func TestJSONRecordsComeBackAsTheyWere(t *testing.T) {
	for _, r := range []kafka.Record{
		*sampleRecord(),
		{Value: nil},
		{Key: []byte{}, Value: []byte{}},
		{Key: []byte("\x00\x1f\"\\\x7f<>&\u2028ü"), Value: []byte{0xff, 0xfe}},
		{Value: []byte("v"), Headers: []kafka.Header{{Key: ""}, {Key: "\xff", Value: []byte{0xff}}, {Key: "a", Value: []byte{}}, {Key: "a"}}},
	} {
		line := appendJSONRecord(nil, &r)
		got, err := parseJSONRecord(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		r.Topic, r.Offset = "", 0
		if diff := cmp.Diff(r, got); diff != "" {
			t.Errorf("%s: %s", line, diff)
		}
	}
}

func TestJSONRecordsThatWouldLoseDataAreRefused(t *testing.T) {
	for line, want := range map[string]string{
		`{"vaule":"x"}`:                   `unknown field "vaule"`,
		`{"key":"k"}`:                     `"value" is missing`,
		`{"value":1}`:                     "bytes are a string",
		`{"value":{"base64":"?"}}`:        "base64",
		`{"value":{"bas64":"aa"}}`:        "unknown field",
		`{"value":{}}`:                    `needs "base64"`,
		`{"value":"a"} {"value":"b"}`:     "something follows",
		`{"value":"a"`:                    "no end",
		``:                                "no end",
		`[]`:                              `expected an object such as {"value":"…"}, not array`,
		`7`:                               "not number",
		`{"value":"a","partition":"x"}`:   `"partition" cannot be string`,
		`{"value":"a","headers":[["n"]]}`: "a header is",
		`{"value":"a","headers":[["n","v","w"]]}`:  "a header is",
		`{"value":"a","headers":[[null,"v"]]}`:     "a header is",
		`{"value":"a","partition":-2}`:             "below zero",
		"{\"value\":\"\xff\"}":                     "not UTF-8",
		`{"value":"a","timestamp":"now"}`:          "timestamp",
		`{"value":"a","partition":99999999999999}`: "partition",
	} {
		_, err := parseJSONRecord([]byte(line))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

func FuzzJSONRecord(f *testing.F) {
	f.Add([]byte(`{"value":"a","key":null,"headers":[["a",{"base64":"AA=="}]]}`), []byte("v"))
	f.Add([]byte(`{"topic":"t","partition":3,"offset":42,"timestamp":-1,"key":"k","value":null,"headers":null}`), []byte{0xff})
	f.Add([]byte(`{"value":"\ud800"}`), []byte{})
	f.Fuzz(func(t *testing.T, line, value []byte) {
		// What parses is printed in a form that parses to the same.
		if r, err := parseJSONRecord(line); err == nil {
			if r.Partition < 0 {
				r.Partition = 0
			}
			again, err := parseJSONRecord(appendJSONRecord(nil, &r))
			if err != nil || !cmp.Equal(r, again) && len(r.Headers)+len(again.Headers) > 0 {
				t.Fatalf("%q: %v: %s", line, err, cmp.Diff(r, again))
			}
		}
		// Any bytes come back.
		r := kafka.Record{Topic: "t", Key: value, Value: value, Headers: []kafka.Header{{Key: string(value), Value: value}}}
		out := appendJSONRecord(nil, &r)
		if !json.Valid(out) || bytes.ContainsAny(out, "\n\r") {
			t.Fatalf("%q is not one line of JSON", out)
		}
		got, err := parseJSONRecord(out)
		if err != nil || !bytes.Equal(got.Value, value) || !bytes.Equal(got.Key, value) || got.Headers[0].Key != string(value) {
			t.Fatalf("%q came back as %+v, %v", value, got, err)
		}
	})
}
