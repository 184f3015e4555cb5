package consumer

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/internal/core/group"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// ErrRevoked is the cause with which the context of a batch ends when its
// partition is about to go to another member.
var ErrRevoked error = groupError("ottla: the partition is being given up to another member of the group")

// ErrGroupAssigns is the error of Assign, Add and Remove on a member of a group.
var ErrGroupAssigns error = groupError("ottla: the group assigns the partitions of this consumer; use Subscribe")

// ErrNoGroup is the error of calls that need Config.Group.
var ErrNoGroup error = groupError("ottla: the consumer has no group; set Config.Group.ID")

type groupError string

func (e groupError) Error() string       { return string(e) }
func (groupError) MayHaveHappened() bool { return false }

// member is a Consumer's membership in a group: it drives the machine. One
// goroutine carries out what the machine asks for, one moves partitions. The
// consumer's mutex may be taken under the member's, never the other way round.
type member struct {
	c       *Consumer
	cfg     GroupConfig
	outside *task.Group // runs what is the user's, and requests that outlive the consumer: nobody waits for it
	watch   *cluster.Watch
	joins   *cluster.Joins
	wake    chan struct{} // capacity 1: there is something to do
	progress
	callbacks callbacks
	commits   committer
	moves     mover
	topics    topicWatch

	mu       sync.Mutex
	machine  *group.Machine                    // guarded by mu
	book     *group.Book                       // guarded by mu
	holdings map[kafka.TopicPartition]*holding // guarded by mu: what the member owns
	want     subscription                      // guarded by mu
	clock    clock                             // guarded by mu
	running  bool                              // guarded by mu: Run takes care of what is finished
	failed   error                             // guarded by mu: why the member is over
	counts   groupCounts                       // guarded by mu
}

// holding is the possession of one partition.
type holding struct {
	kafka.TopicPartition
	ctx    context.Context
	cancel context.CancelCauseFunc
	told   bool // OnAssigned was called
	begun  bool // it is read
}

// progress tells of the user's work, without a lock.
type progress struct {
	steps atomic.Uint64 // raised when the user comes back for more
	busy  atomic.Int64  // when a poll handed something out that may be unfinished, in ns; 0 = nothing
}

// clock holds when things are due.
type clock struct {
	commit  time.Time // the next automatic commit
	look    time.Time // the next look for topics and names
	seen    time.Time // the last look at the user's work
	stepped time.Time // when the user was seen to have made a step
	steps   uint64    // as of then
	told    bool      // half of the processing limit was told
}

// newMember makes a member that is on its way into the group if it has a
// subscription.
func newMember(c *Consumer) *member {
	m := &member{
		c: c, cfg: c.cfg.Group, outside: task.New(context.Background()), watch: c.cluster.Watch(), joins: cluster.NewJoins(c.cluster), wake: make(chan struct{}, 1),
		book: group.NewBook(), holdings: map[kafka.TopicPartition]*holding{},
	}
	m.callbacks.outside = m.outside
	m.commits = committer{m: m, ops: map[uint64]*commitCall{}}
	m.moves = mover{m: m, loads: map[uint64][]*holding{}, wake: make(chan struct{}, 1)}
	m.topics.m = m
	rng := c.cluster.NewRand()
	cfg := m.cfg.machine(m.c.cfg.Rack)
	if cfg.Consumer {
		cfg.MemberID, cfg.HeartbeatV1 = newMemberID(rng), true
	}
	m.machine = group.New(cfg, rng)
	m.want = subscription{topics: m.cfg.Topics, expr: m.cfg.Pattern, settled: m.cfg.Protocol == kafka.ClassicGroup}
	m.counts.rebalances = map[string]int64{}
	m.clock.seen = time.Now()
	m.clock.commit = m.clock.seen.Add(m.cfg.CommitInterval)
	return m
}

func (m *member) start() {
	m.mu.Lock()
	settled := m.want.settled
	m.subscribeLocked(time.Now()) // before run looks, which nobody wakes
	m.mu.Unlock()
	m.c.tasks.Go(m.run)
	m.c.tasks.Go(m.moves.run)
	if !settled {
		m.c.tasks.Go(m.settle)
	}
}

// newMemberID is a random id in Kafka's form.
func newMemberID(rng *rand.Rand) string {
	for {
		var b [16]byte
		binary.BigEndian.PutUint64(b[:], rng.Uint64())
		binary.BigEndian.PutUint64(b[8:], rng.Uint64())
		if id := base64.RawURLEncoding.EncodeToString(b[:]); !strings.HasPrefix(id, "-") {
			return id
		}
	}
}

// settle finds out how the coordinator speaks the consumer protocol, before the
// first heartbeat.
func (m *member) settle(ctx context.Context) error {
	for {
		_, hi, ok, err := m.c.cluster.CoordinatorVersions(ctx, m.cfg.ID, heartbeatKey)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && !ok:
			m.fail(&kafka.VersionError{API: heartbeatKey, Name: "ConsumerGroupHeartbeat", ClientMax: 1, BrokerMin: -1, BrokerMax: -1})
			return nil
		case err == nil:
			m.mu.Lock()
			if hi < 1 {
				rng := m.c.cluster.NewRand()
				m.machine = group.New(m.cfg.machine(m.c.cfg.Rack), rng)
				m.want.local = true
			}
			m.want.settled = true
			m.subscribeLocked(time.Now())
			m.mu.Unlock()
			m.kick()
			return nil
		}
		if task.Sleep(ctx, time.Second) != nil {
			return nil
		}
	}
}

const heartbeatKey = 68 // ConsumerGroupHeartbeat

func (m *member) kick() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// do runs f with the machine and has what follows carried out.
func (m *member) do(f func(g *group.Machine, now time.Time)) {
	m.mu.Lock()
	f(m.machine, time.Now())
	m.mu.Unlock()
	m.kick()
}

// run is the goroutine that carries out what the machine asks for.
func (m *member) run(ctx context.Context) error {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		m.tick(time.Now())
		deadline := m.drain(ctx)
		timer.Reset(untilNext(deadline))
		select {
		case <-ctx.Done():
			return nil
		case <-m.c.cluster.Done():
			return nil
		case <-m.wake:
		case <-timer.C:
		case <-m.watch.Ready():
			m.topics.onEvents(m.watch.Take())
		}
	}
}

// drain performs everything that is due, and tells when to look again.
func (m *member) drain(ctx context.Context) time.Time {
	for {
		m.mu.Lock()
		a, ok := m.machine.Next(time.Now())
		deadline := m.machine.Deadline()
		for _, at := range []time.Time{m.clock.commit, m.clock.look, m.stallAtLocked()} {
			if !at.IsZero() && (deadline.IsZero() || at.Before(deadline)) {
				deadline = at
			}
		}
		m.mu.Unlock()
		if !ok {
			return deadline
		}
		m.perform(ctx, a)
	}
}

// perform carries out an action without waiting for its outcome.
func (m *member) perform(ctx context.Context, a group.Action) {
	switch a := a.(type) {
	case *group.Send:
		m.c.tasks.Go(func(ctx context.Context) error {
			m.send(ctx, a)
			return nil
		})
	case *group.Forget:
		m.c.cluster.ForgetCoordinator(m.cfg.ID)
	case *group.Given:
		m.moves.given(ctx, a.Partitions)
	case *group.Taken:
		m.moves.taken(a)
	case *group.WatchCounts:
		m.topics.watch(a.Topics)
	case *group.ResolveIDs:
		m.c.tasks.Go(func(ctx context.Context) error {
			m.topics.resolve(ctx, a.IDs)
			return nil
		})
	case *group.Committed:
		m.commits.committed(a)
	case *group.Loaded:
		m.moves.loaded(a)
	case *group.Event:
		m.event(a)
	}
}

// send makes one attempt at a request.
func (m *member) send(ctx context.Context, a *group.Send) {
	if a.Wait > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, a.Wait)
		defer cancel()
	}
	began := time.Now()
	resp, err := m.request(ctx, a.Req)
	if err == nil && resp == nil {
		err = errNoAnswer
	}
	if errors.Is(err, cluster.ErrClosed) {
		return
	}
	m.mu.Lock()
	m.counts.answered(a.Req, err, time.Since(began))
	m.machine.OnAnswer(time.Now(), a.ID, resp, err)
	m.mu.Unlock()
	m.kick()
}

func (m *member) request(ctx context.Context, req kmsg.Request) (kmsg.Response, error) {
	switch req.(type) {
	case *kmsg.JoinGroupRequest, *kmsg.SyncGroupRequest:
		return m.joins.Request(ctx, m.cfg.ID, req)
	case *kmsg.LeaveGroupRequest:
		m.joins.Drop() // a JoinGroup that is held back means nothing any more
	}
	req.SetVersion(-1)
	return m.c.cluster.RequestCoordinator(ctx, m.cfg.ID, req)
}

// event tells of what the machine noticed.
func (m *member) event(e *group.Event) {
	log := m.c.cfg.Logger
	switch e.Kind {
	case group.Joined:
		log.Info("member of the group", "group", m.cfg.ID)
		m.tell(GroupEvent{Kind: GroupJoined})
	case group.Rebalance:
		m.mu.Lock()
		m.counts.rebalances[e.Cause]++
		m.mu.Unlock()
		log.Info("the group rebalances", "group", m.cfg.ID, "cause", e.Cause)
		m.tell(GroupEvent{Kind: GroupRebalancing, Cause: e.Cause})
	case group.Doubtful:
		m.shut(true)
		log.Warn("no heartbeat was confirmed for a session; nothing is handed out", "group", m.cfg.ID)
		m.tell(GroupEvent{Kind: GroupDoubtful})
	case group.Confirmed:
		m.shut(false)
		m.tell(GroupEvent{Kind: GroupConfirmed})
	case group.Outside:
		m.shut(false)
	case group.Trouble:
		log.Warn("the group member tries again", "group", m.cfg.ID, "err", e.Err)
		m.tell(GroupEvent{Kind: GroupTrouble, Err: e.Err})
	case group.Over:
		m.fail(e.Err)
	}
}

// shut stops handing anything out, or opens again.
func (m *member) shut(shut bool) { m.c.do(func(f *fetch.Machine) { f.Shut = shut }) }

// fail ends the member by an error, which every Poll returns.
func (m *member) fail(err error) {
	err = &kafka.OpError{Op: "group " + m.cfg.ID, Broker: kafka.NoNode, Partition: -1, Err: err}
	m.mu.Lock()
	m.failed = err
	m.mu.Unlock()
	m.c.cfg.Logger.Error("the group member is over", "group", m.cfg.ID, "err", err)
	m.tell(GroupEvent{Kind: GroupOver, Err: err})
	m.c.do(func(*fetch.Machine) {}) // wakes who polls
}

// err is why the member is over, nil if it is not or there is none.
func (m *member) err() error {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.failed
}

// back notes that the user came back for more: what it had is done with, and a
// member that left for slowness joins again.
func (m *member) back() {
	m.steps.Add(1)
	m.busy.Store(0)
	m.c.finish()
	m.mu.Lock()
	idle := m.machine.State() == group.Idle
	if idle && m.want.settled {
		m.machine.Resume(time.Now())
	}
	m.mu.Unlock()
	if idle {
		m.kick()
	}
}

// contextOf is the context of work on a partition, nil without a group.
func (m *member) contextOf(tp kafka.TopicPartition) context.Context {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if h := m.holdings[tp]; h != nil {
		return h.ctx
	}
	gone, cancel := context.WithCancelCause(context.Background())
	cancel(ErrRevoked)
	return gone
}

// goodbye leaves the group. What it returns is closed when the coordinator has
// answered; it is nil if there is nothing to say.
func (m *member) goodbye(reason string) <-chan struct{} {
	m.mu.Lock()
	m.machine.Leave(reason, m.cfg.LeaveOnClose)
	var last kmsg.Request
	for a, ok := m.machine.Next(time.Now()); ok; a, ok = m.machine.Next(time.Now()) {
		switch a := a.(type) {
		case *group.Send:
			last = a.Req
		case *group.Committed:
			m.commits.settleLocked(a)
		}
	}
	m.mu.Unlock()
	if last == nil {
		return nil
	}
	done := make(chan struct{})
	m.outside.Go(func(ctx context.Context) error {
		defer close(done)
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		_, _ = m.request(ctx, last)
		return nil
	})
	return done
}

// tell calls OnEvent.
func (m *member) tell(e GroupEvent) {
	m.mu.Lock()
	m.counts.events[e.Kind]++
	m.mu.Unlock()
	if f := m.cfg.OnEvent; f != nil {
		m.callbacks.call(func() { f(m.c, e) })
	}
}
