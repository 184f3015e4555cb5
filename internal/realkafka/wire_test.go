package realkafka

import (
	"bytes"
	"testing"
)

// FuzzSkipTags: whatever a peer sends for the tagged fields of a header, the
// rest is a part of it or there is an error.
func FuzzSkipTags(f *testing.F) {
	f.Add([]byte{0, 1, 2})
	f.Add([]byte{1, 0, 2, 9, 9, 7})
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Add([]byte{1, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01})
	f.Fuzz(func(t *testing.T, b []byte) {
		rest, err := skipTags(b)
		if err == nil && !bytes.HasSuffix(b, rest) {
			t.Errorf("%x leaves %x", b, rest)
		}
	})
}

func TestSkipTags(t *testing.T) {
	rest, err := skipTags([]byte{1, 0, 2, 9, 9, 7})
	if err != nil || !bytes.Equal(rest, []byte{7}) {
		t.Errorf("%x, %v", rest, err)
	}
	if _, err := skipTags([]byte{1, 0, 2, 9}); err == nil {
		t.Error("a cut header passes")
	}
}
