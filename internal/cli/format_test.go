package cli

import (
	"bytes"
	"errors"
	"testing"

	"github.com/ottla/ottla/kafka"
)

func sampleRecord() *kafka.Record {
	return &kafka.Record{
		Topic: "t", Partition: 3, Offset: 42, Timestamp: 1700000000000,
		Key: []byte("k"), Value: []byte("v v"),
		Headers: []kafka.Header{{Key: "a", Value: []byte("1")}, {Key: "b"}},
	}
}

func TestFormatsUseKcatsLettersAndTheEscapes(t *testing.T) {
	for format, want := range map[string]string{
		`%s\n`:                     "v v\n",
		`%t-%p@%o`:                 "t-3@42",
		`%k=%s`:                    "k=v v",
		`%K %S %T`:                 "1 3 1700000000000",
		`%h`:                       "a=1,b=NULL",
		`100%%`:                    "100%",
		`a\tb\\c\x00d\xFF\r`:       "a\tb\\c\x00d\xff\r",
		``:                         "",
		`ünïcode %s`:               "ünïcode v v",
		`%%s`:                      "%s",
		`%s%s`:                     "v vv v",
		"literal newline\nstays%k": "literal newline\nstaysk",
	} {
		f, err := parseFormat(format)
		if err != nil {
			t.Errorf("%q: %v", format, err)
			continue
		}
		if got := string(f.appendTo(nil, sampleRecord())); got != want {
			t.Errorf("%q: got %q, want %q", format, got, want)
		}
	}
	f, err := parseFormat("%K,%S,%k,%s,%h")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(f.appendTo(nil, &kafka.Record{})); got != "-1,-1,,," {
		t.Errorf("null: got %q", got)
	}
	if got := string(f.appendTo(nil, &kafka.Record{Key: []byte{}, Value: []byte{}})); got != "0,0,,," {
		t.Errorf("empty: got %q", got)
	}
}

func TestFormatsWithUnknownLettersAreUsageErrors(t *testing.T) {
	for _, format := range []string{`%`, `%x`, `%s %`, `\`, `\q`, `\x1`, `\xzz`, `%ü`} {
		_, err := parseFormat(format)
		var usage *usageError
		if !errors.As(err, &usage) {
			t.Errorf("%q: %v is no usage error", format, err)
		}
	}
}

func TestEscapes(t *testing.T) {
	for in, want := range map[string]string{`\t`: "\t", `\n`: "\n", `\r`: "\r", `\\`: `\`, `\x1e`: "\x1e", `\xFf`: "\xff", `a`: "a", ``: "", `\\n`: `\n`} {
		got, err := unescape(in)
		if err != nil || string(got) != want {
			t.Errorf("%q: got %q, %v", in, got, err)
		}
	}
	for _, in := range []string{`\`, `a\`, `\a`, `\x`, `\x0`, `\x-1`, `\0`} {
		if got, err := unescape(in); err == nil {
			t.Errorf("%q gave %q", in, got)
		}
	}
}

// escapeAll is the inverse of unescape.
func escapeAll(b []byte) string {
	var out bytes.Buffer
	for _, c := range b {
		out.WriteString(`\x`)
		out.WriteByte("0123456789abcdef"[c>>4])
		out.WriteByte("0123456789abcdef"[c&15])
	}
	return out.String()
}

func FuzzEscapes(f *testing.F) {
	for _, s := range []string{`a\tb`, `\x00\xff`, `\`, `\\`, `\xg0`, "\xff\\"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got, err := unescape(s)
		if err != nil {
			return
		}
		again, err := unescape(escapeAll(got))
		if err != nil || !bytes.Equal(again, got) {
			t.Fatalf("%q: %q, then %q, %v", s, got, again, err)
		}
	})
}

func FuzzFormat(f *testing.F) {
	for _, s := range []string{`%s\n`, `%t %p %o %k %K %S %T %h %%`, `%`, `%\n`, "%\xff", `\x`} {
		f.Add(s)
	}
	r := sampleRecord()
	f.Fuzz(func(t *testing.T, s string) {
		format, err := parseFormat(s)
		if err != nil {
			var usage *usageError
			if !errors.As(err, &usage) {
				t.Fatalf("%q: %v is no usage error", s, err)
			}
			return
		}
		for i, part := range format {
			if (part.letter == 0) != (len(part.literal) > 0) || part.letter == 0 && i > 0 && format[i-1].letter == 0 {
				t.Fatalf("%q: part %d is %+v", s, i, part)
			}
		}
		if a, b := format.appendTo(nil, r), format.appendTo([]byte("x"), r); string(a) != string(b[1:]) {
			t.Fatalf("%q: %q and %q", s, a, b)
		}
	})
}
