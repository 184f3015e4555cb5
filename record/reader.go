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
	if r.left <= 0 {
		if r.batch.old() {
			return r.nextOld(rec)
		}
		return r.end()
	}
	// The short way: numbers of one or two bytes.
	buf := r.buf
	length, i := short(buf, r.pos)
	end := i + int(unzig32(length))
	time, i := short(buf, i+1) // buf[i] are attributes that have no meaning
	zdelta, i := short(buf, i)
	klen, keyAt := short(buf, i)
	k := int(unzig32(klen))
	vlen, valueAt := short(buf, keyAt+max(k, 0))
	v := int(unzig32(vlen))
	i = valueAt + max(v, 0)
	if keyAt < 0 || valueAt < 0 || k < -1 || v < -1 || i >= end || end > len(buf) {
		return r.nextLong(rec)
	}
	rec.Key, rec.Value, rec.Headers = nil, nil, nil
	if k >= 0 {
		rec.Key = buf[keyAt : keyAt+k : keyAt+k]
	}
	if v >= 0 {
		rec.Value = buf[valueAt:i:i]
	}
	if (buf[i] != 0 || i != end-1) && !r.readHeaders(rec, buf[:end:end], i) {
		return false
	}
	return r.took(rec, end, unzig32(zdelta), unzig64(uint64(time)))
}

// Check reads all records that are left, gives none out, and returns Err. It is
// cheaper than to call Next for each.
func (r *Reader) Check() error {
	var rec kafka.Record
	for r.left > 0 {
		// The short way of Next, for records without headers.
		buf := r.buf
		length, i := short(buf, r.pos)
		end := i + int(unzig32(length))
		_, i = short(buf, i+1)
		zdelta, i := short(buf, i)
		klen, keyAt := short(buf, i)
		k := int(unzig32(klen))
		vlen, valueAt := short(buf, keyAt+max(k, 0))
		v := int(unzig32(vlen))
		i = valueAt + max(v, 0)
		d := int64(unzig32(zdelta))
		if keyAt < 0 || valueAt < 0 || k < -1 || v < -1 || i != end-1 || end > len(buf) || buf[i] != 0 || d <= r.last || d > r.max {
			if !r.Next(&rec) {
				return r.err
			}
			r.Recycle()
			continue
		}
		r.pos, r.last = end, d
		r.left--
	}
	for r.Next(&rec) { // messages of the formats 0 and 1
	}
	return r.err
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
	rec.TimestampType, rec.LeaderEpoch = r.kind, r.epoch
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
	return r.readHeaders(rec, body, i) && r.took(rec, end, unzig32(delta), unzig64(time))
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
func (r *Reader) readHeaders(rec *kafka.Record, body []byte, i int) bool {
	z, i := uvarint32(body, i)
	n := int(unzig32(z))
	if i < 0 || n < 0 || n > (len(body)-i)/2 { // a header is 2 bytes or more
		return r.fail("its number of headers goes beyond the record")
	}
	var hs []kafka.Header
	if n > 0 {
		hs = r.headers(n)
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
	rec.Headers = hs
	return true
}

// headers is room for n headers, from the slab.
func (r *Reader) headers(n int) []kafka.Header {
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
