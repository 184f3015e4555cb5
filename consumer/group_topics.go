package consumer

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/core/fetch"
	"github.com/ottla/ottla/internal/core/group"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
)

// subscription is what the user wants.
type subscription struct {
	topics  []string
	expr    string         // a pattern, in place of topics
	pattern *regexp.Regexp // of expr, if it is matched here
	local   bool           // the coordinator takes no patterns
	settled bool           // it is known how to speak to the coordinator
	names   []string       // of topics that the pattern matched
	listing bool           // names are being asked for
}

// topicWatch finds out about topics for the machine: how many partitions they
// have, which a pattern matches, what their ids mean. Its fields are guarded by
// the member's mutex.
type topicWatch struct {
	m       *member
	names   []string // whose partitions the leader of a classic group counts
	asking  bool
	again   bool
	refused map[string]int16 // topics that brokers refuse, with the code that was told of them
}

// subscribeLocked tells the machine what is wanted.
func (m *member) subscribeLocked(now time.Time) {
	w := &m.want
	switch {
	case !w.settled:
	case w.expr == "":
		m.machine.Subscribe(now, w.topics, "")
	case m.cfg.Protocol == kafka.ConsumerGroup && !w.local:
		m.machine.Subscribe(now, nil, w.expr)
	default:
		if w.pattern == nil {
			w.pattern, _ = compilePattern(w.expr) // checked when it was set
			m.clock.look = now
		}
		m.machine.Subscribe(now, w.names, "")
	}
}

// tick does what is due by time.
func (m *member) tick(now time.Time) {
	m.mu.Lock()
	commit := !now.Before(m.clock.commit)
	if commit {
		m.clock.commit = now.Add(m.cfg.CommitInterval)
	}
	look := !m.clock.look.IsZero() && !now.Before(m.clock.look)
	if look {
		m.clock.look = time.Time{}
	}
	pattern := m.want.pattern
	if look && pattern != nil && !m.want.listing {
		m.want.listing = true
		m.c.tasks.Go(func(ctx context.Context) error {
			m.topics.list(ctx, pattern)
			return nil
		})
	}
	m.mu.Unlock()
	if look {
		m.topics.count()
	}
	if commit && m.cfg.Commits != CommitManual {
		if due := m.commits.due(nil); len(due) > 0 {
			m.commits.send(due).auto = true
		}
	}
	m.watchWork(now)
}

// list finds the topics that a pattern matches. They are looked for again at
// the metadata age.
func (w *topicWatch) list(ctx context.Context, pattern *regexp.Regexp) {
	all, err := w.m.c.cluster.TopicNames(ctx)
	now := time.Now()
	w.m.mu.Lock()
	w.m.want.listing = false
	if w.m.want.pattern != pattern {
		w.m.mu.Unlock()
		w.m.kick()
		return
	}
	var gone []string
	next := now.Add(w.m.c.cluster.MetadataMaxAge())
	if err != nil {
		next = now.Add(time.Second)
	} else {
		gone = w.m.want.names
		w.m.want.names = slices.DeleteFunc(all, func(name string) bool { return !pattern.MatchString(name) })
		w.m.subscribeLocked(now)
	}
	w.m.lookAtLocked(next)
	names := w.m.want.names
	w.m.mu.Unlock()
	w.forget(gone, names)
	w.m.kick()
}

// forget stops keeping topics fresh that are wanted no more.
func (w *topicWatch) forget(had, have []string) {
	for _, name := range had {
		if !slices.Contains(have, name) {
			w.m.c.cluster.ForgetTopic(name)
		}
	}
}

// letGoLocked stops keeping topics fresh of which nothing is held any more,
// where the coordinator matches the pattern: whether they are still there, and
// match, is only told by what it assigns.
func (m *member) letGoLocked(hs []*holding) {
	if m.want.expr == "" || m.want.pattern != nil {
		return
	}
	held := make(map[string]bool, len(m.holdings))
	for tp := range m.holdings {
		held[tp.Topic] = true
	}
	for _, h := range hs {
		if !held[h.Topic] {
			held[h.Topic] = true
			m.c.cluster.ForgetTopic(h.Topic)
		}
	}
}

func (m *member) lookAtLocked(at time.Time) {
	if m.clock.look.IsZero() || at.Before(m.clock.look) {
		m.clock.look = at
	}
}

// watch has the leader told how many partitions topics have, now and when
// that changes.
func (w *topicWatch) watch(names []string) {
	w.m.mu.Lock()
	w.names = names
	w.m.mu.Unlock()
	w.count()
}

// count counts the partitions of the watched topics, one count at a time.
func (w *topicWatch) count() {
	w.m.mu.Lock()
	defer w.m.mu.Unlock()
	if w.asking {
		w.again = true
		return
	}
	names := w.names
	if names == nil {
		return
	}
	w.asking, w.again = true, false
	w.m.c.tasks.Go(func(ctx context.Context) error {
		counts, errs := w.countAll(ctx, names)
		w.tell(names, errs)
		w.counted(names, counts, w.racks(ctx, names))
		return nil
	})
}

// countPatience is how long a plan waits for what is known of no topic yet.
const countPatience = time.Second

// countAll counts the partitions of topics; errs says why some have none, or as
// many as they had.
func (w *topicWatch) countAll(ctx context.Context, names []string) (counts map[string]int32, errs map[string]error) {
	type found struct {
		name string
		n    int32
		err  error
	}
	ctx, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	results := make(chan found, len(names))
	for _, name := range names {
		if !w.m.c.tasks.Go(func(context.Context) error {
			n, err := w.m.c.cluster.PartitionCount(ctx, name)
			if t, ok := w.m.c.cluster.CachedTopic(name); err != nil && ok && kafka.CodeOf(err) == 0 {
				n = t.Count()
			}
			results <- found{name, n, err}
			return nil
		}) {
			results <- found{name: name}
		}
	}
	counts, errs = make(map[string]int32, len(names)), make(map[string]error)
	for range names {
		f := <-results
		counts[f.name], errs[f.name] = f.n, f.err
	}
	return counts, errs
}

// isRefusal reports whether a code in metadata does not go away by waiting, such
// as a right that is missing or a name that no topic can have.
func isRefusal(code int16) bool {
	switch retry.Of(code) {
	case retry.OK, retry.Retry, retry.RefreshMetadata:
		return false
	}
	return true
}

// tell has Poll return why topics of the subscription are not read, once for
// each until that changes. The others are read.
func (w *topicWatch) tell(names []string, errs map[string]error) {
	w.m.mu.Lock()
	was := w.refused
	w.refused = make(map[string]int16)
	var news []error
	for _, name := range names {
		code := kafka.CodeOf(errs[name])
		switch told := was[name]; {
		case isRefusal(code):
			if w.refused[name] = code; code != told {
				news = append(news, errs[name])
			}
		case errs[name] != nil && told != 0: // nobody said that it is not so any more
			w.refused[name] = told
		}
	}
	w.m.mu.Unlock()
	for _, err := range news {
		w.m.c.do(func(f *fetch.Machine) { f.Tell(err) })
	}
}

// missingAfter is when topics that do not exist are looked for again.
const missingAfter = time.Second

// racks finds out where the replicas of topics are, if plans are to know; nil
// without an answer, as a plan that does not look at racks is better than none.
func (w *topicWatch) racks(ctx context.Context, names []string) group.Racks {
	if !w.m.cfg.RackAware || len(names) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, countPatience)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics, req.AllowAutoTopicCreation = []kmsg.MetadataRequestTopic{}, false
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, w.m.c.cluster)
	if err == nil {
		err = kafka.CodeError(resp.ErrorCode, nil)
	}
	if err != nil {
		w.m.c.cfg.Logger.Warn("the racks of replicas are not known", "group", w.m.cfg.ID, "err", err)
		return nil
	}
	return racksIn(resp)
}

func racksIn(resp *kmsg.MetadataResponse) group.Racks {
	of := map[int32]string{}
	for _, b := range resp.Brokers {
		if b.Rack != nil {
			of[b.NodeID] = *b.Rack
		}
	}
	racks := group.Racks{}
	for _, t := range resp.Topics {
		if t.Topic == nil {
			continue
		}
		parts := make([][]string, len(t.Partitions))
		for _, p := range t.Partitions {
			if p.Partition < 0 || int(p.Partition) >= len(parts) {
				continue
			}
			for _, id := range p.Replicas {
				parts[p.Partition] = append(parts[p.Partition], of[id])
			}
		}
		racks[*t.Topic] = parts
	}
	return racks
}

func (w *topicWatch) counted(names []string, counts map[string]int32, racks group.Racks) {
	w.m.mu.Lock()
	w.asking = false
	again := w.again
	if slices.Equal(names, w.names) {
		w.m.machine.OnRacks(racks)
		w.m.machine.OnCounts(counts)
	} else {
		again = true
	}
	for _, n := range counts {
		if n == 0 {
			w.m.lookAtLocked(time.Now().Add(missingAfter))
		}
	}
	w.m.mu.Unlock()
	w.m.kick()
	if again {
		w.count()
	}
}

// onEvents looks at the watched topics again when one of them changed.
func (w *topicWatch) onEvents(events []cluster.Event) {
	w.m.mu.Lock()
	changed := slices.ContainsFunc(events, func(e cluster.Event) bool {
		return (e.Kind == cluster.TopicFound || e.Kind == cluster.TopicGrew) && slices.Contains(w.names, e.Topic)
	})
	w.m.mu.Unlock()
	if changed {
		w.count()
	}
}

// resolve finds the names of topic ids.
func (w *topicWatch) resolve(ctx context.Context, ids []kafka.TopicID) {
	names := make(map[kafka.TopicID]string, len(ids))
	var missing []kafka.TopicID
	for _, id := range ids {
		name, err := w.m.c.cluster.TopicName(ctx, id)
		if errors.Is(err, cluster.ErrClosed) || ctx.Err() != nil {
			return
		}
		if err != nil {
			missing = append(missing, id)
			continue
		}
		names[id] = name
	}
	w.m.do(func(g *group.Machine, _ time.Time) { g.OnNames(names, nil) })
	if len(missing) > 0 && task.Sleep(ctx, 250*time.Millisecond) == nil {
		w.m.do(func(g *group.Machine, _ time.Time) { g.OnNames(nil, missing) })
	}
}
