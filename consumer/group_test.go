package consumer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// member makes a member of group g that the test closes.
func (w *world) member(cfg GroupConfig) *Consumer {
	w.t.Helper()
	if cfg.ID == "" {
		cfg.ID = "g"
	}
	if len(cfg.Topics) == 0 && cfg.Pattern == "" {
		cfg.Topics = []string{"t"}
	}
	return w.consumer(Config{Group: cfg})
}

// settle lets virtual time pass.
func settle(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// inGroups runs f for both protocols.
func inGroups(t *testing.T, topics map[string]int, f func(ctx context.Context, w *world, protocol kafka.GroupKind)) {
	t.Helper()
	for _, protocol := range []kafka.GroupKind{kafka.ClassicGroup, kafka.ConsumerGroup} {
		t.Run(protocol.String(), func(t *testing.T) {
			inWorld(t, ottlatest.Config{Topics: topics, Journal: 100000}, func(ctx context.Context, w *world) {
				f(ctx, w, protocol)
			})
		})
	}
}

func (w *world) committed(c *Consumer, id kafka.TopicPartition) kafka.Offset {
	w.t.Helper()
	at, err := c.Group().Committed(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	if o, ok := at[id]; ok {
		return o.Offset
	}
	return -1
}

// Mutation: subscribe after run has begun, which then sleeps until the first
// commit is due in one start of fifty.
func TestG3AMemberJoinsAtOnce(t *testing.T) {
	inGroups(t, map[string]int{"t": 1}, func(_ context.Context, w *world, protocol kafka.GroupKind) {
		for i := range 200 {
			c := w.member(GroupConfig{ID: fmt.Sprint("g", i), Protocol: protocol})
			settle(time.Second)
			if s := c.Group().Stats(); s.State != "stable" {
				w.t.Errorf("member %d is %s after a second", i, s.State)
			}
			_ = c.Close()
		}
	})
}

// A member that dies while the coordinator holds its JoinGroup back is in the
// next generation, and out of the group a session later.
func TestAMemberThatDiesWhileItJoinsIsReplaced(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 4}}, func(ctx context.Context, w *world) {
		join := func() (*Consumer, *cluster.Cluster) {
			own, err := cluster.Connect(ctx, w.client())
			if err != nil {
				t.Fatal(err)
			}
			c, err := New(own, Config{Group: GroupConfig{ID: "g", Topics: []string{"t"}, SessionTimeout: 6 * time.Second}})
			if err != nil {
				t.Fatal(err)
			}
			return c, own
		}
		stays, own := join()
		defer own.Close()
		defer stays.Close()
		defer drainAll(ctx, stays)()
		victim, killed := join()
		defer victim.Close()
		settle(10 * time.Second)
		killed.Close() // no LeaveGroup: the next generation waits for it until its session ends
		joiner, dies := join()
		defer joiner.Close()
		settle(2 * time.Second)
		dies.Close()
		settle(5 * time.Second)
		if s := stays.Group().Stats(); s.Partitions == 4 {
			t.Error("the member that joined is not in the generation it asked for")
		}
		settle(15 * time.Second)
		if s := stays.Group().Stats(); s.Partitions != 4 {
			t.Errorf("the one that is left has %d partitions of 4: %+v", s.Partitions, s)
		}
	})
}

func TestG3_G31_G32AMemberJoinsReadsAndCommitsWhatWasFinished(t *testing.T) {
	inGroups(t, map[string]int{"t": 4}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		for p := range int32(4) {
			w.produce("t", p, numbers(0, 5)...)
		}
		c := w.member(GroupConfig{Protocol: protocol})
		r := newReader(w.t, c)
		r.until(ctx, 20)
		for p := range int32(4) {
			r.want(tp("t", p), numbers(0, 5)...)
		}
		var sum kafka.Offset
		for _, q := range w.k.Journal(11) {
			if id := q.Body.(*kmsg.JoinGroupRequest).MemberID; id != "" && id != c.Group().Stats().MemberID {
				w.t.Errorf("JoinGroup with the id %q", id)
			}
		}
		if err := c.Group().Commit(ctx); err != nil {
			w.t.Fatal(err)
		}
		for p := range int32(4) {
			sum += max(w.committed(c, tp("t", p)), 0)
		}
		if sum >= 20 {
			w.t.Error("committed before the last poll's records were finished")
		}
		if err := c.Commit(ctx); err != nil {
			w.t.Fatal(err)
		}
		for p := range int32(4) {
			if o := w.committed(c, tp("t", p)); o != 5 {
				w.t.Errorf("partition %d: committed %d", p, o)
			}
		}
		if err := c.Shutdown(ctx); err != nil {
			w.t.Error(err)
		}
		again := newReader(w.t, w.member(GroupConfig{Protocol: protocol}))
		w.produce("t", 1, "new")
		again.until(ctx, 1)
		again.want(tp("t", 1), "new")
	})
}

// ledger records who owns what by the callbacks, and fails the test when two
// members own a partition.
type ledger struct {
	t      testing.TB
	mu     sync.Mutex
	owners map[kafka.TopicPartition]string
	moves  map[string]int // partitions assigned, by member
}

func newLedger(t testing.TB) *ledger {
	return &ledger{t: t, owners: map[kafka.TopicPartition]string{}, moves: map[string]int{}}
}

// watch puts the callbacks of a member into a configuration.
func (l *ledger) watch(name string, cfg GroupConfig) GroupConfig {
	cfg.OnAssigned = func(_ *Consumer, at map[kafka.TopicPartition]kafka.Commit) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for id := range at {
			if other := l.owners[id]; other != "" {
				l.t.Errorf("%s is given %s, which %s owns", name, id, other)
			}
			l.owners[id] = name
			l.moves[name]++
		}
	}
	cfg.OnRevoked = func(_ *Consumer, tps []kafka.TopicPartition) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, id := range tps {
			if l.owners[id] != name {
				l.t.Errorf("%s gives up %s, which %q owns", name, id, l.owners[id])
			}
			delete(l.owners, id)
		}
	}
	cfg.OnLost = func(_ *Consumer, tps []kafka.TopicPartition, _ error) {
		l.mu.Lock()
		defer l.mu.Unlock()
		for _, id := range tps { // another may own it already
			if l.owners[id] == name {
				delete(l.owners, id)
			}
		}
	}
	return cfg
}

func (l *ledger) owned(name string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, owner := range l.owners {
		if owner == name {
			n++
		}
	}
	return n
}

// drainAll polls in the background, and returns how to stop and what came.
func drainAll(ctx context.Context, c *Consumer) (stop func() []string) {
	ctx, cancel := context.WithCancel(ctx)
	var values []string
	var mu sync.Mutex
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			bs, err := c.Poll(ctx)
			mu.Lock()
			for _, b := range bs {
				for o, r := range b.Records() {
					values = append(values, fmt.Sprintf("%d@%d:%s", o, r.Partition, r.Value))
				}
			}
			mu.Unlock()
			if err != nil && (ctx.Err() != nil || c.closed() != nil) {
				return
			}
		}
	}()
	return func() []string {
		cancel()
		<-done
		return values
	}
}

func TestG18_G37MembersComeAndGoAndNoPartitionHasTwoOwners(t *testing.T) {
	inGroups(t, map[string]int{"t": 12}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		l := newLedger(w.t)
		var stops []func() []string
		var members []*Consumer
		for _, name := range []string{"a", "b", "c"} {
			c := w.member(l.watch(name, GroupConfig{Protocol: protocol}))
			members = append(members, c)
			stops = append(stops, drainAll(ctx, c))
			settle(20 * time.Second)
		}
		for _, name := range []string{"a", "b", "c"} {
			if n := l.owned(name); n != 4 {
				w.t.Errorf("%s owns %d of 12", name, n)
			}
		}
		if n := l.moves["a"]; n != 12 {
			w.t.Errorf("a was given %d partitions in all: what stays is given once", n)
		}
		if err := members[1].Shutdown(ctx); err != nil {
			w.t.Error(err)
		}
		settle(20 * time.Second)
		if a, c := l.owned("a"), l.owned("c"); a != 6 || c != 6 {
			w.t.Errorf("a owns %d, c %d of 12", a, c)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

// A partition that moves in a cooperative round is read by nobody until every
// member has joined again, and only heartbeats tell them to. Mutation: heartbeats
// that wait their whole interval after a round.
func TestG18APartitionThatMovesDoesNotWaitForAHeartbeat(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 12}}, func(ctx context.Context, w *world) {
		var mu sync.Mutex
		revoked := map[kafka.TopicPartition]time.Time{}
		longest, moved := time.Duration(0), 0
		for range 3 {
			c := w.member(GroupConfig{
				HeartbeatInterval: 10 * time.Second,
				OnRevoked: func(_ *Consumer, tps []kafka.TopicPartition) {
					mu.Lock()
					defer mu.Unlock()
					for _, id := range tps {
						revoked[id] = time.Now()
					}
				},
				OnAssigned: func(_ *Consumer, at map[kafka.TopicPartition]kafka.Commit) {
					mu.Lock()
					defer mu.Unlock()
					for id := range at {
						if since, ok := revoked[id]; ok {
							longest = max(longest, time.Since(since))
							moved++
						}
					}
				},
			})
			defer drainAll(ctx, c)()
			settle(30 * time.Second)
		}
		mu.Lock()
		defer mu.Unlock()
		if moved != 10 || longest > time.Second {
			t.Errorf("%d partitions moved, one within %v", moved, longest)
		}
	})
}

// Everything is read once while members restart one after the other under load.
// Mutation: commit positions in place of finished work.
func TestT8_G40ARollingRestartLosesAndDoublesNothing(t *testing.T) {
	inGroups(t, map[string]int{"t": 12}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		var mu sync.Mutex
		seen := map[string]int{}
		run := func() (stop func()) {
			ctx, cancel := context.WithCancel(ctx)
			c := w.member(GroupConfig{Protocol: protocol})
			done := make(chan error, 1)
			go func() {
				done <- c.Run(ctx, func(_ context.Context, b Batch) error {
					time.Sleep(30 * time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					for _, r := range b.Records() {
						seen[string(r.Value)]++
					}
					return nil
				})
			}()
			return func() {
				cancel()
				if err := <-done; err != nil {
					w.t.Errorf("Run: %v", err)
				}
			}
		}
		produced := 0
		produce := func(n int) {
			for range n {
				w.produce("t", int32(produced%12), fmt.Sprint(produced))
				produced++
				time.Sleep(10 * time.Millisecond)
			}
		}
		stops := []func(){run(), run(), run()}
		settle(20 * time.Second)
		for i := range stops {
			produce(200)
			stops[i]()
			produce(50)
			stops[i] = run()
			produce(50)
		}
		settle(30 * time.Second)
		for _, stop := range stops {
			stop()
		}
		mu.Lock()
		defer mu.Unlock()
		for i := range produced {
			if n := seen[fmt.Sprint(i)]; n != 1 {
				w.t.Errorf("record %d was handled %d times", i, n)
			}
		}
	})
}

func TestG4_G37AMemberThatIsTooSlowIsToldThenLosesItsPartitionsAndRejoins(t *testing.T) {
	inGroups(t, map[string]int{"t": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		var mu sync.Mutex
		var log []string
		c := w.member(GroupConfig{
			Protocol: protocol, ProcessingTimeout: 40 * time.Second,
			OnLost: func(_ *Consumer, tps []kafka.TopicPartition, why error) {
				mu.Lock()
				defer mu.Unlock()
				log = append(log, "lost")
			},
			OnEvent: func(_ *Consumer, e GroupEvent) {
				mu.Lock()
				defer mu.Unlock()
				if e.Kind == GroupStalled {
					log = append(log, fmt.Sprint("stalled ", e.Age >= 20*time.Second && e.Age < 25*time.Second))
				}
			},
		})
		w.produce("t", 0, "a", "b")
		r := newReader(w.t, c)
		r.until(ctx, 1)
		time.Sleep(60 * time.Second)
		mu.Lock()
		if !slices.Equal(log, []string{"stalled true", "lost"}) {
			w.t.Errorf("told %q", log)
		}
		mu.Unlock()
		if s := c.Group().Stats(); s.State != "idle" || s.Partitions != 0 || s.Stalls != 1 {
			w.t.Errorf("stats %+v", s)
		}
		again := newReader(w.t, c)
		again.until(ctx, 2) // rejoined; nothing had been finished
	})
}

func TestG2_R35HeartbeatsGoOnWhateverTheUserDoes(t *testing.T) {
	inGroups(t, map[string]int{"t": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		c := w.member(GroupConfig{Protocol: protocol, SessionTimeout: 10 * time.Second})
		w.produce("t", 0, "a")
		r := newReader(w.t, c)
		r.until(ctx, 1)
		before := c.Group().Stats().Heartbeats
		time.Sleep(2 * time.Minute) // in a handler
		s := c.Group().Stats()
		if s.State != "stable" || s.Lost > 0 || s.Heartbeats-before < 20 {
			w.t.Errorf("after two minutes: %+v", s)
		}
	})
}

func TestG38ABatchsContextEndsWithItsPartition(t *testing.T) {
	inGroups(t, map[string]int{"t": 2}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		w.produce("t", 0, "a")
		w.produce("t", 1, "b")
		c := w.member(GroupConfig{Protocol: protocol})
		work := map[int32]context.Context{}
		for len(work) < 2 {
			bs, err := c.Poll(ctx)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, b := range bs {
				work[b.Partition] = b.Context()
			}
		}
		other := w.member(GroupConfig{Protocol: protocol})
		stop := drainAll(ctx, other)
		settle(20 * time.Second)
		ended := 0
		for p, ctx := range work {
			if ctx.Err() != nil {
				ended++
				if cause := context.Cause(ctx); cause != ErrRevoked {
					w.t.Errorf("partition %d: cause %v", p, cause)
				}
			}
		}
		if ended != 1 {
			w.t.Errorf("%d contexts ended, want that of the partition that moves", ended)
		}
		// It was not given up while its record was in work.
		if n := other.Group().Stats().Partitions; n != 0 {
			w.t.Errorf("the other member has %d partitions already", n)
		}
		rest := drainAll(ctx, c)
		settle(20 * time.Second)
		if n := other.Group().Stats().Partitions; n != 1 {
			w.t.Errorf("the other member has %d partitions", n)
		}
		if err := c.Close(); err != nil {
			w.t.Error(err)
		}
		for p, ctx := range work {
			if cause := context.Cause(ctx); cause != ErrRevoked && !errors.Is(cause, net.ErrClosed) {
				w.t.Errorf("partition %d: cause %v after Close", p, cause)
			}
		}
		rest()
		if got := stop(); len(got) > 0 {
			w.t.Errorf("records %q came twice", got)
		}
	})
}

func TestG8ASubscriptionChangesInOneRound(t *testing.T) {
	inGroups(t, map[string]int{"t": 2, "u": 2, "v": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		l := newLedger(w.t)
		c := w.member(l.watch("a", GroupConfig{Protocol: protocol, Topics: []string{"t", "u"}}))
		stop := drainAll(ctx, c)
		settle(10 * time.Second)
		if got := c.Assignment(); len(got) != 4 {
			w.t.Fatalf("assigned %v", got)
		}
		before := l.moves["a"]
		if err := c.Group().Subscribe("t", "v"); err != nil {
			w.t.Fatal(err)
		}
		settle(20 * time.Second)
		if got := c.Assignment(); len(got) != 3 || got[2] != tp("v", 0) {
			w.t.Errorf("assigned %v", got)
		}
		if n := l.moves["a"] - before; n != 1 {
			w.t.Errorf("%d partitions were given, want that of the new topic alone", n)
		}
		if err := c.Group().Subscribe(); err != nil {
			w.t.Fatal(err)
		}
		settle(5 * time.Second)
		if got := c.Assignment(); len(got) != 0 {
			w.t.Errorf("assigned %v after everything was unsubscribed", got)
		}
		stop()
	})
}

func TestG7_B199GrowthAndNewTopicsReachTheGroup(t *testing.T) {
	inGroups(t, map[string]int{"t": 2}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		c := w.member(GroupConfig{Protocol: protocol, Topics: []string{"t", "later"}})
		stop := drainAll(ctx, c)
		settle(10 * time.Second)
		if err := w.k.CreateTopic("later", 3); err != nil {
			w.t.Fatal(err)
		}
		settle(20 * time.Second)
		if got := c.Assignment(); len(got) != 5 {
			w.t.Errorf("assigned %v after a topic was made", got)
		}
		if err := w.k.AddPartitions("t", 4); err != nil {
			w.t.Fatal(err)
		}
		settle(cluster5min)
		if got := c.Assignment(); len(got) != 7 {
			w.t.Errorf("assigned %v after growth", got)
		}
		stop()
	})
}

const cluster5min = 5*time.Minute - 40*time.Second

func TestG25_K15_B044APatternFollowsTheTopics(t *testing.T) {
	inGroups(t, map[string]int{"t1": 1, "t2": 1, "other": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		cfg := w.client()
		cfg.MetadataMaxAge = 10 * time.Second
		own, err := cluster.Connect(ctx, cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		defer own.Close()
		c, err := New(own, Config{Group: GroupConfig{ID: "g", Pattern: "t.*", Protocol: protocol}})
		if err != nil {
			w.t.Fatal(err)
		}
		defer c.Close()
		stop := drainAll(ctx, c)
		settle(15 * time.Second)
		if got := c.Assignment(); !slices.Equal(got, []kafka.TopicPartition{tp("t1", 0), tp("t2", 0)}) {
			w.t.Fatalf("assigned %v", got)
		}
		if err := w.k.CreateTopic("t3", 1); err != nil {
			w.t.Fatal(err)
		}
		if err := w.k.DeleteTopic("t2"); err != nil {
			w.t.Fatal(err)
		}
		settle(40 * time.Second)
		if got := c.Assignment(); !slices.Equal(got, []kafka.TopicPartition{tp("t1", 0), tp("t3", 0)}) {
			w.t.Errorf("assigned %v after t3 was made and t2 deleted", got)
		}
		stop()
	})
}

// TestB044ADeletedTopicOfAPatternIsForgotten, asked for no more often than the
// others, and new when it comes back. Mutations: a look-up that does not forget
// what left the pattern; one that keeps the old topic in the subscription.
func TestB044ADeletedTopicOfAPatternIsForgotten(t *testing.T) {
	inGroups(t, map[string]int{"t1": 1, "t2": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		cfg := w.client()
		cfg.MetadataMaxAge = 10 * time.Second
		own, err := cluster.Connect(ctx, cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		defer own.Close()
		c, err := New(own, Config{Group: GroupConfig{ID: "g", Pattern: "t.*", Protocol: protocol}})
		if err != nil {
			w.t.Fatal(err)
		}
		defer c.Close()
		stop := drainAll(ctx, c)
		w.produce("t2", 0, "old-0", "old-1", "old-2")
		settle(15 * time.Second)
		before := metadataRequests(w)
		settle(time.Minute)
		normal := metadataRequests(w) - before
		if err := w.k.DeleteTopic("t2"); err != nil {
			w.t.Fatal(err)
		}
		settle(40 * time.Second)
		if got := c.Assignment(); !slices.Equal(got, []kafka.TopicPartition{tp("t1", 0)}) {
			w.t.Errorf("assigned %v after t2 was deleted", got)
		}
		if _, ok := own.CachedTopic("t2"); ok {
			w.t.Error("the map still holds t2")
		}
		before = metadataRequests(w)
		settle(time.Minute)
		if n := metadataRequests(w) - before; n > normal+2 {
			w.t.Errorf("%d Metadata requests in a minute, %d before", n, normal)
		}
		if err := w.k.CreateTopic("t2", 1); err != nil {
			w.t.Fatal(err)
		}
		w.prod.Close() // it knows the old id
		w.prod = nil
		w.produce("t2", 0, "new-0")
		settle(40 * time.Second)
		if got := c.Assignment(); !slices.Equal(got, []kafka.TopicPartition{tp("t1", 0), tp("t2", 0)}) {
			w.t.Errorf("assigned %v after t2 came back", got)
		}
		if got := stop(); !slices.Contains(got, "0@0:new-0") {
			w.t.Errorf("read %v: the topic that came back is not read from its start", got)
		}
	})
}

// A member that owned nothing when it fell out of the group, such as a process
// that stood still, reads what it is given after that. Mutation: a doubt that only
// the loss of partitions ends.
func TestG6AMemberInDoubtThatOwnedNothingReadsAgain(t *testing.T) {
	inGroups(t, map[string]int{"t": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		first := w.member(GroupConfig{Protocol: protocol})
		stop := drainAll(ctx, first)
		settle(10 * time.Second)
		second := w.member(GroupConfig{Protocol: protocol})
		settle(10 * time.Second)
		if n := len(second.Assignment()); n != 0 {
			w.t.Fatalf("the second member has %d partitions", n)
		}
		for id := range kafka.NodeID(3) {
			w.k.Partition(id)
		}
		settle(2 * time.Minute)
		for id := range kafka.NodeID(3) {
			w.k.Heal(id)
		}
		stop()
		if err := first.Shutdown(ctx); err != nil {
			w.t.Fatal(err)
		}
		settle(time.Minute)
		w.produce("t", 0, "x")
		within, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		newReader(w.t, second).until(within, 1)
	})
}

// metadataRequests is how many the brokers have seen.
func metadataRequests(w *world) int { return len(w.k.Journal(3)) }

func TestG5_G6ACoordinatorThatMovesOrDiesCostsNothing(t *testing.T) {
	inGroups(t, map[string]int{"t": 3}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		c := w.member(GroupConfig{Protocol: protocol})
		stop := drainAll(ctx, c)
		settle(10 * time.Second)
		for _, key := range []int16{12, 68} {
			w.k.Fail(key, 16, 1, 0)
			w.k.Fail(key, 15, 1, 2)
			w.k.Fail(key, 14, 2, 4)
		}
		settle(30 * time.Second)
		w.k.CloseConnections(w.k.Coordinator("g"))
		settle(30 * time.Second)
		s := c.Group().Stats()
		if s.State != "stable" || s.Lost != 0 || s.Given != 3 {
			w.t.Errorf("stats %+v", s)
		}
		stop()
	})
}
