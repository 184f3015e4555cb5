package consumer

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// T9: from any moment of any member's life, with any trouble around it, Close
// returns within 100 ms and Shutdown 100 ms after its context at the latest.
// OTTLA_T9_RUNS is how many lives there are; 10,000 take some minutes.
// Mutations: a goodbye, a callback or the last commit that is waited for without
// the context.
func TestT9_G44_R38CloseAndShutdownReturnInTimeAtAnyMoment(t *testing.T) {
	runs, err := strconv.Atoi(cmp.Or(os.Getenv("OTTLA_T9_RUNS"), "60"))
	if err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(runs) {
		inWorld(t, ottlatest.Config{Topics: map[string]int{"t": 4}}, func(ctx context.Context, w *world) {
			l := &life{w: w, rng: rand.New(rand.NewPCG(seed, 9)), stuck: make(chan struct{})}
			l.live(ctx)
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// life is a member with others and trouble around it.
type life struct {
	w     *world
	rng   *rand.Rand
	stuck chan struct{}
	story []any
}

func (l *life) live(ctx context.Context) {
	for p := range int32(4) {
		l.w.produce("t", p, numbers(0, l.rng.IntN(3))...)
	}
	c := l.join(ctx, true)
	for range l.rng.IntN(4) {
		settle(l.upTo(4 * time.Second))
		l.trouble(ctx)
	}
	settle(l.upTo(15 * time.Second))
	l.end(ctx, c)
	close(l.stuck)
}

func (l *life) upTo(d time.Duration) time.Duration { return time.Duration(l.rng.Int64N(int64(d))) }

func (l *life) tell(what ...any) { l.story = append(l.story, what...) }

// join makes a member that reads in one of several ways. The subject may have
// callbacks and handlers that block.
func (l *life) join(ctx context.Context, subject bool) *Consumer {
	cfg := GroupConfig{Protocol: []kafka.GroupKind{kafka.ClassicGroup, kafka.ConsumerGroup}[l.rng.IntN(2)], Commits: Commits(l.rng.IntN(3))}
	if l.rng.IntN(4) == 0 {
		cfg.InstanceID = fmt.Sprint("i", l.rng.IntN(2))
	}
	block := func() {
		if subject {
			<-l.stuck
		}
	}
	which := l.rng.IntN(8)
	switch which {
	case 0:
		cfg.OnAssigned = func(*Consumer, map[kafka.TopicPartition]kafka.Commit) { block() }
	case 1:
		cfg.OnRevoked = func(*Consumer, []kafka.TopicPartition) { block() }
	case 2:
		cfg.OnLost = func(*Consumer, []kafka.TopicPartition, error) { block() }
	case 3:
		cfg.OnEvent = func(*Consumer, GroupEvent) { block() }
	}
	c := l.w.member(cfg)
	l.tell("join", cfg.Protocol, cfg.Commits, cfg.InstanceID, "blocks", which)
	how := l.rng.IntN(4)
	l.tell("reads", how)
	go func() {
		switch how {
		case 0: // a handler that blocks
			_ = c.Run(ctx, func(context.Context, Batch) error { block(); return nil })
		case 1:
			_ = c.Run(ctx, func(ctx context.Context, _ Batch) error { <-ctx.Done(); return ctx.Err() })
		case 2:
			for _, err := range c.Batches(ctx) {
				if err != nil {
					return
				}
			}
		case 3: // polls once and never comes back
			_, _ = c.Poll(ctx)
		}
	}()
	return c
}

// trouble is one thing that happens.
func (l *life) trouble(ctx context.Context) {
	k := l.w.k
	what := l.rng.IntN(8)
	l.tell("trouble", what)
	switch what {
	case 0, 1:
		l.join(ctx, false)
	case 2:
		k.Hang(k.Coordinator("g"))
	case 3:
		_ = k.StopBroker(k.Coordinator("g"))
	case 4: // a group that rebalances without end
		k.Fail(12, 27, -1, 0)
		k.Fail(14, 27, -1, 0)
	case 5: // codes of a heartbeat and of a commit
		k.Fail([]int16{12, 68}[l.rng.IntN(2)], []int16{14, 16, 22, 25, 110}[l.rng.IntN(5)], 1+l.rng.IntN(5), 0)
		k.Fail(8, []int16{14, 16, 22, 25, 27}[l.rng.IntN(5)], -1, 0)
	case 6:
		k.Fail(10, 15, -1, 0)
	case 7: // offsets that stay unstable
		k.Fail(9, 88, -1, 0)
	}
}

// end closes the member, or two at a time, and measures.
func (l *life) end(ctx context.Context, c *Consumer) {
	limit := l.upTo(6 * time.Second)
	short, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	shut := l.rng.IntN(2) == 0
	began := time.Now()
	if l.rng.IntN(3) == 0 {
		go func() { _ = c.Shutdown(short) }()
	}
	if shut {
		_ = c.Shutdown(short)
	} else {
		limit = 0
		_ = c.Close()
	}
	if took := time.Since(began); took > limit+slack {
		l.w.t.Errorf("it took %v (Shutdown %v, %v): %v", took, shut, limit, l.story)
	}
	if _, err := c.Poll(ctx); err == nil || c.closed() == nil {
		l.w.t.Errorf("Poll afterwards: %v, want %v", err, cluster.ErrClosed)
	}
}
