package compress

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/pierrec/lz4/v4"
)

// mixed is n bytes, half of which compress.
func mixed(n int) []byte {
	rng := rand.New(rand.NewPCG(uint64(n), 1))
	b := make([]byte, n)
	for i := range b {
		if b[i] = 'a'; i%32 < 16 {
			b[i] = byte(rng.Uint32())
		}
	}
	return b
}

// reads fails unless src decompresses to want.
func reads(t *testing.T, codec Codec, src, want []byte) {
	t.Helper()
	got, err := new(Decompressor).Decompress(nil, codec, src, 0)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%d bytes, want %d: %v", len(got), len(want), err)
	}
}

// refuses fails unless src is refused with an Error, and without an allocation
// of a size that it announces.
func refuses(t *testing.T, codec Codec, src []byte) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	got, err := new(Decompressor).Decompress(nil, codec, src, math.MaxInt32)
	runtime.ReadMemStats(&after)
	var e *Error
	if !errors.As(err, &e) || e.Codec != codec {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	if grew := after.TotalAlloc - before.TotalAlloc; grew > 1<<20+uint64(2*len(src)) {
		t.Errorf("%d bytes allocated for %d", grew, len(src))
	}
}

// xerial frames src as Java's snappy library does, in blocks of n bytes.
func xerial(src []byte, n int) []byte {
	out := append([]byte(xerialMagic), 0, 0, 0, 1, 0, 0, 0, 1)
	for len(src) > 0 {
		block := s2.EncodeSnappy(nil, src[:min(n, len(src))])
		out = append(binary.BigEndian.AppendUint32(out, uint32(len(block))), block...)
		src = src[min(n, len(src)):]
	}
	return out
}

// B157: a raw block, too, is read from its first byte, whatever its size.
// Mutation: go on behind the 8 bytes where the magic number is looked for.
func TestB157RawAndFramedSnappyOfEverySize(t *testing.T) {
	for _, n := range []int{0, 1, 15, 16, 17, 100_000} {
		src := mixed(n)
		reads(t, Snappy, s2.EncodeSnappy(nil, src), src)
		reads(t, Snappy, xerial(src, max(n, 1)), src)
		reads(t, Snappy, xerial(src, max((n+4)/5, 1)), src)
	}
}

// B158: framing without a block, or with an empty one, is nothing; lengths that
// cannot be are errors. A block of length 0 before others is damage.
func TestB158EmptyAndCutSnappyFraming(t *testing.T) {
	head := xerial(nil, 1)
	reads(t, Snappy, head, nil)
	reads(t, Snappy, append(bytes.Clone(head), 0, 0, 0, 0), nil)
	for _, length := range []uint32{math.MaxInt32, math.MaxUint32} {
		refuses(t, Snappy, append(binary.BigEndian.AppendUint32(bytes.Clone(head), length), "some bytes"...))
	}
	whole := xerial(mixed(1000), 500)
	for cut := range 200 {
		refuses(t, Snappy, whole[:len(whole)-1-cut])
	}
	refuses(t, Snappy, append(append(bytes.Clone(head), 0, 0, 0, 0), whole[len(head):]...))
}

// lz4Frame is a frame with a right header around blocks, which have their
// lengths.
func lz4Frame(flags, code byte, size []byte, blocks ...[]byte) []byte {
	head := append([]byte{lz4Version | flags, code << 4}, size...)
	out := append(binary.LittleEndian.AppendUint32(nil, lz4Magic), head...)
	out = append(out, byte(xxh32(head)>>8))
	for _, b := range blocks {
		out = append(out, b...)
	}
	return append(out, 0, 0, 0, 0)
}

// lz4Packed is a compressed block with its length.
func lz4Packed(t *testing.T, src []byte) []byte {
	t.Helper()
	b := make([]byte, lz4.CompressBlockBound(len(src)))
	n, err := lz4.CompressBlock(src, b, nil)
	if err != nil || n == 0 {
		t.Fatal("it does not compress", err)
	}
	return append(binary.LittleEndian.AppendUint32(nil, uint32(n)), b[:n]...)
}

// lz4Plain is a stored block with its length.
func lz4Plain(src []byte) []byte {
	return append(binary.LittleEndian.AppendUint32(nil, lz4Stored|uint32(len(src))), src...)
}

func withSum(b, of []byte) []byte {
	return binary.LittleEndian.AppendUint32(bytes.Clone(b), xxh32(of))
}

// B160, F20: the checksum of a frame's header over the magic number too, as
// writers of message format 0 made it, is right there, and wrong in the others.
// Mutation: take both everywhere, or neither where it is format 0.
func TestB160TheOldHeaderChecksumOfLZ4(t *testing.T) {
	src := mixed(2000)
	for _, size := range [][]byte{nil, binary.LittleEndian.AppendUint64(nil, 2000)} {
		flags := byte(lz4Independent)
		if size != nil {
			flags |= lz4Size
		}
		standard := lz4Frame(flags, 4, size, lz4Packed(t, src))
		at := 6 + len(size)
		old, neither := bytes.Clone(standard), bytes.Clone(standard)
		old[at] = byte(xxh32(standard[:at]) >> 8)
		for neither[at] == old[at] || neither[at] == standard[at] {
			neither[at]++
		}
		if old[at] == standard[at] {
			t.Fatal("both checksums are the same")
		}
		reads(t, LZ4, standard, src)
		refuses(t, LZ4, old)
		refuses(t, LZ4, neither)
		var d Decompressor
		for name, frame := range map[string][]byte{"standard": standard, "old": old} {
			if got, err := d.DecompressFormat0(nil, LZ4, frame, 0); err != nil || !bytes.Equal(got, src) {
				t.Errorf("format 0, %s: %v", name, err)
			}
		}
		var e *Error
		if _, err := d.DecompressFormat0(nil, LZ4, neither, 0); !errors.As(err, &e) {
			t.Errorf("format 0, neither: %v", err)
		}
	}
}

// B161: every option of an lz4 frame. Linked blocks stand in the vectors, of
// liblz4. Bytes behind the last frame are ignored.
func TestB161OptionsOfLZ4Frames(t *testing.T) {
	src := mixed(3000)
	packed, plain := lz4Packed(t, src), lz4Plain(src)
	size := binary.LittleEndian.AppendUint64(nil, 3000)
	for name, frame := range map[string][]byte{
		"content size":      lz4Frame(lz4Independent|lz4Size, 4, size, packed),
		"content checksum":  withSum(lz4Frame(lz4Independent|lz4ContentSum, 4, nil, packed), src),
		"block checksum":    lz4Frame(lz4Independent|lz4BlockSums, 4, nil, withSum(packed, packed[4:])),
		"stored":            lz4Frame(lz4Independent, 4, nil, plain),
		"stored, checksums": withSum(lz4Frame(lz4Independent|lz4BlockSums|lz4ContentSum|lz4Size, 7, size, withSum(plain, src)), src),
		"linked":            lz4Frame(0, 5, nil, packed),
		"bytes behind":      append(lz4Frame(lz4Independent, 4, nil, packed), "tail"...),
	} {
		t.Run(name, func(t *testing.T) { reads(t, LZ4, frame, src) })
	}
	for code := byte(lz4LeastCode); code <= 7; code++ {
		most := mixed(lz4Max(code))
		reads(t, LZ4, lz4Frame(lz4Independent, code, nil, lz4Packed(t, most)), most)
		reads(t, LZ4, lz4Frame(lz4Independent, code, nil, lz4Plain(most)), most)
		refuses(t, LZ4, lz4Frame(lz4Independent, code, nil, lz4Plain(append(most, 'x'))))
	}
	one := lz4Frame(lz4Independent, 4, nil, packed)
	reads(t, LZ4, append(bytes.Clone(one), one...), append(bytes.Clone(src), src...))
	wrong := withSum(lz4Frame(lz4Independent|lz4ContentSum, 4, nil, packed), src)
	wrong[len(wrong)-1] ^= 1
	refuses(t, LZ4, wrong)
	refuses(t, LZ4, wrong[:len(wrong)-4])
	refuses(t, LZ4, one[:len(one)-4])
}

// B163: a window above what Java's and librdkafka's readers take is refused, and
// costs nothing, a hundred times over.
func TestB163ZstdFramesThatAskForAHugeWindow(t *testing.T) {
	for _, log := range []byte{28, 29, 31, 41} {
		frame := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, (log - 10) << 3, 3<<3 | 1, 0, 0, 'a', 'b', 'c'}
		for range 100 {
			refuses(t, Zstd, frame)
		}
	}
	reads(t, Zstd, []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 3<<3 | 1, 0, 0, 'a', 'b', 'c'}, []byte("abc"))
}

// B166: members are joined, empty ones too; a wrong trailer and bytes behind the
// last member are errors.
func TestB166GzipMembersAndTrailers(t *testing.T) {
	var c Compressor
	member := func(src []byte) []byte {
		b, err := c.Compress(nil, Gzip, 0, src)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	join := func(parts ...[]byte) []byte { return bytes.Join(parts, nil) }
	a, b, none := []byte("first"), mixed(5000), member(nil)
	reads(t, Gzip, join(member(a), member(b)), join(a, b))
	reads(t, Gzip, join(none, member(a), none, member(b), none), join(a, b))
	reads(t, Gzip, none, nil)
	for at := 1; at <= 8; at++ { // CRC, then size
		z := join(member(a), member(b))
		z[len(z)-at] ^= 1
		refuses(t, Gzip, z)
	}
	refuses(t, Gzip, join(member(a), make([]byte, 10)))
	refuses(t, Gzip, join(member(a), []byte{0x1f}))
	refuses(t, Gzip, member(b)[:100])
}

// B167: levels take effect: the highest makes less of the same bytes than the
// lowest. Snappy has none.
func TestB167HigherLevelsMakeLess(t *testing.T) {
	var c Compressor
	src := texts()["text 1048576"]
	for _, codec := range []Codec{Gzip, LZ4, Zstd} {
		lo, hi := codec.Levels()
		sizes := map[int]int{}
		for _, level := range []int{lo, 0, hi} {
			for _, src := range [][]byte{nil, {'x'}, src} {
				wire, err := c.Compress(nil, codec, level, src)
				if err != nil {
					t.Fatal(err)
				}
				reads(t, codec, wire, src)
				sizes[level] = len(wire)
			}
		}
		if sizes[hi] >= sizes[lo] || sizes[0] < sizes[hi] {
			t.Errorf("%v: %d bytes at the lowest level, %d by default, %d at the highest", codec, sizes[lo], sizes[0], sizes[hi])
		}
	}
	if lo, hi := Snappy.Levels(); lo != 0 || hi != 0 {
		t.Errorf("snappy has levels %d to %d", lo, hi)
	}
}

// B169: what lies in the room behind dst does not come through, whatever its
// length, after damage too. Mutation: give out all of the room.
func TestB169OldContentOfBuffersDoesNotComeThrough(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 69))
	var c Compressor
	var d Decompressor
	for n := range 600 {
		codec := codecs[n%len(codecs)]
		src := mixed(rng.IntN(3000))
		wire, err := c.Compress(nil, codec, 0, src)
		if err != nil {
			t.Fatal(err)
		}
		dirty := bytes.Repeat([]byte{0xaa}, rng.IntN(6000))
		before := bytes.Clone(dirty[:rng.IntN(len(dirty)+1)])
		dst := dirty[:len(before)]
		if damage := rng.IntN(3) == 0 && len(wire) > 0; damage {
			wire[rng.IntN(len(wire))] ^= 1 << rng.IntN(8)
			if got, err := d.Decompress(dst, codec, wire, 10_000); !bytes.HasPrefix(got, before) || err != nil && len(got) != len(before) {
				t.Fatalf("%v: %d bytes from damage, %v", codec, len(got), err)
			}
			continue
		}
		got, err := d.Decompress(dst, codec, wire, 0)
		if err != nil || !bytes.Equal(got, append(before, src...)) {
			t.Fatalf("%v, %d bytes behind %d in %d: %d, %v", codec, len(src), len(before), len(dirty), len(got), err)
		}
	}
}
