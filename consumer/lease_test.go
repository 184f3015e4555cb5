package consumer

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// What a poll handed out is finished when somebody polls again, what a range
// yields when it comes back; a withheld partition is waited for and keeps what is
// not finished out of what would be committed. Mutations: finish at the return of
// Poll, Return with done = next, Withhold without owes.
func TestG32_G38FinishedWorkIsWhatTheUserCameBackFrom(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		w.produceBatches("t", 0, 3, 10)
		id := tp("t", 0)
		c := w.consumer(Config{MaxPollRecords: 1})
		c.grant(map[kafka.TopicPartition]fetch.Start{id: fetch.AtProgress(fetch.Progress{Offset: 2, Epoch: kafka.NoEpoch})})
		want := func(step string, o kafka.Offset) {
			t.Helper()
			if at := c.finished([]kafka.TopicPartition{id})[id]; at.Offset != o {
				t.Errorf("%s: finished to %d, want %d", step, at.Offset, o)
			}
		}
		want("granted", 2)
		if _, err := c.Poll(ctx); err != nil {
			t.Fatal(err)
		}
		want("a poll returned", 2)
		for r, err := range c.Records(ctx) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Offset == 10 {
				want("a range began", 10)
			}
			if r.Offset == 13 {
				break
			}
		}
		want("a range was left at 13", 13)
		short, cancel := context.WithTimeout(ctx, time.Second)
		if err := c.withhold(short, []kafka.TopicPartition{id}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: nothing waited for what the user still has", err)
		}
		cancel()
		short, cancel = context.WithTimeout(ctx, time.Second)
		if b, err := c.Poll(short); len(b) > 0 || err == nil {
			t.Errorf("%d batches of a partition that is withheld", len(b))
		}
		cancel()
		want("a poll began", 14)
		if err := c.withhold(ctx, []kafka.TopicPartition{id}); err != nil {
			t.Error(err)
		}
		if at := c.revoke([]kafka.TopicPartition{id})[id]; at.Offset != 14 || at.Epoch < 0 {
			t.Errorf("revoked at %+v", at)
		}
		if got := c.finished([]kafka.TopicPartition{id}); len(got) > 0 {
			t.Errorf("%v", got)
		}
	})
}

// A range in the middle of a batch leaves it before the next record when its
// partition is withheld, and what it did is finished. Mutation: mayYield without
// Stopped, which yields the whole batch.
func TestG38ARangeLetsGoOfAWithheldPartition(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		w.produceBatches("t", 0, 1, 10)
		id := tp("t", 0)
		c := w.consumer(Config{})
		c.grant(map[kafka.TopicPartition]fetch.Start{id: fetch.Earliest()})
		short, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		held := make(chan error, 1)
		for r, err := range c.Records(short) {
			if err != nil {
				break
			}
			if r.Offset > 4 {
				t.Errorf("offset %d was yielded", r.Offset)
			}
			if r.Offset == 4 {
				go func() {
					held <- c.withhold(ctx, []kafka.TopicPartition{id})
					cancel()
				}()
				time.Sleep(time.Second)
				if len(held) > 0 {
					t.Error("the record in work counts as finished")
				}
			}
		}
		if err := <-held; err != nil {
			t.Fatal(err)
		}
		if at := c.revoke([]kafka.TopicPartition{id})[id]; at.Offset != 5 {
			t.Errorf("revoked at %+v", at)
		}
	})
}

// An error that a group tells wakes a poll that waits, and comes once.
func TestB151AnErrorComesWithoutData(t *testing.T) {
	inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 1}}, func(ctx context.Context, w *world) {
		c := w.consumer(Config{})
		assign(t, c, tp("t", 0))
		refused := kafka.CodeError(30, nil)
		go func() {
			time.Sleep(time.Second)
			c.tell(refused)
		}()
		if b, err := c.Poll(ctx); len(b) > 0 || !errors.Is(err, refused) {
			t.Errorf("%d batches, %v", len(b), err)
		}
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if _, err := c.Poll(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}
