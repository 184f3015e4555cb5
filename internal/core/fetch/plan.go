package fetch

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// The wait of a Fetch that leaves partitions out which will want to be named soon,
// as their waiting data is at its limit, or their leader or their position is being
// asked for. It doubles while they are left out and nothing comes, so that it is
// never much longer than what they have been left out for.
const (
	leastBrief = time.Millisecond
	mostBrief  = 50 * time.Millisecond
)

// An answer has leastPortion bytes while that is what comes each slowPortion, 100
// MB/s: more would cost memory, and the processor's caches, for little. On a longer
// way, where less comes slowAnswers times in a row, answers double, up to what
// Config allows.
const (
	leastPortion = 2 << 20
	slowPortion  = 20 * time.Millisecond
	slowAnswers  = 8
)

// patientAfter is the number of failures behind which nothing waits briefly for
// a partition any more, such as one of a topic that does not exist.
const patientAfter = 8

// candidates are the partitions that a Fetch to one broker could name.
type candidates struct {
	parts []*part
	brief bool      // others will want to be named soon
	large bool      // one has a batch that needs more than the usual limit
	later time.Time // some were left out for their backoff, the first until then
}

// plan decides what to ask a broker for.
type plan struct {
	m   *Machine
	now time.Time
	b   *broker
}

func (pl plan) candidates() candidates {
	var c candidates
	pl.m.each(func(p *part) {
		switch {
		case p.soon():
			c.brief = true
		case p.source() != pl.b.id || !p.readable():
		case p.waits(pl.now):
			if c.later.IsZero() || p.retryAt.Before(c.later) {
				c.later = p.retryAt
			}
		case p.full(pl.m.cfg.PartitionMaxBytes):
			c.brief = true
		default:
			c.parts = append(c.parts, p)
			c.large = c.large || p.limit > 0
		}
	})
	return c
}

// full reports whether as much of p waits as there may: what one fetch brings, and
// a batch beside the one that is handed out next, however large. More would only
// take room from others (F28).
func (p *part) full(share int32) bool { return p.buffered >= int64(share) && len(p.queue) > 1 }

// room is how many bytes a Fetch may reserve now; 0 is none (F24).
func (pl plan) room(c *candidates) int64 {
	m := pl.m
	each := m.cfg.Budget / 2 / int64(max(len(m.ids), 1))
	if !c.large {
		each = min(each, max(pl.b.portion, leastPortion))
	}
	want := min(int64(m.cfg.MaxBytes), max(each, int64(m.cfg.PartitionMaxBytes)))
	free := m.cfg.Budget - m.shelf.used - m.reserved
	if free >= want || m.shelf.used == 0 && m.reserved == 0 {
		return want
	}
	if free < int64(min(m.cfg.PartitionMaxBytes, m.cfg.MaxBytes)) {
		return 0
	}
	return free
}

// fetch is the next Fetch to the broker, nil if there is none to send.
func (pl plan) fetch() *FetchAction {
	if pl.b.fetch != nil {
		return nil
	}
	c := pl.candidates()
	if len(c.parts) == 0 {
		return nil
	}
	room := pl.room(&c)
	if room == 0 && pl.dropPaused() {
		room = pl.room(&c)
	}
	if room == 0 {
		return nil
	}
	m := pl.m
	m.lastID++
	r := &request{
		id: m.lastID, parts: rotate(c.parts, pl.b.served), reserved: room, sent: pl.now, wait: pl.wait(&c),
	}
	pl.b.fetch = r
	m.reserved += room
	return &FetchAction{ID: r.id, Broker: pl.b.id, Req: pl.request(r), request: r, home: &m.shelf.spares}
}

// wait is how long the broker may hold the Fetch back.
func (pl plan) wait(c *candidates) time.Duration {
	longest := pl.m.cfg.MaxWait
	if c.brief {
		pl.b.brief = min(max(2*pl.b.brief, leastBrief), mostBrief)
		longest = min(longest, pl.b.brief)
	} else {
		pl.b.brief = 0
	}
	if !c.later.IsZero() {
		longest = min(longest, max(c.later.Sub(pl.now), time.Millisecond))
	}
	return longest
}

// resize makes the next answer of the broker larger if this one, which has so many
// bytes of batches, and those before it were full and came slowly to a user who
// waited for them, and smaller if it came quickly.
func (b *broker) resize(r *request, bytes int64, took time.Duration, waited bool) {
	if bytes == 0 || 2*bytes < r.reserved {
		return
	}
	took = took * leastPortion / time.Duration(bytes)
	if took < slowPortion/4 {
		b.portion = r.reserved / 2
	}
	if took <= slowPortion || !waited {
		b.slow = 0
	} else if b.slow++; b.slow == slowAnswers {
		b.portion, b.slow = 2*r.reserved, 0
	}
}

// request builds a Fetch: of a session it names what changed.
func (pl plan) request(r *request) *kmsg.FetchRequest {
	c, s := &pl.m.cfg, &pl.b.session
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis = int32(r.wait.Milliseconds())
	req.MinBytes = c.MinBytes
	req.MaxBytes = int32(r.reserved)
	req.IsolationLevel = c.Isolation.wire()
	req.Rack = pl.rack(r.parts)
	r.session = s.begin(pl.now, req, r.parts)
	var last *topic
	for _, p := range r.parts {
		p.fetch = ask{id: r.id, gen: p.gen, offset: p.next}
		limit := max(c.PartitionMaxBytes, p.limit)
		if !s.changed(p, limit, r.id) {
			continue
		}
		if p.topic != last {
			last = p.topic
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = last.name, last.id
			req.Topics = append(req.Topics, t)
		}
		t := &req.Topics[len(req.Topics)-1]
		rp := kmsg.NewFetchRequestTopicPartition()
		rp.Partition = p.tp.Partition
		rp.FetchOffset = int64(p.next)
		rp.CurrentLeaderEpoch = int32(p.epoch)
		rp.PartitionMaxBytes = limit
		t.Partitions = append(t.Partitions, rp)
	}
	req.ForgottenTopics = s.forgotten(r.id)
	return req
}

// rotate puts the partition behind the one served last first (F5). Partitions of
// one topic stay together: the topic of the first goes round within itself, then
// the topics go round.
func rotate(parts []*part, served kafka.TopicPartition) []*part {
	start := slices.IndexFunc(parts, func(p *part) bool { return p.tp.Compare(served) > 0 })
	start = max(start, 0)
	t := parts[start].topic
	lo, hi := start, start+1
	for lo > 0 && parts[lo-1].topic == t {
		lo--
	}
	for hi < len(parts) && parts[hi].topic == t {
		hi++
	}
	out := make([]*part, 0, len(parts))
	out = append(out, parts[start:hi]...)
	out = append(out, parts[lo:start]...)
	out = append(out, parts[hi:]...)
	return append(out, parts[:lo]...)
}

// dropPaused gives up what was fetched of paused partitions, to be fetched
// again later, and reports whether that made room (F29).
func (pl plan) dropPaused() bool {
	m := pl.m
	before := m.shelf.used
	m.each(func(p *part) {
		if p.paused && len(p.queue) > 0 && !p.lent && p.state == stateReading {
			p.invalidate()
			m.shelf.drop(p)
			p.next, p.tail = p.position, p.last
		}
	})
	return m.shelf.used < before
}
