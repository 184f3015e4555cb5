//go:build kafka

package leader

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/internal/realkafka"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

var real *realkafka.Cluster

func TestMain(m *testing.M) {
	if cfg := os.Getenv(memberEnv); cfg != "" {
		os.Exit(beMember(cfg))
	}
	os.Exit(sim.NoLeaks(func() int {
		return realkafka.Run(m, realkafka.Options{Brokers: 3}, func(c *realkafka.Cluster) { real = c })
	}))
}

func dialKafka(t *testing.T) *cluster.Cluster {
	t.Helper()
	cl, err := cluster.Connect(t.Context(), cluster.Config{Bootstrap: strings.Split(real.Bootstrap(), ","), NoTopicCreation: true, RequestTimeout: 5 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cl.Close() })
	return cl
}

// onKafka makes an Elector with a client of its own, as a process has.
func onKafka(t *testing.T, cfg Config) *Elector {
	t.Helper()
	e, err := Open(dialKafka(t), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// roleOf is a role of the test's own.
func roleOf(t *testing.T) string { return fmt.Sprintf("%s/%d", t.Name(), time.Now().UnixNano()) }

func createTopic(t *testing.T, cl *cluster.Cluster, name string) {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	ct := kmsg.NewCreateTopicsRequestTopic()
	ct.Topic, ct.NumPartitions, ct.ReplicationFactor = name, 2, 3
	req.Topics, req.TimeoutMillis = append(req.Topics, ct), 30_000
	resp, err := cl.Request(within(t, 2*time.Minute), req)
	if err != nil {
		t.Fatal(err)
	}
	if err := kafka.CodeError(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode, nil); err != nil {
		t.Fatal(err)
	}
}

// setLevel changes the level of transaction.version.
func setLevel(t *testing.T, cl *cluster.Cluster, level int16) {
	t.Helper()
	if err := changeLevel(within(t, time.Minute), cl, level); err != nil {
		t.Fatalf("transaction.version cannot be set to %d: %v", level, err)
	}
}

// changeLevel returns when all brokers go by the level: the controller answers
// before they do.
func changeLevel(ctx context.Context, cl *cluster.Cluster, level int16) error {
	const name = "transaction.version"
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.TimeoutMillis = 30_000
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType, u.AllowDowngrade = name, level, 2, true
	if level > 1 {
		u.UpgradeType, u.AllowDowngrade = 1, false
	}
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	resp, err := cl.Request(ctx, req)
	if err != nil {
		return err
	}
	r := resp.(*kmsg.UpdateFeaturesResponse)
	for _, res := range r.Results {
		r.ErrorCode = max(r.ErrorCode, res.ErrorCode)
	}
	if r.ErrorCode != 0 {
		return kafka.CodeError(r.ErrorCode, r.ErrorMessage)
	}
	versions := kmsg.NewPtrApiVersionsRequest()
	versions.ClientSoftwareName, versions.ClientSoftwareVersion = "test", "1"
	for id := kafka.NodeID(1); id <= 3; {
		resp, err := cl.Broker(id).Request(ctx, versions)
		if err == nil && slices.ContainsFunc(resp.(*kmsg.ApiVersionsResponse).FinalizedFeatures, func(f kmsg.ApiVersionsResponseFinalizedFeature) bool {
			return f.Name == name && f.MaxVersionLevel == level
		}) {
			id++
			continue
		}
		if ctx.Err() != nil {
			return fmt.Errorf("broker %d does not go by it: %w", id, errors.Join(context.Cause(ctx), err))
		}
		time.Sleep(20 * time.Millisecond)
	}
	return nil
}

// hasLevels reports whether the version under test knows transaction.version.
func hasLevels() bool { return strings.HasPrefix(real.Version(), "4.") }

// The facts that the package rests on, at each level of transaction.version.
func TestKafkaFactsOfTheFence(t *testing.T) {
	levels := []int16{0}
	if hasLevels() {
		levels = []int16{2, 1}
	}
	for _, level := range levels {
		t.Run(fmt.Sprint("level ", level), func(t *testing.T) {
			e := onKafka(t, Config{})
			if level > 0 {
				setLevel(t, e.kafka.(*cluster.Cluster), level)
				t.Cleanup(restoreLevel)
			}
			t.Run("the pair stays", func(t *testing.T) { factPin(t, e) })
			t.Run("a mint fences every request", func(t *testing.T) { factFence(t, e) })
			t.Run("a stale re-init over an open transaction", func(t *testing.T) { factScenario12(t, e) })
			t.Run("a repeated number is not written", func(t *testing.T) { factG12(t, e) })
		})
	}
}

// restoreLevel sets transaction.version back to 2, after a test.
func restoreLevel() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	cl, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(real.Bootstrap(), ",")})
	if err != nil {
		return
	}
	defer cl.Close()
	_ = changeLevel(ctx, cl, 2)
}

// factPin: below part 2 commits, aborts and re-elections leave the pair alone.
func factPin(t *testing.T, e *Elector) {
	ctx := within(t, 2*time.Minute)
	tm, err := e.Campaign(ctx, roleOf(t))
	if err != nil {
		t.Fatal(err)
	}
	token := tm.Token()
	for range 30 {
		if err := tm.Renew(ctx); err != nil {
			t.Fatal(err)
		}
	}
	s, err := e.Describe(ctx, tm.Role())
	if err != nil || tm.Token() != token || s.Epoch != token || s.Verdict != Authoritative {
		t.Errorf("after 30 renewals: token %v was %v, the coordinator has %v, %v, %v", tm.Token(), token, s.Epoch, s.Verdict, err)
	}
	if err := tm.Resign(ctx); err != nil {
		t.Error(err)
	}
	if v, err := e.Verify(ctx, tm.Role(), token); v != Superseded || err != nil {
		t.Errorf("after the resignation: %v, %v", v, err)
	}
}

// raw sends a request of the lease writer under any pair.
func raw(t *testing.T, tm *Term, step lead.Step, pair lead.Token, seq int32) lead.Answer {
	t.Helper()
	for {
		a, err := tm.lease.send(within(t, time.Minute), lead.Action{Step: step, Pair: pair, Sequence: seq}, leaseRecord{from: tm.e.cfg.now()})
		if err != nil {
			t.Fatal(step, err)
		}
		switch a.Code {
		case 14, 15, 16: // brokers of other tests have moved
			tm.e.coords.forget(tm.role)
		case 51:
		default:
			return a
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func factFence(t *testing.T, e *Elector) {
	ctx := within(t, 2*time.Minute)
	tm, err := e.Campaign(ctx, roleOf(t))
	if err != nil {
		t.Fatal(err)
	}
	old := tm.Token()
	other, err := e.take(ctx, tm.Role(), 1<<62) // somebody takes the epoch, and does not lead
	if err != nil {
		t.Fatal(err)
	}
	if other.ID == old.ID && other.Epoch != old.Epoch+2 {
		t.Errorf("F11: mint and re-init make %v out of %v", other, old)
	}
	for step, want := range map[lead.Step]int16{lead.Add: 90, lead.Produce: 47, lead.Commit: 90, lead.Abort: 90, lead.Reinit: 90} {
		if a := raw(t, tm, step, old, 9); a.Code != want {
			t.Errorf("%v under the old pair is answered %d, want %d", step, a.Code, want)
		}
	}
	if err := tm.Renew(ctx); !IsFence(err) && !errors.Is(err, ErrFenced) {
		t.Errorf("the leader renews: %v", err)
	}
	if loss, err := tm.Loss(ctx); loss.Kind != LossForeign || err != nil {
		t.Errorf("the loss is %v, %v", loss, err)
	}
}

// factScenario12: a stale re-init aborts what is open before it is refused.
func factScenario12(t *testing.T, e *Elector) {
	ctx := within(t, 2*time.Minute)
	tm, err := e.Campaign(ctx, roleOf(t))
	if err != nil {
		t.Fatal(err)
	}
	pair := tm.Token()
	if err := tm.lease.lock(ctx); err != nil {
		t.Fatal(err)
	}
	if a := raw(t, tm, lead.Add, pair, 0); a.Code != 0 {
		t.Fatal(a)
	}
	if a := raw(t, tm, lead.Produce, pair, 1); a.Code != 0 {
		t.Fatal(a)
	}
	stale := lead.Token{ID: pair.ID, Epoch: pair.Epoch - 1}
	if pair.Epoch > 1 {
		stale.Epoch = pair.Epoch - 2
	}
	a := raw(t, tm, lead.Reinit, stale, 0)
	end := raw(t, tm, lead.Commit, pair, 0)
	t.Logf("a stale re-init over an open transaction is answered %d, and the commit after it %d", a.Code, end.Code)
	if a.Code != 90 || end.Code != 90 {
		t.Error("want 90 for both: it aborts what is open and only then is refused")
	}
	tm.lease.unlock()
}

// factG12: under a number that was used the broker writes nothing, and says 0.
func factG12(t *testing.T, e *Elector) {
	ctx := within(t, 2*time.Minute)
	tm, err := e.Campaign(ctx, roleOf(t))
	if err != nil {
		t.Fatal(err)
	}
	pair := tm.Token()
	if err := tm.lease.lock(ctx); err != nil {
		t.Fatal(err)
	}
	defer tm.lease.unlock()
	raw(t, tm, lead.Add, pair, 0)
	first := raw(t, tm, lead.Produce, pair, 1)
	if a := raw(t, tm, lead.Abort, pair, 0); a.Code != 0 {
		t.Fatal(a)
	}
	raw(t, tm, lead.Add, pair, 0)
	again := raw(t, tm, lead.Produce, pair, 1)
	if again.Code != 0 || again.Offset != first.Offset {
		t.Errorf("the repeated number is answered %d at %d, the aborted record is at %d", again.Code, again.Offset, first.Offset)
	}
	if gap := raw(t, tm, lead.Produce, pair, 7); gap.Code != 45 {
		t.Errorf("a gap is answered %d", gap.Code)
	}
	raw(t, tm, lead.Abort, pair, 0)
}

func TestKafkaHandOverBoundProducerAndWatch(t *testing.T) {
	a, b := onKafka(t, Config{Member: "a", Lease: 9 * time.Second}), onKafka(t, Config{Member: "b", Lease: 9 * time.Second})
	ctx, role := within(t, 3*time.Minute), roleOf(t)
	createTopic(t, a.kafka.(*cluster.Cluster), "out")
	ta, err := a.Campaign(ctx, role)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan State, 100)
	go func() {
		for s, err := range b.Watch(ctx, role) {
			if err == nil {
				seen <- s
			}
		}
		close(seen)
	}()
	won := make(chan *Term, 1)
	go func() {
		tb, err := b.Campaign(ctx, role)
		if err != nil {
			t.Error(err)
		}
		won <- tb
	}()
	for i := range 20 {
		if err := writePatiently(ctx, ta, "out", "a"+strconv.Itoa(i)); err != nil {
			t.Fatal(err)
		}
	}
	p := ta.Producer()
	time.Sleep(10 * time.Second) // more than a lease
	if err := ta.Resign(ctx); err != nil {
		t.Fatal(err)
	}
	tb := <-won
	if tb == nil || tb.Number() <= ta.Number() {
		t.Fatal("no successor, or a lower term")
	}
	if _, err := p.Begin(ctx); err == nil {
		t.Error("the resigned producer begins")
	}
	if err := writePatiently(ctx, tb, "out", "b"); err != nil {
		t.Error(err)
	}
	for s := range seen {
		if s.Leader == "b" {
			break
		}
	}
	if s, err := a.Describe(ctx, role); err != nil || s.Leader != "b" || s.Verdict != Authoritative {
		t.Errorf("%+v, %v", s, err)
	}
}

// frozen is a process that does not know that time passes: it believes that it
// leads, whatever happens.
func frozen() func() lead.Now {
	at := systemClock()()
	return func() lead.Now { return at }
}

// The writes of a leader that was suspended, in the moment in which it wakes:
// what its own clock would forbid, the brokers refuse.
func TestKafkaB260B263AZombieIsRefusedByTheBrokers(t *testing.T) {
	a := onKafka(t, Config{Member: "a", Lease: 9 * time.Second, now: frozen()})
	b := onKafka(t, Config{Member: "b", Lease: 9 * time.Second})
	ctx, role := within(t, 3*time.Minute), roleOf(t)
	topic := fmt.Sprint("zombie", time.Now().UnixNano())
	createTopic(t, a.kafka.(*cluster.Cluster), topic)
	put := func(tm *Term, value string) error { return writePatiently(ctx, tm, topic, value) }
	ta, err := a.Campaign(ctx, role)
	if err != nil {
		t.Fatal(err)
	}
	if err := put(ta, "a"); err != nil {
		t.Fatal(err)
	}
	open, err := ta.Producer().Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := open.Append(ctx, kafka.Record{Topic: topic, Value: []byte("open")}); err != nil {
		t.Fatal(err)
	}
	tb, err := b.Campaign(ctx, role)
	if err != nil {
		t.Fatal(err)
	}
	if err := put(tb, "b"); err != nil {
		t.Fatal(err)
	}
	if ta.Err() != nil {
		t.Fatalf("the zombie knows: %v", ta.Err())
	}
	if err := open.Commit(ctx); err == nil {
		t.Error("the zombie commits what it had open")
	}
	if err := put(ta, "zombie"); err == nil {
		t.Error("the zombie writes")
	}
	select {
	case <-ta.Done():
	case <-ctx.Done():
		t.Error("the zombie does not learn of it")
	}
	if err := put(tb, "b again"); err != nil || tb.Number() <= ta.Number() {
		t.Errorf("the successor: %v, term %d after %d", err, tb.Number(), ta.Number())
	}
	var got []string
	readCommitted(t, topic, func(r kafka.Record) { got = append(got, string(r.Value)) })
	slices.Sort(got) // two partitions, and values that were written again
	if got = slices.Compact(got); fmt.Sprint(got) != "[a b b again]" {
		t.Errorf("committed: %q", got)
	}
}

// writePatiently writes a value again as long as the machine is too slow, and
// the leadership lasts.
func writePatiently(ctx context.Context, tm *Term, topic, value string) (err error) {
	for {
		err = tm.Transact(ctx, func(ctx context.Context, tx *producer.Tx) error {
			_, err := tx.Append(ctx, kafka.Record{Topic: topic, Value: []byte(value)})
			return err
		})
		if err == nil || ctx.Err() != nil || tm.Err() != nil {
			return err
		}
	}
}
