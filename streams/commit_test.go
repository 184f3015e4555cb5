package streams

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// offsetsBroker answers OffsetCommit and OffsetFetch with a code for each
// request, and remembers them.
type offsetsBroker struct {
	codes    []int16 // for the next requests; then 0
	commits  []*kmsg.OffsetCommitRequest
	fetches  []*kmsg.OffsetFetchRequest
	position int64
	change   func(*kmsg.OffsetCommitResponse) // of the answer
	group    string                           // that OffsetFetch is answered for
}

func (b *offsetsBroker) next() int16 {
	if len(b.codes) == 0 {
		return 0
	}
	c := b.codes[0]
	b.codes = b.codes[1:]
	return c
}

func (b *offsetsBroker) on(w *world) {
	w.sim.Broker(1).Handle(keyOffsetCommit, func(q *sim.Request) sim.Answer {
		req := q.Req.(*kmsg.OffsetCommitRequest)
		b.commits = append(b.commits, req)
		resp := q.Response().(*kmsg.OffsetCommitResponse)
		code := b.next()
		for _, t := range req.Topics {
			rt := kmsg.NewOffsetCommitResponseTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetCommitResponseTopicPartition()
				rp.Partition, rp.ErrorCode = p.Partition, code
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		if b.change != nil {
			b.change(resp)
		}
		return sim.Reply(resp)
	})
	w.sim.Broker(1).Handle(keyOffsetFetch, func(q *sim.Request) sim.Answer {
		req := q.Req.(*kmsg.OffsetFetchRequest)
		b.fetches = append(b.fetches, req)
		resp := q.Response().(*kmsg.OffsetFetchResponse)
		g := kmsg.NewOffsetFetchResponseGroup()
		g.Group, g.ErrorCode = b.group, b.next()
		for _, t := range req.Groups[0].Topics {
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, rt.TopicID = t.Topic, t.TopicID
			for _, p := range t.Partitions {
				rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				rp.Partition, rp.Offset = p, b.position
				rt.Partitions = append(rt.Partitions, rp)
			}
			g.Topics = append(g.Topics, rt)
		}
		resp.Groups = append(resp.Groups, g)
		return sim.Reply(resp)
	})
}

func at(o int64) kafka.Commit {
	return kafka.Commit{Offset: kafka.Offset(o), LeaderEpoch: kafka.NoEpoch}
}

// owner is a member that owns tasks, and the broker of its offsets.
func owner(t *testing.T, w *world, tasks ...string) (*Member, *offsetsBroker) {
	t.Helper()
	b := &offsetsBroker{position: 42, group: "g"}
	b.on(w)
	w.co.assign(all(tasks...))
	m := w.join()
	w.own(m, nil)
	time.Sleep(time.Second)
	return m, b
}

// The broker checks no ownership at the present epoch: it fails if a partition
// that is not owned is ever in a request.
func TestP8ACommitThatAnEpochOvertookIsRepeatedForWhatIsOwned(t *testing.T) {
	for name, code := range map[string]int16{"113": 113, "22, as a transactional commit says": 22} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				m, b := owner(t, w, "0_0", "0_1")
				b.codes = []int16{code}
				w.co.assign(all("0_0")) // the epoch moves, and 0_1 with it
				err := m.Commit(t.Context(), map[kafka.TopicPartition]kafka.Commit{tp("in", 0): at(5), tp("in", 1): at(6)})
				if len(b.commits) != 2 {
					t.Fatalf("%d commits, %v", len(b.commits), err)
				}
				first, second := b.commits[0], b.commits[1]
				if second.Generation <= first.Generation || second.MemberID != m.Info().MemberID {
					t.Errorf("epochs %d and %d", first.Generation, second.Generation)
				}
				var no *NotOwnedError
				if n := len(second.Topics[0].Partitions); n != 1 || second.Topics[0].Partitions[0].Partition != 0 || !errors.As(err, &no) || no.Partitions[0] != tp("in", 1) {
					t.Errorf("%d partitions, %v", n, err)
				}
			})
		})
	}
	t.Run("once", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			m, b := owner(t, w, "0_0")
			b.codes = []int16{113, 113, 113}
			err := m.Commit(t.Context(), map[kafka.TopicPartition]kafka.Commit{tp("in", 0): at(5)})
			var be *BrokerError
			if !errors.As(err, &be) || be.Code != 113 || len(b.commits) != 2 {
				t.Errorf("%v after %d commits", err, len(b.commits))
			}
		})
	})
	t.Run("nothing that is not owned is ever sent", func(t *testing.T) {
		inWorld(t, func(t *testing.T, w *world) {
			m, b := owner(t, w, "0_0")
			var no *NotOwnedError
			err := m.Commit(t.Context(), map[kafka.TopicPartition]kafka.Commit{tp("in", 1): at(6), tp("other", 0): at(1)})
			if !errors.As(err, &no) || len(no.Partitions) != 2 || len(b.commits) != 0 {
				t.Errorf("%v, %d commits", err, len(b.commits))
			}
			w.co.fails(110, 1)
			_, _ = m.Heartbeat(t.Context())
			w.co.fails(14, 1_000_000) // it does not come back
			time.Sleep(time.Second)
			err = m.Commit(t.Context(), map[kafka.TopicPartition]kafka.Commit{tp("in", 0): at(6)})
			if !errors.Is(err, kafka.ErrNotInGroup) || len(b.commits) != 0 {
				t.Errorf("after a loss: %v, %d commits", err, len(b.commits))
			}
		})
	})
}

// The member loses its task while a commit waits to be sent again, and gets it
// back: another may have gone on in between, whose positions an older one would
// overwrite.
func TestP8ACommitThatALossOvertookIsNotRepeated(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m, b := owner(t, w, "0_0")
		b.codes = slices.Repeat([]int16{14}, 1000)
		first := m.Snapshot().Incarnation
		done := make(chan error, 1)
		go func() { done <- m.Commit(t.Context(), map[kafka.TopicPartition]kafka.Commit{tp("in", 0): at(5)}) }()
		time.Sleep(10 * time.Second) // it waits for longer and longer
		synctest.Wait()
		sent := len(b.commits)
		w.co.fails(110, 1)
		_, _ = m.Heartbeat(t.Context())
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if s := m.Snapshot(); s.Incarnation == first || len(m.Owned().Active) != 1 || len(b.commits) != sent {
			t.Fatalf("the task is not back, or a commit came between: %+v", s)
		}
		b.codes = nil
		if err := <-done; !errors.Is(err, kafka.ErrNotInGroup) || len(b.commits) != sent {
			t.Errorf("%v after %d commits, not %d", err, len(b.commits), sent)
		}
		if err := m.Commit(t.Context(), map[kafka.TopicPartition]kafka.Commit{tp("in", 0): at(7)}); err != nil || len(b.commits) != sent+1 {
			t.Errorf("a new one: %v, %d commits", err, len(b.commits))
		}
	})
}

// An answer counts for the partitions that it names, and no others.
func TestACommitIsAnsweredForEachPartition(t *testing.T) {
	two := map[kafka.TopicPartition]kafka.Commit{tp("in", 0): at(5), tp("in", 1): at(6)}
	for name, c := range map[string]struct {
		change func(*kmsg.OffsetCommitResponse)
		open   bool
		code   int16
	}{
		"one is left out": {func(r *kmsg.OffsetCommitResponse) {
			r.Topics[0].Partitions = r.Topics[0].Partitions[:1]
		}, true, 0},
		"one stands twice": {func(r *kmsg.OffsetCommitResponse) {
			r.Topics[0].Partitions[1].Partition = 0
		}, true, 0},
		"one stands twice, refused and taken": {func(r *kmsg.OffsetCommitResponse) {
			again := r.Topics[0].Partitions[0]
			r.Topics[0].Partitions[0].ErrorCode = 12
			r.Topics[0].Partitions = append(r.Topics[0].Partitions, again)
		}, true, 12},
		"of another topic": {func(r *kmsg.OffsetCommitResponse) {
			r.Topics[0].TopicID = [16]byte{7}
		}, true, 0},
		"one is refused, one is taken": {func(r *kmsg.OffsetCommitResponse) {
			r.Topics[0].Partitions[1].ErrorCode = 12
		}, true, 12},
		"both are refused": {func(r *kmsg.OffsetCommitResponse) {
			r.Topics[0].Partitions[0].ErrorCode, r.Topics[0].Partitions[1].ErrorCode = 12, 12
		}, false, 12},
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				m, b := owner(t, w, "0_0", "0_1")
				b.change = c.change
				err := m.Commit(t.Context(), two)
				var be *BrokerError
				if err == nil || kafka.MayHaveHappened(err) != c.open || errors.As(err, &be) != (c.code != 0) || len(b.commits) != 1 {
					t.Errorf("%v, may have happened %v, after %d commits", err, kafka.MayHaveHappened(err), len(b.commits))
				}
				if c.code != 0 && (be.Code != c.code || !strings.Contains(err.Error(), "partition in-")) {
					t.Errorf("%q does not name a partition", err)
				}
			})
		})
	}
}

func TestCommitsGoByTopicIdsWhereTheyAreKnown(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m, b := owner(t, w, "0_0")
		commit := func() {
			t.Helper()
			if err := m.Commit(t.Context(), map[kafka.TopicPartition]kafka.Commit{tp("in", 0): at(5)}); err != nil {
				t.Fatal(err)
			}
		}
		commit()
		r := b.commits[0]
		if r.Version != 10 || r.Topics[0].TopicID == [16]byte{} || r.Generation < 1 || r.MemberID != m.Info().MemberID {
			t.Errorf("%+v", r)
		}
		b.codes = []int16{100} // the topic was made anew
		w.sim.Update(func(tp *sim.Topology) { tp.Topics[0].ID = [16]byte{9} })
		commit()
		if last := b.commits[len(b.commits)-1]; last.Topics[0].TopicID != [16]byte{9} {
			t.Errorf("the id is %x", last.Topics[0].TopicID)
		}
		w.sim.Broker(1).SetVersions(keyOffsetCommit, 0, 9)
		w.sim.Broker(1).EndAll(sim.Close)
		time.Sleep(time.Second)
		commit()
		if last := b.commits[len(b.commits)-1]; last.Version != 9 || last.Topics[0].Topic != "in" {
			t.Errorf("%+v", last)
		}
	})
}

func TestP22AFetchThatIsAlwaysBehindEndsAtItsDeadline(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m, b := owner(t, w, "0_0")
		b.codes = slices.Repeat([]int16{113}, 100_000)
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		began := time.Now()
		got, err := m.Committed(ctx, []kafka.TopicPartition{tp("in", 0)})
		if d := time.Since(began); got != nil || err == nil || d != 20*time.Second {
			t.Fatalf("%v, %v after %v", got, err, d)
		}
		if n := len(b.fetches); n < 15 || n > 40 {
			t.Errorf("%d requests: no back-off", n)
		}
		w.co.assign(all("0_0"))
		time.Sleep(6 * time.Second)
		b.codes = nil
		got, err = m.Committed(t.Context(), []kafka.TopicPartition{tp("in", 0)})
		last := b.fetches[len(b.fetches)-1]
		if err != nil || got[tp("in", 0)].Offset != 42 || last.Groups[0].MemberEpoch <= b.fetches[0].Groups[0].MemberEpoch || !last.RequireStable {
			t.Errorf("%v %v, epoch %d", got, err, last.Groups[0].MemberEpoch)
		}
	})
}

// Every code: an error, never a position of the reset policy, and no answer that
// could be taken for "none".
func TestP23NoErrorOfAFetchStandsForNoPosition(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m, b := owner(t, w, "0_0")
		for code := int16(-1); code <= 140; code++ {
			if code == 0 {
				continue
			}
			b.codes = slices.Repeat([]int16{code}, 1000)
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
			got, err := m.Committed(ctx, []kafka.TopicPartition{tp("in", 0)})
			cancel()
			if err == nil || got != nil {
				t.Errorf("code %d: %v, %v", code, got, err)
			}
		}
		b.codes, b.position = nil, -1
		got, err := m.Committed(t.Context(), []kafka.TopicPartition{tp("in", 0)})
		if err != nil || len(got) != 0 {
			t.Errorf("without a position: %v, %v", got, err)
		}
		for _, f := range w.sim.Frames() {
			if f.Key == 2 {
				t.Error("ListOffsets was asked")
			}
		}
	})
}

// Taken for its own, the offsets of another group would have a task read on at
// another's place.
func TestOffsetsOfAnotherGroupAreAnError(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m, b := owner(t, w, "0_0")
		b.group = "another"
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		at, err := m.Committed(ctx, []kafka.TopicPartition{tp("in", 0)})
		var pe *ProtocolError
		if !errors.As(err, &pe) || len(at) != 0 {
			t.Errorf("%v, %v", at, err)
		}
	})
}

// A standby is owned and read by another: its positions are that one's. And what
// the caller gave is what the broker gets, under the member's whole identity.
func TestP8WhatACommitCarries(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		b := &offsetsBroker{position: 42, group: "g"}
		b.on(w)
		w.co.assign(func(string) Tasks {
			ts := active("0_0", "0_1", "0_2")
			return Tasks{Active: ts.Active[:1], Standby: ts.Active[1:2], Warmup: ts.Active[2:]}
		})
		m := w.join(func(c *Config) { c.InstanceID = "i" })
		w.own(m, nil)
		time.Sleep(time.Second)
		given := map[kafka.TopicPartition]kafka.Commit{
			tp("in", 0): {Offset: 5, LeaderEpoch: 3, Metadata: "x"}, tp("in", 1): at(6), tp("in", 2): at(7),
		}
		var no *NotOwnedError
		if err := m.Commit(t.Context(), given); !errors.As(err, &no) || len(no.Partitions) != 2 || len(given) != 3 {
			t.Errorf("%v, and %d of 3 are left to the caller", err, len(given))
		}
		if len(b.commits) != 1 || len(b.commits[0].Topics) != 1 || len(b.commits[0].Topics[0].Partitions) != 1 {
			t.Fatalf("%+v", b.commits)
		}
		r := b.commits[0]
		p := r.Topics[0].Partitions[0]
		if p.Partition != 0 || p.Offset != 5 || p.LeaderEpoch != 3 || p.Metadata == nil || *p.Metadata != "x" {
			t.Errorf("%+v", p)
		}
		if g, _ := m.Metadata(); r.Generation != g.Generation || r.MemberID != g.MemberID || r.InstanceID == nil || *r.InstanceID != "i" {
			t.Errorf("%+v", r)
		}
		if _, err := m.Committed(t.Context(), []kafka.TopicPartition{tp("in", 1), tp("in", 0), tp("in", 1)}); err != nil {
			t.Fatal(err)
		}
		f := b.fetches[0].Groups[0]
		if g, _ := m.Metadata(); f.MemberID == nil || *f.MemberID != g.MemberID || f.MemberEpoch != g.Generation || !slices.Equal(f.Topics[0].Partitions, []int32{0, 1}) {
			t.Errorf("%+v", f)
		}
	})
}

// Of an answer that is asked for again nothing is kept, and the last one is given
// as it is.
func TestP23WhatCommittedGivesIsTheLastAnswer(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m, _ := owner(t, w, "0_0", "0_1")
		asked := 0
		w.sim.Broker(1).Handle(keyOffsetFetch, func(q *sim.Request) sim.Answer {
			asked++
			resp := q.Response().(*kmsg.OffsetFetchResponse)
			g := kmsg.NewOffsetFetchResponseGroup()
			g.Group = "g"
			rt := kmsg.NewOffsetFetchResponseGroupTopic()
			rt.Topic, rt.TopicID = q.Req.(*kmsg.OffsetFetchRequest).Groups[0].Topics[0].Topic, q.Req.(*kmsg.OffsetFetchRequest).Groups[0].Topics[0].TopicID
			for p := range int32(2) {
				rp := kmsg.NewOffsetFetchResponseGroupTopicPartition()
				text := "x"
				rp.Partition, rp.Offset, rp.LeaderEpoch, rp.Metadata = p, 42, 3, &text
				switch {
				case asked == 1 && p == 1:
					rp.ErrorCode = 88 // a transaction is open
				case asked == 2 && p == 0:
					rp.Offset, rp.LeaderEpoch = -1, -1
				}
				rt.Partitions = append(rt.Partitions, rp)
			}
			g.Topics = append(g.Topics, rt)
			resp.Groups = append(resp.Groups, g)
			return sim.Reply(resp)
		})
		got, err := m.Committed(t.Context(), []kafka.TopicPartition{tp("in", 0), tp("in", 1)})
		want := kafka.Commit{Offset: 42, LeaderEpoch: 3, Metadata: "x"}
		if err != nil || asked != 2 || len(got) != 1 || got[tp("in", 1)] != want {
			t.Errorf("%v, %v after %d answers", got, err, asked)
		}
	})
}
