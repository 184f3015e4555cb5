package frame

import (
	"bytes"
	"errors"
	"io"
	"runtime"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func request(req kmsg.Request, version int16) []byte {
	req.SetVersion(version)
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("me")).AppendRequest(nil, req, 77)
}

func TestEveryRequestIsReadAtEveryVersion(t *testing.T) {
	for key := range int16(kmsg.MaxKey + 1) {
		req := kmsg.RequestForKey(key)
		if req == nil || key == int16(kmsg.ControlledShutdown) { // v0 has a header without client id
			continue
		}
		for v := range req.MaxVersion() + 1 {
			raw, err := Read(bytes.NewReader(request(req, v)), 1<<20, nil)
			if err != nil {
				t.Fatalf("%s v%d: %v", kmsg.NameForKey(key), v, err)
			}
			r, err := Parse(raw)
			if err != nil {
				t.Fatalf("%s v%d: %v", kmsg.NameForKey(key), v, err)
			}
			if r.Key != key || r.Version != v || r.Correlation != 77 || r.ClientID != "me" {
				t.Fatalf("%s v%d: %+v", kmsg.NameForKey(key), v, r)
			}
			if got := req.AppendTo(nil); !bytes.Equal(got, r.Body) {
				t.Fatalf("%s v%d: body %x, sent %x", kmsg.NameForKey(key), v, r.Body, got)
			}
			if _, err := r.Decode(); err != nil {
				t.Fatalf("%s v%d: %v", kmsg.NameForKey(key), v, err)
			}
		}
	}
}

func TestLengthReservesNoMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, prefix := range []string{"\x7f\xff\xff\xff", "\xff\xff\xff\xff", "\x00\x00\x00\x00", "\x00\x00\x00\x09", "HTTP"} {
		if _, err := Read(bytes.NewReader([]byte(prefix+"xx")), 1<<30, nil); err == nil {
			t.Errorf("%q passed", prefix)
		}
	}
	_, err := Read(bytes.NewReader([]byte("\x3f\xff\xff\xffxx")), 1<<30, nil)
	if err != io.ErrUnexpectedEOF {
		t.Error(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 4*step {
		t.Errorf("%d bytes were allocated for frames that never came", got)
	}
}

func TestNonsenseIsAnError(t *testing.T) {
	long := append(request(kmsg.NewPtrMetadataRequest(), 12)[4:14], 0xff)
	for name, raw := range map[string][]byte{
		"short":          []byte("\x00\x03"),
		"client id":      []byte("\x00\x03\x00\x01\x00\x00\x00\x01\x7f\xff"),
		"client id size": []byte("\x00\x03\x00\x01\x00\x00\x00\x01\xff\x00"),
		"tags":           long,
	} {
		if _, err := Parse(raw); !errors.Is(err, ErrFrame) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, r := range []Request{{Key: 12345}, {Key: 3, Version: -1}, {Key: 3, Version: 12, Body: []byte{0x7f}}, {Key: -1}} {
		if _, err := r.Decode(); !errors.Is(err, ErrFrame) {
			t.Errorf("%+v: %v", r, err)
		}
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(request(kmsg.NewPtrMetadataRequest(), 12))
	f.Add(request(kmsg.NewPtrProduceRequest(), 7))
	f.Add(request(kmsg.NewPtrFetchRequest(), 16))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, err := Read(bytes.NewReader(data), 1<<20, nil)
		if err != nil {
			return
		}
		if len(raw) > len(data) {
			t.Fatal("more than came")
		}
		r, err := Parse(raw)
		if err != nil {
			return
		}
		r.Decode()
	})
}
