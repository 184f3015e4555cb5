package model

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func scriptOf(t *testing.T, cfg Config) (*inModel, *script) {
	m := newModel(cfg)
	m.c.CreateTopic("t", 2)
	return m, &script{t: t, b: m, level: cfg.TransactionVersion, id: "id", topic: "t"}
}

// What takes too long, or too many epochs, for a test on a real broker.
func TestTheCoordinatorAbortsAtTheTimeout(t *testing.T) {
	for _, level := range []int16{1, 2} {
		m, s := scriptOf(t, Config{TransactionVersion: level})
		p := s.mint()
		s.want("add", s.add(p, 0), 0)
		s.want("produce", s.produce(11, p, 0, 0), 0)
		m.now = m.now.Add(transactionTimeout*time.Millisecond - time.Second)
		m.c.Advance(m.now)
		if at, _ := m.c.Transaction("id"); at.State != Ongoing {
			t.Fatalf("before the timeout: %v", at.State)
		}
		m.now = m.now.Add(12 * time.Second) // and the next look
		m.c.Advance(m.now)
		at, _ := m.c.Transaction("id")
		if at.State != CompleteAbort || at.Epoch != p.epoch+1 {
			t.Errorf("after it: %+v", at)
		}
		s.want("produce", s.produce(11, p, 0, 1), 47)
		_, code := s.endOnce(4, p, true)
		s.want("pinned commit", code, 90)
		_, code = s.endOnce(5, p, true)
		s.want("commit 5", code, 48)
		if r := m.c.Records(s.tp(0)); len(r) != 1 || r[0].Fate != Aborted {
			t.Errorf("the log: %+v", r)
		}
	}
}

func TestEpochsRunOut(t *testing.T) {
	for name, next := range map[string]func(s *script, p pair) pair{
		"mint":    func(s *script, _ pair) pair { return s.mint() },
		"re-init": func(s *script, p pair) pair { q, _ := s.init(p); return q },
		"end":     func(s *script, p pair) pair { q, _ := s.end(5, p, false); return q },
	} {
		_, s := scriptOf(t, Config{TransactionVersion: 2, MaxEpoch: 4})
		p, seen := s.mint(), map[pair]bool{}
		for range 9 {
			if seen[p] {
				t.Errorf("%s: %v comes twice", name, p)
			}
			seen[p] = true
			q := next(s, p)
			if p.epoch == 3 && (q.id == p.id || q.epoch != 0) {
				t.Errorf("%s: after %v comes %v", name, p, q)
			}
			if p.epoch == 3 {
				s.want(name+": produce of the old pair", s.produce(11, p, 0, 0), 49)
			}
			p = q
		}
	}
}

func TestIdsAndProducersExpire(t *testing.T) {
	m, s := scriptOf(t, Config{TransactionVersion: 1, IDExpiration: time.Hour, ProducerExpiration: 30 * time.Minute})
	p := s.mint()
	s.want("add", s.add(p, 0), 0)
	s.want("produce", s.produce(11, p, 0, 0), 0)
	_, code := s.end(4, p, true)
	s.want("commit", code, 0)
	m.now = m.now.Add(40 * time.Minute)
	s.want("add", s.add(p, 0), 0)
	s.want("any sequence where the producer is forgotten", s.produce(11, p, 0, 77), 0)
	_, code = s.end(4, p, true)
	s.want("commit", code, 0)
	m.now = m.now.Add(2 * time.Hour)
	s.want("add under an expired id", s.addOnce(3, p, 0), 49)
	if q := s.mint(); q.id == p.id || q.epoch != 0 {
		t.Errorf("a mint after the expiry gives %v", q)
	}
}

func TestMarkersThatAreHeldKeepTheLogUnstable(t *testing.T) {
	m, s := scriptOf(t, Config{TransactionVersion: 1})
	m.c.HoldMarkers(s.tp(0))
	p := s.mint()
	s.want("add", s.add(p, 0, 1), 0)
	s.want("produce", s.produce(11, p, 0, 0), 0)
	s.want("produce", s.produce(11, p, 1, 0), 0)
	_, code := s.endOnce(4, p, true)
	s.want("commit", code, 0)
	if _, stable, end := m.c.Bounds(s.tp(0)); stable != 0 || end != 1 {
		t.Errorf("partition 0 is stable to %d of %d", stable, end)
	}
	if _, stable, end := m.c.Bounds(s.tp(1)); stable != end {
		t.Errorf("partition 1 is stable to %d of %d", stable, end)
	}
	_, code = s.initOnce(4, nobody)
	s.want("a mint meanwhile", code, 51)
	m.c.ReleaseMarkers(s.tp(0))
	m.pause()
	if q := s.mint(); q != p.plus(1) {
		t.Errorf("the mint gives %v", q)
	}
	if at, _ := m.c.Transaction("id"); at.State != Empty {
		t.Errorf("state %v", at.State)
	}
}

// fetch reads a partition from the start.
func (m *inModel) fetch(topic string, isolation int8) *kmsg.FetchResponseTopicPartition {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.IsolationLevel = 11, isolation
	rt := kmsg.NewFetchRequestTopic()
	rt.Topic = topic
	rp := kmsg.NewFetchRequestTopicPartition()
	rp.PartitionMaxBytes = 1 << 20
	rt.Partitions = append(rt.Partitions, rp)
	req.Topics = append(req.Topics, rt)
	return &m.ask(req).(*kmsg.FetchResponse).Topics[0].Partitions[0]
}

func TestFetchCompactionAndTruncation(t *testing.T) {
	m, s := scriptOf(t, Config{TransactionVersion: 1})
	p := s.mint()
	for n := range int32(3) { // committed, aborted, committed: one key
		s.want("add", s.add(p, 0), 0)
		s.want("produce", s.produce(11, p, 0, n), 0)
		_, code := s.end(4, p, n != 1)
		s.want("end", code, 0)
	}
	s.want("add", s.add(p, 0), 0)
	s.want("produce", s.produce(11, p, 0, 3), 0) // open
	all, stable := m.fetch("t", 0), m.fetch("t", 1)
	if len(all.AbortedTransactions) != 0 || len(stable.AbortedTransactions) != 1 || stable.AbortedTransactions[0].FirstOffset != 2 {
		t.Errorf("aborted: %v", stable.AbortedTransactions)
	}
	if stable.LastStableOffset != 6 || stable.HighWatermark != 7 || len(stable.RecordBatches) >= len(all.RecordBatches) {
		t.Errorf("stable to %d of %d", stable.LastStableOffset, stable.HighWatermark)
	}
	m.c.Compact(s.tp(0))
	var left []string
	for _, r := range m.c.Records(s.tp(0)) {
		left = append(left, fmt.Sprint(r.Offset, r.Fate))
	}
	if want := []string{"4 committed", "6 open"}; fmt.Sprint(left) != fmt.Sprint(want) {
		t.Errorf("after compaction %v, want %v", left, want)
	}
	m.c.Truncate(s.tp(0), 5)
	if _, stable, end := m.c.Bounds(s.tp(0)); stable != 4 || end != 5 {
		t.Errorf("after the truncation stable to %d of %d", stable, end)
	}
}

func TestT27WithoutVerification(t *testing.T) {
	for _, level := range []int16{1, 2} {
		_, s := scriptOf(t, Config{TransactionVersion: level, NoVerification: true})
		p := s.takeOver()
		s.write(p, 0, 0, true)
		s.withoutVerification(p)
	}
}
