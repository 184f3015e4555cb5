package record

import (
	"fmt"
	"unsafe"

	"github.com/ottla/ottla/kafka"
)

// slabSize is the number of headers that a Reader allocates at once.
const slabSize = 128

// Reader walks the records of one batch after the other. The zero value is
// ready for Reset. It is not for concurrent use.
//
// Records alias the payload: they are valid, and keep it alive, as long as the
// payload is not written to. Headers lie in slabs that the Reader allocates,
// about one for a hundred headers, and does not touch again.
type Reader struct {
	buf      []byte // the payload; read up to pos
	pos      int
	batch    Batch
	left     int32 // records to come
	last     int64 // delta of the record read last, -1 before the first
	max      int64 // delta of the last offset
	base     int64
	time     int64
	timeMask int64 // 0 if time is that of every record, -1 otherwise
	kind     kafka.TimestampType
	epoch    kafka.LeaderEpoch
	slab     []kafka.Header // len used
	headers  []kafka.Header // of the record read last
	err      error
}

// Reset begins with the records of b. payload is what [Batch.Payload] gave. The
// zero Batch has no records.
func (r *Reader) Reset(b Batch, payload []byte) {
	if b.IsZero() {
		*r = Reader{slab: r.slab}
		return
	}
	if b.old() {
		r.resetOld(b, payload)
		return
	}
	r.buf, r.pos, r.batch, r.err = payload, 0, b, nil
	r.left, r.last, r.max = int32At(b.b, posCount), -1, int64(lastDelta(b))
	r.base, r.epoch = int64(b.BaseOffset()), b.LeaderEpoch()
	r.kind = b.TimestampType()
	r.time, r.timeMask = int64(b.FirstTimestamp()), -1
	if r.kind == kafka.LogAppendTime {
		r.time, r.timeMask = int64(b.MaxTimestamp()), 0
	}
}

// Recycle lets the Reader overwrite the headers it has given out since the
// last Recycle. Call it only when nobody holds them any longer.
func (r *Reader) Recycle() { r.slab = r.slab[:0] }

// Err is what ended the walk: nil at the end of a good batch, a
// [*CorruptError] otherwise.
func (r *Reader) Err() error { return r.err }

// Next reads the next record into rec and reports whether there was one; after
// the last it looks for stray bytes, so Err is to be read after Next is false.
// It sets every field but Topic and Partition, which it leaves alone.
func (r *Reader) Next(rec *kafka.Record) bool {
	key, value, offset, time, ok := r.Read()
	if ok {
		rec.Key, rec.Value, rec.Headers, rec.Offset, rec.Timestamp = key, value, r.headers, offset, time
		rec.TimestampType, rec.LeaderEpoch = r.kind, r.epoch
	}
	return ok
}

// Headers are those of the record that was read last.
func (r *Reader) Headers() []kafka.Header { return r.headers }

// Read is Next for a hot loop: it gives the parts of a record by themselves, which
// stay in registers. Those that it does not give are the same for all records of
// the batch, but for the Headers.
func (r *Reader) Read() (key, value []byte, offset kafka.Offset, time kafka.Timestamp, ok bool) {
	// The short way, for records without headers whose numbers have one or two bytes
	// each: a longer one leaves a bit above these 14, which is looked for at the end.
	buf, pos := r.buf, r.pos
	if r.left <= 0 || len(buf)-pos < len(window{}) {
		return r.readLong()
	}
	w := (*window)(buf[pos:]) // all that stands before the key has 9 bytes at most
	length, i := uint32(w[0]), uint(1)
	if length >= 0x80 {
		length, i = length&0x7f|uint32(w[1])<<7, 2
	}
	end := pos + int(i) + int(unzig32(length))
	i++ // attributes, which have no meaning
	ztime := uint64(w[i])
	if i++; ztime >= 0x80 {
		ztime = ztime&0x7f | uint64(w[i])<<7
		i++
	}
	zdelta := uint32(w[i])
	if i++; zdelta >= 0x80 {
		zdelta = zdelta&0x7f | uint32(w[i%16])<<7
		i++
	}
	klen := uint32(w[i%16])
	if i++; klen >= 0x80 {
		klen = klen&0x7f | uint32(w[i%16])<<7
		i++
	}
	at := pos + int(i)
	if klen&1 == 0 {
		k := at + int(klen>>1)
		if uint(k) >= uint(len(buf)) {
			return r.readLong()
		}
		key, at = buf[at:k:k], k
	}
	vlen, at := short(buf, at)
	if vlen&1 == 0 {
		v := at + int(vlen>>1)
		if at < 0 || uint(v) >= uint(len(buf)) {
			return r.readLong()
		}
		value, at = buf[at:v:v], v
	}
	d := int64(unzig32(zdelta))
	if long := uint32(ztime) | zdelta | klen | length; long >= 0x4000 || klen&1 == 1 && klen != 1 || vlen&1 == 1 && vlen != 1 ||
		at != end-1 || uint(at) >= uint(len(buf)) || buf[at] != 0 || d <= r.last || d > r.max {
		return r.readLong()
	}
	if r.headers != nil {
		r.headers = nil
	}
	r.pos, r.last = end, d
	r.left--
	return key, value, kafka.Offset(r.base + d), kafka.Timestamp(r.time + unzig64(ztime)&r.timeMask), true
}

// readLong is Read for any record and any format, and for the end.
func (r *Reader) readLong() (key, value []byte, offset kafka.Offset, time kafka.Timestamp, ok bool) {
	var rec kafka.Record
	r.headers = nil
	switch {
	case r.left > 0:
		ok = r.nextLong(&rec)
	case r.batch.old():
		ok = r.nextOld(&rec)
	default:
		ok = r.end()
	}
	return rec.Key, rec.Value, rec.Offset, rec.Timestamp, ok
}

// Check reads all records that are left, gives none out, and returns Err.
func (r *Reader) Check() error {
	for {
		if _, _, _, _, ok := r.Read(); !ok {
			return r.err
		}
		if r.headers != nil {
			r.Recycle()
		}
	}
}

// took ends the reading of a record: it checks its offset, fills in what comes
// from the batch and moves on to end.
func (r *Reader) took(rec *kafka.Record, end int, delta int32, time int64) bool {
	d := int64(delta)
	if d <= r.last || d > r.max {
		return r.fail("its offset is not between that of the record before it and the end of the batch")
	}
	r.pos, r.last = end, d
	r.left--
	rec.Offset = kafka.Offset(r.base + d)
	rec.Timestamp = kafka.Timestamp(r.time + time&r.timeMask)
	return true
}

// nextLong reads any record, and says what is wrong with one.
func (r *Reader) nextLong(rec *kafka.Record) bool {
	length, i := uvarint32(r.buf, r.pos)
	n := int(unzig32(length))
	if i < 0 || n < 0 || n > len(r.buf)-i {
		return r.fail("its length goes beyond the batch")
	}
	end := i + n
	body := r.buf[i:end:end]
	time, i := uvarint64(body, 1)
	if i < 0 {
		return r.fail("its timestamp is cut or too long")
	}
	delta, i := uvarint32(body, i)
	if i < 0 {
		return r.fail("its offset is cut or too long")
	}
	key, i := field(body, i)
	if i < 0 {
		return r.fail("its key goes beyond the record")
	}
	value, i := field(body, i)
	if i < 0 {
		return r.fail("its value goes beyond the record")
	}
	rec.Key, rec.Value = key, value
	return r.readHeaders(body, i) && r.took(rec, end, unzig32(delta), unzig64(time))
}

// field reads a byte string with its length before it. A length of -1 is null.
func field(b []byte, i int) ([]byte, int) {
	z, at := short(b, i)
	if at < 0 {
		z, at = uvarint32(b, i)
	}
	if i = at; i < 0 {
		return nil, -1
	}
	n := int(unzig32(z))
	if n < 0 {
		if n == -1 {
			return nil, i
		}
		return nil, -1
	}
	if n > len(b)-i {
		return nil, -1
	}
	return b[i : i+n : i+n], i + n
}

// readHeaders reads the header count at body[i:] and the headers behind it, to
// the end of the body.
func (r *Reader) readHeaders(body []byte, i int) bool {
	z, i := uvarint32(body, i)
	n := int(unzig32(z))
	if i < 0 || n < 0 || n > (len(body)-i)/2 { // a header is 2 bytes or more
		return r.fail("its number of headers goes beyond the record")
	}
	var hs []kafka.Header
	if n > 0 {
		hs = r.room(n)
	}
	for k := range hs {
		name, j := field(body, i)
		if j < 0 || name == nil {
			return r.fail("the name of a header is null or goes beyond the record")
		}
		value, j := field(body, j)
		if j < 0 {
			return r.fail("the value of a header goes beyond the record")
		}
		hs[k] = kafka.Header{Key: unsafe.String(unsafe.SliceData(name), len(name)), Value: value}
		i = j
	}
	if i != len(body) {
		return r.fail("its length is not that of its fields")
	}
	r.headers = hs
	return true
}

// room is for n headers, from the slab.
func (r *Reader) room(n int) []kafka.Header {
	if n > cap(r.slab)-len(r.slab) {
		r.slab = make([]kafka.Header, 0, max(n, slabSize))
	}
	at := len(r.slab)
	r.slab = r.slab[:at+n]
	return r.slab[at : at+n : at+n]
}

// end ends the walk. All bytes must have been used.
func (r *Reader) end() bool {
	switch {
	case r.err != nil:
	case r.left < 0:
		r.err = r.batch.corrupt(fmt.Sprintf("its record count is %d", r.batch.Count()), nil)
	case r.pos != len(r.buf):
		r.err = r.batch.corrupt(fmt.Sprintf("%d bytes stand behind its %d records", len(r.buf)-r.pos, r.batch.Count()), nil)
	}
	r.left = 0
	return false
}

// fail ends the walk at a wrong record.
func (r *Reader) fail(what string) bool {
	n := r.batch.Count() - int(r.left)
	r.err = r.batch.corrupt(fmt.Sprintf("record %d of %d: %s", n+1, r.batch.Count(), what), nil)
	r.left = 0
	return false
}
