package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

var codecs = []Codec{None, Gzip, Snappy, LZ4, Zstd}

// texts are bytes of several lengths that compress well, badly and not at all.
func texts() map[string][]byte {
	rng := rand.New(rand.NewPCG(3, 4))
	noise := make([]byte, 140_000)
	for i := range noise {
		noise[i] = byte(rng.Uint32())
	}
	words := new(bytes.Buffer)
	for words.Len() < 1_100_000 {
		fmt.Fprintf(words, "%d:%x;", rng.IntN(1000), rng.IntN(50))
	}
	m := map[string][]byte{"nothing": {}, "one": {'x'}, "noise": noise, "zeros": make([]byte, 200_000)}
	for _, n := range []int{10, 100, 1023, 65535, 65536, 65537, 131072, 1 << 20} {
		m[fmt.Sprintf("text %d", n)] = words.Bytes()[:n]
	}
	return m
}

// F20, P33: every codec at every level gives back what it was given, appended
// to what is there, by the same Compressor and Decompressor all along.
func TestF20_P33EveryCodecAndLevelBothWays(t *testing.T) {
	var c Compressor
	var d Decompressor
	all := texts()
	for _, codec := range codecs {
		lo, hi := codec.Levels()
		for _, level := range []int{0, lo - 3, lo, (lo + hi) / 2, hi, hi + 3} {
			for name, src := range all {
				if len(src) > 2000 && level != 0 && name != "text 65537" {
					continue // slow, and nothing new
				}
				wire, err := c.Compress([]byte("before"), codec, level, src)
				if err != nil || !strings.HasPrefix(string(wire), "before") {
					t.Fatalf("%v %d, %s: %v", codec, level, name, err)
				}
				limit := max(len(src), 1)
				got, err := d.Decompress([]byte("here"), codec, wire[len("before"):], limit)
				if err != nil || string(got[:4]) != "here" || !bytes.Equal(got[4:], src) {
					t.Fatalf("%v %d, %s: %d bytes, %v", codec, level, name, len(got)-4, err)
				}
			}
		}
	}
}

// F27: one byte less than the data is too little, for every codec and length,
// and what was there before stays.
func TestF27TheLimitIsExact(t *testing.T) {
	var c Compressor
	var d Decompressor
	all := texts()
	for _, codec := range codecs {
		for name, src := range all {
			if len(src) < 2 || len(src) > 200_000 {
				continue
			}
			wire, err := c.Compress(nil, codec, 0, src)
			if err != nil {
				t.Fatal(err)
			}
			dst := append(make([]byte, 0, 10+2*len(src)), "kept"...)
			for _, limit := range []int{1, len(src) / 2, len(src) - 1} {
				got, err := d.Decompress(dst, codec, wire, limit)
				var over *LimitError
				if !errors.As(err, &over) || over.Limit != limit || over.Codec != codec || string(got) != "kept" {
					t.Errorf("%v, %s of %d, limit %d: %v", codec, name, len(src), limit, err)
				}
			}
		}
	}
}

// F27: output goes to the room behind dst, if there is enough.
func TestF27OutputUsesTheRoomGiven(t *testing.T) {
	var c Compressor
	var d Decompressor
	src := texts()["text 131072"]
	for _, codec := range codecs {
		wire, err := c.Compress(nil, codec, 0, src)
		if err != nil {
			t.Fatal(err)
		}
		dst := make([]byte, 0, len(src)+1024)
		got, err := d.Decompress(dst, codec, wire, 0)
		if err != nil || &got[0] != &dst[:1][0] {
			t.Errorf("%v: the output lies elsewhere (%v)", codec, err)
		}
	}
}

// P33: with Bound bytes behind dst Compress uses dst's memory, however badly the
// bytes compress.
func TestP33BoundIsTheRoomThatCompressWants(t *testing.T) {
	var c Compressor
	all := texts()
	rng := rand.New(rand.NewPCG(5, 6))
	for _, n := range []int{2, 15, 16, 17, 255, 300_000, 1_100_000} {
		noise := make([]byte, n)
		for i := range noise {
			noise[i] = byte(rng.Uint32())
		}
		all[fmt.Sprint("noise ", n)] = noise
	}
	for _, codec := range codecs {
		for name, src := range all {
			dst := make([]byte, 5, 5+codec.Bound(len(src)))
			wire, err := c.Compress(dst, codec, 0, src)
			if err != nil || &wire[0] != &dst[0] {
				t.Errorf("%v, %s: %d bytes became %d, room for %d did not do", codec, name, len(src), len(wire)-5, codec.Bound(len(src)))
			}
		}
	}
}

// F22: a codec or a level that does not exist, and no bytes at all.
func TestF22UnknownCodecsAreTypedErrors(t *testing.T) {
	var e *Error
	for _, codec := range []Codec{-1, 5, 6, 7, 127} {
		if _, err := new(Decompressor).Decompress(nil, codec, []byte("x"), 0); !errors.As(err, &e) || e.Codec != codec {
			t.Errorf("decompress %v: %v", codec, err)
		}
		if _, err := new(Compressor).Compress(nil, codec, 0, []byte("x")); !errors.As(err, &e) || e.Codec != codec {
			t.Errorf("compress %v: %v", codec, err)
		}
		if codec.Valid() {
			t.Errorf("%v is valid", codec)
		}
	}
	for _, codec := range codecs {
		if got, err := new(Decompressor).Decompress([]byte("a"), codec, nil, 0); err != nil || string(got) != "a" {
			t.Errorf("nothing, by %v: %q, %v", codec, got, err)
		}
		if back, err := ParseCodec(strings.ToUpper(codec.String())); err != nil || back != codec {
			t.Errorf("%v parsed as %v, %v", codec, back, err)
		}
	}
	if _, err := ParseCodec("brotli"); err == nil || !strings.Contains(err.Error(), "zstd") {
		t.Errorf("brotli: %v", err)
	}
}

// F27: sizes that a codec announces reserve nothing.
func TestF27AnnouncedSizesAreHints(t *testing.T) {
	lies := map[string][]byte{}
	// A raw snappy block that claims 1 GiB.
	lies["snappy"] = append(binary.AppendUvarint(nil, 1<<30), make([]byte, 1000)...)
	// A zstd frame of one short block that claims 1 GiB, and one that claims it
	// in a window only.
	lies["zstd size"] = []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0, 0x40, 0x0d, 0, 0, 0x61}
	lies["zstd window"] = []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 0x25, 0, 0, 0x00, 0x00, 0x00, 0x00}
	// A zstd frame whose blocks could hold the 100 MiB that it claims, and are
	// junk.
	junk := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xa0, 0, 0, 0x40, 0x06}
	for range 799 {
		junk = append(junk, 1<<3|2<<1, 0, 0, 0xff)
	}
	lies["zstd blocks"] = append(junk, 1<<3|2<<1|1, 0, 0, 0xff)
	// An lz4 frame with a content size of 1 GiB and blocks of 4 MiB.
	head := []byte{0x68, 0x70, 0, 0, 0, 0x40, 0, 0, 0, 0}
	lies["lz4"] = append(append([]byte{0x04, 0x22, 0x4d, 0x18}, head...), byte(xxh32(head)>>8), 1, 0, 0, 0, 0, 0, 0, 0, 0)
	// A gzip member whose trailer says 4 GiB.
	var c Compressor
	z, _ := c.Compress(nil, Gzip, 0, []byte("hello"))
	copy(z[len(z)-4:], "\xff\xff\xff\xff")
	lies["gzip"] = z
	for name, src := range lies {
		codec, _, _ := strings.Cut(name, " ")
		want, _ := ParseCodec(codec)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := new(Decompressor).Decompress(nil, want, src, 1<<31-1)
		runtime.ReadMemStats(&after)
		var e *Error
		if !errors.As(err, &e) {
			t.Errorf("%s: %v", name, err)
		}
		if grew := after.TotalAlloc - before.TotalAlloc; grew > 1<<20 {
			t.Errorf("%s: %d bytes allocated for %d", name, grew, len(src))
		}
	}
}

// A frame that holds much more than its own length is read all the same, and
// must hold what it claims. Mutation: disclaim without exact.
func TestF20_F27ZstdFramesThatGrowALot(t *testing.T) {
	for _, n := range []int{100 << 10, 1 << 20, 5<<20 + 3} {
		for _, sum := range []bool{false, true} {
			e, err := zstd.NewWriter(nil, zstd.WithEncoderCRC(sum), zstd.WithSingleSegment(n < 1<<20))
			if err != nil {
				t.Fatal(err)
			}
			zeros := make([]byte, n)
			wire := e.EncodeAll(zeros, nil)
			var h zstd.Header
			if err := h.Decode(wire); err != nil || !h.HasFCS {
				t.Fatal("the frame does not say its size", err)
			}
			got, err := new(Decompressor).Decompress(nil, Zstd, wire, n)
			if err != nil || !bytes.Equal(got, zeros) {
				t.Errorf("%d bytes, checksum %v: %d, %v", n, sum, len(got), err)
			}
			var over *LimitError
			if _, err := new(Decompressor).Decompress(nil, Zstd, wire, n-1); !errors.As(err, &over) {
				t.Errorf("%d bytes: %v", n, err)
			}
			for _, claim := range []int{n - 1, n + 1} {
				lie := bytes.Clone(wire)
				binary.LittleEndian.PutUint32(lie[h.HeaderSize-4:], uint32(claim))
				var e *Error
				if _, err := new(Decompressor).Decompress(nil, Zstd, lie, 2*n); !errors.As(err, &e) {
					t.Errorf("%d bytes that claim to be %d: %v", n, claim, err)
				}
			}
		}
	}
}

// F27: data that announces truly that it is over the limit reserves nothing
// either.
func TestF27DataOverTheLimitCostsTheLimit(t *testing.T) {
	var c Compressor
	zeros := make([]byte, 40<<20)
	for _, codec := range codecs[1:] {
		wire, err := c.Compress(nil, codec, 0, zeros)
		if err != nil {
			t.Fatal(err)
		}
		for _, limit := range []int{1, 1 << 20} {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err = new(Decompressor).Decompress(nil, codec, wire, limit)
			runtime.ReadMemStats(&after)
			var over *LimitError
			if grew := after.TotalAlloc - before.TotalAlloc; !errors.As(err, &over) || grew > uint64(5*limit+1<<20) {
				t.Errorf("%v, limit %d: %d bytes allocated, %v", codec, limit, grew, err)
			}
		}
	}
}

// F22: an lz4 block longer than its frame allows, though all of it is there.
func TestF22LZ4BlockOverItsFramesSize(t *testing.T) {
	frame := append(binary.LittleEndian.AppendUint32(nil, lz4Magic), 0x60, 0x40, 0x82)
	frame = binary.LittleEndian.AppendUint32(frame, lz4Stored|70_000)
	frame = append(append(frame, make([]byte, 70_000)...), 0, 0, 0, 0)
	var e *Error
	if _, err := new(Decompressor).Decompress(nil, LZ4, frame, 0); !errors.As(err, &e) {
		t.Error(err)
	}
}

// lz4 frames are checked with xxHash; these are its published test values.
func TestXXH32(t *testing.T) {
	for in, want := range map[string]uint32{
		"": 0x02cc5d05, "a": 0x550d7456, "abc": 0x32d153ff, "Nobody inspects the spammish repetition": 0xe2293b2f,
	} {
		if got := xxh32([]byte(in)); got != want {
			t.Errorf("%q: %08x, want %08x", in, got, want)
		}
	}
}

// payloads calls add with the compressed payloads of the batches in the test
// data of package record.
func payloads(f *testing.F, add func(codec Codec, payload []byte)) {
	const header, attributes = 61, 22
	for _, folder := range []string{"codecs", "records-v2", "hostile"} {
		files, err := filepath.Glob(filepath.Join("..", "testdata", folder, "*.bin"))
		if err != nil || len(files) == 0 {
			f.Fatal("no test data ", err)
		}
		for _, file := range files {
			b, err := os.ReadFile(file)
			if err != nil {
				f.Fatal(err)
			}
			if len(b) > header && len(b) < 2500 {
				add(Codec(b[attributes]&7), b[header:])
			}
		}
	}
}

// F22, F27: any bytes, any codec: no panic, nothing over the limit, and the
// same again from a Decompressor that has been used.
func FuzzDecompress(f *testing.F) {
	payloads(f, func(codec Codec, payload []byte) { f.Add(byte(codec), payload, uint16(4000)) })
	var used Decompressor
	f.Fuzz(func(t *testing.T, codec byte, src []byte, limit uint16) {
		max := max(int(limit), 1)
		var fresh Decompressor
		got, err := fresh.Decompress([]byte("x"), Codec(codec), src, max)
		if len(got)-1 > max || got[0] != 'x' {
			t.Fatalf("%d bytes, the limit is %d", len(got)-1, max)
		}
		again, err2 := used.Decompress(make([]byte, 0, 100), Codec(codec), src, max)
		if (err == nil) != (err2 == nil) || err == nil && !bytes.Equal(got[1:], again) {
			t.Fatalf("%q, %v; by a used one %q, %v", got, err, again, err2)
		}
		var e *Error
		var over *LimitError
		if err != nil && !errors.As(err, &e) && !errors.As(err, &over) {
			t.Fatalf("%T: %v", err, err)
		}
	})
}

// P33: any bytes come back, and our output is one that our limits let through.
func FuzzCompress(f *testing.F) {
	f.Add(byte(1), 0, []byte("some text, some text, some text"))
	f.Add(byte(3), 9, []byte{})
	f.Add(byte(4), 3, bytes.Repeat([]byte("ab"), 1000))
	var c Compressor
	var d Decompressor
	f.Fuzz(func(t *testing.T, codec byte, level int, src []byte) {
		wire, err := c.Compress(nil, Codec(codec%5), level%12, src)
		if err != nil {
			t.Fatal(err)
		}
		got, err := d.Decompress(nil, Codec(codec%5), wire, max(len(src), 1))
		if err != nil || !bytes.Equal(got, src) {
			t.Fatalf("%d bytes of %d: %v", len(got), len(src), err)
		}
	})
}
