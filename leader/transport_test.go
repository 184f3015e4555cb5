package leader

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/core/produce"
	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// The partition of a role, as published and as derived from the rule.
func TestPartitionsOfRoles(t *testing.T) {
	counts := []int32{1, 2, 3, 7, 12, 16, 50, 64}
	for role, want := range map[string][]int32{
		"controller": {0, 0, 2, 5, 8, 12, 6, 28}, "dispatcher": {0, 0, 1, 3, 10, 10, 6, 26}, "role-a": {0, 0, 2, 1, 2, 10, 40, 42},
		"role-b": {0, 0, 1, 1, 4, 12, 6, 28}, "compactor": {0, 0, 1, 4, 4, 4, 8, 4}, "metrics-ruler-1": {0, 1, 2, 0, 5, 1, 39, 49},
		"ruler-1": {0, 0, 0, 6, 0, 4, 0, 4}, "m19-go": {0, 0, 0, 1, 6, 10, 18, 10}, "a": {0, 0, 1, 5, 4, 12, 24, 60},
		"scheduler": {0, 1, 2, 3, 5, 1, 29, 1}, "billing/nightly": {0, 1, 0, 5, 3, 3, 27, 51}, "rôle": {0, 0, 2, 0, 2, 14, 34, 14},
		"リーダー": {0, 1, 2, 1, 5, 1, 37, 49}, strings.Repeat("r", 249): {0, 1, 0, 5, 9, 13, 15, 13},
	} {
		for i, n := range counts {
			if got, err := lead.PartitionOf(produce.Murmur2([]byte(role)), n); got != want[i] || err != nil {
				t.Errorf("%q of %d: partition %d, want %d; %v", role, n, got, want[i], err)
			}
		}
	}
	for _, n := range []int32{0, -1} {
		if _, err := lead.PartitionOf(1, n); err == nil {
			t.Errorf("%d partitions have a place for a role", n)
		}
	}
	for in, want := range map[string]int32{
		"": 275646681, "21": -973932308, "a": -1563381124, "abc": 479470107, "abcd": -1323649548, "foobar": -790332482, "kafka": -798503068,
		"a-little-bit-long-string": -985981536, "my-key": 1748425209, "a-little-bit-longer-string": -1486304829,
	} {
		if got := produce.Murmur2([]byte(in)); got != want {
			t.Errorf("murmur2 of %q is %d, want %d", in, got, want)
		}
	}
}

// What cannot work is refused before anything is sent.
func TestF10AConfigurationThatCannotWorkIsRefused(t *testing.T) {
	k := refusing{t}
	for name, cfg := range map[string]Config{
		"long member": {Member: strings.Repeat("m", 250)}, "member not UTF-8": {Member: "\xff"}, "negative lease": {Lease: -1},
		"renew as long as lease": {Lease: time.Second, Renew: time.Second}, "negative stagger": {Stagger: -1}, "margin as long as lease": {Lease: 10 * time.Second, StopMargin: 10 * time.Second},
		"negative partitions": {Partitions: -1}, "negative replication": {Replication: -1}, "fetch wait": {FetchWait: time.Microsecond},
		"negative timeout": {RequestTimeout: -1}, "TTL alone": {RosterTTL: time.Minute}, "fence set twice": {FenceSet: []string{"x", "x"}}, "empty fence": {FenceSet: []string{""}},
	} {
		if _, err := Open(k, cfg); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Open(nil, Config{}); !errors.Is(err, ErrInvalidConfig) {
		t.Errorf("no client: %v", err)
	}
	e, err := Open(k, Config{}) // and a good one asks nobody either
	if err != nil {
		t.Fatal(err)
	}
	for _, role := range []string{"", strings.Repeat("r", 250), "\xff"} {
		if _, err := e.Campaign(t.Context(), role); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("A1: role %q: %v", role, err)
		}
		if _, err := e.Describe(t.Context(), role); !errors.Is(err, ErrInvalidConfig) {
			t.Errorf("A1: role %q: %v", role, err)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Errorf("a second Close: %v", err)
	}
}

// refusing is a client that must not be asked.
type refusing struct{ t *testing.T }

func (r refusing) Request(context.Context, kmsg.Request) (kmsg.Response, error) {
	r.t.Error("something was sent")
	return nil, errors.New("no")
}

func (r refusing) RequestBroker(ctx context.Context, _ kafka.NodeID, req kmsg.Request, _ int16) (kmsg.Response, error) {
	return r.Request(ctx, req)
}

func TestS4TheTopicIsMadeOnFirstUseAndOneThatIsThereIsTaken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fake{Cluster: ottlatest.New(t, ottlatest.Config{InMemory: true, Brokers: 1}), t: t}
		cl, err := cluster.Connect(t.Context(), k.ClientConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer cl.Close()
		k.cl = cl
		e := k.open(Config{})
		defer e.Close()
		if _, err := e.Describe(t.Context(), "r"); !errors.Is(err, kerr.UnknownTopicOrPartition) {
			t.Errorf("I6: to look on makes a topic: %v", err)
		}
		if got := k.Journal(19); len(got) != 0 {
			t.Error("CreateTopics was sent by who only looks on")
		}
		refused := k.Fail(19, kerr.InvalidReplicationFactor.Code, 1, 0)
		if _, err := e.Campaign(within(t, time.Minute), "r"); !errors.Is(err, ErrAdmin) || errors.Is(err, ErrAcquireTimeout) || refused.Hits() != 1 || !strings.Contains(err.Error(), "Config.Replication, `ottla lead --replicas`") {
			t.Errorf("three replicas on one broker: %v after %d requests", err, refused.Hits())
		}
		one := k.open(Config{Replication: 1})
		defer one.Close()
		if tm, err := one.Campaign(within(t, time.Minute), "r"); err != nil || tm.Err() != nil {
			t.Fatal(err)
		}
		req := k.Journal(19)[len(k.Journal(19))-1].Body.(*kmsg.CreateTopicsRequest)
		if ct := req.Topics[0]; ct.Topic != "__coordination_state" || ct.NumPartitions != 16 || ct.ReplicationFactor != 1 || ct.Configs[0].Name != "cleanup.policy" || *ct.Configs[0].Value != "compact" {
			t.Errorf("it is created as %+v", ct)
		}
		another := k.open(Config{Partitions: 3}) // what exists is taken as it is
		defer another.Close()
		if _, err := another.Describe(t.Context(), "r"); err != nil || len(another.topic.known().leaders) != 16 {
			t.Errorf("the other one sees %d partitions, %v", len(another.topic.known().leaders), err)
		}
	})
}

func TestF7ASecondCampaignOfAProcessWaitsForTheFirst(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		e := s.member("a")
		first := win(t, e, "r")
		next := s.candidate(e, "r")
		time.Sleep(2 * brief.Lease)
		s.noTerm(next, "beside the first")
		if n := s.mintsOf("a"); n != 1 || first.Err() != nil {
			t.Errorf("%d mints, %v", n, first.Err())
		}
		if err := first.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		if second, _ := s.after(next, time.Minute); second.Number() <= first.Number() {
			t.Error("the second has a lower term")
		}
	})
}

func TestS10AReadIsCommittedInOrderAndDropsWhatIsForeign(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a := s.member("a")
		for _, role := range []string{"controller", "role-b"} { // they share a partition
			win(t, a, role)
		}
		b := s.member("b")
		got, err := b.Roles(within(t, time.Minute))
		if err != nil || len(got) != 2 || got[0] != "controller" || got[1] != "role-b" {
			t.Errorf("roles %q, %v", got, err)
		}
		for _, role := range got {
			if st, err := b.Describe(within(t, time.Minute), role); err != nil || len(st.Roster) != 1 || st.Leader != "a" {
				t.Errorf("A9: %s: %+v, %v", role, st, err)
			}
		}
		s.links["b"].set(func(l *link) { l.cut = true })
		ctx := within(t, 5*time.Second)
		if _, err := b.Describe(ctx, "controller"); err == nil {
			t.Error("E7: an unreachable broker is an empty history")
		}
	})
}

func TestB3TheRegistrarsIdentityIsNobodysRole(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a := s.member("a")
		ta := win(t, a, "r")
		codes := []int16{47, 90, 49, 45, 59}
		for _, code := range codes {
			refuse := true
			s.links["a"].set(func(l *link) {
				l.answer = func(req kmsg.Request) int16 {
					if p, ok := req.(*kmsg.ProduceRequest); ok && p.TransactionID == nil && refuse {
						refuse = false
						return code
					}
					return 0
				}
			})
			if off, err := a.registrar.register(within(t, time.Minute), "other"); err != nil || off < 0 {
				t.Errorf("code %d: %d, %v", code, off, err)
			}
		}
		if ta.Err() != nil {
			t.Errorf("H1: the registrar's trouble ended a leadership: %v", ta.Err())
		}
	})
}

func TestS14AnUnknownIdHasNoEpoch(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a := s.member("a")
		if d, err := a.coords.describe(within(t, time.Minute), "never-led"); err != nil || d.Known() {
			t.Errorf("an unknown id is %+v, %v", d, err)
		}
		tm := win(t, a, "r")
		if d, err := a.coords.describe(within(t, time.Minute), "r"); err != nil || d.Pair != tm.Token() {
			t.Errorf("a led role is at %+v, %v", d, err)
		}
		s.links["a"].setCut(true, func(key int16) bool { return key == 10 }) // FindCoordinator
		a.coords.forget("r")
		if _, err := a.Describe(within(t, 5*time.Second), "r"); !errors.Is(err, ErrAdmin) {
			t.Errorf("a failed look-up: %v", err)
		}
	})
}

func TestG4G5G6TheEndIsToldOnceWithItsReason(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		told := make(chan error, 2)
		go func() { <-ta.Done(); told <- ta.Err() }()
		go func() { <-ta.Context().Done(); told <- context.Cause(ta.Context()) }()
		if err := ta.Resign(t.Context()); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := <-told; !errors.Is(err, ErrResigned) {
				t.Errorf("the reason is %v", err)
			}
		}
		if err := ta.Resign(t.Context()); err != nil {
			t.Errorf("I1: a second call: %v", err)
		}
		ta.end(ErrClosed)
		if !errors.Is(ta.Err(), ErrResigned) {
			t.Error("the reason changed")
		}
		if left := ta.Left(); left > 0 {
			t.Errorf("after the end %v are left", left)
		}
	})
}

func TestB256AResignationThatFailedIsFinishedByTheNextCall(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := ta.Resign(ended); err == nil || ta.Err() == nil {
			t.Errorf("with a context that is over: %v, and the term %v", err, ta.Err())
		}
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatal(err)
		}
		s.with(func(m *model.Cluster) {
			if ls := leases(m, "r"); !ls[len(ls)-1].gone {
				t.Error("the lease is not cleared")
			}
		})
		if n := len(ta.lease.turn); n != 0 {
			t.Error("the turn is kept")
		}
	})
}

func TestI2AfterAFenceThereIsNothingToResign(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		ta := win(t, s.member("a"), "r")
		if code := newForeign(s.link("x"), "r").mint(); code != 0 {
			t.Fatal(code)
		}
		<-ta.Done()
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Error(err)
		}
	})
}

func TestF5ACancelledCampaignLeavesNothing(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		win(t, a, "r")
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		if _, err := b.Campaign(ctx, "r"); !errors.Is(err, ErrAcquireTimeout) || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("F9: %v", err)
		}
		if st, err := a.Describe(within(t, time.Minute), "r"); err != nil || len(st.Roster) != 1 {
			t.Errorf("B10: the roster is %v, %v", st.Roster, err)
		}
		// Cancelled between mint and grant: the half-taken role is given back.
		ctx2, cancel2 := context.WithCancel(t.Context())
		s.links["b"].set(func(l *link) {
			l.before = func(req kmsg.Request) {
				if p, ok := req.(*kmsg.AddPartitionsToTxnRequest); ok && p.TransactionalID == "other" {
					cancel2()
				}
			}
		})
		if _, err := b.Campaign(ctx2, "other"); err == nil {
			t.Error("a cancelled campaign wins")
		}
		s.links["b"].set(func(l *link) { l.before = nil })
		began := time.Now()
		win(t, a, "other")
		if took := time.Since(began); took > brief.Lease {
			t.Errorf("a half-taken role was led after %v", took)
		}
	})
}

func TestP6TheFenceSetIsTakenBeforeTheGrant(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		set := func(c *Config) { c.FenceSet = []string{"out-1", "out-2"} }
		ta := win(t, s.member("a", set), "r")
		old, ok := ta.Fenced("out-1")
		if _, known := ta.Fenced("other"); !ok || known || !old.Valid() {
			t.Fatalf("%v %v", old, ok)
		}
		_ = ta.Resign(t.Context())
		tb := win(t, s.member("b", set), "r")
		s.with(func(m *model.Cluster) {
			for _, id := range []string{"out-1", "out-2"} {
				tx, _ := m.Transaction(id)
				mine, _ := tb.Fenced(id)
				if (lead.Token{ID: tx.ID, Epoch: tx.Epoch}) != mine {
					t.Errorf("%s is at %d:%d, the leader has %v", id, tx.ID, tx.Epoch, mine)
				}
			}
		})
		if mine, _ := tb.Fenced("out-1"); mine == old {
			t.Error("the successor has the pair of the leader before")
		}
		bad := s.member("c", set)
		s.links["c"].set(func(l *link) {
			l.answer = func(req kmsg.Request) int16 {
				if q, ok := req.(*kmsg.InitProducerIDRequest); ok && q.TransactionalID != nil && *q.TransactionalID == "out-2" {
					return 53
				}
				return 0
			}
		})
		_ = tb.Resign(t.Context())
		if _, err := bad.Campaign(within(t, time.Minute), "r"); !errors.Is(err, ErrAuthorization) {
			t.Errorf("a fence set that cannot be taken: %v", err)
		}
	})
}

func TestRunGoesOnAfterALossAndResignsOnEveryWayOut(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a := s.member("a")
		var terms []int64
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		started := make(chan *Term, 10)
		go func() {
			done <- a.Run(ctx, "r", func(ctx context.Context, tm *Term) error {
				terms = append(terms, tm.Number())
				started <- tm
				<-ctx.Done()
				time.Sleep(time.Second) // B250: it takes a while to stop
				if len(terms) == 2 && tm.Err() != nil {
					t.Error("P3: the role was given up before the work had stopped")
				}
				return ctx.Err()
			})
		}()
		<-started
		s.links["a"].setCut(true, nil) // B253: one loss, and the fault heals
		time.Sleep(2 * brief.Lease)
		s.links["a"].setCut(false, nil)
		second := <-started
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Run ends with %v", err)
		}
		if len(terms) != 2 || terms[1] <= terms[0] || !errors.Is(second.Err(), ErrResigned) {
			t.Errorf("terms %v, the last ended with %v", terms, second.Err())
		}
		func() {
			defer func() { _ = recover() }()
			_ = a.Run(t.Context(), "r", func(context.Context, *Term) error { panic("B251") })
		}()
		if st, err := a.Describe(within(t, time.Minute), "r"); err != nil || st.Leader != "" {
			t.Errorf("after a panic: %+v, %v", st, err)
		}
		boom := errors.New("boom")
		if err := a.Run(t.Context(), "r", func(context.Context, *Term) error { return boom }); !errors.Is(err, boom) {
			t.Errorf("an error of the work: %v", err)
		}
	})
}

func TestP5WatchShowsVacanciesAndStaleness(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a, b := s.member("a"), s.member("b")
		ta := win(t, a, "r")
		states := make(chan State, 100)
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			defer close(states)
			for st, err := range b.Watch(ctx, "r") {
				if err == nil {
					states <- st
				}
			}
		}()
		until := func(what string, ok func(State) bool) {
			t.Helper()
			for {
				select {
				case st := <-states:
					if ok(st) {
						return
					}
				case <-time.After(5 * brief.Lease):
					t.Fatalf("%s is not shown", what)
				}
			}
		}
		until("the leader", func(st State) bool { return st.Leader == "a" && st.Term == ta.Number() })
		s.links["b"].setCut(true, nil)
		until("staleness", func(st State) bool { return st.Stale && st.Leader == "" })
		s.links["b"].setCut(false, nil)
		until("the leader again", func(st State) bool { return st.Leader == "a" && !st.Stale })
		s.links["a"].setCut(true, nil)
		until("that the lease ran out", func(st State) bool { return st.Vacant() })
		cancel()
		for range states {
		}
	})
}

func TestT27BrokersThatDoNotVerifyAreRefused(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2, NoVerification: true}, func(t *testing.T, s *stage) {
		s.with(func(*model.Cluster) { s.unverify = true })
		if _, err := s.member("a").Campaign(within(t, time.Minute), "r"); !errors.Is(err, ErrInvalidConfig) || !strings.Contains(err.Error(), verification) {
			t.Errorf("%v", err)
		}
		win(t, s.member("b", func(c *Config) { c.AllowUnverified = true }), "r")
	})
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		s.with(func(*model.Cluster) { s.deny = map[int16]int16{32: 31} })
		warned := make(chan Event, 10)
		win(t, s.member("a", func(c *Config) {
			c.OnEvent = func(e Event) {
				if e.Kind == EventUnverified {
					warned <- e
				}
			}
		}), "r")
		time.Sleep(time.Second)
		if len(warned) != 1 {
			t.Errorf("without the right to see it, %d warnings", len(warned))
		}
	})
}

func TestScenario40AThrottledAnswerIsNoShortRead(t *testing.T) {
	inBubble(t, func(t *testing.T, k *fake) {
		a := k.open(Config{Member: "a"})
		defer a.Close()
		win(t, a, "r")
		k.Throttle(50*time.Millisecond, 1)
		b := k.open(Config{Member: "b"})
		defer b.Close()
		if st, err := b.Describe(within(t, time.Minute), "r"); err != nil || st.Leader != "a" {
			t.Errorf("%+v, %v", st, err)
		}
	})
}

func TestScenario24AHugeHistoryIsReadOnce(t *testing.T) {
	onStage(t, model.Config{TransactionVersion: 2}, func(t *testing.T, s *stage) {
		a := s.member("a")
		ta := win(t, a, "controller")
		for i := range 3000 {
			if _, err := a.registrar.append(t.Context(), "controller", lead.Registration{Member: "x", At: kafka.Timestamp(i)}.Append(nil)); err != nil {
				t.Fatal(err)
			}
		}
		b := s.member("b")
		if st, err := b.Describe(within(t, time.Minute), "controller"); err != nil || st.Leader != "a" || st.Term != ta.Number() {
			t.Errorf("%+v, %v", st, err)
		}
		before := b.log.partition(placeOf("controller").Partition).view().next
		time.Sleep(brief.Renew + time.Second)
		if v := b.log.partition(placeOf("controller").Partition).view(); v.next <= before {
			t.Error("E8: the tail is not followed")
		}
	})
}
