package cli

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// writer carries records from the input to producers, and their results back.
//
// Three goroutines share the work: one reads and cuts the input, the command's
// own makes records and appends them, and one waits for results, in order of
// the input, and is the only one that writes to stdout and stderr meanwhile.
type writer struct {
	app        *app
	shape      *shape
	partitions int32
	keepGoing  bool
	report     bool

	auto   *producer.Producer // chooses partitions
	manual *producer.Producer // takes those of the records; made when needed
	newOne func(producer.Partitioner) (*producer.Producer, error)
	tx     *transaction  // with --tx
	limit  func() string // the topic's limit of a message, in words

	halt     context.Context // ends with the first signal, or a record that stops the input
	haltNow  context.CancelCauseFunc
	tasks    *task.Group
	pending  chan *pendingChunk
	inputErr error
	cutOff   string // the first record that a signal left unsent, if any

	tally tally // of the goroutine that waits for results
}

// pendingChunk is records on their way; record i is line first+i of source.
type pendingChunk struct {
	source   string
	first    int64
	receipts []producer.Receipt // index as records; the zero value for those in errs
	sizes    []int32            // bytes of the input
	errs     map[int]error      // records that never got to a producer
	bytes    int64
}

// tally counts outcomes.
type tally struct {
	written, refused, unknown int64
	bytes                     int64 // of the input
	total                     int64 // bytes of all input, 0 if it is not known
	began                     time.Time
}

// errStopInput is the end of the input behind a refused record.
var errStopInput = errors.New("a record was refused")

// mostPending bounds the chunks whose results are waited for.
const mostPending = 32

func newWriter(a *app, c *client, f *produceFlags, s *shape, partitions int32) (*writer, error) {
	cfg, err := c.settings.producerConfig(f.codec)
	if err != nil {
		return nil, err
	}
	if cfg.Durability, err = c.settings.producer.durability(f.acks); err != nil {
		return nil, err
	}
	if f.tx != "" && cfg.Durability != producer.Idempotent {
		return nil, usagef("--tx needs acks=all and enable.idempotence=true")
	}
	w := &writer{
		app: a, shape: s, partitions: partitions, keepGoing: f.keepGoing, report: f.report,
		tasks: task.New(context.Background()), pending: make(chan *pendingChunk, mostPending),
		tally: tally{began: time.Now(), total: inputSize(a, f.files)},
	}
	w.halt, w.haltNow = context.WithCancelCause(a.stop)
	w.limit = func() string { return messageLimit(a.work, c, s.base.Topic) }
	if f.tx != "" {
		w.tx = &transaction{}
	}
	w.newOne = func(p producer.Partitioner) (*producer.Producer, error) {
		own := cfg
		own.Partitioner = p
		f.apply(&own)
		return producer.New(c.Cluster, own)
	}
	if _, err := w.producerFor(&s.base); err != nil {
		return nil, asUsage(err)
	}
	w.tasks.Go(func(context.Context) error { return w.collect() })
	return w, nil
}

// readSource appends all records of one input.
func (w *writer) readSource(src source) error {
	in, err := src.open()
	if err != nil {
		return err
	}
	defer in.Close()
	split := &splitter{in: in, delim: w.shape.delim, limit: mostRecord}
	free, full := make(chan *chunk, 3), make(chan *chunk, 3)
	for range cap(free) {
		free <- &chunk{}
	}
	read := make(chan error, 1)
	w.app.tasks.Go(func(context.Context) error {
		read <- split.chunks(w.halt, free, full)
		return nil
	})
	for {
		select {
		case c, ok := <-full:
			if !ok {
				return endOfInput(src, <-read)
			}
			if err := w.append(src.name, c); err != nil {
				return err
			}
			free <- c
		case <-w.halt.Done():
			return nil
		}
	}
}

// endOfInput is nil for a proper end.
func endOfInput(src source, err error) error {
	if err == nil || errors.Is(err, os.ErrClosed) || err.Error() == "EOF" {
		return nil
	}
	if src.name == "" {
		return fmt.Errorf("reading stdin: %w", err)
	}
	return fmt.Errorf("reading %s: %w", src.name, err)
}

// append makes records of a chunk and hands them to the producers.
func (w *writer) append(source string, c *chunk) error {
	if len(c.records) == 0 {
		return nil
	}
	p := &pendingChunk{source: source, first: c.records[0].line, receipts: make([]producer.Receipt, 0, len(c.records))}
	records := make([]kafka.Record, 0, len(c.records))
	var stop error
	for i := range c.records {
		p.bytes += c.records[i].size + int64(len(w.shape.delim))
		p.sizes = append(p.sizes, int32(min(c.records[i].size, math.MaxInt32)))
		r, err := w.record(&c.records[i])
		records = append(records, r)
		if err != nil {
			p.refuse(i, err)
			if !w.keepGoing {
				stop = errStopInput
				break
			}
		}
	}
	if err := w.send(p, records); err != nil {
		stop = err
	}
	select {
	case w.pending <- p:
	case <-w.app.work.Done():
		return context.Cause(w.app.work)
	}
	return stop
}

// send appends the records that are not refused yet, each run of one kind at
// once.
func (w *writer) send(p *pendingChunk, records []kafka.Record) error {
	for i := len(p.receipts); i < len(records); i = len(p.receipts) {
		if p.errs[i] != nil {
			p.receipts = append(p.receipts, producer.Receipt{})
			continue
		}
		n := 1
		for i+n < len(records) && p.errs[i+n] == nil && (records[i+n].Partition < 0) == (records[i].Partition < 0) {
			n++
		}
		out, err := w.output(&records[i])
		if err != nil {
			return fmt.Errorf("%s: %w", lineName(p.source, p.first+int64(i)), err)
		}
		p.receipts, err = out.AppendAll(w.halt, records[i:i+n], p.receipts)
		if err == nil {
			continue
		}
		if w.halt.Err() != nil {
			w.cutOff = lineName(p.source, p.first+int64(len(p.receipts)))
			return nil
		}
		p.refuse(len(p.receipts), err)
		p.receipts = append(p.receipts, producer.Receipt{})
		if !w.keepGoing {
			return errStopInput
		}
	}
	return nil
}

// refuse notes that record i is not sent.
func (p *pendingChunk) refuse(i int, err error) {
	if p.errs == nil {
		p.errs = map[int]error{}
	}
	p.errs[i] = err
}

// record makes a record, or says why it cannot be one.
func (w *writer) record(in *inputRecord) (kafka.Record, error) {
	if in.data == nil {
		return kafka.Record{}, &refusedError{fmt.Errorf("a record of %d bytes is too large: `ottla produce` reads records of %d bytes at most", in.size, mostRecord)}
	}
	r, err := w.shape.record(in.data)
	if err != nil {
		return r, &refusedError{fmt.Errorf("not a record: %w", err)}
	}
	if r.Partition >= w.partitions {
		return r, &refusedError{fmt.Errorf("topic %s has no partition %d: its partitions go from 0 to %d; without \"partition\" the key decides", r.Topic, r.Partition, w.partitions-1)}
	}
	return r, nil
}

// collect waits for the results of everything that was appended. After an
// error of the output it only takes what comes, so that nobody waits for it.
func (w *writer) collect() error {
	var failed error
	for p := range w.pending {
		if failed == nil {
			if failed = w.settleChunk(p); failed != nil {
				w.haltNow(failed)
			}
		}
	}
	return failed
}

// settleChunk counts and tells the results of a chunk.
func (w *writer) settleChunk(p *pendingChunk) error {
	for i, receipt := range p.receipts {
		res := producer.Result{Topic: w.shape.base.Topic, Partition: -1, Offset: -1, Err: p.errs[i]}
		if res.Err == nil {
			res = receipt.Result(w.app.work)
		}
		if res.Err != nil {
			w.tell(lineName(p.source, p.first+int64(i)), w.sized(res.Err, p.sizes[i]))
		} else {
			w.tally.written++
		}
		if w.report {
			if err := w.app.stdout.printf("%s\t%d\t%d", res.Topic, res.Partition, res.Offset); err != nil {
				return err
			}
		}
	}
	w.tally.bytes += p.bytes
	w.app.notes.progress(time.Now(), w.tally.line)
	if w.report && len(w.pending) == 0 {
		return w.app.stdout.flush()
	}
	return nil
}

// tell counts and names a record that is not written for certain. Without
// --keep-going it names the first one only, and stops the input.
func (w *writer) tell(line string, err error) {
	unknown := kafka.MayHaveHappened(err)
	first := w.tally.refused+w.tally.unknown == 0
	if unknown {
		w.tally.unknown++
	} else {
		w.tally.refused++
	}
	if w.app.interrupted() && unknown {
		return // the last line says how many
	}
	if first || w.keepGoing {
		what := "refused"
		if unknown {
			what = "it is not known whether it is written"
		}
		w.app.notes.printf("ottla: %s: %s: %s", line, what, oneLine(w.app.explain(on(err, "Write", "topic "+w.shape.base.Topic))))
		w.app.detail(err)
	}
	if !w.keepGoing {
		w.haltNow(errStopInput)
	}
}

// sized adds size and limit to a broker's refusal of a record that is too
// large; other errors stay as they are.
func (w *writer) sized(err error, size int32) error {
	if !errors.Is(err, kerr.MessageTooLarge) || kafka.MayHaveHappened(err) {
		return err
	}
	var large *kafka.TooLargeError
	if errors.As(err, &large) {
		err = large.Refused // the size that is told is the record's, the limit the topic's
	}
	return &refusedError{fmt.Errorf("a record of %d bytes is too large for the broker: %s: %w", size, w.limit(), err)}
}

// messageLimit asks for the topic's max.message.bytes.
func messageLimit(ctx context.Context, c *client, topic string) string {
	list, err := settingsOf(ctx, c, topic, true)
	if err == nil {
		for _, s := range list {
			if s.Name == "max.message.bytes" && s.Value != nil {
				return "the topic's max.message.bytes is " + *s.Value
			}
		}
	}
	return "the limit is the topic's max.message.bytes"
}

// line is the progress of a tally.
func (t *tally) line() string {
	took := time.Since(t.began).Seconds()
	text := fmt.Sprintf("%d records, %s, %.0f records/s", t.written, size(t.bytes), float64(t.written)/max(took, 0.001))
	if t.total > 0 && t.bytes > 0 {
		done := min(float64(t.bytes)/float64(t.total), 1)
		left := time.Duration(took / done * (1 - done) * float64(time.Second))
		text += fmt.Sprintf(", %.0f %%, %s left", 100*done, left.Round(time.Second))
	}
	return text
}

// size is a number of bytes for people.
func size(n int64) string {
	switch {
	case n < 1<<10:
		return fmt.Sprintf("%d B", n)
	case n < 1<<20:
		return fmt.Sprintf("%.1f KiB", float64(n)/(1<<10))
	case n < 1<<30:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// finish waits for everything on its way and tells how it ended.
func (w *writer) finish() error {
	for _, p := range []*producer.Producer{w.auto, w.manual} {
		if p != nil {
			_ = p.Flush(w.app.work) // the receipts tell
		}
	}
	close(w.pending)
	if err := w.tasks.Wait(); err != nil {
		return err
	}
	w.app.notes.endProgress()
	if w.inputErr != nil {
		w.app.notes.printf("ottla: %s", oneLine(w.app.explain(w.inputErr)))
	}
	return w.end()
}

// close ends the producers.
func (w *writer) close() {
	w.tx.abort(w.app.work) // if it did not end
	for _, p := range []*producer.Producer{w.auto, w.manual} {
		if p != nil {
			p.Close()
		}
	}
	w.haltNow(nil)
}

// producerFor makes the producer of a record's kind when it is first needed.
func (w *writer) producerFor(r *kafka.Record) (*producer.Producer, error) {
	kind, at := producer.Murmur2, &w.auto
	if r.Partition >= 0 {
		kind, at = producer.Manual, &w.manual
	}
	if *at == nil {
		p, err := w.newOne(kind)
		if err != nil {
			return nil, err
		}
		*at = p
	}
	return *at, nil
}
