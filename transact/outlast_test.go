package transact

import (
	"context"
	"testing"
	"time"

	"github.com/ottla/ottla/kafka"
)

// A round that waits for a member that died takes the rest of its session, and
// who stays has records to copy all that time. Mutation: failures that are counted
// whatever they come from, which ended every run of the group after some seconds.
func TestG42_G43ARunOutlivesALongRebalance(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		cfg := func(id string) Config {
			c := configured("g", "tx-"+id, "in", kafka.ClassicGroup)
			c.Consumer.Group.SessionTimeout = 45 * time.Second
			return c
		}
		stays := start(ctx, t, w.connect(ctx), cfg("stays"), copying("out"))
		dies := start(ctx, t, w.connect(ctx), cfg("dies"), copying("out"))
		feed(ctx, t, w.c, "in", 0, 40)
		verify(ctx, t, w.c, "out", 40)
		dies.kill()
		joins := start(ctx, t, w.connect(ctx), cfg("joins"), copying("out"))
		n, still, last := 40, 0, int64(0)
		for range 40 {
			feed(ctx, t, w.c, "in", n, n+4)
			n += 4
			time.Sleep(time.Second)
			if now := stays.r.Stats().Committed; now == last {
				still++
			} else {
				last = now
			}
		}
		if len(stays.done) > 0 {
			t.Fatalf("the run ended in the rebalance: %v", <-stays.done)
		}
		if still <= mostFailures {
			t.Errorf("%d seconds without a transaction: the rebalance was not long", still)
		}
		verify(ctx, t, w.c, "out", n)
		stays.stop(t)
		joins.stop(t)
	})
}

// What brokers say for a while ends no run, what they say for good does.
// Mutations: a code that is not looked at; failures that are never too many.
func TestG42ARunOutlivesWhatPassesAndEndsWithWhatStays(t *testing.T) {
	inWorld(t, func(ctx context.Context, w *world) {
		feed(ctx, t, w.c, "in", 0, 20)
		w.k.Fail(28, 27, 2*mostFailures, 0) // TxnOffsetCommit: REBALANCE_IN_PROGRESS
		s := start(ctx, t, w.connect(ctx), configured("g", "tx", "in", kafka.ClassicGroup), copying("out"))
		verify(ctx, t, w.c, "out", 20)
		if a := s.r.Stats().Aborted; a < mostFailures {
			t.Errorf("%d transactions failed: too few to show anything", a)
		}
		const unauthorized = 30
		w.k.Fail(28, unauthorized, -1, 0)
		feed(ctx, t, w.c, "in", 20, 24)
		if err := <-s.done; kafka.CodeOf(err) != unauthorized {
			t.Errorf("the run ended with %v", err)
		}
		s.client.Close()
	})
}
