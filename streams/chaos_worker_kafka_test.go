//go:build kafka

package streams

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/task"
)

// workerEnv makes the test binary one of the processes of the chaos: it holds the
// number of the process and the bootstrap addresses.
const workerEnv = "OTTLA_STREAMS_CHAOS_WORKER"

const chaosGroup = "chaos"

// worker is a process with members. It does what the lines on its stdin say, and
// ends with them.
type worker struct {
	process string
	kafka   Kafka
	tasks   *task.Group
	tell    *teller

	mu      sync.Mutex
	members map[string]*workerMember // guarded by mu
}

// teller writes events, one a write, so that the one pipe of all processes has
// them in the order in which they happened.
type teller struct {
	mu  sync.Mutex
	out *os.File // guarded by mu
}

func (w *teller) event(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	e.At = time.Now().UnixNano()
	line, _ := json.Marshal(e)
	if _, err := w.out.Write(append(line, '\n')); err != nil {
		os.Exit(1) // nobody listens any more
	}
}

// toldKafka tells which heartbeats were accepted.
type toldKafka struct {
	*cluster.Cluster
	tell *teller
}

func (k *toldKafka) RequestCoordinator(ctx context.Context, group string, req kmsg.Request) (kmsg.Response, error) {
	sent := time.Now().UnixNano()
	resp, err := k.Cluster.RequestCoordinator(ctx, group, req)
	q, ok := req.(*kmsg.StreamsGroupHeartbeatRequest)
	r, answered := resp.(*kmsg.StreamsGroupHeartbeatResponse)
	if ok && answered && err == nil && r.ErrorCode == 0 && q.MemberEpoch >= 0 {
		k.tell.event(event{Sent: sent, Member: q.MemberID, What: beaten})
	}
	return resp, err
}

// workerMain is the main function of such a process.
func workerMain() int {
	process, bootstrap, _ := strings.Cut(os.Getenv(workerEnv), " ")
	c, err := cluster.Connect(context.Background(), cluster.Config{Bootstrap: strings.Split(bootstrap, ",")})
	if err != nil {
		fmt.Fprintln(os.Stderr, "process", process, err)
		return 1
	}
	tell := &teller{out: os.NewFile(3, "events")}
	w := &worker{
		process: process, tell: tell, kafka: &toldKafka{c, tell},
		tasks: task.New(context.Background()), members: map[string]*workerMember{},
	}
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		verb, name, _ := strings.Cut(in.Text(), " ")
		switch verb {
		case "join":
			w.tasks.Go(func(ctx context.Context) error { w.join(ctx, Config{MemberID: name}); return nil })
		case "static":
			w.tasks.Go(func(ctx context.Context) error {
				w.join(ctx, Config{MemberID: name, InstanceID: "static-" + w.process})
				return nil
			})
		case "leave":
			w.tasks.Go(func(ctx context.Context) error { w.leave(ctx, name); return nil })
		}
	}
	return 0
}

// workerMember is a member with an owner that takes its time.
type workerMember struct {
	m    *Member
	name string
	tell *teller

	mu      sync.Mutex
	leaving bool // guarded by mu, which is held from an acknowledgement until it was told
}

// join joins until it works.
func (w *worker) join(ctx context.Context, cfg Config) {
	cfg.Group, cfg.Topology, cfg.ProcessID, cfg.SessionTimeout = chaosGroup, reading("in"), "process-"+w.process, chaosSession
	m, err := Join(ctx, w.kafka, cfg)
	for err != nil {
		fmt.Fprintln(os.Stderr, cfg.MemberID, "does not join:", err)
		time.Sleep(500 * time.Millisecond)
		m, err = Join(ctx, w.kafka, cfg)
	}
	cm := &workerMember{m: m, name: cfg.MemberID, tell: w.tell}
	w.mu.Lock()
	w.members[cfg.MemberID] = cm
	w.mu.Unlock()
	w.tell.event(event{Member: cm.name, What: told})
	if err := cm.own(ctx); errors.Is(err, kerr.FencedInstanceID) {
		// a coordinator that was replaced and does not know it yet answers by the group as it was
		fmt.Fprintln(os.Stderr, cfg.MemberID, "starts again:", err)
		w.join(ctx, cfg)
	}
}

// own takes targets over until the member ends.
func (cm *workerMember) own(ctx context.Context) error {
	for s, err := range cm.m.Assignments(ctx) {
		switch {
		case err != nil:
			if !cm.isLeaving() && !errors.Is(err, kerr.FencedInstanceID) { // one that leaves may get no answer
				cm.tell.event(event{Member: cm.name, What: ended, Text: err.Error()})
			}
			return err
		case s.Lost:
			cm.tell.event(event{Member: cm.name, What: lost})
			cm.take(ctx, s, nil)
			continue
		}
		time.Sleep(rand.N(200 * time.Millisecond)) // commits and closes
		cm.take(ctx, s, s.Target.Active)
	}
	return nil
}

func (cm *workerMember) isLeaving() bool {
	cm.mu.Lock()
	defer cm.mu.Unlock()
	return cm.leaving
}

func (cm *workerMember) hold(ids []TaskID) {
	names := []string{}
	for _, id := range ids {
		names = append(names, id.String())
	}
	cm.tell.event(event{Member: cm.name, What: holds, Tasks: names})
}

// take acknowledges a snapshot and tells it.
func (cm *workerMember) take(ctx context.Context, s Snapshot, ids []TaskID) {
	cm.mu.Lock()
	defer cm.mu.Unlock()
	if cm.leaving {
		return
	}
	cm.hold(slices.DeleteFunc(cm.m.Owned().Active, func(id TaskID) bool { return !slices.Contains(ids, id) }))
	if cm.m.Acknowledge(ctx, s, Tasks{Active: ids}) == nil {
		cm.hold(ids)
	}
}

func (w *worker) leave(ctx context.Context, name string) {
	w.mu.Lock()
	cm := w.members[name]
	delete(w.members, name)
	w.mu.Unlock()
	if cm == nil {
		return
	}
	cm.mu.Lock()
	cm.leaving = true
	cm.hold(nil)
	cm.mu.Unlock()
	if err := cm.m.Leave(ctx); err != nil {
		fmt.Fprintln(os.Stderr, name, "does not leave:", err)
	}
	w.tell.event(event{Member: name, What: gone})
}
