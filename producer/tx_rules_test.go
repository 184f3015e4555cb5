package producer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/model/serve"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

var inputs = map[kafka.TopicPartition]kafka.Commit{{Topic: "in", Partition: 0}: {Offset: 7}}

func member(generation int32) kafka.GroupMetadata {
	return kafka.GroupMetadata{Group: "g", MemberID: "m", Generation: generation}
}

// The mutations that make it fail: the gate asks for one of the versions less,
// or not for the feature.
func TestP40_R2Part2NeedsTheFeatureAndEveryVersion(t *testing.T) {
	type caps map[int16]int16
	for _, c := range []struct {
		name  string
		level int16
		caps  caps
		part2 bool
	}{
		{"level 0", 0, nil, false}, {"level 1", 1, nil, false}, {"level 2", 2, nil, true},
		{"Produce capped", 2, caps{keyProduce: 11}, false}, {"EndTxn capped", 2, caps{keyEnd: 4}, false},
		{"TxnOffsetCommit capped", 2, caps{keyOffsets: 4}, false}, {"caps that allow it", 2, caps{keyProduce: 12, keyEnd: 5, keyOffsets: 5}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			inTxBubbleOf(t, model.Config{TransactionVersion: c.level}, func(r *txRig) {
				p, err := New(r.cluster(func(cfg *cluster.Config) { cfg.MaxVersions = c.caps }), Config{TransactionalID: "id", Partitioner: Manual})
				r.must("new", err)
				defer p.Close()
				for range 2 {
					tx := r.begin(p)
					r.must("send", r.send(tx, 0, fmt.Sprint(time.Now())))
					r.must("offsets", tx.SendOffsets(r.ctx, kafka.GroupMetadata{Group: "g", Generation: -1}, inputs))
					r.must("commit", tx.Commit(r.ctx))
				}
				produced, ended, offsets := r.versions(keyProduce), r.versions(keyEnd), r.versions(keyOffsets)
				enrolled, groups := len(r.frames(keyEnrol)), len(r.frames(keyAddOffsets))
				if c.part2 && (produced[0] < 12 || ended[0] != 5 || offsets[0] != 5 || enrolled > 0 || groups > 0) {
					t.Errorf("part 2: Produce %v, EndTxn %v, TxnOffsetCommit %v, %d enrolments", produced, ended, offsets, enrolled)
				}
				if !c.part2 && (slices.Max(produced) > 11 || slices.Max(ended) > 4 || slices.Max(offsets) > 4 || enrolled != 2 || groups != 2) {
					t.Errorf("part 1: Produce %v, EndTxn %v, TxnOffsetCommit %v, %d and %d enrolments", produced, ended, offsets, enrolled, groups)
				}
			})
		})
	}
}

func TestP40TheProtocolDoesNotChangeInsideATransaction(t *testing.T) {
	inTxBubble(t, 1, func(r *txRig) {
		p := r.producer()
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "a"))
		r.s.Model(func(m *model.Cluster) { m.SetLevel(2) })
		r.must("send", r.send(tx, 1, "b"))
		r.must("commit", tx.Commit(r.ctx))
		if vs := append(r.versions(keyProduce), r.versions(keyEnd)...); !slices.Equal(vs, []int16{11, 4}) {
			t.Errorf("versions %v", vs)
		}
		r.want(map[string]model.Fate{"a": model.Committed, "b": model.Committed})
	})
}

// A batch sent before its partition is enrolled, or an enrolment for each batch,
// makes it fail.
func TestP41_R25OneEnrolmentForAllPartitionsBeforeTheirFirstBatch(t *testing.T) {
	inTxBubbleOf(t, model.Config{TransactionVersion: 1}, func(r *txRig) {
		r.s.Model(func(m *model.Cluster) { m.CreateTopic("wide", 40) })
		p := r.producer()
		for round := range 2 {
			tx := r.begin(p)
			for i := range int32(40) {
				if _, err := tx.Append(r.ctx, kafka.Record{Topic: "wide", Partition: i, Value: []byte("v")}); err != nil {
					t.Fatal(err)
				}
			}
			r.must("flush", p.Flush(r.ctx))
			_, err := tx.Send(r.ctx, kafka.Record{Topic: "wide", Partition: 3, Value: []byte("again")})
			r.must("send", err)
			r.must("commit", tx.Commit(r.ctx))
			if n := len(r.frames(keyEnrol)); n > 2*(round+1) {
				t.Errorf("%d enrolments in %d transactions", n, round+1)
			}
		}
		enrolled := map[int32]time.Time{}
		n := 0
		for _, f := range r.frames(keyEnrol) {
			if f.Version != 3 {
				t.Errorf("AddPartitionsToTxn went out at version %d", f.Version)
			}
			for _, rt := range f.Req.(*kmsg.AddPartitionsToTxnRequest).Topics {
				for _, i := range rt.Partitions {
					enrolled[i] = f.At
					n++
				}
			}
		}
		if n != 80 {
			t.Errorf("40 partitions were enrolled %d times in two transactions", n)
		}
		last := map[int32]time.Time{}
		for _, f := range r.frames(keyProduce) {
			for _, rt := range f.Req.(*kmsg.ProduceRequest).Topics {
				for _, rp := range rt.Partitions {
					last[rp.Partition] = f.At
				}
			}
		}
		for i, at := range last {
			if at.Before(enrolled[i]) {
				t.Errorf("partition %d was written before it was enrolled", i)
			}
		}
	})
}

// The mutation: a refusal of one partition forgets what was enrolled before.
func TestP41_B113ARefusedEnrolmentLosesNoOther(t *testing.T) {
	inTxBubble(t, 1, func(r *txRig) {
		r.intercept(keyEnrol, func(q *sim.Request, nth int) (sim.Answer, bool) {
			if nth != 2 && nth != 3 {
				return sim.Answer{}, false
			}
			resp := refusal(q, 55).(*kmsg.AddPartitionsToTxnResponse)
			for i := range resp.Topics[0].Partitions {
				if p := &resp.Topics[0].Partitions[i]; p.Partition == 1 {
					p.ErrorCode = 3
				}
			}
			return sim.Reply(resp), true
		})
		p := r.producer()
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "p0"))
		r.add(tx, 1, "p1")
		r.add(tx, 2, "p2")
		r.must("flush", p.Flush(r.ctx))
		r.must("send", r.send(tx, 0, "p0 again"))
		r.must("commit", tx.Commit(r.ctx))
		for i, f := range r.frames(keyEnrol) {
			if i > 0 && slices.Contains(f.Req.(*kmsg.AddPartitionsToTxnRequest).Topics[0].Partitions, 0) {
				t.Error("partition 0 was enrolled again")
			}
		}
		c := model.Committed
		r.want(map[string]model.Fate{"p0": c, "p0 again": c, "p1": c, "p2": c})
	})
	inTxBubble(t, 1, func(r *txRig) { // refused for good
		r.refuse(keyEnrol, -1, 29)
		p := r.producer()
		tx := r.begin(p)
		if err := r.send(tx, 0, "no"); !errors.Is(err, kerr.TopicAuthorizationFailed) || kafka.MayHaveHappened(err) {
			t.Errorf("the record: %v", err)
		}
		if err := tx.Commit(r.ctx); !errors.Is(err, kafka.ErrAbortable) || !errors.Is(err, kerr.TopicAuthorizationFailed) {
			t.Errorf("commit: %v", err)
		}
		r.must("abort", tx.Abort(r.ctx))
		r.must("begin", second(p.Begin(r.ctx)))
		r.want(map[string]model.Fate{})
	})
}

// An answer that leaves a partition out says nothing about it: it is not enrolled,
// and its records wait. The mutation: what is left out taken for enrolled.
func TestP41AnEnrolmentThatLeavesAPartitionOutIsAskedForAgain(t *testing.T) {
	inTxBubble(t, 1, func(r *txRig) {
		r.intercept(keyEnrol, func(q *sim.Request, nth int) (sim.Answer, bool) {
			return sim.Reply(q.Req.(*kmsg.AddPartitionsToTxnRequest).ResponseKind()), nth == 1
		})
		tx := r.begin(r.producer())
		r.must("send", r.send(tx, 0, "v"))
		if n := len(r.frames(keyEnrol)); n != 2 {
			t.Errorf("asked %d times", n)
		}
		r.must("commit", tx.Commit(r.ctx))
		r.want(map[string]model.Fate{"v": model.Committed})
	})
}

// An enrolment without an answer may have opened the transaction, although no
// record ever left: its end is told to the coordinator. The mutation: enrolments
// that are asked for and not answered left out of what has to be ended.
func TestP41_P43AnEnrolmentInDoubtIsEnded(t *testing.T) {
	inTxBubble(t, 1, func(r *txRig) {
		r.intercept(keyEnrol, func(q *sim.Request, nth int) (sim.Answer, bool) {
			r.s.Answer(q)
			return sim.Answer{End: sim.Reset}, true
		})
		tx := r.begin(r.producer())
		r.add(tx, 0, "v")
		time.Sleep(time.Second)
		r.must("abort", tx.Abort(r.ctx))
		if len(r.frames(keyEnrol)) == 0 || len(r.frames(keyEnd)) == 0 {
			t.Errorf("%d enrolments, %d ends", len(r.frames(keyEnrol)), len(r.frames(keyEnd)))
		}
		r.want(map[string]model.Fate{})
	})
}

// A topic that is not there any more is waited for as long as Config says, not
// until the records are out of time. The mutation: enrolments without patience's
// end.
func TestP41_P46ATopicThatIsGoneEndsTheEnrolment(t *testing.T) {
	inTxBubble(t, 1, func(r *txRig) {
		r.refuse(keyEnrol, -1, 3)
		p := r.producer()
		tx := r.begin(p)
		began := time.Now()
		if err := r.send(tx, 0, "no"); !errors.Is(err, kerr.UnknownTopicOrPartition) || kafka.MayHaveHappened(err) {
			t.Errorf("the record: %v", err)
		}
		if d := time.Since(began); d < 5*time.Second || d > 20*time.Second {
			t.Errorf("it took %v", d)
		}
		r.must("abort", tx.Abort(r.ctx))
		r.want(map[string]model.Fate{})
	})
}

// A coordinator that has forgotten the id has nothing to abort, and the next
// transaction has a new identity: every one under the old would fail. The
// mutation: onNothingToEnd without stale.
func TestP45_P19AnAbortAnswered49IsFollowedByANewIdentity(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		r.intercept(keyEnd, func(q *sim.Request, nth int) (sim.Answer, bool) {
			if nth == 1 {
				r.s.Answer(q) // nothing is left open
			}
			return sim.Reply(refusal(q, 49)), nth == 1
		})
		p := r.producer()
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "v"))
		r.must("abort", tx.Abort(r.ctx))
		r.begin(p)
		if n := len(r.frames(keyInit)); n < 2 { // more while the end is written
			t.Errorf("asked for an identity %d times", n)
		}
	})
}

func second[T any](_ T, err error) error { return err }

// The mutation: a commit that looks at nothing but the flush.
func TestP42_B112NothingIsCommittedAroundAHole(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		r.intercept(keyProduce, func(q *sim.Request, _ int) (sim.Answer, bool) {
			return sim.Reply(refusal(q, 87)), q.Req.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Partition == 1
		})
		p := r.producer()
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "good"))
		bad := r.add(tx, 1, "bad")
		err := tx.Commit(r.ctx)
		if !errors.Is(err, kafka.ErrAbortable) || !errors.Is(err, kerr.InvalidRecord) || kafka.MayHaveHappened(err) {
			t.Errorf("commit: %v", err)
		}
		if _, err := bad.Wait(r.ctx); !errors.Is(err, kerr.InvalidRecord) {
			t.Errorf("the record: %v", err)
		}
		if _, err := tx.Append(r.ctx, kafka.Record{Topic: "t"}); err == nil {
			t.Error("a doomed transaction takes a record")
		}
		r.must("abort", tx.Abort(r.ctx))
		r.want(map[string]model.Fate{"good": model.Aborted})
		r.s.Model(func(m *model.Cluster) {
			for i := range int32(3) {
				if _, stable, end := m.Bounds(kafka.TopicPartition{Topic: "t", Partition: i}); stable != end {
					t.Errorf("partition %d is stable up to %d of %d: consumers wait", i, stable, end)
				}
			}
		})
		tx = r.begin(p)
		r.must("send", r.send(tx, 0, "next"))
		r.must("commit", tx.Commit(r.ctx))
	})
}

func TestP43WhatSentNothingEndsWithoutARequest(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		p := r.producer()
		r.must("commit", r.begin(p).Commit(r.ctx))
		r.must("abort", r.begin(p).Abort(r.ctx))
		if n := len(r.frames(keyEnd)); n > 0 {
			t.Fatalf("%d EndTxn for nothing", n)
		}
		r.refuse(keyProduce, -1, 87) // attempts without success
		tx := r.begin(p)
		if err := r.send(tx, 0, "x"); err == nil {
			t.Error("the refused record went through")
		}
		r.must("abort", tx.Abort(r.ctx))
		if f := r.frames(keyEnd); len(f) != 1 || f[0].Req.(*kmsg.EndTxnRequest).Commit {
			t.Errorf("after attempts the broker was not told to abort: %d", len(f))
		}
	})
}

// stamps are what the brokers were sent, by value.
func (r *txRig) stamps() map[string]record.Batch {
	out := map[string]record.Batch{}
	for _, f := range r.frames(keyProduce) {
		for _, rt := range f.Req.(*kmsg.ProduceRequest).Topics {
			for _, rp := range rt.Partitions {
				b, _, _ := record.Next(rp.Records)
				payload, _ := b.Payload(nil, nil, 0)
				var rd record.Reader
				var rec kafka.Record
				for rd.Reset(b, payload); rd.Next(&rec); {
					out[string(rec.Value)] = b
				}
			}
		}
	}
	return out
}

// The mutations: the answer's pair is not taken; InitProducerId between
// transactions; sequences that go on under a new epoch, or restart under the
// same one.
func TestP4_P44_R20_B109_B122TheNextTransactionHasThePairOfTheAnswer(t *testing.T) {
	for _, level := range []int16{1, 2} {
		t.Run(fmt.Sprint(level), func(t *testing.T) {
			inTxBubbleOf(t, model.Config{TransactionVersion: level, MaxEpoch: 5}, func(r *txRig) {
				p := r.producer()
				for n := range 8 {
					tx := r.begin(p)
					for i := range 3 - n%2 {
						r.must("send", r.send(tx, 0, fmt.Sprintf("%d/%d", n, i)))
					}
					r.must("commit", tx.Commit(r.ctx))
				}
				if n := len(r.frames(keyInit)); n != 1 {
					t.Errorf("%d InitProducerId requests", n)
				}
				seen, seq := map[string]bool{}, int32(0)
				at := r.stamps()
				for n := range 8 {
					b := at[fmt.Sprintf("%d/0", n)]
					seen[fmt.Sprintf("%d:%d", b.ProducerID(), b.ProducerEpoch())] = true
					if level == 2 && b.BaseSequence() != 0 || level == 1 && b.BaseSequence() != seq {
						t.Errorf("transaction %d begins with sequence %d", n, b.BaseSequence())
					}
					seq += int32(3 - n%2)
				}
				if want := map[int16]int{1: 1, 2: 8}[level]; len(seen) != want {
					t.Errorf("%d pairs in 8 transactions: %v", len(seen), seen)
				}
				for v, fate := range r.fates() {
					if fate != model.Committed {
						t.Errorf("%s: %v", v, fate)
					}
				}
				if len(r.fates()) != 20 {
					t.Errorf("%d records in the log", len(r.fates()))
				}
			})
		})
	}
}

// lostEnds are the ways to lose an EndTxn.
var lostEnds = map[string]func(q *sim.Request, nth int) serve.Fault{
	"carried out, answer lost":         func(_ *sim.Request, nth int) serve.Fault { return serve.Fault{Mute: nth == 1} },
	"not carried out":                  func(_ *sim.Request, nth int) serve.Fault { return serve.Fault{Lost: nth == 1} },
	"carried out later":                lateEnd(1),
	"all of them, and carried out":     func(*sim.Request, int) serve.Fault { return serve.Fault{Mute: true} },
	"all of them, not carried out":     func(*sim.Request, int) serve.Fault { return serve.Fault{Lost: true} },
	"all of them, the first one later": lateEnd(1 << 30),
}

func lateEnd(n int) func(q *sim.Request, nth int) serve.Fault {
	return func(_ *sim.Request, nth int) serve.Fault {
		if nth > n {
			return serve.Fault{}
		}
		f := serve.Fault{Lost: true}
		if nth == 1 {
			f.Again = 700 * time.Millisecond
		}
		return f
	}
}

// The mutations: an unanswered EndTxn taken for success or failure; a new
// transaction without a new epoch (records of the old one ride on its commit, or
// a late copy ends it).
func TestP45_R3_B104_B124AnUnansweredEndIsFoundOutBeforeTheNextTransaction(t *testing.T) {
	for name, fault := range lostEnds {
		for _, commit := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/commit %v", name, commit), func(t *testing.T) {
				atBothLevels(t, func(r *txRig, level int16) { r.unansweredEnd(commit, fault) })
			})
		}
	}
}

func (r *txRig) unansweredEnd(commit bool, fault func(q *sim.Request, nth int) serve.Fault) {
	t := r.t
	p := r.producer(func(c *Config) { c.DeliveryTimeout = 3 * time.Second })
	ends := 0
	r.s.SetFaults(func(q *sim.Request) serve.Fault {
		if q.Key != keyEnd {
			return serve.Fault{}
		}
		ends++
		return fault(q, ends)
	})
	tx := r.begin(p)
	r.must("send", r.send(tx, 0, "first"))
	r.add(tx, 1, "first too")
	var err error
	if commit {
		err = tx.Commit(r.ctx)
	} else {
		err = tx.Abort(r.ctx)
	}
	unknown := err != nil
	if unknown && !kafka.MayHaveHappened(err) {
		t.Fatalf("the end says that it has not happened: %v", err)
	}
	if unknown && commit {
		if err := tx.Commit(r.ctx); err == nil || kafka.MayHaveHappened(err) {
			t.Errorf("a commit of what is in doubt: %v", err)
		}
	}
	r.s.SetFaults(nil)
	next := r.begin(p)
	r.must("send", r.send(next, 0, "second"))
	time.Sleep(time.Second) // a late copy comes here
	r.must("send", r.send(next, 2, "second too"))
	if err := next.Commit(r.ctx); err != nil {
		t.Fatalf("the next transaction: %v", err)
	}
	fates := r.fates()
	first, too := fates["first"], fates["first too"]
	switch {
	case fates["second"] != model.Committed || fates["second too"] != model.Committed:
		t.Errorf("the next transaction is committed, and its records are %v", fates)
	case first != too && commit:
		t.Errorf("the first transaction is half committed: %v", fates)
	case !unknown && commit != (first == model.Committed):
		t.Errorf("the first one ended well and is %v", first)
	case !commit && first == model.Committed:
		t.Errorf("an aborted transaction is committed")
	}
}

func TestP45AbortTellsWhatBecameOfACommitInDoubt(t *testing.T) {
	for _, carriedOut := range []bool{true, false} {
		t.Run(fmt.Sprintf("carried out %v", carriedOut), func(t *testing.T) {
			atBothLevels(t, func(r *txRig, level int16) {
				p := r.producer(func(c *Config) { c.DeliveryTimeout = 3 * time.Second })
				tx := r.begin(p)
				r.must("send", r.send(tx, 0, "v"))
				r.s.SetFaults(func(q *sim.Request) serve.Fault {
					return serve.Fault{Mute: q.Key == keyEnd && carriedOut, Lost: q.Key == keyEnd && !carriedOut}
				})
				if err := tx.Commit(r.ctx); err == nil || !kafka.MayHaveHappened(err) {
					t.Fatalf("commit: %v", err)
				}
				r.s.SetFaults(nil)
				err := tx.Abort(r.ctx)
				want := map[bool]error{true: ErrCommitted, false: nil}[carriedOut]
				if !errors.Is(err, want) {
					t.Errorf("abort: %v, want %v", err, want)
				}
				r.want(map[string]model.Fate{"v": map[bool]model.Fate{true: model.Committed, false: model.Aborted}[carriedOut]})
				tx = r.begin(p)
				r.must("send", r.send(tx, 0, "w"))
				r.must("commit", tx.Commit(r.ctx))
			})
		})
	}
}

// The enrolment is lost, and a copy of it arrives when the commit has gone through
// and its answer has not: the coordinator has a transaction open again, which an
// abort ends. The mutation: that abort taken for the end of the first one.
func TestP45_T10AnAbortOfWhatALateEnrolmentOpenedSaysNothing(t *testing.T) {
	inTxBubble(t, 1, func(r *txRig) {
		p := r.producer(func(c *Config) { c.DeliveryTimeout = 3 * time.Second })
		tx := r.begin(p)
		enrolments := 0
		r.s.SetFaults(func(q *sim.Request) serve.Fault {
			switch q.Key {
			case keyEnrol:
				if enrolments++; enrolments == 1 {
					return serve.Fault{Lost: true, Again: 5 * time.Second}
				}
			case keyEnd:
				return serve.Fault{Mute: true}
			}
			return serve.Fault{}
		})
		r.must("send", r.send(tx, 0, "v"))
		if err := tx.Commit(r.ctx); err == nil || !kafka.MayHaveHappened(err) {
			t.Fatalf("commit: %v", err)
		}
		r.s.SetFaults(nil)
		time.Sleep(4 * time.Second)
		if err := tx.Abort(r.ctx); err == nil || !kafka.MayHaveHappened(err) {
			t.Errorf("abort: %v", err)
		}
		r.want(map[string]model.Fate{"v": model.Committed})
		tx = r.begin(p)
		r.must("send", r.send(tx, 0, "w"))
		r.must("commit", tx.Commit(r.ctx))
	})
}

// The answer to the commit is lost, and something has come between when it is
// asked again. The mutation: 48 to a repeated commit taken for "not committed".
func TestP45ARepeatedCommitAnswered48IsInDoubt(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		r.intercept(keyEnd, func(q *sim.Request, nth int) (sim.Answer, bool) {
			switch nth {
			case 1:
				r.s.Answer(q)
				return sim.Answer{End: sim.Reset}, true
			case 2:
				return sim.Reply(refusal(q, 48)), true
			}
			return sim.Answer{}, false
		})
		tx := r.begin(r.producer())
		r.must("send", r.send(tx, 0, "v"))
		if err := tx.Commit(r.ctx); err == nil || !kafka.MayHaveHappened(err) {
			t.Errorf("commit: %v", err)
		}
		if err := tx.Abort(r.ctx); !errors.Is(err, ErrCommitted) {
			t.Errorf("abort: %v", err)
		}
		r.want(map[string]model.Fate{"v": model.Committed})
	})
}

// -1 says nothing of what the coordinator did.
func TestP45_B104AnEndAnsweredWithMinusOneIsAskedAgain(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		r.refuse(keyEnd, 1, -1)
		p := r.producer()
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "v"))
		r.must("commit", tx.Commit(r.ctx))
		r.want(map[string]model.Fate{"v": model.Committed})
	})
	atBothLevels(t, func(r *txRig, level int16) {
		r.refuse(keyEnd, -1, -1)
		p := r.producer(func(c *Config) { c.DeliveryTimeout = time.Second })
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "v"))
		if err := tx.Commit(r.ctx); err == nil || !kafka.MayHaveHappened(err) {
			t.Errorf("commit: %v", err)
		}
	})
}

// The mutation: 48 to a commit taken for success, or for a matter of luck.
func TestP46_B110ATransactionThatTimedOutIsNotCommitted(t *testing.T) {
	for _, late := range []string{"commit", "send"} {
		t.Run(late, func(t *testing.T) {
			inTxBubble(t, 2, func(r *txRig) {
				p := r.producer(func(c *Config) { c.TransactionTimeout = 10 * time.Second })
				tx := r.begin(p)
				r.must("send", r.send(tx, 0, "v"))
				time.Sleep(25 * time.Second)
				if late == "send" {
					if err := r.send(tx, 0, "too late"); !errors.Is(err, kerr.InvalidProducerEpoch) {
						t.Errorf("a record after the timeout: %v", err)
					}
				}
				err := tx.Commit(r.ctx)
				if !errors.Is(err, kafka.ErrAbortable) || kafka.MayHaveHappened(err) {
					t.Errorf("commit: %v", err)
				}
				if late == "commit" && !errors.Is(err, kerr.InvalidTxnState) {
					t.Errorf("commit: %v", err)
				}
				if err := tx.Abort(r.ctx); err != nil {
					t.Errorf("abort: %v", err)
				}
				tx = r.begin(p)
				r.must("send", r.send(tx, 0, "w"))
				r.must("commit", tx.Commit(r.ctx))
				r.want(map[string]model.Fate{"v": model.Aborted, "w": model.Committed})
			})
		})
	}
	inTxBubble(t, 1, func(r *txRig) { // the first protocol cannot tell it from another instance
		p := r.producer(func(c *Config) { c.TransactionTimeout = 10 * time.Second })
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "v"))
		time.Sleep(25 * time.Second)
		if err := tx.Commit(r.ctx); !errors.Is(err, kafka.ErrFenced) || kafka.MayHaveHappened(err) {
			t.Errorf("commit: %v", err)
		}
		r.want(map[string]model.Fate{"v": model.Aborted})
	})
}

func TestP46_B106_B121ErrorsOfInit(t *testing.T) {
	for code, want := range map[int16]error{50: kerr.InvalidTransactionTimeout, 53: kerr.TransactionalIDAuthorizationFailed} {
		inTxBubble(t, 2, func(r *txRig) {
			r.refuse(keyInit, 1, code)
			p := r.producer()
			at := time.Now()
			if _, err := p.Begin(r.ctx); !errors.Is(err, want) || kafka.MayHaveHappened(err) {
				t.Errorf("begin: %v", err)
			}
			if d := time.Since(at); d > time.Second {
				t.Errorf("it came after %v", d)
			}
			r.must("a later begin", second(p.Begin(r.ctx)))
		})
	}
	inTxBubble(t, 2, func(r *txRig) { // 51 is waited out
		r.intercept(keyInit, func(q *sim.Request, _ int) (sim.Answer, bool) {
			return sim.Reply(refusal(q, 51)), time.Since(started()) < 3*time.Second
		})
		p := r.producer()
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "v"))
		r.must("commit", tx.Commit(r.ctx))
	})
	inTxBubble(t, 2, func(r *txRig) { // until something else comes
		r.intercept(keyInit, func(q *sim.Request, nth int) (sim.Answer, bool) {
			return sim.Reply(refusal(q, map[bool]int16{true: 51, false: 53}[nth <= 2])), true
		})
		if _, err := r.producer().Begin(r.ctx); !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
			t.Errorf("begin: %v", err)
		}
	})
}

// started is when a bubble's clock starts.
func started() time.Time { return time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC) }

func TestP47OffsetsOfAReplacedMemberDoomTheTransaction(t *testing.T) {
	for code, want := range map[int16]error{22: kerr.IllegalGeneration, 25: kerr.UnknownMemberID, 82: kerr.FencedInstanceID, 110: kerr.FencedMemberEpoch} {
		t.Run(fmt.Sprint(code), func(t *testing.T) {
			atBothLevels(t, func(r *txRig, level int16) {
				r.refuse(keyOffsets, 1, code)
				p := r.producer()
				tx := r.begin(p)
				r.must("send", r.send(tx, 0, "v"))
				if err := tx.SendOffsets(r.ctx, member(3), inputs); !errors.Is(err, want) || !errors.Is(err, kafka.ErrAbortable) {
					t.Errorf("offsets: %v", err)
				}
				if err := tx.Commit(r.ctx); !errors.Is(err, kafka.ErrAbortable) || !errors.Is(err, want) {
					t.Errorf("commit: %v", err)
				}
				r.must("abort", tx.Abort(r.ctx))
				r.want(map[string]model.Fate{"v": model.Aborted})
				r.s.Model(func(m *model.Cluster) {
					if at, ok := m.Committed("g", kafka.TopicPartition{Topic: "in"}); ok {
						t.Errorf("the group is at %v", at)
					}
				})
			})
		})
	}
}

// The group's coordinator knows of the one that took over. Mutation: only the
// transaction is given up.
func TestP20_P47OffsetsThatAreAnswered90FenceForGood(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		r.refuse(keyOffsets, 1, kerr.ProducerFenced.Code)
		p := r.producer()
		tx := r.begin(p)
		if err := tx.SendOffsets(r.ctx, member(3), inputs); !errors.Is(err, kafka.ErrFenced) {
			t.Errorf("offsets: %v", err)
		}
		if _, err := p.Begin(r.ctx); !errors.Is(err, kafka.ErrFenced) {
			t.Errorf("begin: %v", err)
		}
	})
}

// A commit that is answered TRANSACTION_ABORTABLE has not happened, and the
// producer goes on behind the abort. Mutation: the code is no other than any.
func TestP46ACommitAnswered120LeavesTheAbort(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		r.refuse(keyEnd, 1, kerr.TransactionAbortable.Code)
		p := r.producer()
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "v"))
		if err := tx.Commit(r.ctx); !errors.Is(err, kafka.ErrAbortable) || !errors.Is(err, kerr.TransactionAbortable) || kafka.MayHaveHappened(err) {
			t.Errorf("commit: %v", err)
		}
		r.must("abort", tx.Abort(r.ctx))
		tx = r.begin(p)
		r.must("send", r.send(tx, 0, "w"))
		r.must("commit", tx.Commit(r.ctx))
		r.want(map[string]model.Fate{"v": model.Aborted, "w": model.Committed})
	})
}

// An offset commit of which a try may have been carried out is in doubt, whatever
// is answered at last. Mutation: the last answer counts.
func TestP47OffsetsInDoubtStayInDoubt(t *testing.T) {
	inTxBubble(t, 1, func(r *txRig) {
		r.intercept(keyOffsets, func(q *sim.Request, nth int) (sim.Answer, bool) {
			if nth == 1 {
				return sim.Answer{End: sim.Reset}, true
			}
			return sim.Reply(refusal(q, kerr.IllegalGeneration.Code)), true
		})
		p := r.producer()
		tx := r.begin(p)
		if err := tx.SendOffsets(r.ctx, member(3), inputs); err == nil || !kafka.MayHaveHappened(err) {
			t.Errorf("offsets: %v", err)
		}
		if err := tx.Commit(r.ctx); !errors.Is(err, kafka.ErrAbortable) {
			t.Errorf("commit: %v", err)
		}
		r.must("abort", tx.Abort(r.ctx))
	})
}

func TestP47AStaleTokenMayBeRenewedOnce(t *testing.T) {
	for _, c := range []struct {
		code int16
		kind kafka.GroupKind
	}{{113, kafka.ConsumerGroup}, {22, kafka.StreamsGroup}} {
		inTxBubble(t, 2, func(r *txRig) {
			r.refuse(keyOffsets, 1, c.code)
			p := r.producer()
			tx := r.begin(p)
			token := member(3)
			token.Kind = c.kind
			if err := tx.SendOffsets(r.ctx, token, inputs); err == nil || errors.Is(err, kafka.ErrAbortable) || kafka.MayHaveHappened(err) {
				t.Errorf("the first refusal: %v", err)
			}
			token.Generation++
			r.must("a fresh token", tx.SendOffsets(r.ctx, token, inputs))
			r.must("commit", tx.Commit(r.ctx))
			f := r.frames(keyOffsets)
			if got := f[len(f)-1].Req.(*kmsg.TxnOffsetCommitRequest); got.Generation != 4 || got.MemberID != "m" {
				t.Errorf("the group was asked as %q in %d", got.MemberID, got.Generation)
			}
			time.Sleep(time.Second) // for the markers
			r.s.Model(func(m *model.Cluster) {
				if at, _ := m.Committed("g", kafka.TopicPartition{Topic: "in"}); at.Offset != 7 {
					t.Errorf("the group is at %v", at)
				}
			})
		})
		inTxBubble(t, 2, func(r *txRig) {
			r.refuse(keyOffsets, -1, c.code)
			tx := r.begin(r.producer())
			token := member(3)
			token.Kind = c.kind
			_ = tx.SendOffsets(r.ctx, token, inputs)
			if err := tx.SendOffsets(r.ctx, token, inputs); !errors.Is(err, kafka.ErrAbortable) {
				t.Errorf("the second refusal: %v", err)
			}
		})
	}
}

// The two coordinators are different brokers here.
func TestP47OffsetsGoToTheGroupsCoordinator(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		r.s.Model(func(m *model.Cluster) {
			m.MoveCoordinator("g", 1)
			m.MoveCoordinator("id", 2)
		})
		p := r.producer()
		tx := r.begin(p)
		r.must("offsets", tx.SendOffsets(r.ctx, kafka.GroupMetadata{Group: "g", Generation: -1}, inputs))
		r.must("commit", tx.Commit(r.ctx))
		if r.s.Broker(1).Count(keyOffsets) != 1 || r.s.Broker(2).Count(keyOffsets) != 0 {
			t.Error("TxnOffsetCommit went elsewhere")
		}
		if n := r.s.Broker(2).Count(keyAddOffsets); n != map[int16]int{1: 1, 2: 0}[level] || r.s.Broker(1).Count(keyAddOffsets) > 0 {
			t.Errorf("AddOffsetsToTxn was sent %d times", n)
		}
	})
}

func TestTransactionsAreForWhoHasAnID(t *testing.T) {
	inTxBubble(t, 2, func(r *txRig) {
		plain, err := New(r.cluster(), Config{})
		r.must("new", err)
		defer plain.Close()
		if _, err := plain.Begin(r.ctx); err == nil {
			t.Error("Begin without a transactional id")
		}
		p := r.producer()
		if _, err := p.Append(r.ctx, kafka.Record{Topic: "t"}); err == nil || kafka.MayHaveHappened(err) {
			t.Errorf("Append outside of a transaction: %v", err)
		}
		tx := r.begin(p)
		if _, err := p.Begin(r.ctx); !errors.Is(err, ErrOpen) {
			t.Errorf("a second transaction: %v", err)
		}
		r.must("commit", tx.Commit(r.ctx))
		for name, f := range map[string]func() error{
			"commit":  func() error { return tx.Commit(r.ctx) },
			"abort":   func() error { return tx.Abort(r.ctx) },
			"offsets": func() error { return tx.SendOffsets(r.ctx, member(1), inputs) },
		} {
			if err := f(); !errors.Is(err, kafka.ErrNoTransaction) || kafka.MayHaveHappened(err) {
				t.Errorf("%s after the end: %v", name, err)
			}
		}
		other := r.begin(p)
		if err := tx.Commit(r.ctx); !errors.Is(err, kafka.ErrNoTransaction) {
			t.Errorf("the last transaction ends the next one: %v", err)
		}
		r.must("send", r.send(other, 0, "v"))
		r.must("commit", other.Commit(r.ctx))
		r.want(map[string]model.Fate{"v": model.Committed})
	})
	for _, cfg := range []Config{
		{TransactionalID: "id", Durability: All}, {TransactionalID: "id", Durability: None}, {TransactionTimeout: time.Second},
		{TransactionalID: "id", TransactionTimeout: -1},
	} {
		if _, err := cfg.withDefaults(); err == nil {
			t.Errorf("P1: %+v is accepted", cfg)
		}
	}
}

func TestShutdownAbortsAnOpenTransaction(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		p := r.producer()
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "v"))
		r.must("shutdown", p.Shutdown(r.ctx))
		r.want(map[string]model.Fate{"v": model.Aborted})
		for name, f := range map[string]func() error{
			"begin":  func() error { return second(p.Begin(r.ctx)) },
			"commit": func() error { return tx.Commit(r.ctx) },
		} {
			if err := f(); !errors.Is(err, cluster.ErrClosed) && !errors.Is(err, kafka.ErrNoTransaction) {
				t.Errorf("%s after the shutdown: %v", name, err)
			}
		}
	})
}

func TestT12CallsOfATransactionEndWithTheirContext(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		p := r.producer()
		for _, key := range []int16{keyInit, keyOffsets, keyEnd} {
			r.intercept(key, func(*sim.Request, int) (sim.Answer, bool) { return sim.Answer{}, true }) // no answer
		}
		calls := []struct {
			key  int16
			name string
			f    func(ctx context.Context, tx *Tx) error
		}{
			{keyInit, "begin", func(ctx context.Context, _ *Tx) error { return second(p.Begin(ctx)) }},
			{keyOffsets, "offsets", func(ctx context.Context, tx *Tx) error { return tx.SendOffsets(ctx, member(1), inputs) }},
			{keyEnd, "abort", func(ctx context.Context, tx *Tx) error { return tx.Abort(ctx) }},
		}
		var tx *Tx
		for _, c := range calls {
			if c.key != keyInit && tx == nil {
				r.intercept(keyInit, func(*sim.Request, int) (sim.Answer, bool) { return sim.Answer{}, false })
				tx = r.begin(p)
				r.must("send", r.send(tx, 0, "v"))
			}
			ctx, cancel := context.WithTimeoutCause(r.ctx, time.Second, errors.New("the caller's reason"))
			at := time.Now()
			err := c.f(ctx, tx)
			cancel()
			if d := time.Since(at); err == nil || d > time.Second+10*time.Millisecond {
				t.Errorf("%s came back after %v: %v", c.name, d, err)
			}
			if c.key != keyInit && !kafka.MayHaveHappened(err) {
				t.Errorf("%s was sent, and its error says that it has not happened: %v", c.name, err)
			}
		}
	})
}
