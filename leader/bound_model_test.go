package leader

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/memnet"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/internal/model/serve"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// overModel runs f with an Elector over ottla's own client and a model of a
// broker that the test can make lose requests and answers, in virtual time.
func overModel(t *testing.T, seed uint64, f func(t *testing.T, e *Elector, s *serve.Server)) {
	t.Helper()
	overSessions(t, seed, sim.SASL{}, f)
}

// overSessions is overModel with a broker that asks the client to authenticate,
// unless auth is zero.
func overSessions(t *testing.T, seed uint64, auth sim.SASL, f func(t *testing.T, e *Elector, s *serve.Server)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		nw := memnet.New(seed)
		l, err := nw.Listen("b1:9092")
		if err != nil {
			t.Fatal(err)
		}
		m := model.New(model.Config{TransactionVersion: 2})
		m.CreateTopic(Topic, 16)
		m.CreateTopic("out", 1)
		s := serve.Start(t, m, l)
		s.Broker(1).SetSASL(auth)
		s.Broker(1).SetVersions(17, 0, 1)
		s.Broker(1).SetVersions(36, 0, 2)
		ccfg := cluster.Config{Bootstrap: s.Seeds(), Dial: nw.Dial, RequestTimeout: 2 * time.Second, Rand: rand.NewPCG(seed, 1)}
		for user, pass := range auth.Users {
			ccfg.SASL = append(ccfg.SASL, plain.Auth{User: user, Pass: pass}.AsMechanism())
		}
		cl, err := cluster.Connect(t.Context(), ccfg)
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		cfg := brief
		cfg.Member, cfg.AllowUnverified = "a", true // the model is not asked for its configuration
		e, err := Open(cl, cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		f(t, e, s)
	})
}

// inOut is what is committed in topic "out".
func inOut(s *serve.Server) (values []string) {
	s.Model(func(m *model.Cluster) {
		for _, r := range m.Records(kafka.TopicPartition{Topic: "out"}) {
			if r.Fate == model.Committed {
				values = append(values, string(r.Value))
			}
		}
	})
	return values
}

// toOut reports whether a request writes to topic "out".
func toOut(r *sim.Request) bool {
	p, ok := r.Req.(*kmsg.ProduceRequest)
	return ok && len(p.Topics) > 0 && p.Topics[0].Topic == "out"
}

// A transaction whose Produce was not answered is aborted; its number may have
// been used. What the leader writes next must not go under the same number, or
// the broker takes it for a repetition, says 0 and drops it. Taking the doubt
// out of bound.End makes this fail.
func TestG12TheBoundProducerNeverUsesANumberTwice(t *testing.T) {
	overModel(t, 1, func(t *testing.T, e *Elector, s *serve.Server) {
		tm := win(t, e, "r")
		if err := write(t.Context(), tm, "first"); err != nil {
			t.Fatal(err)
		}
		s.SetFaults(func(r *sim.Request) serve.Fault { // every Produce arrives, none is answered
			return serve.Fault{Mute: toOut(r)}
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		err := write(ctx, tm, "aborted")
		cancel()
		if err == nil {
			t.Fatal("a transaction without answers is committed")
		}
		s.SetFaults(nil)
		if err := write(t.Context(), tm, "second"); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(inOut(s)); got != "[first second]" {
			t.Errorf("committed: %s", got)
		}
		if tm.Err() != nil {
			t.Error(tm.Err())
		}
	})
}

// A transaction in which nothing came to be sent ends without a request: a lease in
// it would stay open, and the leader would take itself for renewed. Mutation: join
// does not ask whether the coordinator may know of the transaction.
func TestP7ALeaseIsRenewedInATransactionOnlyIfThatIsEnded(t *testing.T) {
	for name, send := range map[string]func(ctx context.Context, tx *producer.Tx){
		"nothing is sent": func(ctx context.Context, tx *producer.Tx) { _, _ = tx.Send(ctx) },
		"a record is refused": func(ctx context.Context, tx *producer.Tx) {
			_, _ = tx.Append(ctx, kafka.Record{Topic: "out", Value: make([]byte, 2<<20)})
		},
	} {
		t.Run(name, func(t *testing.T) {
			overModel(t, 1, func(t *testing.T, e *Elector, s *serve.Server) {
				tm := win(t, e, "r")
				time.Sleep(e.cfg.Renew * 6 / 10) // a renewal is due soon
				for range 10 {
					err := tm.Transact(t.Context(), func(ctx context.Context, tx *producer.Tx) error {
						send(ctx, tx)
						return nil
					})
					if err != nil {
						t.Fatal(err)
					}
					s.Model(func(m *model.Cluster) {
						// one is the grant
						if got, want := int64(len(leases(m, "r")))-1, e.Stats().Renewals; got != want {
							t.Errorf("%d renewals are counted, %d committed", want, got)
						}
						if tx, _ := m.Transaction("r"); tx.State == model.Ongoing {
							t.Error("the transaction is left open")
						}
					})
					time.Sleep(e.cfg.Renew / 5)
				}
				if e.Stats().Renewals == 0 || tm.Err() != nil {
					t.Errorf("%d renewals, %v", e.Stats().Renewals, tm.Err())
				}
			})
		})
	}
}

// A transaction that was open for too long is over: its Commit must not write a
// lease, for which the turn is another's by then. Mutation: join does not look
// whether the loan is over.
func TestP7ACommitAfterTheLimitWritesNoLease(t *testing.T) {
	overModel(t, 1, func(t *testing.T, e *Elector, s *serve.Server) {
		tm := win(t, e, "r")
		tx, err := tm.Producer().Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Send(t.Context(), kafka.Record{Topic: "out", Value: []byte("slow")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(e.cfg.Renew + time.Millisecond)
		for n := e.Stats().Renewals; e.Stats().Renewals == n; {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(e.cfg.Renew * 6 / 10) // the next renewal is due soon
		if err := tx.Commit(t.Context()); err == nil || kafka.MayHaveHappened(err) {
			t.Error(err)
		}
		s.Model(func(m *model.Cluster) {
			if tx, _ := m.Transaction("r"); tx.State == model.Ongoing {
				t.Error("a transaction is opened")
			}
		})
		if got := inOut(s); len(got) != 0 {
			t.Error(got)
		}
	})
}

// Whatever is lost, or comes late and twice: what Transact reported as
// committed is in the log once, in order.
func TestG12P7WhatABoundProducerCommittedIsThereOnce(t *testing.T) {
	for seed := range uint64(8) {
		overModel(t, seed, func(t *testing.T, e *Elector, s *serve.Server) {
			rng, faults := rand.New(rand.NewPCG(seed, 2)), rand.New(rand.NewPCG(seed, 3))
			s.SetFaults(func(r *sim.Request) serve.Fault {
				switch r.Key {
				case 0, 22, 24, 26:
				default:
					return serve.Fault{}
				}
				return serve.Fault{
					Lost: faults.IntN(1000) < 20, Mute: faults.IntN(1000) < 40,
					Delay: time.Duration(faults.IntN(20)) * time.Millisecond,
					Again: time.Duration(faults.IntN(1000)/950*faults.IntN(4000)) * time.Millisecond,
				}
			})
			wrote := map[string]bool{}
			for n := 0; n < 60; {
				tm := win(t, e, "r")
				for ; n < 60 && tm.Err() == nil; n++ {
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(20+rng.IntN(3000))*time.Millisecond)
					v := fmt.Sprintf("%03d", n)
					if write(ctx, tm, v) == nil {
						wrote[v] = true
					}
					cancel()
					time.Sleep(time.Duration(rng.IntN(200)) * time.Millisecond)
				}
				_ = tm.Resign(within(t, time.Minute))
			}
			s.SetFaults(nil)
			last, seen := "", map[string]bool{}
			for _, v := range inOut(s) {
				if v <= last {
					t.Errorf("seed %d: %s after %s", seed, v, last)
				}
				last, seen[v] = v, true
			}
			for v := range wrote {
				if !seen[v] {
					t.Errorf("seed %d: %s was committed and is not there", seed, v)
				}
			}
			if len(wrote) < 20 {
				t.Errorf("seed %d: only %d of 60 transactions went through", seed, len(wrote))
			}
		})
	}
}
