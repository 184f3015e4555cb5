package leader

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
	"github.com/ottla/ottla/record/compress"
)

// foreign is a member of another language: it mints once, writes as KIP-890
// part 2 has it, and like a general producer goes on with whatever pair the
// broker answers with.
type foreign struct {
	l    *link
	role string
	pair lead.Token
	seq  map[string]int32
}

func newForeign(l *link, role string) *foreign {
	return &foreign{l: l, role: role, pair: lead.NoToken}
}

func (f *foreign) ask(req kmsg.Request) (kmsg.Response, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	return f.l.RequestBroker(ctx, model.AnyBroker, req, -1)
}

func (f *foreign) adopt(p lead.Token) { f.pair, f.seq = p, map[string]int32{} }

// mint takes an epoch, waiting out transactions that are being ended.
func (f *foreign) mint() int16 {
	for range 50 {
		req := kmsg.NewPtrInitProducerIDRequest()
		req.TransactionalID, req.TransactionTimeoutMillis = &f.role, 10_000
		resp, err := f.ask(req)
		if err != nil {
			return -1
		}
		r := resp.(*kmsg.InitProducerIDResponse)
		if r.ErrorCode == 0 {
			f.adopt(lead.Token{ID: kafka.ProducerID(r.ProducerID), Epoch: kafka.ProducerEpoch(r.ProducerEpoch)})
		}
		if r.ErrorCode != 51 {
			return r.ErrorCode
		}
		time.Sleep(20 * time.Millisecond)
	}
	return 51
}

func (f *foreign) produce(tp kafka.TopicPartition, key, value []byte) int16 {
	var b record.Builder
	b.Reset(nil)
	b.Append(kafka.TimestampOf(time.Now()), key, value, nil)
	seq := f.seq[tp.String()]
	wire, _ := b.Seal(record.Stamp{ProducerID: f.pair.ID, ProducerEpoch: f.pair.Epoch, BaseSequence: seq, Transactional: true}, compress.None, nil, 0, nil)
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &f.role, -1, 1000
	t := kmsg.NewProduceRequestTopic()
	t.Topic = tp.Topic
	f.l.w.with(func(m *model.Cluster) { t.TopicID = m.TopicID(tp.Topic) })
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = tp.Partition, wire
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := f.ask(req)
	if err != nil {
		return -1
	}
	code := resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0].ErrorCode
	if code == 0 {
		f.seq[tp.String()]++
	}
	return code
}

// end is EndTxn 5, whose answer moves the pair.
func (f *foreign) end(commit bool) int16 {
	for range 50 {
		req := kmsg.NewPtrEndTxnRequest()
		req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = f.role, int64(f.pair.ID), int16(f.pair.Epoch), commit
		resp, err := f.ask(req)
		if err != nil {
			return -1
		}
		r := resp.(*kmsg.EndTxnResponse)
		if r.ErrorCode == 0 && r.ProducerID >= 0 {
			f.adopt(lead.Token{ID: kafka.ProducerID(r.ProducerID), Epoch: kafka.ProducerEpoch(r.ProducerEpoch)})
		}
		if r.ErrorCode != 51 {
			return r.ErrorCode
		}
		time.Sleep(20 * time.Millisecond)
	}
	return 51
}

// lease writes a lease in a transaction of its own.
func (f *foreign) lease(token lead.Token, d time.Duration) int16 {
	v := lead.Grant(f.l.name, token, kafka.TimestampOf(time.Now()), d).Append(nil)
	if code := f.produce(placeOf(f.role), lead.Key{Kind: lead.KindLease, Role: f.role}.Append(nil), v); code != 0 {
		return code
	}
	return f.end(true)
}

var data = kafka.TopicPartition{Topic: "data"}

// robbed is the committed records of the data topic whose pair was given to
// somebody else than who wrote them. The values are names.
func (w *world) robbed() []string {
	var out []string
	w.with(func(m *model.Cluster) {
		for _, r := range m.Records(data) {
			pair := lead.Token{ID: r.Producer, Epoch: r.Epoch}
			if by := w.owners[pair]; r.Fate == model.Committed && by.name != string(r.Value) {
				out = append(out, fmt.Sprintf("offset %d: written by %s under %v of %s", r.Offset, r.Value, pair, by.name))
			}
		}
	})
	return out
}

// A holder that is not pinned and idles while a pinned successor takes over
// must stay fenced, whatever it ends: the coordinator may take its EndTxn 5 for
// a repetition where the successor is one epoch above it. Taking the re-init
// out of Elector.take makes this fail.
func TestF11AFencedHolderOfPart2CannotRobItsPinnedSuccessor(t *testing.T) {
	for _, lastCommitted := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(1, model.Config{TransactionVersion: 2})
			w.with(func(m *model.Cluster) { m.CreateTopic("data", 1) })
			old := newForeign(w.link("old"), "r")
			e, err := w.link("new").open(brief)
			if err != nil {
				t.Fatal(err)
			}
			defer e.Close()
			if _, err := e.topic.ensure(t.Context()); err != nil {
				t.Fatal(err)
			}
			if code := old.mint(); code != 0 {
				t.Fatal(code)
			}
			token := old.pair
			if code := old.lease(token, brief.Lease); code != 0 {
				t.Fatal(code)
			}
			term := win(t, e, "r")
			// The successor's last transaction ends as the old holder will ask for.
			if !lastCommitted {
				if err := term.lease.lock(t.Context()); err != nil {
					t.Fatal(err)
				}
				l := term.lease
				for _, act := range []lead.Action{{Step: lead.Add, Pair: l.w.Pair()}, {Step: lead.Abort, Pair: l.w.Pair()}} {
					if a, err := l.send(t.Context(), act, leaseRecord{}); err != nil || a.Code != 0 {
						t.Fatal(a, err)
					}
				}
				l.unlock()
			}
			if code := old.produce(data, nil, []byte("old")); code != 47 {
				t.Errorf("the old holder's write is answered %d", code)
			}
			code := old.end(lastCommitted)
			t.Logf("its EndTxn 5 is answered %d, it goes on with %v; the leader has %v", code, old.pair, term.Token())
			if code == 0 {
				t.Errorf("EndTxn 5 of the old holder is answered 0, with the pair %v", old.pair)
			}
			_ = old.produce(data, nil, []byte("old"))
			_ = old.end(true)
			if err := term.Renew(t.Context()); err != nil {
				t.Errorf("the leader was robbed: %v", err)
			}
			for _, r := range w.robbed() {
				t.Error(r)
			}
		})
	}
}
