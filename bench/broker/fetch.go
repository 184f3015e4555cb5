package broker

import (
	"encoding/binary"
	"fmt"
	"net"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/benchmark"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

const (
	// BatchBytes is the size of stored batches on the wire.
	BatchBytes = 64 << 10
	mostBytes  = 1 << 20 // of a partition in an answer
	variants   = 16      // batches that a log repeats
)

// log is what each partition of a topic holds: the same batches again and again,
// each of n records.
type log struct {
	batches [][]byte
	n       int64
}

// logOf makes the log of a topic named after its values, nil for other topics.
func logOf(topic string) *log {
	var size int
	var name string
	if _, err := fmt.Sscanf(topic, "%d-%s", &size, &name); err != nil || size <= 0 {
		return nil
	}
	codec, err := compress.ParseCodec(name)
	if err != nil {
		return nil
	}
	values := benchmark.Values(size, benchmark.Ring)
	n := fit(values, codec)
	l := &log{n: int64(n)}
	for i := range variants {
		at := i * len(values) / variants
		l.batches = append(l.batches, batch(append(values[at:len(values):len(values)], values[:at]...), n, codec))
	}
	return l
}

// fit is how many values make a batch of BatchBytes.
func fit(values [][]byte, codec compress.Codec) int {
	n := BatchBytes / len(values[0])
	for range 3 {
		n = n * BatchBytes / len(batch(values, n, codec))
	}
	return n
}

// batch holds n of the values.
func batch(values [][]byte, n int, codec compress.Codec) []byte {
	var b record.Builder
	for i := range n {
		b.Append(1_700_000_000_000+kafka.Timestamp(i/8), nil, values[i%len(values)], nil)
	}
	wire, _ := b.Seal(record.NoProducer, codec, nil, 0, nil)
	return wire
}

// fetch writes an answer. The batches go out from where they lie, with only
// their offsets written anew.
func (b *Broker) fetch(c net.Conn, f frame, req *kmsg.FetchRequest) error {
	w := writer{frame: f, flexible: req.IsFlexible()}
	w.start()
	left := int(req.MaxBytes)
	w.list(len(req.Topics))
	for i := range req.Topics {
		rt := &req.Topics[i]
		t := b.byID(rt.TopicID)
		if f.version < 13 {
			t = b.topic(rt.Topic)
			w.text(rt.Topic)
		} else {
			w.head = append(w.head, rt.TopicID[:]...)
		}
		w.list(len(rt.Partitions))
		for k := range rt.Partitions {
			var batches [][]byte
			rp := &rt.Partitions[k]
			if t != nil && t.log != nil {
				batches = t.log.at(rp.FetchOffset, min(int(rp.PartitionMaxBytes), left, mostBytes), left == int(req.MaxBytes))
			}
			left -= w.partition(rp.Partition, batches)
		}
		w.tags()
	}
	w.tags()
	return w.send(c)
}

// at is the batches from an offset on, up to a limit in bytes, with their offsets,
// as pieces. The first batch of an answer always comes, as with Kafka.
func (l *log) at(offset int64, most int, first bool) (pieces [][]byte) {
	n := offset / l.n
	for bytes := 0; ; n++ {
		b := l.batches[n%variants]
		if bytes += len(b); bytes > most && !first {
			return pieces
		}
		first = false
		pieces = append(pieces, binary.BigEndian.AppendUint64(nil, uint64(n*l.n)), b[8:])
	}
}

// writer puts a Fetch answer together.
type writer struct {
	frame
	flexible bool
	head     []byte // written since the last piece
	parts    net.Buffers
	size     int
}

func (w *writer) start() {
	w.head = head(make([]byte, 0, 1024), w.frame, w.flexible)
	w.head = append(w.head, 0, 0, 0, 0) // throttle time
	if w.version >= 7 {
		w.head = append(w.head, 0, 0, 0, 0, 0, 0) // error, no session
	}
}

func (w *writer) list(n int) {
	if w.flexible {
		w.head = binary.AppendUvarint(w.head, uint64(n+1))
		return
	}
	w.head = binary.BigEndian.AppendUint32(w.head, uint32(n))
}

func (w *writer) text(s string) {
	if w.flexible {
		w.head = binary.AppendUvarint(w.head, uint64(len(s)+1))
	} else {
		w.head = binary.BigEndian.AppendUint16(w.head, uint16(len(s)))
	}
	w.head = append(w.head, s...)
}

func (w *writer) tags() {
	if w.flexible {
		w.head = append(w.head, 0)
	}
}

// partition writes one partition and reports how many bytes of batches it has.
func (w *writer) partition(p int32, pieces [][]byte) (bytes int) {
	for _, b := range pieces {
		bytes += len(b)
	}
	w.head = binary.BigEndian.AppendUint32(w.head, uint32(p))
	w.head = binary.BigEndian.AppendUint16(w.head, 0)
	w.head = binary.BigEndian.AppendUint64(w.head, far) // high watermark
	w.head = binary.BigEndian.AppendUint64(w.head, far) // last stable offset
	if w.version >= 5 {
		w.head = binary.BigEndian.AppendUint64(w.head, 0) // log start
	}
	if w.flexible {
		w.head = append(w.head, 0) // aborted: null
	} else {
		w.head = append(w.head, 0xff, 0xff, 0xff, 0xff)
	}
	if w.version >= 11 {
		w.head = append(w.head, 0xff, 0xff, 0xff, 0xff) // preferred replica
	}
	w.list(bytes)
	w.cut()
	w.parts = append(w.parts, pieces...)
	w.size += bytes
	w.tags()
	return bytes
}

// cut ends the run of small fields.
func (w *writer) cut() {
	if len(w.head) > 0 {
		w.parts = append(w.parts, w.head)
		w.size += len(w.head)
		w.head = w.head[len(w.head):]
	}
}

func (w *writer) send(c net.Conn) error {
	w.cut()
	binary.BigEndian.PutUint32(w.parts[0], uint32(w.size-4))
	_, err := w.parts.WriteTo(c)
	return err
}
