package leader

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/model"
)

// What was so when a standby began to wait need not be so when its turn comes.
func TestT27AStandbyAsksAgainBeforeItTakesTheRole(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		b := s.member("b")
		done := make(chan error, 1)
		go func() { _, err := b.Campaign(within(t, time.Hour), "r"); done <- err }()
		time.Sleep(time.Minute)
		s.with(func(*model.Cluster) { s.unverify = true })
		time.Sleep(answerHolds)
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !errors.Is(err, ErrInvalidConfig) || s.mintsOf("b") > 0 {
			t.Errorf("%v after %d mints", err, s.mintsOf("b"))
		}
	})
}

// A standby has asked in time: when its turn comes nothing is to be asked.
func TestT27AFailOverWaitsForNoQuestion(t *testing.T) {
	rare := func(c *Config) { c.Lease, c.Renew, c.FetchWait = 10*time.Minute, 3*time.Minute, time.Minute }
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a", rare), "r")
		next := s.candidate(s.member("b", rare), "r")
		all := s.journal()
		time.Sleep(12*answerHolds + answerHolds/3)
		asked := 0
		for _, r := range all() {
			if r.from == "b" && r.req.Key() == 32 {
				asked++
			}
		}
		if rounds := asked / 3; rounds < 12 || rounds > 25 {
			t.Errorf("three brokers were asked %d times", asked)
		}
		all = s.journal()
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		s.after(next, time.Minute)
		for _, r := range all() {
			if r.from == "b" && r.req.Key() == 32 {
				t.Error("a question is on the way of a hand-over")
			}
		}
	})
}

// Only the missing right to ask is overlooked: any other answer is none.
func TestT27WhatIsNoAnswerVerifiesNothing(t *testing.T) {
	for code, want := range map[int16]error{-1: ErrAcquireTimeout, 42: ErrAdmin} {
		onStage(t, model.Config{}, func(t *testing.T, s *stage) {
			s.with(func(*model.Cluster) { s.deny = map[int16]int16{32: code} })
			if _, err := s.member("a").Campaign(within(t, 10*time.Second), "r"); !errors.Is(err, want) || s.mintsOf("a") > 0 {
				t.Errorf("code %d: %v after %d mints", code, err, s.mintsOf("a"))
			}
		})
	}
}

// A broker that is gone is not waited for once metadata leaves it out.
func TestT27ABrokerThatIsGoneIsNotAsked(t *testing.T) {
	onStage(t, model.Config{}, func(t *testing.T, s *stage) {
		a := s.member("a")
		if _, err := a.topic.ensure(t.Context()); err != nil {
			t.Fatal(err)
		}
		gone := int32(1)
		s.with(func(m *model.Cluster) { m.MoveLeader(placeOf("r"), 2); m.MoveCoordinator("r", 2) })
		if _, err := a.topic.refresh(t.Context(), a.topic.known()); err != nil {
			t.Fatal(err)
		}
		s.links["a"].set(func(l *link) {
			l.drop = func(req kmsg.Request) bool {
				q, ok := req.(*kmsg.DescribeConfigsRequest)
				return ok && q.Resources[0].ResourceName == "1"
			}
			l.edit = func(_ kmsg.Request, resp kmsg.Response) {
				m, ok := resp.(*kmsg.MetadataResponse)
				for i := 0; ok && i < len(m.Brokers); i++ {
					if m.Brokers[i].NodeID == gone {
						m.Brokers = append(m.Brokers[:i], m.Brokers[i+1:]...)
					}
				}
			}
		})
		began := time.Now()
		win(t, a, "r")
		if took := time.Since(began); took > brief.RequestTimeout {
			t.Errorf("the role is led after %v", took)
		}
	})
}
