package conn

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/ottla/ottla/kafka"
)

// answerFrame is a frame with a correlation id and a body, prefix included.
func answerFrame(id int32, body []byte) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(len(body)+4))
	b = binary.BigEndian.AppendUint32(b, uint32(id))
	return append(b, body...)
}

// feed gives the splitter the whole stream in reads of at most chunk bytes and
// collects the frames; reads counts the calls.
func feed(s *Splitter, stream []byte, chunk int) (frames []Frame, reads int, err error) {
	for {
		f, ok, err := s.Next()
		if err != nil {
			return frames, reads, err
		}
		if ok {
			f.Data = slices.Clone(f.Data)
			frames = append(frames, f)
			continue
		}
		if len(stream) == 0 {
			return frames, reads, nil
		}
		space := s.Space()
		n := copy(space[:min(len(space), chunk)], stream)
		stream = stream[n:]
		s.OnRead(n)
		reads++
	}
}

func TestC33FramesComeOutWhateverTheReads(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	var stream []byte
	var bodies [][]byte
	for i := range 60 {
		body := make([]byte, []int{0, 1, 30, 4000, 17_000, 70_000}[rng.IntN(6)])
		for j := range body {
			body[j] = byte(rng.Uint32())
		}
		bodies = append(bodies, body)
		stream = append(stream, answerFrame(int32(i), body)...)
	}
	for _, own := range []bool{false, true} {
		for _, chunk := range []int{1, 3, 1000, 1 << 20} {
			owner := func(id int32) int { return map[bool]int{true: 1}[own && id%3 == 0] }
			frames, _, err := feed(NewSplitter(1<<20, owner), stream, chunk)
			if err != nil || len(frames) != len(bodies) {
				t.Fatalf("chunk %d: %d frames, %v", chunk, len(frames), err)
			}
			for i, f := range frames {
				if f.ID != int32(i) || !bytes.Equal(f.Data[4:], bodies[i]) || f.Own != (own && i%3 == 0) {
					t.Fatalf("chunk %d: frame %d is wrong (id %d, %d bytes, own %v)", chunk, i, f.ID, len(f.Data), f.Own)
				}
			}
		}
	}
}

// TestC33ALargeAnswerTakesADozenReads of 16 KiB at first, and of 1 MiB at most.
func TestC33ALargeAnswerTakesADozenReads(t *testing.T) {
	for _, own := range []int{0, 10 << 20} {
		stream := answerFrame(1, make([]byte, 10<<20))
		s := NewSplitter(100<<20, func(int32) int { return own })
		if n := len(s.Space()); n != 16<<10 {
			t.Errorf("own %d: the first read is of %d bytes", own, n)
		}
		_, reads, err := feed(s, stream, 1<<30)
		if err != nil || reads > 14 || reads < 11 {
			t.Errorf("own %d: %d reads, %v", own, reads, err)
		}
	}
}

func TestC33TheSharedBufferIsUsedAgain(t *testing.T) {
	s := NewSplitter(1<<20, nil)
	frame := answerFrame(1, make([]byte, 900))
	step := func() {
		for range 18 {
			s.OnRead(copy(s.Space(), frame))
			if _, ok, err := s.Next(); !ok || err != nil {
				t.Fatal(ok, err)
			}
		}
	}
	step()
	if n := testing.AllocsPerRun(50, step); n != 0 {
		t.Errorf("%v allocations for 18 frames", n)
	}
}

func TestC33MemoryOfALargeFrameGoesBack(t *testing.T) {
	for _, size := range []int{200 << 10, 8 << 20} {
		s := NewSplitter(100<<20, nil)
		if _, _, err := feed(s, answerFrame(1, make([]byte, size)), 1<<20); err != nil {
			t.Fatal(err)
		}
		s.Space()
		if cap(s.buf) > 150<<10 {
			t.Errorf("%d bytes are kept of a frame of %d", cap(s.buf), size)
		}
	}
}

// TestC34MemoryGrowsWithTheBytesReceived announces a frame at the limit and
// sends little of it.
func TestC34MemoryGrowsWithTheBytesReceived(t *testing.T) {
	const limit = 100 << 20
	for _, sent := range []int{8, 1 << 16, 3 << 20} {
		for _, reserve := range []int{0, 1} {
			s := NewSplitter(limit, func(int32) int { return reserve })
			head := binary.BigEndian.AppendUint32(nil, limit)
			if _, _, err := feed(s, append(head, make([]byte, sent)...), 1<<20); err != nil {
				t.Fatal(err)
			}
			s.Space()
			if got, most := cap(s.buf)+cap(s.own), max(3*sent, 1<<20)+200<<10; got > most {
				t.Errorf("%d bytes received, reserve %d: %d are reserved, at most %d expected", sent, reserve, got, most)
			}
		}
	}
	s := NewSplitter(limit, func(int32) int { return 50 << 20 })
	head := binary.BigEndian.AppendUint32(nil, 40<<20)
	if _, _, err := feed(s, append(head, 0, 0, 0, 1), 1<<20); err != nil {
		t.Fatal(err)
	}
	if cap(s.own) != 40<<20 {
		t.Errorf("a Fetch answer that asked for 50 MiB has a buffer of %d for its 40 MiB", cap(s.own))
	}
}

// TestF46AFrameIsReadIntoWhatItsAskerGives has the asker give buffers that are too
// short, as long as needed, and longer, with old content. Only frames that may
// reserve all of their bytes are asked for. Mutation: no check of the capacity.
func TestF46AFrameIsReadIntoWhatItsAskerGives(t *testing.T) {
	const size = 300 << 10
	body := make([]byte, size-4)
	for i := range body {
		body[i] = byte(i * 7)
	}
	for _, room := range []int{0, 100, size - 1, size, size + 1000} {
		for _, reserve := range []int{1, size - 1, size, size + 1} {
			asked := 0
			given := bytes.Repeat([]byte{0xdb}, room)
			s := NewSplitter(1<<20, func(int32) int { return reserve })
			s.Alloc = func(id int32, n int) []byte {
				asked++
				if id != 9 || n != size {
					t.Errorf("asked for %d bytes of frame %d", n, id)
				}
				return given
			}
			frames, _, err := feed(s, answerFrame(9, body), 10_000)
			if err != nil || len(frames) != 1 || !bytes.Equal(frames[0].Data[4:], body) || len(frames[0].Data) != size {
				t.Fatalf("room for %d, reserve %d: %d frames, %v", room, reserve, len(frames), err)
			}
			if want := reserve >= size; (asked == 1) != want {
				t.Errorf("room for %d, reserve %d: asked %d times", room, reserve, asked)
			}
			used := room > 0 && given[0] != 0xdb
			if want := reserve >= size && room >= size; used != want {
				t.Errorf("room for %d, reserve %d: used %v", room, reserve, used)
			}
		}
	}
}

func TestB002ALengthThatCannotBeTrueIsRefused(t *testing.T) {
	const limit = 1 << 20
	for _, c := range []struct {
		prefix uint32
		what   string
	}{
		{0x7fffffff, "above the limit of 1048576"}, {0xffffffff, "negative length -1"}, {0, "too short"}, {3, "too short"},
		{limit + 1, "a frame of 1048577 bytes is above the limit"}, {0x80000000, "negative length"},
	} {
		s := NewSplitter(limit, nil)
		_, _, err := feed(s, binary.BigEndian.AppendUint32(nil, c.prefix), 100)
		var pe *kafka.ProtocolError
		if !errors.As(err, &pe) || !strings.Contains(pe.What, c.what) || len(pe.First) != 4 {
			t.Errorf("prefix %#x: %v", c.prefix, err)
		}
		if cap(s.buf) > minRead {
			t.Errorf("prefix %#x reserved %d bytes", c.prefix, cap(s.buf))
		}
		if _, _, again := s.Next(); again == nil {
			t.Errorf("prefix %#x: the stream can be read on", c.prefix)
		}
	}
	if _, _, err := feed(NewSplitter(limit, nil), answerFrame(1, make([]byte, limit-4)), limit); err != nil {
		t.Errorf("a frame at the limit: %v", err)
	}
}

// TestB001AnHTTPAnswerIsNamed has the prefix constant as well: 0x48545450.
func TestB001AnHTTPAnswerIsNamed(t *testing.T) {
	if n := binary.BigEndian.Uint32([]byte(httpPrefix)); n != 0x48545450 {
		t.Errorf("the prefix of HTTP is %#x", n)
	}
	for _, limit := range []int{100 << 20, 1<<31 - 1} {
		_, _, err := feed(NewSplitter(limit, nil), []byte("HTTP/1.1 400 Bad Request\r\n\r\n"), 100)
		var pe *kafka.ProtocolError
		if !errors.As(err, &pe) || !strings.Contains(pe.What, "an HTTP endpoint answered") || string(pe.First) != "HTTP/1.1 400 Bad" {
			t.Errorf("limit %d: %v", limit, err)
		}
	}
}

func TestC34ATLSAlertIsNamed(t *testing.T) {
	_, _, err := feed(NewSplitter(1<<31-1, nil), unhex(t, "15030300020250"), 100)
	var pe *kafka.ProtocolError
	if !errors.As(err, &pe) || !strings.Contains(pe.What, "TLS") || len(pe.First) != 7 {
		t.Errorf("%v", err)
	}
}

// TestC34OnlyTLSIsTakenForTLS has lengths that begin almost like a TLS record,
// where the limit allows them.
func TestC34OnlyTLSIsTakenForTLS(t *testing.T) {
	for prefix, tls := range map[uint32]bool{
		0x15030000: true, 0x16030100: true, 0x160304ff: true, 0x15030500: false, 0x15040300: false, 0x14030300: false, 0x17030300: false,
	} {
		_, _, err := feed(NewSplitter(1<<31-1, nil), binary.BigEndian.AppendUint32(nil, prefix), 100)
		if named := err != nil && strings.Contains(err.Error(), "TLS"); named != tls {
			t.Errorf("%#x: %v", prefix, err)
		}
	}
}

// TestC35PartialIsWhatIsThereOfAFrame is so in the shared buffer and in one of
// the frame's own.
func TestC35PartialIsWhatIsThereOfAFrame(t *testing.T) {
	for _, reserve := range []int{0, 1 << 20} {
		s := NewSplitter(1<<20, func(int32) int { return reserve })
		whole := answerFrame(1, make([]byte, 1000))
		if _, _, err := feed(s, append(bytes.Clone(whole), whole[:700]...), 1<<20); err != nil || s.Partial() != 700 {
			t.Errorf("reserve %d: %d bytes are there (%v), want 700", reserve, s.Partial(), err)
		}
	}
}

// FuzzSplitter cuts any stream with any reads; what comes out must be what a
// plain walk over the bytes gives, and memory must stay near the input.
func FuzzSplitter(f *testing.F) {
	f.Add(answerFrame(1, []byte("hello")), uint8(3), false)
	f.Add(append(answerFrame(3, nil), answerFrame(4, make([]byte, 300))...), uint8(1), true)
	f.Add([]byte("HTTP/1.1 400"), uint8(4), false)
	f.Add(unhexSeed("15030300020250"), uint8(7), true)
	f.Add(unhexSeed("7fffffff00000000"), uint8(2), true)
	f.Fuzz(func(t *testing.T, stream []byte, chunk uint8, own bool) {
		const limit = 1 << 16
		s := NewSplitter(limit, func(id int32) int { return map[bool]int{true: 1}[own && id%2 == 0] })
		frames, _, err := feed(s, stream, int(chunk)+1)
		rest, i := stream, 0
		for ; len(rest) >= 8; i++ {
			size := int32(binary.BigEndian.Uint32(rest))
			if size < 4 || size > limit || int(size) > len(rest)-4 {
				break
			}
			if i >= len(frames) || !bytes.Equal(frames[i].Data, rest[4:4+size]) {
				t.Fatalf("frame %d is missing or differs (%v)", i, err)
			}
			rest = rest[4+size:]
		}
		if i != len(frames) {
			t.Fatalf("%d frames, the stream holds %d", len(frames), i)
		}
		if err == nil && len(rest) >= 4 && (int32(binary.BigEndian.Uint32(rest)) < 4 || binary.BigEndian.Uint32(rest) > limit) {
			t.Fatalf("the prefix %x passed", rest[:4])
		}
		if got := cap(s.buf) + cap(s.own); got > 4*len(stream)+4*limit {
			t.Fatalf("%d bytes reserved for a stream of %d", got, len(stream))
		}
	})
}

func unhexSeed(s string) []byte {
	b := make([]byte, len(s)/2)
	for i := range b {
		for _, c := range []byte(s[2*i : 2*i+2]) {
			b[i] = b[i]<<4 | byte(strings.IndexByte("0123456789abcdef", c))
		}
	}
	return b
}
