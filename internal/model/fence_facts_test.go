package model

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/kafka"
)

// committed are the values of a partition as a consumer gets them that reads
// committed records.
func (s *script) committed(part int32) []string {
	s.t.Helper()
	var out []string
	var scan lead.Scanner
	for at, end := kafka.Offset(0), s.stable(part); at < end; {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.ReplicaID, req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel, req.SessionEpoch = 11, -1, 1000, 1, 1<<20, 1, -1
		rt := kmsg.NewFetchRequestTopic()
		rt.Topic = s.topic
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition, rp.FetchOffset, rp.PartitionMaxBytes, rp.CurrentLeaderEpoch, rp.LogStartOffset = part, int64(at), 1<<20, -1, -1
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		a := &s.b.ask(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
		s.want("fetch", a.ErrorCode, 0)
		next, err := scan.Scan(a, at, func(e lead.Entry) { out = append(out, string(e.Value)) })
		if err != nil || next <= at {
			s.t.Fatalf("fetch from %d goes on at %d, %v", at, next, err)
		}
		at = next
	}
	return out
}

// stable is the last stable offset of a partition.
func (s *script) stable(part int32) kafka.Offset {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID, req.IsolationLevel = 5, -1, 1
	rt := kmsg.NewListOffsetsRequestTopic()
	rt.Topic = s.topic
	rp := kmsg.NewListOffsetsRequestTopicPartition()
	rp.Partition, rp.Timestamp, rp.CurrentLeaderEpoch = part, -1, -1
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return kafka.Offset(s.b.ask(req).(*kmsg.ListOffsetsResponse).Topics[0].Partitions[0].Offset)
}

// value is what produceOnce writes.
func value(p pair, seq int32) string { return fmt.Sprint(p, seq) }

func (s *script) wantCommitted(part int32, want ...string) {
	s.t.Helper()
	if got := s.committed(part); fmt.Sprint(got) != fmt.Sprint(want) {
		s.t.Errorf("committed in partition %d: %v, want %v", part, got, want)
	}
}

// write is a whole transaction of one record, below part 2.
func (s *script) write(p pair, part, seq int32, commit bool) {
	s.t.Helper()
	s.want("add", s.add(p, part), 0)
	s.want("produce", s.produce(11, p, part, seq), 0)
	_, code := s.end(4, p, commit)
	s.want("end", code, 0)
}

// refused holds that every request of a fenced pair is refused with the codes
// of its version, on partitions too that never heard of a newer epoch.
func (s *script) refused(p pair) {
	s.t.Helper()
	for v := int16(9); v <= 12; v++ {
		if v == 12 && !s.partTwo {
			continue
		}
		for part := range int32(2) {
			s.want(fmt.Sprintf("Produce %d to partition %d", v, part), s.produce(v, p, part, 5), 47)
		}
	}
	for v := range int16(4) {
		want := int16(90)
		if v < 2 {
			want = 47
		}
		s.want(fmt.Sprint("AddPartitionsToTxn ", v), s.again(func() int16 { return s.addOnce(v, p, 0) }), want)
		s.want(fmt.Sprint("AddOffsetsToTxn ", v), s.again(func() int16 { return s.addOffsetsOnce(v, p, s.topic) }), want)
		s.want(fmt.Sprint("TxnOffsetCommit ", 2+min(v, 2)), s.offsets(2+min(v, 2), p, s.topic), 47)
	}
	for v := range int16(6) {
		want := int16(90)
		switch {
		case v < 2:
			want = 47
		case v == 5 && !s.partTwo:
			continue
		}
		_, code := s.end(v, p, true)
		s.want(fmt.Sprint("EndTxn ", v), code, want)
	}
	_, code := s.initOnce(4, p)
	s.want("InitProducerId 4", code, 90)
	_, code = s.initOnce(3, p)
	s.want("InitProducerId 3", code, 47)
}

// takeOver is what an acquisition does: a mint, and a re-init with what it gave.
func (s *script) takeOver() pair {
	s.t.Helper()
	m := s.mint()
	p, code := s.init(m)
	s.want("re-init", code, 0)
	s.wantPair("re-init", p, m.plus(1))
	return p
}

// fenceFacts are what leadership rests on.
var fenceFacts = map[string]func(s *script){
	"H1 a fenced pair is refused by every request: idle, successor idle":  func(s *script) { s.fence(false, false) },
	"H1 a fenced pair is refused by every request: idle, successor wrote": func(s *script) { s.fence(false, true) },
	"H1 a fenced pair is refused by every request: open, successor idle":  func(s *script) { s.fence(true, false) },
	"H1 a fenced pair is refused by every request: open, successor wrote": func(s *script) { s.fence(true, true) },
	"G12 the number of an aborted transaction": func(s *script) {
		p := s.mint()
		s.write(p, 0, 0, true)
		s.want("add", s.add(p, 0), 0)
		code, at := s.produceOnce(11, p, 0, 1, true)
		s.want("produce", code, 0)
		_, code = s.end(4, p, false)
		s.want("abort", code, 0)
		s.want("add", s.add(p, 0), 0)
		code, again := s.produceOnce(11, p, 0, 1, true)
		s.want("the same number again", code, 0)
		if again != at {
			s.t.Errorf("it is answered with offset %d, the aborted record is at %d", again, at)
		}
		_, code = s.end(4, p, true)
		s.want("commit", code, 0)
		s.wantCommitted(0, value(p, 0)) // answered 0, committed and absent
		q, code := s.init(p)
		s.want("re-init", code, 0)
		s.write(q, 0, 0, true)
		s.wantCommitted(0, value(p, 0), value(q, 0))
	},
	"G11 an end is answered the same when it is repeated": func(s *script) {
		p := s.mint()
		for n, commit := range []bool{true, false} {
			s.write(p, 0, int32(n), commit)
			_, code := s.end(4, p, commit)
			s.want("again", code, 0)
			_, code = s.end(4, p, !commit)
			s.want("the other result", code, 48)
		}
		q := s.takeOver()
		_, code := s.end(4, p, true)
		s.want("of a fenced pair", code, 90)
		s.write(q, 0, 0, true)
		s.wantCommitted(0, value(p, 0), value(q, 0))
	},
	"F11 a re-init is answered the same when it is repeated, and 90 after another's mint": func(s *script) {
		m := s.mint()
		p, code := s.init(m)
		s.want("re-init", code, 0)
		q, code := s.init(m)
		s.want("again", code, 0)
		s.wantPair("again", q, p)
		s.mint()
		_, code = s.init(m)
		s.want("after another's mint", code, 90)
		_, code = s.init(p)
		s.want("after another's mint", code, 90)
	},
	"I5 two re-inits make the pair useless, one does not": func(s *script) {
		p := s.takeOver()
		one, code := s.init(p)
		s.want("first", code, 0)
		same, code := s.init(p)
		s.want("the holder's re-init after one", code, 0)
		s.wantPair("it is given the new pair", same, one)
		_, code = s.init(one)
		s.want("second", code, 0)
		s.refused(p)
	},
	"Scenario12 a stale re-init aborts what is open, and is refused then": func(s *script) {
		s.mint()
		stale := s.mint()
		s.mint()
		p := s.mint()
		s.want("add", s.add(p, 0), 0)
		s.want("produce", s.produce(11, p, 0, 0), 0)
		_, code := s.init(stale)
		s.want("stale re-init", code, 90)
		_, code = s.end(4, p, true)
		s.want("commit of what was open", code, 90)
		s.wantCommitted(0)
		_, code = s.init(p) // and this is how it goes on
		if s.level >= 2 {
			s.want("re-init of the holder", code, 0)
		} else {
			s.want("re-init of the holder", code, 90)
		}
	},
	"Scenario35 a late end ends the next transaction early": func(s *script) {
		p := s.mint()
		s.write(p, 0, 0, true)
		s.want("add", s.add(p, 0), 0)
		s.want("produce", s.produce(11, p, 0, 1), 0)
		_, code := s.end(4, p, true) // the copy of the first transaction's
		s.want("the copy", code, 0)
		s.want("produce after it", s.produce(11, p, 0, 2), 120)
		_, code = s.end(4, p, true)
		s.want("the own end", code, 0)
		s.wantCommitted(0, value(p, 0), value(p, 1))
		s.want("add", s.add(p, 0), 0)
		s.want("produce", s.produce(11, p, 0, 2), 0)
		_, code = s.end(4, p, false) // a copy of an abort
		s.want("the copy", code, 0)
		_, code = s.end(4, p, true)
		s.want("the own commit", code, 48)
		q, code := s.init(p)
		s.want("re-init", code, 0)
		_, code = s.end(4, p, true) // a copy that comes after it is harmless
		s.want("a copy after the re-init", code, 90)
		s.write(q, 0, 0, true)
		s.wantCommitted(0, value(p, 0), value(p, 1), value(q, 0))
	},
	"E3 an open transaction hides what comes after it": func(s *script) {
		p := s.mint()
		s.write(p, 0, 0, true)
		at := s.stable(0)
		s.want("add", s.add(p, 0), 0)
		s.want("produce", s.produce(11, p, 0, 1), 0)
		code, plain := s.produceOnce(9, nobody, 0, -1, false)
		s.want("plain", code, 0)
		if now := s.stable(0); now >= plain || now < at {
			s.t.Errorf("stable to %d with an open transaction before %d", now, plain)
		}
		_, code = s.end(4, p, false)
		s.want("abort", code, 0)
		s.wantCommitted(0, value(p, 0), value(nobody, -1))
	},
}

// fence has a holder, idle or with an open transaction, and a successor, who
// has written or not.
func (s *script) fence(open, wrote bool) {
	p := s.takeOver()
	s.write(p, 0, 0, true)
	if open {
		s.want("add", s.add(p, 0), 0)
		s.want("produce", s.produce(11, p, 0, 1), 0)
	}
	q := s.takeOver()
	want := []string{value(p, 0)}
	if wrote {
		s.write(q, 0, 0, true)
		want = append(want, value(q, 0))
	}
	s.refused(p)
	s.wantCommitted(0, want...)
	s.wantCommitted(1)
	if !wrote {
		s.write(q, 0, 0, true)
		s.wantCommitted(0, append(want, value(q, 0))...)
	}
}

// withoutVerification is what brokers do that do not ask the coordinator about
// transactional records: p, which has written one record, is fenced meanwhile.
func (s *script) withoutVerification(p pair) {
	s.t.Helper()
	q := s.takeOver()
	s.want("the fenced holder's record", s.produce(11, p, 0, 1), 0)
	s.want("add", s.add(q, 0), 0)
	s.want("produce", s.produce(11, q, 0, 0), 0)
	_, code := s.end(4, q, true)
	s.want("commit", code, 0)
	s.wantCommitted(0, value(p, 0), value(p, 1), value(q, 0)) // by the successor's marker
	s.want("once the partition has seen the new epoch", s.produce(11, p, 0, 2), 47)
}
