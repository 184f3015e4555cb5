package streams

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// silence has the broker take commits and answer none.
func silence(w *world) *atomic.Int64 {
	taken := new(atomic.Int64)
	w.sim.Broker(1).Handle(keyOffsetCommit, func(*sim.Request) sim.Answer {
		taken.Add(1)
		return sim.Answer{Delay: time.Hour}
	})
	return taken
}

func TestACommitThatGotNoAnswerMayHaveHappened(t *testing.T) {
	for name, end := range map[string]func(*Member, context.CancelFunc){
		"the member is closed":     func(m *Member, _ context.CancelFunc) { m.Close() },
		"the member leaves":        func(m *Member, _ context.CancelFunc) { _ = m.Leave(context.Background()) },
		"the context is cancelled": func(_ *Member, cancel context.CancelFunc) { cancel() },
	} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				m, _ := owner(t, w, "0_0")
				taken := silence(w)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				done := make(chan error, 1)
				go func() { done <- m.Commit(ctx, map[kafka.TopicPartition]kafka.Commit{tp("in", 0): at(5)}) }()
				time.Sleep(time.Second)
				end(m, cancel)
				err := <-done
				if n := taken.Load(); n != 1 || !kafka.MayHaveHappened(err) || !errors.Is(err, ErrClosed) && !errors.Is(err, context.Canceled) {
					t.Errorf("taken %d times, MayHaveHappened %v: %v", n, kafka.MayHaveHappened(err), err)
				}
			})
		})
	}
}

// The first commit is taken and its answer lost; what the later ones are told is
// no proof against it.
func TestACommitsLaterTriesProveNothingOfTheFirst(t *testing.T) {
	for name, code := range map[string]int16{"UNKNOWN_MEMBER_ID": 25, "NOT_COORDINATOR to the end": 16} {
		t.Run(name, func(t *testing.T) {
			inWorld(t, func(t *testing.T, w *world) {
				m, b := owner(t, w, "0_0")
				lost := map[kafka.TopicPartition]kafka.Commit{tp("in", 0): at(5)}
				b.codes = []int16{25}
				if err := m.Commit(t.Context(), lost); kafka.MayHaveHappened(err) {
					t.Errorf("a commit that was refused at once may have happened: %v", err)
				}
				var taken atomic.Int64
				w.sim.Broker(1).Handle(keyOffsetCommit, func(q *sim.Request) sim.Answer {
					if taken.Add(1) == 1 {
						return sim.Answer{End: sim.Close}
					}
					resp := q.Response().(*kmsg.OffsetCommitResponse)
					rt := kmsg.NewOffsetCommitResponseTopic()
					rt.Topic, rt.TopicID = "in", q.Req.(*kmsg.OffsetCommitRequest).Topics[0].TopicID
					rp := kmsg.NewOffsetCommitResponseTopicPartition()
					rp.ErrorCode = code
					rt.Partitions = append(rt.Partitions, rp)
					resp.Topics = append(resp.Topics, rt)
					return sim.Reply(resp)
				})
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				err := m.Commit(ctx, lost)
				var be *BrokerError
				if n := taken.Load(); n < 2 || !kafka.MayHaveHappened(err) || !errors.As(err, &be) || be.Code != code {
					t.Errorf("taken %d times, MayHaveHappened %v: %v", n, kafka.MayHaveHappened(err), err)
				}
			})
		})
	}
}

// A member that is closed does not wait for the describe of another, and takes
// nobody's place in the row.
func TestM59_M70WhoWaitsForADescribeCanGiveUp(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.onDesc = func(*sim.Request) sim.Answer { return sim.Answer{Delay: time.Hour} }
		r := &registry{flights: map[flightKey]*flight{}}
		ask := func() (context.CancelFunc, chan error) {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { _, err := r.describe(ctx, w.c, "g"); done <- err }()
			time.Sleep(time.Second)
			return cancel, done
		}
		gone := func(done chan error) {
			t.Helper()
			select {
			case err := <-done:
				if !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			case <-time.After(time.Second):
				t.Fatal("still waiting after a second")
			}
		}
		endFirst, first := ask()
		endSecond, second := ask()
		endThird, third := ask()
		defer endThird()
		endSecond()
		gone(second)
		gone(third) // shared the round of the second, and asks again
		endFourth, fourth := ask()
		defer endFourth()
		w.co.mu.Lock()
		w.co.onDesc = nil
		w.co.mu.Unlock()
		endFirst()
		gone(first)
		if err := <-fourth; err != nil || len(r.flights) != 0 {
			t.Errorf("%v, %d flights are left", err, len(r.flights))
		}
	})
}

// The bubble fails if a goroutine stays.
func TestM59LeaveOfAMemberThatEndedEndsItsGoroutines(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		m, err := w.tryJoin(t.Context(), func(c *Config) { c.Trace = &Trace{Changed: func(State, State) {}} })
		if err != nil {
			t.Fatal(err)
		}
		w.own(m, nil)
		w.co.fails(42, 1)
		<-m.Done()
		if err := m.Leave(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestFixedIsLeftForAllWhoRange(t *testing.T) {
	f := Fixed(oneTopic(), active("0_0"))
	_ = f.Leave(t.Context())
	_ = f.Leave(t.Context())
	for range 2 {
		for _, err := range f.Assignments(t.Context()) {
			if err != nil {
				t.Error(err)
			}
		}
	}
	if err := f.Acknowledge(t.Context(), f.Snapshot(), f.Snapshot().Target); !errors.Is(err, ErrClosed) {
		t.Errorf("acknowledged after Leave: %v", err)
	}
}
