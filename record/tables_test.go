package record

import (
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// table reads a file of tab-separated lines without its first line.
func table(t *testing.T, file string) (rows [][]string) {
	t.Helper()
	raw, err := os.ReadFile(filepath.Join("testdata", "tables", file))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(raw), "\n"), "\n") {
		if i > 0 {
			rows = append(rows, strings.Split(line, "\t"))
		}
	}
	if len(rows) == 0 {
		t.Fatal("no rows")
	}
	return rows
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// F21: the batch checksum is CRC-32C.
func TestF21ChecksumsAsJava(t *testing.T) {
	vectors(t, "tables")
	for _, row := range table(t, "crc.tsv") {
		if got := fmt.Sprintf("%08x", crc32.Checksum(unhex(t, row[1]), castagnoli)); got != row[2] {
			t.Errorf("%s: %s, want %s", row[0], got, row[2])
		}
	}
}

// P34: varints are written as Java writes them, and read back.
func TestP34VarintsAsJava(t *testing.T) {
	for _, row := range table(t, "varint.tsv") {
		want := unhex(t, row[2])
		v, err := strconv.ParseInt(row[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		u, back := uint64(v), int64(0)
		switch row[0] {
		case "varlong":
			u = zig64(v)
			r, n := uvarint64(want, 0)
			if back = unzig64(r); n != len(want) {
				t.Errorf("%v: read %d bytes", row, n)
			}
		case "varint":
			u = uint64(zig32(int32(v)))
			r, n := uvarint32(want, 0)
			if back = int64(unzig32(r)); n != len(want) {
				t.Errorf("%v: read %d bytes", row, n)
			}
		case "uvarint":
			r, n := uvarint32(want, 0)
			if back = int64(r); n != len(want) {
				t.Errorf("%v: read %d bytes", row, n)
			}
		default:
			t.Fatalf("kind %s", row[0])
		}
		if back != v {
			t.Errorf("%v: read %d", row, back)
		}
		got := make([]byte, 12)
		n := putUvarint(got, 0, u)
		if hex.EncodeToString(got[:n]) != row[2] || uvarintLen(u) != n {
			t.Errorf("%v: wrote %x, length %d", row, got[:n], uvarintLen(u))
		}
	}
}

// F22: malformed varints are errors where they are for Java, and overlong ones
// the same numbers.
func TestF22MalformedVarintsAsJava(t *testing.T) {
	for _, row := range table(t, "varint-malformed.tsv") {
		b := unhex(t, row[0])
		show := func(v int64, n int) string {
			if n < 0 {
				return "error"
			}
			return strconv.FormatInt(v, 10)
		}
		u32, n32 := uvarint32(b, 0)
		u64, n64 := uvarint64(b, 0)
		for i, got := range []string{show(int64(unzig32(u32)), n32), show(int64(u32), n32), show(unzig64(u64), n64)} {
			if want, _, _ := strings.Cut(row[i+1], " "); got != want {
				t.Errorf("%s, column %d: %s, want %s", row[0], i, got, want)
			}
		}
		left := -1
		if n32 >= 0 {
			left = len(b) - n32
		}
		if strconv.Itoa(left) != row[4] {
			t.Errorf("%s: %d bytes left, want %s", row[0], left, row[4])
		}
	}
}
