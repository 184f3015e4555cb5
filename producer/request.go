package producer

import (
	"encoding/binary"
	"errors"
	"net"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// produceRequest is a Produce request that holds its batches where they are:
// its body is written without copying them.
type produceRequest struct {
	version int16
	acks    int16
	timeout int32 // ms
	topics  []requestTopic
	behind  bool  // it must not go out on another connection than those before it
	least   int16 // version that its batches need
	most    int16 // version that it may have; 0 = any
	txID    string
}

type requestTopic struct {
	name  string
	id    kafka.TopicID
	parts []requestPart
}

type requestPart struct {
	partition int32
	wire      []byte
}

// add adds a batch; it stays as it is until the request is over.
func (r *produceRequest) add(tp kafka.TopicPartition, id kafka.TopicID, wire []byte) {
	i := slices.IndexFunc(r.topics, func(t requestTopic) bool { return t.name == tp.Topic })
	if i < 0 {
		i = len(r.topics)
		r.topics = append(r.topics, requestTopic{name: tp.Topic, id: id})
	}
	r.topics[i].parts = append(r.topics[i].parts, requestPart{tp.Partition, wire})
}

// Versions of Produce: 3 brought the record batches that are sent here, 9 the
// flexible encoding, 12 transactions of part 2, 13 topic ids in place of names.
const (
	batchProduce    = 3
	pinnedProduce   = 11 // the last that leaves the partitions of a transaction to the client
	addingProduce   = 12 // adds them by itself (KIP-890)
	flexibleProduce = 9
	namesProduce    = 12
	idsProduce      = 13
)

func (*produceRequest) Key() int16           { return 0 }
func (r *produceRequest) SetVersion(v int16) { r.version = v }
func (r *produceRequest) GetVersion() int16  { return r.version }
func (r *produceRequest) IsFlexible() bool   { return r.version >= flexibleProduce }
func (r *produceRequest) Timeout() int32     { return r.timeout }

// RepeatClass has nobody below send it a second time. The machine does, and has
// to know of every attempt: a rejection of the second says nothing of the first.
func (*produceRequest) RepeatClass() retry.Class { return retry.Mutation }

// MinVersion is the first version that may carry the batches.
func (r *produceRequest) MinVersion() int16 { return r.least }

// MaxVersion is the last version with names unless every topic has an id.
func (r *produceRequest) MaxVersion() int16 {
	limit := int16(idsProduce)
	for i := range r.topics {
		if r.topics[i].id.IsZero() {
			limit = namesProduce
		}
	}
	if r.most > 0 {
		return min(r.most, limit)
	}
	return limit
}

// ResponseKind is an empty response of the request's version.
func (r *produceRequest) ResponseKind() kmsg.Response {
	resp := kmsg.NewPtrProduceResponse()
	resp.SetVersion(r.version)
	return resp
}

// ReadFrom is not implemented: a client only writes requests.
func (*produceRequest) ReadFrom([]byte) error { return errors.ErrUnsupported }

// AppendTo appends the body, batches copied.
func (r *produceRequest) AppendTo(dst []byte) []byte {
	for _, part := range r.AppendBuffers(nil) {
		dst = append(dst, part...)
	}
	return dst
}

// AppendBuffers appends the body as parts: what stands around the batches, and
// the batches themselves.
func (r *produceRequest) AppendBuffers(to net.Buffers) net.Buffers {
	w := requestWriter{flexible: r.IsFlexible(), parts: to, frame: make([]byte, 0, r.frameSize())}
	if r.txID == "" {
		w.nullString()
	} else {
		w.string(r.txID)
	}
	w.i16(r.acks)
	w.i32(r.timeout)
	w.length(len(r.topics))
	for i := range r.topics {
		t := &r.topics[i]
		if r.version >= idsProduce {
			w.frame = append(w.frame, t.id[:]...)
		} else {
			w.string(t.name)
		}
		w.length(len(t.parts))
		for _, p := range t.parts {
			w.i32(p.partition)
			w.batch(p.wire)
			w.tags()
		}
		w.tags()
	}
	w.tags()
	w.cut()
	return w.parts
}

// frameSize is an upper bound of what stands around the batches.
func (r *produceRequest) frameSize() int {
	n := 32 + len(r.txID)
	for i := range r.topics {
		n += 32 + len(r.topics[i].name) + 16*len(r.topics[i].parts)
	}
	return n
}

// requestWriter writes what stands around the batches into one piece of
// memory, frame, which never grows, and cuts it at the batches.
type requestWriter struct {
	flexible bool
	parts    net.Buffers
	frame    []byte
	from     int // start of the part that is not cut off yet
}

func (w *requestWriter) i16(v int16) { w.frame = binary.BigEndian.AppendUint16(w.frame, uint16(v)) }
func (w *requestWriter) i32(v int32) { w.frame = binary.BigEndian.AppendUint32(w.frame, uint32(v)) }

func (w *requestWriter) nullString() {
	if w.flexible {
		w.frame = append(w.frame, 0)
	} else {
		w.i16(-1)
	}
}

func (w *requestWriter) string(s string) {
	if w.flexible {
		w.frame = binary.AppendUvarint(w.frame, uint64(len(s))+1)
	} else {
		w.i16(int16(len(s)))
	}
	w.frame = append(w.frame, s...)
}

// length is that of an array or of bytes.
func (w *requestWriter) length(n int) {
	if w.flexible {
		w.frame = binary.AppendUvarint(w.frame, uint64(n)+1)
	} else {
		w.i32(int32(n))
	}
}

// tags is an empty list of tagged fields.
func (w *requestWriter) tags() {
	if w.flexible {
		w.frame = append(w.frame, 0)
	}
}

func (w *requestWriter) batch(wire []byte) {
	w.length(len(wire))
	w.cut()
	w.parts = append(w.parts, wire)
}

func (w *requestWriter) cut() {
	if n := len(w.frame); n > w.from {
		w.parts = append(w.parts, w.frame[w.from:n:n])
		w.from = n
	}
}
