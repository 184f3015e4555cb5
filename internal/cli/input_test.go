package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/ottla/ottla/kafka"
)

// splitAll runs a splitter to its end.
func splitAll(s *splitter) (records []inputRecord, err error) {
	var c chunk
	for {
		err = s.read(&c)
		for _, r := range c.records {
			if r.data != nil {
				r.data = append([]byte{}, r.data...)
			}
			records = append(records, r)
		}
		if err != nil {
			return records, err
		}
	}
}

func TestInputIsCutAtTheDelimiter(t *testing.T) {
	for _, c := range []struct{ in, delim, want string }{
		{"a\nb\n", "\n", "a|b"},
		{"a\nb", "\n", "a|b"},
		{"", "\n", ""},
		{"\n", "\n", ""},
		{"\n\n", "\n", "|"},
		{"a::b:::c", "::", "a|b|:c"},
		{"a:", "::", "a:"},
		{"ababa", "aba", "|ba"},
		{"aab", "ab", "a"},
		{"x\r\ny\r\n", "\r\n", "x|y"},
	} {
		for name, in := range map[string]io.Reader{
			"whole":  strings.NewReader(c.in),
			"single": iotest.OneByteReader(strings.NewReader(c.in)),
			"eof":    iotest.DataErrReader(strings.NewReader(c.in)),
		} {
			records, err := splitAll(&splitter{in: in, delim: []byte(c.delim), limit: 100})
			var parts []string
			for i, r := range records {
				if r.line != int64(i+1) || r.size != int64(len(r.data)) || r.data == nil {
					t.Errorf("%q: %+v", c.in, r)
				}
				parts = append(parts, string(r.data))
			}
			if got := strings.Join(parts, "|"); !errors.Is(err, io.EOF) || got != c.want || c.in == "\n" && len(parts) != 1 {
				t.Errorf("%q cut at %q (%s): %q, %v", c.in, c.delim, name, got, err)
			}
		}
	}
}

func TestARecordOverTheLimitIsCountedAndDropped(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for _, end := range []string{"", "::", "::tail::"} {
		s := &splitter{in: strings.NewReader("a::" + long + end), delim: []byte("::"), limit: 1000}
		records, err := splitAll(s)
		if !errors.Is(err, io.EOF) || len(records) < 2 || records[1].data != nil || records[1].size != int64(len(long)) || records[1].line != 2 {
			t.Errorf("%q: %d records, %v", end, len(records), err)
		}
		if end == "::tail::" && (len(records) != 3 || string(records[2].data) != "tail" || records[2].size != 4) {
			t.Errorf("%q: %+v", end, records[1:])
		}
	}
}

// endless gives the same byte for ever, up to n bytes.
type endless struct{ n int64 }

func (e *endless) Read(b []byte) (int, error) {
	if e.n <= 0 {
		return 0, io.EOF
	}
	for i := range b {
		b[i] = 'x'
	}
	n := min(int64(len(b)), e.n)
	e.n -= n
	return int(n), nil
}

func TestALineOfAnySizeTakesBoundedMemory(t *testing.T) {
	s := &splitter{in: &endless{1 << 27}, delim: []byte("\n"), limit: 1 << 20}
	var c chunk
	if err := s.read(&c); !errors.Is(err, io.EOF) || len(c.records) != 1 || c.records[0].size != 1<<27 || c.records[0].data != nil {
		t.Errorf("%v, %d records", err, len(c.records))
	}
	if cap(c.buf) > 4<<20 {
		t.Errorf("the buffer grew to %d bytes", cap(c.buf))
	}
}

func TestAReadErrorComesAfterTheRecordsBeforeIt(t *testing.T) {
	boom := errors.New("boom")
	records, err := splitAll(&splitter{in: io.MultiReader(strings.NewReader("a\nb\nc"), iotest.ErrReader(boom)), delim: []byte("\n"), limit: 9})
	if !errors.Is(err, boom) || len(records) != 2 {
		t.Errorf("%d records, %v", len(records), err)
	}
}

func FuzzSplit(f *testing.F) {
	f.Add([]byte("a\nb"), []byte("\n"), uint16(10), byte(3))
	f.Add([]byte("a::b:::c"), []byte("::"), uint16(1), byte(1))
	f.Fuzz(func(t *testing.T, in, delim []byte, limit uint16, step byte) {
		if len(delim) == 0 || len(delim) > 8 {
			return
		}
		want := bytes.Split(in, delim)
		if last := len(want) - 1; len(want[last]) == 0 {
			want = want[:last]
		}
		s := &splitter{in: &slow{in, int(step)%7 + 1}, delim: delim, limit: int(limit)}
		records, err := splitAll(s)
		if !errors.Is(err, io.EOF) || len(records) != len(want) {
			t.Fatalf("%q at %q: %d records, want %d, %v", in, delim, len(records), len(want), err)
		}
		for i, r := range records {
			if r.size != int64(len(want[i])) || (r.data == nil) != (len(want[i]) > int(limit)) || r.data != nil && !bytes.Equal(r.data, want[i]) {
				t.Fatalf("%q at %q, limit %d: record %d is %s, want %q", in, delim, limit, i, fmt.Sprintf("%q (%d)", r.data, r.size), want[i])
			}
		}
	})
}

// slow gives a few bytes at a time.
type slow struct {
	data []byte
	step int
}

func (s *slow) Read(b []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.data[:min(s.step, len(s.data))])
	s.data = s.data[n:]
	return n, nil
}

func TestARecordThatIsNotReadNamesTheLimitOfTheCommand(t *testing.T) {
	_, err := new(writer).record(&inputRecord{size: mostRecord + 1})
	if err == nil || kafka.MayHaveHappened(err) || strings.Contains(err.Error(), "-X") ||
		!strings.Contains(err.Error(), "a record of 33554433 bytes is too large: `ottla produce` reads records of 33554432 bytes at most") {
		t.Error(err)
	}
}
