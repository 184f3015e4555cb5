//go:build kafka

package streams

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/realkafka"
)

// chaosEnv names the variable with the length of the run; without it the short
// form runs.
const chaosEnv = "OTTLA_STREAMS_CHAOS"

// claims is who holds which task, by what the owners acknowledged. The claim of a
// member that was killed ends with its session.
type claims struct {
	mu     sync.Mutex
	by     map[TaskID]claim // guarded by mu
	double []string         // guarded by mu
}

type claim struct {
	member string
	until  time.Time // zero while the member lives
}

// settle replaces what a member claims.
func (c *claims) settle(member string, tasks []TaskID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	for id, cl := range c.by {
		if cl.member == member {
			delete(c.by, id)
		}
	}
	for _, id := range tasks {
		if cl, held := c.by[id]; held && (cl.until.IsZero() || now.Before(cl.until)) {
			c.double = append(c.double, fmt.Sprintf("%v by %s and %s", id, cl.member, member))
		}
		c.by[id] = claim{member: member}
	}
}

// kill ends a member's claims with its session: at the latest one session after
// its last heartbeat. The coordinator may know of that earlier, so the claim is
// not held against anybody from now on.
func (c *claims) kill(member string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, cl := range c.by {
		if cl.member == member {
			delete(c.by, id)
		}
	}
}

// chaosMember is a member with an owner that takes its time.
type chaosMember struct {
	m    *Member
	id   string
	done sync.WaitGroup
}

func startChaosMember(ctx context.Context, c *cluster.Cluster, cl *claims, cfg Config) (*chaosMember, error) {
	m, err := Join(ctx, c, cfg)
	if err != nil {
		return nil, err
	}
	cm := &chaosMember{m: m, id: m.Info().MemberID}
	rng := rand.New(rand.NewPCG(uint64(len(cm.id)), uint64(cm.id[0])))
	cm.done.Go(func() {
		for s, err := range m.Assignments(ctx) {
			if err != nil {
				return
			}
			if s.Lost {
				cl.settle(cm.id, nil)
				_ = m.Acknowledge(ctx, s, Tasks{})
				continue
			}
			// what is given up ends before it is acknowledged, what is new begins after it
			keep := Tasks{Active: s.Target.Active}
			held := m.Owned()
			cl.settle(cm.id, intersect(held.Active, keep.Active))
			time.Sleep(time.Duration(rng.Int64N(int64(200 * time.Millisecond))))
			if m.Acknowledge(ctx, s, s.Target) == nil && m.Snapshot().Incarnation == s.Incarnation {
				cl.settle(cm.id, s.Target.Active)
			}
		}
	})
	return cm, nil
}

func intersect(a, b []TaskID) []TaskID {
	var out []TaskID
	for _, x := range a {
		for _, y := range b {
			if x == y {
				out = append(out, x)
			}
		}
	}
	return out
}

// TestKafkaChaosMembersComeAndGo has members in four clients join, leave and
// die while the broker that coordinates them is killed: no task is acknowledged
// by two at once, and in the end each is owned, as describe says too.
func TestKafkaChaosMembersComeAndGo(t *testing.T) {
	length := 20 * time.Second
	if s := os.Getenv(chaosEnv); s != "" {
		var err error
		if length, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", chaosEnv, err)
		}
	}
	k := realkafka.Start(t, realkafka.Options{Brokers: 3, Props: map[string]string{
		"group.streams.session.timeout.ms": "4000", "group.streams.heartbeat.interval.ms": "200",
		"group.streams.initial.rebalance.delay.ms": "0", "group.streams.assignment.interval.ms": "0",
		"group.streams.min.session.timeout.ms": "1000", "group.streams.min.heartbeat.interval.ms": "100",
	}})
	ctx, cancel := context.WithTimeout(context.Background(), length+4*time.Minute)
	defer cancel()
	var clients []*cluster.Cluster
	for range 4 {
		c, err := cluster.Connect(ctx, cluster.Config{Bootstrap: strings.Split(k.Bootstrap(), ",")})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		clients = append(clients, c)
	}
	s := &stage{t: t, ctx: ctx, k: clients[0]}
	createTopic(s, "in", 24, 3)
	cl := &claims{by: map[TaskID]claim{}}
	rng := rand.New(rand.NewPCG(1, uint64(length)))
	var ms []*chaosMember
	add := func() {
		p := rng.IntN(len(clients))
		cm, err := startChaosMember(ctx, clients[p], cl, Config{Group: "chaos", Topology: reading("in"), ProcessID: fmt.Sprint("process-", p)})
		if err != nil {
			t.Logf("a join failed: %v", err) // as while the coordinator is down
			return
		}
		ms = append(ms, cm)
	}
	remove := func(how func(*chaosMember)) {
		if len(ms) < 5 {
			return
		}
		i := rng.IntN(len(ms))
		how(ms[i])
		ms = append(ms[:i], ms[i+1:]...)
	}
	for len(ms) < 12 {
		add()
	}
	killed := false
	began := time.Now()
	for time.Since(began) < length {
		switch n := rng.IntN(10); {
		case n < 4 && len(ms) < 20:
			add()
		case n < 7:
			remove(func(c *chaosMember) {
				cl.settle(c.id, nil)
				if err := c.m.Leave(ctx); err != nil && !errors.Is(err, ErrClosed) {
					t.Logf("a leave failed: %v", err)
				}
				c.done.Wait()
				cl.settle(c.id, nil)
			})
		default:
			remove(func(c *chaosMember) {
				c.m.Close()
				c.done.Wait()
				cl.kill(c.id)
			})
		}
		if !killed && time.Since(began) > length/3 {
			killed = true
			b, err := clients[0].Coordinator(ctx, cluster.GroupCoordinator, "chaos")
			if err != nil {
				t.Fatal(err)
			}
			if err := k.Kill(int(b.ID)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(300 * time.Millisecond)
	}
	settled := false
	for range 900 {
		cl.mu.Lock()
		settled = len(cl.by) == 24
		cl.mu.Unlock()
		if settled && describeAgrees(ctx, clients[1], ms) {
			break
		}
		settled = false
		time.Sleep(100 * time.Millisecond)
	}
	cl.mu.Lock()
	if !settled {
		t.Errorf("%d of 24 tasks are owned, or describe says otherwise", len(cl.by))
	}
	if len(cl.double) > 0 {
		t.Errorf("held by two at once: %v", cl.double)
	}
	cl.mu.Unlock()
	for _, c := range ms {
		c.m.Close()
		c.done.Wait()
	}
}

// describeAgrees reports whether the group is stable, with the members that live
// and what they own.
func describeAgrees(ctx context.Context, c *cluster.Cluster, ms []*chaosMember) bool {
	g, err := Describe(ctx, c, "chaos", DescribeOptions{})
	if err != nil || g.State != "Stable" || len(g.Members) != len(ms) {
		return false
	}
	for _, m := range ms {
		for _, d := range g.Members {
			if d.ID == m.id && !d.Tasks.Equal(m.m.Owned()) {
				return false
			}
		}
	}
	return true
}
