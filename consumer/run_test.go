package consumer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
	"github.com/ottla/ottla/producer"
)

var errHandler = errors.New("no luck")

// inRun runs f with a topic of two partitions.
func inRun(t *testing.T, f func(ctx context.Context, w *world)) {
	t.Helper()
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 2, "one": 1}}, f)
}

func TestG39RunHandlesEachPartitionInOrderAndCommitsWhatReturnedNil(t *testing.T) {
	inRun(t, func(ctx context.Context, w *world) {
		for p := range int32(2) {
			w.produce("t", p, numbers(0, 20)...)
		}
		c := w.member(GroupConfig{})
		end, cancel := context.WithCancel(ctx)
		var mu sync.Mutex
		got, at, most := map[int32][]string{}, 0, 0
		active := map[int32]bool{}
		err := c.Run(end, func(_ context.Context, b Batch) error {
			mu.Lock()
			if active[b.Partition] {
				t.Errorf("two handlers of partition %d", b.Partition)
			}
			active[b.Partition] = true
			at++
			most = max(most, at)
			mu.Unlock()
			time.Sleep(100 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			active[b.Partition] = false
			at--
			for _, r := range b.Records() {
				got[b.Partition] = append(got[b.Partition], string(r.Value))
			}
			if len(got[0]) == 20 && len(got[1]) == 20 {
				cancel()
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for p := range int32(2) {
			if !slices.Equal(got[p], numbers(0, 20)) {
				t.Errorf("partition %d: %q", p, got[p])
			}
		}
		if most != 2 {
			t.Errorf("%d handlers at a time, want one for each partition", most)
		}
		probe := w.member(GroupConfig{})
		if o := w.committed(probe, tp("t", 1)); o != 20 {
			t.Errorf("committed %d", o)
		}
	})
}

func TestG39AnErrorStopsRunAndItsWorkIsNotCommitted(t *testing.T) {
	inRun(t, func(ctx context.Context, w *world) {
		w.produce("t", 0, numbers(0, 5)...)
		tries := 0
		c := w.member(GroupConfig{Run: RunConfig{Retries: 2, RetryBackoff: time.Second}})
		began := time.Now()
		err := c.RunRecords(ctx, func(_ context.Context, r kafka.Record) error {
			if r.Offset == 3 {
				tries++
				return errHandler
			}
			return nil
		})
		if !errors.Is(err, errHandler) || tries != 3 {
			t.Errorf("Run: %v after %d tries", err, tries)
		}
		if took := time.Since(began); took < 3*time.Second {
			t.Errorf("three tries took %v, want backoffs of 1 s and 2 s", took)
		}
		probe := w.member(GroupConfig{})
		if o := w.committed(probe, tp("t", 0)); o != 3 {
			t.Errorf("committed %d, want what was done", o)
		}
	})
}

func TestG39ThePolicyForErrors(t *testing.T) {
	for _, policy := range []FailurePolicy{SkipOnFailure, DeadLetterOnFailure} {
		t.Run(fmt.Sprint(policy), func(t *testing.T) {
			inRun(t, func(ctx context.Context, w *world) {
				w.produce("t", 0, numbers(0, 5)...)
				end, cancel := context.WithCancel(ctx)
				var mu sync.Mutex
				var skipped []error
				var letters []string
				run := RunConfig{OnFailure: policy}
				if policy == DeadLetterOnFailure {
					run.DeadLetter = func(_ context.Context, f Failure) error {
						letters = append(letters, string(f.Record.Value))
						return nil
					}
				}
				c := w.member(GroupConfig{Run: run, OnEvent: func(_ *Consumer, e GroupEvent) {
					if e.Kind == GroupSkipped {
						mu.Lock()
						defer mu.Unlock()
						skipped = append(skipped, e.Err)
					}
				}})
				err := c.RunRecords(end, func(_ context.Context, r kafka.Record) error {
					switch r.Offset {
					case 2:
						return errHandler
					case 4:
						cancel()
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				settle(time.Second)
				mu.Lock()
				defer mu.Unlock()
				if len(skipped) != 1 || skipped[0] != errHandler {
					t.Errorf("told %v", skipped)
				}
				if policy == DeadLetterOnFailure && !slices.Equal(letters, []string{"2"}) {
					t.Errorf("put away %q", letters)
				}
				probe := w.member(GroupConfig{})
				if o := w.committed(probe, tp("t", 0)); o != 5 {
					t.Errorf("committed %d", o)
				}
			})
		})
	}
}

func TestG39APanicIsAnErrorWithItsStackAndTheMemberLeaves(t *testing.T) {
	inRun(t, func(ctx context.Context, w *world) {
		w.produce("t", 0, "a")
		c := w.member(GroupConfig{Run: RunConfig{Retries: 5, OnFailure: SkipOnFailure}})
		err := c.Run(ctx, func(context.Context, Batch) error { panic("boom") })
		var p *PanicError
		if !errors.As(err, &p) || p.Value != "boom" || len(p.Stack) == 0 {
			t.Fatalf("Run: %v", err)
		}
		probe := w.member(GroupConfig{})
		stop := drainAll(ctx, probe)
		settle(5 * time.Second)
		if n := probe.Group().Stats().Partitions; n != 2 {
			t.Errorf("the next member has %d partitions after 5 s: the first did not leave", n)
		}
		if got := stop(); len(got) != 1 {
			t.Errorf("%q came to the next member", got)
		}
	})
}

// Mutations: a worker that goes on behind a stuck key only when that is done; a
// watermark that skips it.
func TestG33_G39RecordsOfOneKeyAreInOrderAndTheWatermarkIsTheLowestUnfinished(t *testing.T) {
	inRun(t, func(ctx context.Context, w *world) {
		prod, err := producer.New(w.c, producer.Config{Linger: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		defer prod.Close()
		var rs []kafka.Record
		for i := range 60 {
			rs = append(rs, kafka.Record{Topic: "one", Key: []byte{byte(i % 6)}, Value: []byte{byte(i)}})
		}
		if _, err := prod.Send(ctx, rs...); err != nil {
			t.Fatal(err)
		}
		plain := w.consumer(Config{})
		if err := plain.Assign(ctx, map[kafka.TopicPartition]Start{tp("one", 0): Earliest()}); err != nil {
			t.Fatal(err)
		}
		if bs, err := plain.Poll(ctx); err != nil || len(bs) != 1 || bs[0].Count() != 60 {
			t.Fatalf("the records are to be one batch: %d, %v", len(bs), err)
		}
		c := w.member(GroupConfig{Topics: []string{"one"}, Run: RunConfig{KeyWorkers: 6}, CommitInterval: 100 * time.Millisecond})
		end, cancel := context.WithCancel(ctx)
		var mu sync.Mutex
		last, done := map[byte]int{}, 0
		stuck := make(chan struct{})
		go func() {
			time.Sleep(30 * time.Second)
			mu.Lock()
			n := done
			mu.Unlock()
			if n != 50 {
				t.Errorf("%d records were handled beside a stuck key, want all 50 of the others", n)
			}
			if o := w.committed(c, tp("one", 0)); o != 1 {
				t.Errorf("committed %d, want 1: the lowest unfinished record", o)
			}
			close(stuck)
		}()
		err = c.RunRecords(end, func(_ context.Context, r kafka.Record) error {
			key, n := r.Key[0], int(r.Value[0])
			if key == 1 {
				<-stuck
			}
			mu.Lock()
			defer mu.Unlock()
			if prev, ok := last[key]; ok && n <= prev {
				t.Errorf("key %d: %d behind %d", key, n, prev)
			}
			last[key] = n
			if done++; done == 60 {
				cancel()
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		probe := w.member(GroupConfig{})
		if o := w.committed(probe, tp("one", 0)); o != 60 {
			t.Errorf("committed %d", o)
		}
	})
}

// A partition whose handler is stuck is paused; the others flow and it is named.
func TestG40ASlowPartitionDelaysNoOtherAndIsNamed(t *testing.T) {
	inRun(t, func(ctx context.Context, w *world) {
		var mu sync.Mutex
		var stalled []kafka.TopicPartition
		c := w.consumer(Config{MaxPollBytes: 100, Group: GroupConfig{
			ID: "g", Topics: []string{"t"}, ProcessingTimeout: time.Minute,
			OnEvent: func(_ *Consumer, e GroupEvent) {
				if e.Kind == GroupStalled {
					mu.Lock()
					defer mu.Unlock()
					stalled = append(stalled, e.TopicPartition)
				}
			},
		}})
		end, cancel := context.WithCancel(ctx)
		stuck := make(chan struct{})
		handled := 0
		done := make(chan error, 1)
		go func() {
			done <- c.Run(end, func(_ context.Context, b Batch) error {
				if b.Partition == 0 {
					<-stuck
				}
				mu.Lock()
				defer mu.Unlock()
				handled++
				return nil
			})
		}()
		for p := range int32(2) {
			w.produce("t", p, numbers(0, 50)...)
		}
		settle(25 * time.Second)
		mu.Lock()
		if handled != 50 {
			t.Errorf("%d batches of the other partition were handled", handled)
		}
		mu.Unlock()
		if got := c.Paused(); !slices.Equal(got, []kafka.TopicPartition{tp("t", 0)}) {
			t.Errorf("paused %v", got)
		}
		settle(12 * time.Second)
		mu.Lock()
		if !slices.Equal(stalled, []kafka.TopicPartition{tp("t", 0)}) {
			t.Errorf("stalled %v", stalled)
		}
		mu.Unlock()
		close(stuck)
		settle(5 * time.Second)
		if got := c.Paused(); len(got) > 0 || handled != 100 {
			t.Errorf("paused %v, %d batches handled", got, handled)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestG38_B212AHandlerThatOverrunsTheRevocationDelaysItForABoundedTime(t *testing.T) {
	inRun(t, func(ctx context.Context, w *world) {
		w.produce("t", 0, "a")
		w.produce("t", 1, "b")
		c := w.member(GroupConfig{RebalanceTimeout: 20 * time.Second})
		end, cancel := context.WithCancel(ctx)
		stuck := make(chan struct{})
		var mu sync.Mutex
		causes := map[int32]error{}
		done := make(chan error, 1)
		go func() {
			done <- c.Run(end, func(ctx context.Context, b Batch) error {
				<-ctx.Done()
				mu.Lock()
				causes[b.Partition] = context.Cause(ctx)
				mu.Unlock()
				<-stuck
				return nil
			})
		}()
		settle(5 * time.Second)
		other := w.member(GroupConfig{RebalanceTimeout: 20 * time.Second})
		stop := drainAll(ctx, other)
		settle(8 * time.Second)
		mu.Lock()
		if len(causes) != 1 {
			t.Errorf("contexts ended: %v, want that of the partition that moves", causes)
		}
		for _, cause := range causes {
			if cause != ErrRevoked {
				t.Errorf("cause %v", cause)
			}
		}
		mu.Unlock()
		if n := other.Group().Stats().Partitions; n != 0 {
			t.Errorf("given up after 8 s with a handler at work")
		}
		settle(10 * time.Second)
		if s := c.Group().Stats(); other.Group().Stats().Partitions != 1 || s.Lost > 0 || s.State != "stable" {
			t.Errorf("after half of the rebalance timeout: %+v", s)
		}
		close(stuck)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		if got := stop(); len(got) != 1 {
			t.Errorf("the unfinished record comes to the new owner: %q", got)
		}
	})
}

func TestT7ConfigurationsThatCannotBeAreRefused(t *testing.T) {
	inRun(t, func(_ context.Context, w *world) {
		for name, g := range map[string]GroupConfig{
			"topics without id":      {Topics: []string{"t"}},
			"two subscriptions":      {ID: "g", Topics: []string{"t"}, Pattern: "t"},
			"bad pattern":            {ID: "g", Pattern: "("},
			"unknown assignor":       {ID: "g", Assignors: []Assignor{"best"}},
			"streams":                {ID: "g", Protocol: kafka.StreamsGroup},
			"classic with server":    {ID: "g", ServerAssignor: "uniform"},
			"consumer with assignor": {ID: "g", Protocol: kafka.ConsumerGroup, Assignors: []Assignor{Range}},
			"slow heartbeat":         {ID: "g", HeartbeatInterval: time.Minute},
			"long revocation":        {ID: "g", RevokeTimeout: time.Hour},
			"negative":               {ID: "g", SessionTimeout: -1},
			"no dead letter":         {ID: "g", Run: RunConfig{OnFailure: DeadLetterOnFailure}},
			"unused dead letter":     {ID: "g", Run: RunConfig{DeadLetter: func(context.Context, Failure) error { return nil }}},
			"commits":                {ID: "g", Commits: 9},
		} {
			if c, err := New(w.c, Config{Group: g}); err == nil {
				c.Close()
				t.Errorf("%s was taken", name)
			}
		}
		c := w.consumer(Config{Group: GroupConfig{ID: "g"}})
		if err := c.Assign(context.Background(), map[kafka.TopicPartition]Start{tp("t", 0): {}}); err != ErrGroupAssigns {
			t.Errorf("Assign in a group: %v", err)
		}
		plain := w.consumer(Config{})
		if err := plain.Commit(context.Background()); err != ErrNoGroup || plain.Group() != nil {
			t.Errorf("Commit without a group: %v", err)
		}
	})
}
