package consumer

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/memnet"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// entry is one batch of a model log.
type entry struct {
	base, last kafka.Offset
	wire       []byte
	visible    []kafka.Offset // to a reader of committed records
}

type abortedTx struct {
	pid         kafka.ProducerID
	first, last kafka.Offset // last is the marker's
}

// modelLog is the log of one partition.
type modelLog struct {
	entries []entry
	aborted []abortedTx
	end     kafka.Offset
}

// grow makes a log of about n batches: plain ones, transactions that commit
// and abort, gaps, batches whose last records or all were compacted away.
func grow(rng *rand.Rand, n int) *modelLog {
	l := &modelLog{}
	open := map[kafka.ProducerID][]int{} // entries of open transactions
	for len(l.entries) < n || len(open) > 0 {
		pid := kafka.ProducerID(rng.IntN(3) + 1)
		if len(l.entries) >= n {
			for pid = 1; open[pid] == nil; pid++ {
			}
		}
		switch k := rng.IntN(10); {
		case len(open[pid]) > 0 && (k < 4 || len(l.entries) >= n):
			l.finish(pid, open[pid], rng.IntN(2) == 0)
			delete(open, pid)
		case k < 8:
			l.append(rng, pid, k%2 == 0)
			if k%2 == 0 {
				open[pid] = append(open[pid], len(l.entries)-1)
			}
		default:
			l.end += kafka.Offset(rng.IntN(500)) // compacted away as a whole
		}
	}
	return l
}

func (l *modelLog) append(rng *rand.Rand, pid kafka.ProducerID, tx bool) {
	span := rng.IntN(8) + 1
	kept := span
	if !tx && rng.IntN(4) == 0 {
		kept = rng.IntN(span) // the last ones are gone
	}
	stamp := record.NoProducer
	if tx {
		stamp = record.Stamp{ProducerID: pid, Transactional: true}
	}
	e := entry{base: l.end, last: l.end + kafka.Offset(span) - 1}
	for i := range kept {
		e.visible = append(e.visible, l.end+kafka.Offset(i))
	}
	e.wire = wireBatch(e.base, span, kept, stamp, compress.Codec(rng.IntN(5)), nil)
	l.entries, l.end = append(l.entries, e), e.last+1
}

func (l *modelLog) finish(pid kafka.ProducerID, entries []int, commit bool) {
	kind := record.Abort
	if commit {
		kind = record.Commit
	} else {
		for _, i := range entries {
			l.entries[i].visible = nil
		}
		l.aborted = append(l.aborted, abortedTx{pid, l.entries[entries[0]].base, l.end})
	}
	key := binary.BigEndian.AppendUint16(make([]byte, 2, 4), uint16(kind))
	wire := wireBatch(l.end, 1, 1, record.Stamp{ProducerID: pid, Transactional: true}, 0, key)
	l.entries = append(l.entries, entry{base: l.end, last: l.end, wire: wire})
	l.end++
}

// wireBatch is a batch of span offsets of which the first kept have records. A
// marker key makes it a control batch.
func wireBatch(base kafka.Offset, span, kept int, s record.Stamp, codec compress.Codec, marker []byte) []byte {
	var b record.Builder
	var c compress.Compressor
	b.Reset(nil)
	for i := range max(kept, 1) {
		if marker != nil {
			b.Append(1, marker, make([]byte, 6), nil)
			continue
		}
		b.Append(kafka.Timestamp(i), nil, fmt.Append(nil, int64(base)+int64(i), " aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), nil)
	}
	wire, _ := b.Seal(s, codec, &c, 0, nil)
	if kept == 0 {
		wire = wire[:record.HeaderSize]
		wire[22] &^= 7
		binary.BigEndian.PutUint32(wire[8:], record.HeaderSize-12)
		binary.BigEndian.PutUint32(wire[57:], 0)
	}
	binary.BigEndian.PutUint64(wire, uint64(base))
	binary.BigEndian.PutUint32(wire[12:], 0)
	binary.BigEndian.PutUint32(wire[23:], uint32(span-1))
	if marker != nil {
		wire[22] |= 0x20
	}
	binary.BigEndian.PutUint32(wire[17:], crc32.Checksum(wire[21:], crc32.MakeTable(crc32.Castagnoli)))
	return wire
}

// committed is what a reader from an offset on must be given.
func (l *modelLog) committed(from kafka.Offset) (want []kafka.Offset) {
	for _, e := range l.entries {
		for _, o := range e.visible {
			if o >= from {
				want = append(want, o)
			}
		}
	}
	return want
}

// liar serves model logs, badly.
type liar struct {
	mu   sync.Mutex // guards rng
	rng  *rand.Rand
	sim  *sim.Cluster
	logs map[int32]*modelLog
}

func (l *liar) fetch(r *sim.Request) sim.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	req := r.Req.(*kmsg.FetchRequest)
	resp := r.Response().(*kmsg.FetchResponse)
	more := false
	for _, rt := range req.Topics {
		t := kmsg.NewFetchResponseTopic()
		t.TopicID, t.Topic = rt.TopicID, rt.Topic
		for _, rp := range rt.Partitions {
			p := l.partition(rp)
			more = more || len(p.RecordBatches) > 0
			t.Partitions = append(t.Partitions, p)
			if l.rng.IntN(10) == 0 { // the same once more
				t.Partitions = append(t.Partitions, p)
			}
			if l.rng.IntN(10) == 0 { // one that nobody asked for
				wrong := p
				wrong.Partition = 77
				t.Partitions = append(t.Partitions, wrong)
			}
		}
		resp.Topics = append(resp.Topics, t)
		if l.rng.IntN(10) == 0 { // a topic that nobody asked for
			t.TopicID[3] ^= 1
			resp.Topics = append(resp.Topics, t)
		}
	}
	a := sim.Reply(resp)
	switch k := l.rng.IntN(40); {
	case k == 0:
		a.Cut, a.End = 1+l.rng.IntN(200), sim.Close
	case k == 1:
		a.End = sim.Reset
	case k < 10:
		a.Delay = time.Duration(l.rng.IntN(300)) * time.Millisecond
	case !more:
		a.Delay = time.Duration(req.MaxWaitMillis) * time.Millisecond
	}
	return a
}

func (l *liar) partition(rp kmsg.FetchRequestTopicPartition) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	log := l.logs[rp.Partition]
	p.Partition = rp.Partition
	p.HighWatermark, p.LastStableOffset, p.LogStartOffset = int64(log.end), int64(log.end), 0
	switch k := l.rng.IntN(20); {
	case k == 0:
		codes := []int16{5, 6, 9, 56, 74, 75, 78, 7}
		p.ErrorCode = codes[l.rng.IntN(len(codes))]
		if l.rng.IntN(2) == 0 {
			l.sim.SetLeader("t", rp.Partition, int32(l.rng.IntN(2)+1))
		}
		return p
	case k < 3: // nothing, below the high watermark
		return p
	}
	at := kafka.Offset(rp.FetchOffset)
	first := slices.IndexFunc(log.entries, func(e entry) bool { return e.last >= at })
	if first < 0 {
		return p
	}
	begin := max(first-l.rng.IntN(2), 0) // sometimes one batch too early
	end := min(first+1+l.rng.IntN(6), len(log.entries))
	for _, e := range log.entries[begin:end] {
		p.RecordBatches = append(p.RecordBatches, e.wire...)
	}
	if end < len(log.entries) { // the next one is cut off
		next := log.entries[end].wire
		p.RecordBatches = append(p.RecordBatches, next[:l.rng.IntN(len(next))]...)
	}
	lo, hi := log.entries[begin].base, log.entries[end-1].last
	for _, a := range log.aborted {
		if a.last >= lo && a.first <= hi {
			at := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			at.ProducerID, at.FirstOffset = int64(a.pid), int64(a.first)
			p.AbortedTransactions = append(p.AbortedTransactions, at)
		}
	}
	l.rng.Shuffle(len(p.AbortedTransactions), func(i, j int) {
		as := p.AbortedTransactions
		as[i], as[j] = as[j], as[i]
	})
	return p
}

// epochs answers for the ends of epochs: nothing is ever truncated.
func (l *liar) epochs(r *sim.Request) sim.Answer {
	l.mu.Lock()
	defer l.mu.Unlock()
	resp := r.Response().(*kmsg.OffsetForLeaderEpochResponse)
	for _, qt := range r.Req.(*kmsg.OffsetForLeaderEpochRequest).Topics {
		rt := kmsg.NewOffsetForLeaderEpochResponseTopic()
		rt.Topic = qt.Topic
		for _, qp := range qt.Partitions {
			rp := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			rp.Partition, rp.EndOffset = qp.Partition, int64(l.logs[qp.Partition].end)
			switch l.rng.IntN(6) {
			case 0:
				rp.EndOffset = -1
			case 1:
				rp.ErrorCode = []int16{6, 74, 75}[l.rng.IntN(3)]
			}
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return sim.Reply(resp)
}

// scripted starts a scripted cluster of two brokers and a client of it.
func scripted(t *testing.T, seed uint64, leaders ...int32) (*sim.Cluster, *cluster.Cluster) {
	t.Helper()
	n := memnet.New(seed)
	var ls []net.Listener
	for _, a := range []string{"b1:9092", "b2:9092"} {
		l, err := n.Listen(a)
		if err != nil {
			t.Fatal(err)
		}
		ls = append(ls, l)
	}
	s := sim.New(t, ls...)
	s.SetTopic("t", leaders...)
	c, err := cluster.Connect(t.Context(), cluster.Config{Bootstrap: s.Seeds(), Dial: n.Dial, Rand: rand.NewPCG(seed, 1)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return s, c
}

// A broker that does about everything a broker may do, and some it may not:
// shuffled aborted lists, answers empty below the high watermark, filtered-only
// answers, partitions twice or unasked for, cut tails, batches from before the
// position, errors, moves, lost connections. What is handed out is exactly what
// the model log holds for a reader of committed records. Mutations that fail
// it: no sort of the aborted list, chunk.from ignored, position = last record
// + 1, no generation check.
func TestWhateverABrokerDoesTheCommittedRecordsComeOnceInOrder(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				rng := rand.New(rand.NewPCG(seed, 9))
				s, c := scripted(t, seed+1, 1, 2, 1)
				l := &liar{rng: rng, sim: s, logs: map[int32]*modelLog{}}
				want, n := map[int32][]kafka.Offset{}, 0
				at := map[kafka.TopicPartition]Start{}
				for p := range int32(3) {
					l.logs[p] = grow(rng, 120)
					from := kafka.Offset(rng.IntN(40))
					at[tp("t", p)] = AtOffset(from)
					want[p] = l.logs[p].committed(from)
					n += len(want[p])
				}
				for _, b := range s.Brokers() {
					var sessions sim.FetchSessions
					b.Handle(1, sessions.Handler(l.fetch))
					b.Handle(23, l.epochs)
				}
				cons, err := New(c, Config{MaxPollRecords: 1 + rng.IntN(50), Budget: 1 << 20})
				if err != nil {
					t.Fatal(err)
				}
				defer cons.Close()
				if err := cons.Assign(t.Context(), at); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				r := newReader(t, cons)
				r.until(ctx, n)
				for p := range int32(3) {
					var got []kafka.Offset
					for _, v := range r.values[tp("t", p)] {
						var o kafka.Offset
						fmt.Sscan(v, &o)
						got = append(got, o)
					}
					if !slices.Equal(got, want[p]) {
						t.Errorf("partition %d: %d records, want %d", p, len(got), len(want[p]))
					}
					for { // what follows without data is passed too
						if pos, _ := cons.Position(ctx, tp("t", p)); pos == l.logs[p].end {
							break
						}
						if ctx.Err() != nil {
							t.Fatalf("partition %d: position below the end %d", p, l.logs[p].end)
						}
						time.Sleep(time.Second)
					}
				}
			})
		})
	}
}

// fetchOf answers every partition that is asked for by f.
func fetchOf(f func(p *kmsg.FetchResponseTopicPartition, offset int64)) sim.Handler {
	return func(r *sim.Request) sim.Answer {
		req := r.Req.(*kmsg.FetchRequest)
		resp := r.Response().(*kmsg.FetchResponse)
		busy := false
		for _, rt := range req.Topics {
			t := kmsg.NewFetchResponseTopic()
			t.TopicID, t.Topic = rt.TopicID, rt.Topic
			for _, rp := range rt.Partitions {
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition, p.LastStableOffset = rp.Partition, -1
				f(&p, rp.FetchOffset)
				busy = busy || p.ErrorCode != 0 || len(p.RecordBatches) > 0
				t.Partitions = append(t.Partitions, p)
			}
			resp.Topics = append(resp.Topics, t)
		}
		a := sim.Reply(resp)
		if !busy {
			a.Delay = time.Duration(req.MaxWaitMillis) * time.Millisecond
		}
		return a
	}
}

// F42 and F8: the batches of others are not lost to an error. Mutation: Poll
// that returns nil batches with an error.
func TestF42APollReturnsBatchesAndAnErrorSideBySide(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := scripted(t, 1, 1, 1, 1)
		s.Broker(1).Handle(1, fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) {
			switch {
			case p.Partition == 0 || p.Partition == 1:
				p.ErrorCode = []int16{29, 10}[p.Partition]
			case o == 0:
				p.HighWatermark = 2
				p.RecordBatches = wireBatch(0, 2, 2, record.NoProducer, 0, nil)
			}
		}))
		cons, err := New(c, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer cons.Close()
		at := map[kafka.TopicPartition]Start{}
		for p := range int32(3) {
			at[tp("t", p)] = AtOffset(0)
		}
		if err := cons.Assign(t.Context(), at); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		bs, err := cons.Poll(t.Context())
		if len(bs) != 1 || bs[0].Partition != 2 {
			t.Errorf("%d batches", len(bs))
		}
		var joined interface{ Unwrap() []error }
		if !errors.As(err, &joined) || len(joined.Unwrap()) != 2 {
			t.Fatalf("error %v", err)
		}
		for i, e := range joined.Unwrap() {
			var op *kafka.OpError
			if !errors.As(e, &op) || op.Partition != int32(i) || op.Topic != "t" || op.Broker != 1 {
				t.Errorf("%v", e)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if bs, err := cons.Poll(ctx); len(bs) != 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("told again: %d batches, %v", len(bs), err)
		}
	})
}

// F23 through the whole consumer: one error, the data before it is not lost,
// nothing spins, and a seek goes on behind it.
func TestF23ACorruptBatchStopsItsPartitionWithWhereToGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := scripted(t, 1, 1)
		bad := wireBatch(2, 2, 2, record.NoProducer, compress.Gzip, nil)
		bad[len(bad)-3] ^= 1
		s.Broker(1).Handle(1, fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) {
			p.HighWatermark = 6
			switch {
			case o < 2:
				p.RecordBatches = append(wireBatch(0, 2, 2, record.NoProducer, compress.LZ4, nil), bad...)
			case o < 4:
				p.RecordBatches = append(bad[:len(bad):len(bad)], wireBatch(4, 2, 2, record.NoProducer, 0, nil)...)
			case o < 6:
				p.RecordBatches = wireBatch(4, 2, 2, record.NoProducer, 0, nil)
			}
		}))
		cons, err := New(c, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer cons.Close()
		assign(t, cons, tp("t", 0))
		if err := cons.Seek(tp("t", 0), AtOffset(0)); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r := newReader(t, cons)
		for len(r.errs) == 0 {
			r.poll(ctx)
		}
		var u *kafka.UnreadableError
		if r.n != 2 || !errors.As(r.errs[0], &u) || u.Offset != 2 || u.Next != 4 || u.TopicPartition != tp("t", 0) {
			t.Fatalf("%d records, %v", r.n, r.errs)
		}
		before := s.Count(1)
		time.Sleep(time.Minute)
		if n := s.Count(1) - before; n > 1 {
			t.Errorf("%d fetches of a stopped partition", n)
		}
		if err := cons.Seek(tp("t", 0), AtOffset(u.Next)); err != nil {
			t.Fatal(err)
		}
		r.errs = nil
		ctx2, cancel2 := context.WithTimeout(t.Context(), time.Minute)
		defer cancel2()
		r.until(ctx2, 4)
	})
}

// F1: the next Fetch is at the broker although nobody polls.
func TestF1TheNextFetchGoesOutWithoutAPoll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := scripted(t, 1, 1)
		s.Broker(1).Handle(1, fetchOf(func(p *kmsg.FetchResponseTopicPartition, o int64) {
			if o < 10 {
				p.HighWatermark = 10
				p.RecordBatches = wireBatch(kafka.Offset(o), 1, 1, record.NoProducer, 0, nil)
			}
		}))
		cons, err := New(c, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer cons.Close()
		if err := cons.Assign(t.Context(), map[kafka.TopicPartition]Start{tp("t", 0): AtOffset(0)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		fs := s.Broker(1).FramesOf(1)
		if len(fs) < 11 {
			t.Fatalf("%d fetches with nobody polling", len(fs))
		}
		if got := fs[10].Req.(*kmsg.FetchRequest).Topics[0].Partitions[0].FetchOffset; got != 10 {
			t.Errorf("fetch 11 is at %d", got)
		}
	})
}

// Mutation: the actor does not look at the cluster's events.
func TestALeaderThatOthersLearnedOfIsUsedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := scripted(t, 1, 1)
		for _, b := range s.Brokers() {
			b.Handle(1, fetchOf(func(*kmsg.FetchResponseTopicPartition, int64) {}))
		}
		cons, err := New(c, Config{MaxWait: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		defer cons.Close()
		if err := cons.Assign(t.Context(), map[kafka.TopicPartition]Start{tp("t", 0): AtOffset(0)}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second) // a fetch is parked at broker 1
		s.SetLeader("t", 0, 2)
		c.InvalidateLeader(tp("t", 0)) // somebody else was refused there
		time.Sleep(time.Second)
		if n := s.Broker(2).Count(1); n != 1 {
			t.Errorf("%d fetches at the new leader", n)
		}
	})
}

// Mutation: listOffsets that drops a partial error.
func TestF39ALeaderThatDoesNotAnswerLeavesItsPartitionsOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, c := scripted(t, 1, 1, 2)
		s.Broker(1).Handle(2, func(r *sim.Request) sim.Answer {
			resp := r.Response().(*kmsg.ListOffsetsResponse)
			rt, rp := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
			rt.Topic, rp.Offset = "t", 42
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return sim.Reply(resp)
		})
		s.Broker(2).Close()
		cons, err := New(c, Config{})
		if err != nil {
			t.Fatal(err)
		}
		defer cons.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		end, err := cons.End(ctx, tp("t", 0), tp("t", 1))
		if _, ok := end[tp("t", 1)]; ok || end[tp("t", 0)] != 42 {
			t.Errorf("%v", end)
		}
		var op *kafka.OpError
		if !errors.As(err, &op) || op.Topic != "t" || op.Partition != 1 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("error %v", err)
		}
	})
}
