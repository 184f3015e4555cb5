package consumer

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// Mutation: commit the positions that Poll has moved to.
func TestB187WhatWasPolledAndNotProcessedComesAgainAfterACrash(t *testing.T) {
	inGroups(t, map[string]int{"t": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		own, err := cluster.Connect(ctx, w.client())
		if err != nil {
			w.t.Fatal(err)
		}
		cfg := GroupConfig{ID: "g", Topics: []string{"t"}, Protocol: protocol, Start: Latest(), SessionTimeout: 10 * time.Second}
		first, err := New(own, Config{Group: cfg})
		if err != nil {
			w.t.Fatal(err)
		}
		idle, cancel := context.WithTimeout(ctx, 12*time.Second) // its place is committed
		_, _ = first.Poll(idle)
		cancel()
		w.produce("t", 0, "a", "b")
		r := newReader(w.t, first)
		r.until(ctx, 1)
		settle(20 * time.Second) // several automatic commits
		own.Close()              // kill -9
		first.Close()
		w.produce("t", 0, "c")
		again := newReader(w.t, w.member(cfg))
		again.until(ctx, 3)
		again.want(tp("t", 0), "a", "b", "c")
	})
}

// Where reading began is committed too: under latest, a record that came after
// that would be skipped by the next owner. Mutation: due without Begin.
func TestB187WhereReadingBeganOutlivesTheMember(t *testing.T) {
	inGroups(t, map[string]int{"t": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		for _, commits := range []Commits{CommitPolled, CommitMarked} {
			cfg := GroupConfig{ID: "g" + commits.String(), Topics: []string{"t"}, Protocol: protocol, Start: Latest(), SessionTimeout: 10 * time.Second, Commits: commits}
			own, err := cluster.Connect(ctx, w.client())
			if err != nil {
				w.t.Fatal(err)
			}
			first, err := New(own, Config{Group: cfg})
			if err != nil {
				w.t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				done <- first.Run(ctx, func(ctx context.Context, _ Batch) error { <-ctx.Done(); return ctx.Err() })
			}()
			settle(12 * time.Second)
			w.produce("t", 0, "a")
			settle(time.Second)
			own.Close() // kill -9
			<-done
			again := newReader(w.t, w.member(cfg))
			again.until(ctx, 1)
			again.want(tp("t", 0), "a")
		}
	})
}

func TestB197WhoStaysKeepsAllItHadWhileAnotherLeavesAndReturns(t *testing.T) {
	inGroups(t, map[string]int{"t": 30}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		var mu sync.Mutex
		revoked := map[string][]kafka.TopicPartition{}
		var stops []func() []string
		join := func(name string) *Consumer {
			c := w.member(GroupConfig{Protocol: protocol, OnRevoked: func(_ *Consumer, tps []kafka.TopicPartition) {
				mu.Lock()
				defer mu.Unlock()
				revoked[name] = append(revoked[name], tps...)
			}})
			stops = append(stops, drainAll(ctx, c))
			settle(20 * time.Second)
			return c
		}
		a, b, c := join("a"), join("b"), join("c")
		gone := func() (a, b int) {
			mu.Lock()
			defer mu.Unlock()
			a, b = len(revoked["a"]), len(revoked["b"])
			clear(revoked)
			return a, b
		}
		if n, m := len(a.Assignment()), len(b.Assignment()); n != 10 || m != 10 {
			w.t.Fatalf("a has %d, b %d of 30", n, m)
		}
		gone()
		if err := c.Shutdown(ctx); err != nil {
			w.t.Error(err)
		}
		settle(20 * time.Second)
		if n, m := gone(); n != 0 || m != 0 {
			w.t.Errorf("a gave up %d, b %d when another left", n, m)
		}
		c = join("c")
		if n := len(c.Assignment()); n != 10 {
			w.t.Errorf("c has %d of 30", n)
		}
		if n, m := gone(); n != 5 || m != 5 {
			w.t.Errorf("a gave up %d, b %d of 15 to who returned", n, m)
		}
		for _, stop := range stops {
			stop()
		}
	})
}

func TestB214AMinuteWithoutMetadataEndsNothing(t *testing.T) {
	inGroups(t, map[string]int{"t": 2}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		cfg := w.client()
		cfg.MetadataMaxAge = 10 * time.Second
		own, err := cluster.Connect(ctx, cfg)
		if err != nil {
			w.t.Fatal(err)
		}
		defer own.Close()
		c, err := New(own, Config{Group: GroupConfig{ID: "g", Topics: []string{"t"}, Protocol: protocol}})
		if err != nil {
			w.t.Fatal(err)
		}
		defer c.Close()
		stop := drainAll(ctx, c)
		settle(10 * time.Second)
		fault := w.k.Fail(3, -1, -1, 0)
		settle(time.Minute)
		fault.Remove()
		if err := w.k.AddPartitions("t", 3); err != nil {
			w.t.Fatal(err)
		}
		settle(time.Minute)
		w.produce("t", 2, "new")
		settle(5 * time.Second)
		if got := stop(); !slices.Equal(got, []string{"0@2:new"}) {
			w.t.Errorf("read %q; %+v", got, c.Group().Stats())
		}
	})
}

// Mutation: progress that forgets the seek, which committed nothing and said so to
// nobody: who goes on there skips the rest.
func TestG33WhatIsReadAgainAfterASeekBackIsCommitted(t *testing.T) {
	inGroups(t, map[string]int{"t": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		w.produce("t", 0, numbers(0, 10)...)
		c := w.member(GroupConfig{Protocol: protocol})
		read := func(last string) {
			for r, err := range c.Records(ctx) {
				if err != nil {
					w.t.Fatal(err)
				}
				if string(r.Value) == last {
					return
				}
			}
		}
		read("9")
		if err := c.Commit(ctx); err != nil {
			w.t.Fatal(err)
		}
		if err := c.Seek(tp("t", 0), AtOffset(4)); err != nil {
			w.t.Fatal(err)
		}
		read("6")
		if err := c.Group().Commit(ctx); err != nil {
			w.t.Fatal(err)
		}
		if o := w.committed(c, tp("t", 0)); o != 6 {
			w.t.Errorf("committed %d, want what was finished since the seek", o)
		}
	})
}

// Mutation: a seek that the book hears of only once reading has begun.
func TestG33_G37ASeekBackInOnAssignedIsWhereTheGroupGoesOn(t *testing.T) {
	inGroups(t, map[string]int{"t": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		w.produce("t", 0, numbers(0, 10)...)
		first := w.member(GroupConfig{Protocol: protocol})
		newReader(w.t, first).until(ctx, 10)
		if err := errors.Join(first.Commit(ctx), first.Shutdown(ctx)); err != nil {
			w.t.Fatal(err)
		}
		again := w.member(GroupConfig{Protocol: protocol, OnAssigned: func(c *Consumer, at map[kafka.TopicPartition]kafka.Commit) {
			if err := c.Seek(tp("t", 0), AtOffset(2)); err != nil || at[tp("t", 0)].Offset != 10 {
				w.t.Errorf("%v: %v", at, err)
			}
		}})
		end, cancel := context.WithCancel(ctx)
		done := make(chan error, 1)
		go func() {
			done <- again.Run(end, func(ctx context.Context, b Batch) error {
				if b.First() == 2 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			})
		}()
		settle(12 * time.Second)
		cancel()
		if err := <-done; err != nil {
			w.t.Error(err)
		}
		if o := w.committed(w.member(GroupConfig{Protocol: protocol}), tp("t", 0)); o != 3 {
			w.t.Errorf("committed %d, want what was done since the seek", o)
		}
	})
}

// With CommitMarked only marks finish records: neither polling on, nor Commit, nor
// Shutdown. Mutations: a Mark that does nothing; work that polls finish.
func TestG32_G33MarksAloneFinishRecords(t *testing.T) {
	inGroups(t, map[string]int{"t": 1}, func(ctx context.Context, w *world, protocol kafka.GroupKind) {
		w.produce("t", 0, numbers(0, 10)...)
		cfg := GroupConfig{Protocol: protocol, Commits: CommitMarked, RevokeTimeout: time.Second}
		c := w.member(cfg)
		var got []kafka.Record
		for len(got) < 10 {
			bs, err := c.Poll(ctx)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, b := range bs {
				for _, r := range b.Records() {
					got = append(got, r)
				}
			}
		}
		want := func(o kafka.Offset) {
			w.t.Helper()
			if err := c.Commit(ctx); err != nil {
				w.t.Error(err)
			}
			if at := w.committed(c, tp("t", 0)); at != o && (o > 0 || at > 0) {
				w.t.Errorf("committed %d, want %d", at, o)
			}
		}
		want(0)
		c.Mark(got[0], got[1], got[3])
		want(2)
		c.Mark(got[2])
		c.Mark(got[2], got[8])
		want(4)
		c.Mark(got[4])
		if err := c.Shutdown(ctx); err != nil {
			w.t.Error(err)
		}
		again := newReader(w.t, w.member(cfg))
		again.until(ctx, 5)
		again.want(tp("t", 0), numbers(5, 10)...)
	})
}

// Mutation: a leader that leaves out what makes no sense and tells nobody.
func TestG12_B193ALeaderTellsWhatItLeftOut(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 2}}, func(ctx context.Context, w *world) {
		c := w.member(GroupConfig{})
		defer drainAll(ctx, c)()
		settle(5 * time.Second)
		join := kmsg.NewPtrJoinGroupRequest()
		join.Version, join.Group, join.ProtocolType, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis = 5, "g", "consumer", 6000, 60000
		protocol := kmsg.NewJoinGroupRequestProtocol()
		protocol.Name, protocol.Metadata = string(CooperativeSticky), []byte{0, 3, 0x7f}
		join.Protocols = append(join.Protocols, protocol)
		for range 2 { // the first is answered with an id
			resp, err := w.c.RequestCoordinator(ctx, "g", join)
			if err != nil {
				t.Fatal(err)
			}
			join.MemberID = resp.(*kmsg.JoinGroupResponse).MemberID
		}
		settle(time.Second)
		if s := c.Group().Stats(); s.Dropped != 1 || s.Partitions != 2 || s.State != "stable" {
			t.Errorf("%+v", s)
		}
	})
}

// A topic that a member may not read, or whose name no topic can have, is told by
// Poll once, as long as it is so; the others are read. Counted as one without
// partitions it would be missed by nobody.
// Mutation: count it as 0 and tell nobody; or tell it with every count.
func TestAClassicMemberIsToldOfTopicsThatAreRefused(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 2, "u": 1}}, func(ctx context.Context, w *world) {
		w.produce("t", 0, "0")
		denied := w.k.Fail(int16(kmsg.Metadata), kerr.TopicAuthorizationFailed.Code, -1, 0)
		c := w.member(GroupConfig{Topics: []string{"t", "u"}})
		poll := func(d time.Duration) (values []string, told map[string]error) {
			told = map[string]error{}
			for end := time.Now().Add(d); time.Now().Before(end); {
				polling, cancel := context.WithDeadline(ctx, end)
				batches, err := c.Poll(polling)
				cancel()
				for _, b := range batches {
					for _, r := range b.Records() {
						values = append(values, string(r.Value))
					}
				}
				for _, one := range parts(err) {
					var op *kafka.OpError
					if errors.As(one, &op) {
						if told[op.Topic] != nil {
							t.Errorf("%s is told again: %v", op.Topic, one)
						}
						told[op.Topic] = one
					}
				}
			}
			return values, told
		}
		for _, why := range []*kerr.Error{kerr.TopicAuthorizationFailed, kerr.InvalidTopicException} {
			denied.Remove()
			denied = w.k.Fail(int16(kmsg.Metadata), why.Code, -1, 0)
			if _, told := poll(20 * time.Second); len(told) != 2 || !errors.Is(told["t"], why) || !errors.Is(told["u"], why) {
				t.Errorf("%v: told %v", why, told)
			}
		}
		denied.Remove()
		if values, told := poll(20 * time.Second); !slices.Equal(values, []string{"0"}) || len(told) != 0 {
			t.Errorf("read %q, told %v", values, told)
		}
	})
}

// parts are the errors that a Poll joined.
func parts(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}
