package leader

import (
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/record"
)

// The broker says of the own registration only that it is there. Mutations: 46 is
// an error; one whose offset is not known is written again while it is hidden.
func TestB4ARegistrationThatTheBrokerKnewAlreadyIsNotWrittenAgain(t *testing.T) {
	onStage(t, model.Config{Sweep: time.Hour}, func(t *testing.T, s *stage) {
		all := s.journal()
		a := s.member("a")
		if _, err := a.topic.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		end := s.hidden()
		s.links["a"].set(func(l *link) {
			l.edit = func(req kmsg.Request, resp kmsg.Response) {
				if q, ok := req.(*kmsg.ProduceRequest); ok && q.TransactionID == nil {
					p := &resp.(*kmsg.ProduceResponse).Topics[0].Partitions[0]
					p.ErrorCode, p.BaseOffset = 46, -1
				}
			}
		})
		won := s.candidate(a, "controller")
		time.Sleep(5 * brief.Lease)
		if n := len(registrations(all(), "a")); n != 1 {
			t.Errorf("%d registrations were written", n)
		}
		end()
		s.after(won, time.Minute)
	})
}

// Mutation: the identity is kept.
func TestB10ARegistrarWhoseIdentityIsRefusedTakesANewOne(t *testing.T) {
	for _, code := range []int16{45, 47, 49, 59} {
		onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
			a := s.member("a")
			var ids []kafka.ProducerID
			s.links["a"].set(func(l *link) {
				l.answer = func(req kmsg.Request) int16 {
					q, ok := req.(*kmsg.ProduceRequest)
					if !ok || q.TransactionID != nil {
						return 0
					}
					b, _, _ := record.Next(q.Topics[0].Partitions[0].Records)
					if !slices.Contains(ids, b.ProducerID()) {
						ids = append(ids, b.ProducerID())
					}
					if b.ProducerID() == ids[0] {
						return code
					}
					return 0
				}
			})
			s.after(s.candidate(a, "r"), time.Minute)
			if len(ids) != 2 {
				t.Errorf("code %d: %d identities", code, len(ids))
			}
		})
	}
}

// Mutation: the registrar does not say that the layout proved wrong.
func TestB10ARegistrationGoesAfterItsLeader(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a := s.member("a")
		asked := 0
		s.links["a"].set(func(l *link) {
			l.answer = func(req kmsg.Request) int16 {
				switch q := req.(type) {
				case *kmsg.MetadataRequest:
					asked++
				case *kmsg.ProduceRequest:
					if q.TransactionID == nil && asked < 5 {
						return 6
					}
				}
				return 0
			}
		})
		s.after(s.candidate(a, "r"), time.Minute)
	})
}

// Mutations: an answer from beyond the position is taken; one that does not reach
// the last stable offset is fresh.
func TestE10E8WhatAnAnswerSaysOfAPartition(t *testing.T) {
	var now lead.Now
	cfg := &Config{Lease: time.Second, now: func() lead.Now { return now }}
	p := newPartition(0, cfg, func(Event) {})
	a := kmsg.NewFetchResponseTopicPartition()
	a.HighWatermark, a.LastStableOffset = 9, 9
	p.position(3)
	p.reached(0, 3)
	now.Local = time.Minute
	if err := p.apply(&a, 3, now.Local); err != nil || p.view().fresh != 0 {
		t.Errorf("short of the last stable offset: fresh at %v, %v", p.view().fresh, err)
	}
	a.HighWatermark, a.LastStableOffset = 3, 3
	if err := p.apply(&a, 3, now.Local); err != nil || p.view().fresh != now.Local {
		t.Errorf("at the last stable offset: fresh at %v, %v", p.view().fresh, err)
	}
	p.reset(errUnregistered)
	if err := p.apply(&a, 3, now.Local); err != nil || p.view().next != -1 || p.view().high != 0 {
		t.Errorf("asked for before a reset: at %d of %d, %v", p.view().next, p.view().high, err)
	}
}

// One of two partitions that a broker led has no leader for a while; the poll of
// the other goes on, and looks for it meanwhile without haste. Mutations: a poll
// that goes well never asks; it asks after each answer.
func TestP5APartitionIsLookedForBesideOthersOfItsBroker(t *testing.T) {
	onStage(t, model.Config{Brokers: 1}, func(t *testing.T, s *stage) {
		a, w := s.member("a"), s.member("w")
		for _, role := range []string{"controller", "role-a"} { // 12 and 10 of 16
			win(t, a, role)
		}
		gone, busy := placeOf("controller").Partition, placeOf("role-a").Partition
		p := synced(t, w, "controller")
		synced(t, w, "role-a")
		asked := 0
		s.links["w"].set(func(l *link) {
			l.edit = func(_ kmsg.Request, resp kmsg.Response) {
				switch r := resp.(type) {
				case *kmsg.MetadataResponse:
					asked++
					for _, topic := range r.Topics {
						for i := range topic.Partitions {
							if q := &topic.Partitions[i]; q.Partition == gone {
								q.Leader, q.ErrorCode = -1, 5
							}
						}
					}
				case *kmsg.FetchResponse:
					for i := range r.Topics {
						for j := range r.Topics[i].Partitions {
							if q := &r.Topics[i].Partitions[j]; q.Partition == gone {
								q.ErrorCode, q.RecordBatches = 6, nil
							}
						}
					}
				}
			}
		})
		for range 1200 { // of a minute
			if _, err := a.registrar.register(t.Context(), "role-a"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(50 * time.Millisecond)
		}
		if asked < 50 || asked > 150 || w.log.partition(busy).view().failure != nil {
			t.Errorf("in a minute it was asked %d times; the other partition: %v", asked, w.log.partition(busy).view().failure)
		}
		s.links["w"].set(func(l *link) { l.edit = nil })
		time.Sleep(2 * time.Second)
		if v, now := p.view(), w.cfg.now().Local; v.failure != nil || now-v.fresh > time.Second {
			t.Errorf("afterwards it was read %v ago, %v", now-v.fresh, v.failure)
		}
	})
}
