package leader

import (
	"context"
	"time"

	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// follow makes sure that the partitions that a broker leads are polled.
func (f *follower) follow(node kafka.NodeID) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.loops[node] {
		return
	}
	f.loops[node] = f.tasks.Go(func(ctx context.Context) error {
		f.poll(ctx, node)
		return nil
	})
}

// led are the partitions that are to be polled at a broker. lost says that one
// that was followed is polled nowhere: it has no leader, or was reset. Without
// either the poll of the broker ends, which is noted under the same lock.
func (f *follower) led(node kafka.NodeID, l *layout) (out []*partition, lost bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for id, p := range f.parts {
		if l == nil || int(id) >= len(l.leaders) {
			continue
		}
		switch at, v := l.leaders[id], p.view(); {
		case at == node && v.read:
			out = append(out, p)
		case at < 0, !v.read, !f.loops[at]:
			lost = lost || v.read || v.before
		}
	}
	if len(out) == 0 && !lost {
		f.loops[node] = false
	}
	return out, lost
}

// poll waits for records of all partitions that one broker leads.
func (f *follower) poll(ctx context.Context, node kafka.NodeID) {
	tries, asked := 0, time.Duration(0)
	for ctx.Err() == nil {
		l := f.topic.known()
		ps, lost := f.led(node, l)
		switch {
		case len(ps) == 0 && !lost:
			return
		case len(ps) > 0 && f.pollOnce(ctx, node, ps):
			tries = 0
			if now := f.cfg.now().Local; !lost || now-asked < askEvery {
				continue
			}
		default:
			tries++
			if task.Sleep(ctx, backoff(tries)) != nil {
				return
			}
		}
		asked = f.cfg.now().Local
		f.relocate(ctx, l)
	}
}

// askEvery is how often it is asked where a partition has gone by the poll of a
// broker that has others.
const askEvery = 500 * time.Millisecond

// pollOnce reports whether every partition was answered for.
func (f *follower) pollOnce(ctx context.Context, node kafka.NodeID, ps []*partition) bool {
	at := make(map[int32]kafka.Offset, len(ps))
	var id kafka.TopicID
	for _, p := range ps {
		v := p.view()
		at[p.id], id = v.next, v.topic
	}
	by := f.cfg.now().Local + f.cfg.FetchWait
	resp, err := f.fetchFrom(ctx, node, fetchOf(committed, f.cfg.FetchWait), at, id)
	if err != nil {
		if ctx.Err() == nil {
			for _, p := range ps {
				p.failed(err)
			}
		}
		return false
	}
	good := true
	for _, p := range ps {
		if err := f.take(p, resp, at[p.id], by); err != nil {
			p.failed(err)
			good = false
			continue
		}
		if p.hides(f.cfg.FetchWait) {
			pctx, cancel := context.WithTimeout(ctx, f.cfg.FetchWait)
			_ = f.peek(pctx, node, p, p.view().high) // it is tried again after the next wait
			cancel()
		}
	}
	if good && resp.ThrottleMillis > 0 {
		_ = task.Sleep(ctx, time.Duration(resp.ThrottleMillis)*time.Millisecond)
	}
	return good
}

// relocate asks where the partitions are, reads those that were reset again,
// and has each polled at its leader.
func (f *follower) relocate(ctx context.Context, stale *layout) {
	l, err := f.topic.refresh(ctx, stale)
	if err != nil {
		return
	}
	f.mu.Lock()
	ps := make([]*partition, 0, len(f.parts))
	for _, p := range f.parts {
		ps = append(ps, p)
	}
	f.mu.Unlock()
	for _, p := range ps {
		p.belongs(l.id)
		if int(p.id) >= len(l.leaders) || l.leaders[p.id] < 0 {
			continue
		}
		if !p.view().read {
			if len(p.turn) > 0 { // it is being read
				continue
			}
			f.tasks.Go(func(ctx context.Context) error {
				ctx, cancel := context.WithTimeout(ctx, f.cfg.RequestTimeout)
				defer cancel()
				_, _ = f.sync(ctx, p) // who needs it tries again
				return nil
			})
			continue
		}
		f.follow(l.leaders[p.id])
	}
}
