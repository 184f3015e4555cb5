package model

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// broker is a cluster that a script talks to, the model or a real one.
type broker interface {
	ask(req kmsg.Request) kmsg.Response
	pause() // before the same is asked again
}

// script is a caller of one transactional id and one topic.
type script struct {
	t     *testing.T
	b     broker
	level int16
	id    string
	topic string

	timeout int32 // of transactions, in ms; 0 = a minute
	partTwo bool  // the broker knows EndTxn 5 and what came with it
}

const transactionTimeout = 60_000

func (s *script) tp(i int32) kafka.TopicPartition {
	return kafka.TopicPartition{Topic: s.topic, Partition: i}
}

// again asks until the answer is not "in between" any more.
func (s *script) again(f func() int16) int16 {
	s.t.Helper()
	for range 400 {
		switch code := f(); code {
		case 51, 14, 15, 16, 6: // under way, or a cold broker
			s.b.pause()
		default:
			return code
		}
	}
	s.t.Fatal("does not come to rest")
	return 0
}

// initOnce is one InitProducerId.
func (s *script) initOnce(version int16, held pair) (pair, int16) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.Version, req.TransactionalID, req.TransactionTimeoutMillis = version, &s.id, cmp.Or(s.timeout, transactionTimeout)
	req.ProducerID, req.ProducerEpoch = int64(held.id), int16(held.epoch)
	resp := s.b.ask(req).(*kmsg.InitProducerIDResponse)
	return pair{kafka.ProducerID(resp.ProducerID), kafka.ProducerEpoch(resp.ProducerEpoch)}, resp.ErrorCode
}

var nobody = pair{-1, -1}

func (s *script) init(held pair) (p pair, code int16) {
	s.t.Helper()
	code = s.again(func() int16 { p, code = s.initOnce(4, held); return code })
	return p, code
}

// mint is a new pair.
func (s *script) mint() pair {
	s.t.Helper()
	p, code := s.init(nobody)
	s.want("mint", code, 0)
	return p
}

func (s *script) addOnce(version int16, p pair, parts ...int32) int16 {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = version, s.id, int64(p.id), int16(p.epoch)
	rt := kmsg.NewAddPartitionsToTxnRequestTopic()
	rt.Topic, rt.Partitions = s.topic, parts
	req.Topics = append(req.Topics, rt)
	return s.b.ask(req).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode
}

func (s *script) add(p pair, parts ...int32) int16 {
	s.t.Helper()
	return s.again(func() int16 { return s.addOnce(3, p, parts...) })
}

// produceOnce writes one record, in the transaction of p unless plain.
func (s *script) produceOnce(version int16, p pair, part, seq int32, transactional bool) (int16, kafka.Offset) {
	var b record.Builder
	b.Append(1_700_000_000_000, []byte("k"), fmt.Append(nil, p, seq), nil)
	stamp := record.Stamp{ProducerID: p.id, ProducerEpoch: p.epoch, BaseSequence: seq, Transactional: transactional}
	wire, _ := b.Seal(stamp, 0, nil, 0, nil)
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = version, -1, 10_000
	if transactional {
		req.TransactionID = &s.id
	}
	rt := kmsg.NewProduceRequestTopic()
	rt.Topic = s.topic
	rp := kmsg.NewProduceRequestTopicPartition()
	rp.Partition, rp.Records = part, wire
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	out := s.b.ask(req).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	return out.ErrorCode, kafka.Offset(out.BaseOffset)
}

func (s *script) produce(version int16, p pair, part, seq int32) int16 {
	s.t.Helper()
	return s.again(func() int16 { code, _ := s.produceOnce(version, p, part, seq, true); return code })
}

func (s *script) endOnce(version int16, p pair, commit bool) (pair, int16) {
	req := kmsg.NewPtrEndTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = version, s.id, int64(p.id), int16(p.epoch), commit
	resp := s.b.ask(req).(*kmsg.EndTxnResponse)
	return pair{kafka.ProducerID(resp.ProducerID), kafka.ProducerEpoch(resp.ProducerEpoch)}, resp.ErrorCode
}

// end ends the transaction and waits until its markers are written, which the
// same request tells: a partition that has none yet takes more.
func (s *script) end(version int16, p pair, commit bool) (next pair, code int16) {
	s.t.Helper()
	for range 2 {
		code = s.again(func() int16 { next, code = s.endOnce(version, p, commit); return code })
		if code != 0 {
			break
		}
	}
	return next, code
}

func (s *script) offsetsOnce(version int16, p pair, group string) int16 {
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Version, req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = version, s.id, group, int64(p.id), int16(p.epoch)
	req.Generation = -1
	rt := kmsg.NewTxnOffsetCommitRequestTopic()
	rt.Topic = s.topic
	rp := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	rp.Offset, rp.LeaderEpoch = 7, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return s.b.ask(req).(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0].ErrorCode
}

func (s *script) offsets(version int16, p pair, group string) int16 {
	s.t.Helper()
	return s.again(func() int16 { return s.offsetsOnce(version, p, group) })
}

func (s *script) addOffsets(p pair, group string) int16 {
	s.t.Helper()
	return s.again(func() int16 { return s.addOffsetsOnce(3, p, group) })
}

func (s *script) addOffsetsOnce(version int16, p pair, group string) int16 {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = version, s.id, int64(p.id), int16(p.epoch), group
	return s.b.ask(req).(*kmsg.AddOffsetsToTxnResponse).ErrorCode
}

func (s *script) want(what string, got, want int16) {
	s.t.Helper()
	if got != want {
		s.t.Fatalf("%s: code %d, want %d", what, got, want)
	}
}

func (s *script) wantPair(what string, got, want pair) {
	s.t.Helper()
	if got != want {
		s.t.Fatalf("%s: %v, want %v", what, got, want)
	}
}

func (p pair) plus(n kafka.ProducerEpoch) pair { return pair{p.id, p.epoch + n} }

// facts are what brokers do, as scripts that hold for the model and for a real
// broker alike.
var facts = map[string]func(s *script){
	"the pinned protocol keeps the pair": func(s *script) {
		p := s.mint()
		for n := range int32(3) {
			s.want("add", s.add(p, 0), 0)
			s.want("produce", s.produce(11, p, 0, n), 0)
			_, code := s.end(4, p, n != 1)
			s.want("end", code, 0)
			_, code = s.end(4, p, n != 1)
			s.want("the same end again", code, 0)
			_, code = s.end(4, p, n == 1)
			s.want("the other end", code, 48)
		}
	},
	"mints count up, and fence": func(s *script) {
		p := s.mint()
		q := s.mint()
		s.wantPair("second mint", q, p.plus(1))
		s.want("add", s.addOnce(3, p, 0), 90)
		s.want("add below version 2", s.addOnce(1, p, 0), 47)
		_, code := s.endOnce(4, p, true)
		s.want("end", code, 90)
		s.want("offsets", s.offsets(4, p, s.topic), 47)
		s.want("produce", s.produce(11, p, 0, 0), 47)
		if s.partTwo {
			s.want("produce 12", s.produce(12, p, 0, 0), 47)
		}
		_, code = s.initOnce(4, p)
		s.want("re-init", code, 90)
		_, code = s.initOnce(3, p)
		s.want("re-init below version 4", code, 47)
	},
	"a re-init follows the own pair only": func(s *script) {
		p := s.mint()
		q, code := s.init(p)
		s.want("re-init", code, 0)
		s.wantPair("re-init", q, p.plus(1))
		again, code := s.init(p)
		s.want("the same again", code, 0)
		s.wantPair("the same again", again, q)
		_, code = s.init(q.plus(5))
		s.want("an epoch ahead", code, 90)
		_, code = s.init(pair{p.id + 100_000, 0})
		s.want("another id", code, 90)
		r, code := s.init(q)
		s.want("re-init", code, 0)
		s.wantPair("re-init", r, q.plus(1))
		_, code = s.init(p)
		s.want("two behind", code, 90)
	},
	"a mint over an open transaction aborts it": func(s *script) {
		p := s.mint()
		s.want("add", s.add(p, 0), 0)
		s.want("produce", s.produce(11, p, 0, 0), 0)
		_, code := s.initOnce(4, nobody)
		s.want("first answer", code, 51)
		q := s.mint()
		s.wantPair("mint", q, p.plus(2))
		s.want("produce of the old one", s.produce(11, p, 0, 1), 47)
	},
	"a half mint fences": func(s *script) {
		p := s.mint()
		s.want("add", s.add(p, 0), 0)
		s.want("produce", s.produce(11, p, 0, 0), 0)
		_, code := s.initOnce(4, nobody)
		s.want("half a mint", code, 51)
		s.want("add", s.again(func() int16 { return s.addOnce(3, p, 0) }), 90)
		_, code = s.end(4, p, true)
		s.want("pinned end", code, 90)
		if s.partTwo {
			_, code = s.end(5, p, true)
			s.want("commit 5", code, 48)
		}
		q, code := s.init(p)
		if s.level >= 2 {
			s.want("re-init", code, 0)
			s.wantPair("re-init", q, p.plus(1))
		} else {
			s.want("re-init", code, 90)
		}
	},
	"a re-init over the own open transaction": func(s *script) {
		p := s.mint()
		s.want("add", s.add(p, 0), 0)
		s.want("produce", s.produce(11, p, 0, 0), 0)
		q, code := s.init(p)
		if s.level >= 2 {
			s.want("re-init", code, 0)
			s.wantPair("re-init", q, p.plus(1))
		} else {
			s.want("re-init", code, 90)
		}
	},
	"a partition that was not added": func(s *script) {
		p := s.mint()
		s.want("produce 11", s.produce(11, p, 0, 0), 120)
		s.want("produce 10", s.produce(10, p, 0, 0), 48)
		s.want("offsets 4", s.offsets(4, p, s.topic), 120)
		s.want("offsets 3", s.offsets(3, p, s.topic), 48)
		s.want("add", s.add(p, 0), 0)
		s.want("produce 11", s.produce(11, p, 0, 0), 0)
		s.want("another partition", s.produce(11, p, 1, 0), 120)
		_, code := s.end(4, p, false)
		s.want("abort", code, 0)
		s.want("after the end", s.produce(11, p, 0, 1), 120)
	},
	"sequences": func(s *script) {
		p := s.mint()
		s.want("add", s.add(p, 0), 0)
		for n := range int32(7) {
			s.want("produce", s.produce(11, p, 0, n), 0)
		}
		code, at := s.produceOnce(11, p, 0, 3, true)
		s.want("a copy of one of the last five", code, 0)
		if at != 3 {
			s.t.Fatalf("the copy is answered with offset %d", at)
		}
		s.want("an older one", s.produce(11, p, 0, 1), 45)
		s.want("a gap", s.produce(11, p, 0, 9), 45)
		_, code = s.end(4, p, true)
		s.want("commit", code, 0)
		s.want("add", s.add(p, 0), 0)
		s.want("sequences go on over transactions", s.produce(11, p, 0, 7), 0)
		_, code = s.end(4, p, true)
		s.want("commit", code, 0)
		q, code := s.init(p)
		s.want("re-init", code, 0)
		s.want("add", s.add(q, 0, 1), 0)
		s.want("not 0 under a new epoch", s.produce(11, q, 0, 8), 45)
		s.want("0 under a new epoch", s.produce(11, q, 0, 0), 0)
		s.want("any where the producer is not known", s.produce(11, q, 1, 5), 0)
	},
	"offsets": func(s *script) {
		p := s.mint()
		s.want("add offsets", s.addOffsets(p, s.topic), 0)
		s.want("offsets", s.offsets(4, p, s.topic), 0)
		_, code := s.end(4, p, true)
		s.want("commit", code, 0)
		if s.level >= 2 {
			s.want("offsets that add", s.offsets(5, p, s.topic), 0)
			_, code = s.end(5, p, true)
			s.want("commit", code, 0)
		}
	},
	"an id that nobody knows": func(s *script) {
		p := pair{123, 4}
		s.want("add", s.addOnce(3, p, 0), 49)
		_, code := s.endOnce(4, p, false)
		s.want("end", code, 49)
		s.want("produce", s.produce(11, p, 0, 0), 49)
		q, code := s.init(p)
		s.want("re-init", code, 0)
		if q.epoch != 0 || q.id == p.id {
			s.t.Fatalf("re-init of an unknown id gives %v", q)
		}
	},
	"missing topics fail the whole enrolment": func(s *script) {
		p := s.mint()
		req := kmsg.NewPtrAddPartitionsToTxnRequest()
		req.Version, req.TransactionalID, req.ProducerID, req.ProducerEpoch = 3, s.id, int64(p.id), int16(p.epoch)
		rt := kmsg.NewAddPartitionsToTxnRequestTopic()
		rt.Topic, rt.Partitions = s.topic, []int32{0, 99}
		req.Topics = append(req.Topics, rt)
		codes := map[int32]int16{}
		for _, a := range s.b.ask(req).(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions {
			codes[a.Partition] = a.ErrorCode
		}
		s.want("the missing one", codes[99], 3)
		s.want("the other", codes[0], 55)
		s.want("it is not enrolled", s.produce(11, p, 0, 0), 120)
	},
}

// partTwoFacts are those of requests that came with KIP-890 part 2, Kafka 4.0.
var partTwoFacts = map[string]func(s *script){
	"EndTxn 5 moves the pair": func(s *script) {
		p := s.mint()
		s.want("produce", s.produce(12, p, 0, 0), 0)
		next, code := s.end(5, p, true)
		s.want("commit", code, 0)
		s.wantPair("commit", next, p.plus(1))
		again, code := s.end(5, p, true)
		s.want("the same again", code, 0)
		s.wantPair("the same again", again, next)
		_, code = s.end(5, p, false)
		s.want("the other end", code, 48)
		_, code = s.end(5, next, true)
		s.want("commit of nothing", code, 48)
		last, code := s.end(5, next, false)
		s.want("abort of nothing", code, 0)
		s.wantPair("abort of nothing", last, next.plus(1))
		s.want("produce with the pair before", s.produce(12, next, 0, 1), 47)
		s.want("produce", s.produce(12, last, 0, 0), 0)
		_, code = s.end(5, last, false)
		s.want("abort", code, 0)
	},
	"the next end waits for the last": func(s *script) {
		p := s.mint()
		s.want("produce", s.produce(12, p, 0, 0), 0)
		next, code := s.endOnce(5, p, true)
		s.want("commit", code, 0)
		if _, code = s.endOnce(5, next, false); code != 51 && code != 0 {
			s.t.Fatalf("an abort right behind it: code %d", code)
		}
	},
	"F11 after a mint and a re-init an idle holder of part 2 stays fenced": func(s *script) {
		for _, commit := range []bool{true, false} {
			p := s.mint()
			s.want("produce", s.produce(12, p, 0, 0), 0)
			old, code := s.end(5, p, commit)
			s.want("the holder ends", code, 0)
			q := s.takeOver()
			s.write(q, 0, 0, commit) // the end that the old holder asks for
			s.want("its produce", s.produce(12, old, 0, 0), 47)
			_, code = s.end(5, old, commit)
			s.want("its end", code, 90)
			_, code = s.end(5, old, !commit)
			s.want("its other end", code, 90)
			_, code = s.init(old)
			s.want("its re-init", code, 90)
			s.write(q, 0, 1, true)
		}
	},
	"F11 with a mint alone the holder that committed takes over": func(s *script) {
		p := s.mint()
		s.want("produce", s.produce(12, p, 0, 0), 0)
		old, code := s.end(5, p, true)
		s.want("commit", code, 0)
		q := s.mint()
		s.write(q, 0, 0, true)
		back, code := s.end(5, old, true)
		s.want("the old holder commits", code, 0)
		s.wantPair("and takes over", back, q)
		s.want("it writes", s.produce(12, back, 0, 1), 0)
	},
	"a pinned successor and EndTxn 5 of an idle holder": func(s *script) {
		p := s.mint()
		next, code := s.end(5, p, false)
		s.want("abort of nothing", code, 0)
		q := s.mint()
		s.wantPair("mint", q, next.plus(1))
		s.want("add", s.add(q, 0), 0)
		s.want("produce", s.produce(11, q, 0, 0), 0)
		_, code = s.end(4, q, false)
		s.want("abort", code, 0)
		back, code := s.end(5, next, false)
		s.want("the old holder aborts", code, 0)
		s.wantPair("and takes over", back, q)
	},
	"part 5 on top of part 1": func(s *script) {
		p := s.mint()
		s.want("add", s.add(p, 0), 0)
		s.want("produce", s.produce(11, p, 0, 0), 0)
		next, code := s.end(5, p, true)
		s.want("commit 5", code, 0)
		s.wantPair("commit 5", next, p.plus(1))
		s.want("pinned add with the old pair", s.add(p, 0), 90)
		s.want("pinned produce with the old pair", s.produce(11, p, 0, 1), 47)
	},
}
