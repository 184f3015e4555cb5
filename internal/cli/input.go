package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
)

// inputRecord is one record of the input.
type inputRecord struct {
	line int64  // its number, from 1
	data []byte // without the delimiter; nil if it is longer than the limit
	size int64  // its bytes
}

// chunk is what one read gave: whole records that alias buf.
type chunk struct {
	records []inputRecord
	buf     []byte
}

// splitter cuts an input into records at a delimiter. It holds no more than
// one record of at most limit bytes beside what one read gave, whatever comes.
type splitter struct {
	in    io.Reader
	delim []byte
	limit int

	lines   int64  // records seen
	rest    []byte // the beginning of a record, from the chunk before
	skipped int64  // bytes dropped of a record over the limit
	done    bool
}

const (
	firstBuffer = 256 << 10
	leastRoom   = 64 << 10
	// mostRecord is how many bytes of a record are read into memory.
	mostRecord = 32 << 20
)

// read fills c with the records that reads complete: at least one, but no more
// than what is there without waiting for more. At the end of the input it
// returns io.EOF with the last ones; an unfinished last record counts.
func (s *splitter) read(c *chunk) error {
	c.records = c.records[:0]
	if c.buf == nil {
		c.buf = make([]byte, 0, firstBuffer)
	}
	c.buf = append(c.buf[:0], s.rest...)
	s.rest = s.rest[:0]
	scanned := 0
	for len(c.records) == 0 {
		if s.done {
			return io.EOF
		}
		if cap(c.buf)-len(c.buf) < leastRoom {
			c.buf = append(make([]byte, 0, 2*cap(c.buf)), c.buf...)
		}
		n, err := s.in.Read(c.buf[len(c.buf):cap(c.buf)])
		c.buf = c.buf[:len(c.buf)+n]
		data := s.cut(c, scanned)
		s.done = err != nil
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err != nil && int64(len(data))+s.skipped > 0 {
			s.emit(c, data)
			return io.EOF
		}
		if len(c.records) > 0 {
			s.rest = append(s.rest, data...)
			break
		}
		c.buf = s.drop(c.buf)
		scanned = max(0, len(c.buf)-len(s.delim)+1)
	}
	return nil
}

// cut finds the records in c.buf, whose first scanned bytes begin no
// delimiter, and returns what is left.
func (s *splitter) cut(c *chunk, scanned int) []byte {
	data := c.buf
	for {
		at := bytes.Index(data[scanned:], s.delim)
		if at < 0 {
			return data
		}
		s.emit(c, data[:scanned+at])
		data, scanned = data[scanned+at+len(s.delim):], 0
	}
}

// drop counts and drops what is over the limit of an unfinished record, but
// for the bytes that may be the first part of a delimiter.
func (s *splitter) drop(buf []byte) []byte {
	keep := len(s.delim) - 1
	gone := len(buf) - keep
	if gone <= 0 || int64(gone)+s.skipped <= int64(s.limit) {
		return buf
	}
	s.skipped += int64(gone)
	return append(buf[:0], buf[gone:]...)
}

// emit adds one record to c.
func (s *splitter) emit(c *chunk, data []byte) {
	s.lines++
	r := inputRecord{line: s.lines, data: data, size: int64(len(data)) + s.skipped}
	if s.skipped > 0 || len(data) > s.limit {
		r.data = nil
	}
	s.skipped = 0
	c.records = append(c.records, r)
}

// chunks reads ahead in a goroutine of its own: it sends filled chunks to full
// and takes used ones from free, until the input ends or ctx does. It may stay
// behind in a read that does not return.
func (s *splitter) chunks(ctx context.Context, free <-chan *chunk, full chan<- *chunk) error {
	defer close(full)
	for {
		var c *chunk
		select {
		case c = <-free:
		case <-ctx.Done():
			return nil
		}
		err := s.read(c)
		if len(c.records) > 0 || err == nil {
			select {
			case full <- c:
			case <-ctx.Done():
				return nil
			}
		}
		if err != nil {
			return err
		}
	}
}
