package fetch

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// briefWait bounds the wait of a Fetch that leaves partitions out which will want
// to be named soon: their waiting data is at its limit, or their leader or their
// position is being asked for.
const briefWait = 50 * time.Millisecond

// patientAfter is the number of failures behind which nothing waits briefly for
// a partition any more, such as one of a topic that does not exist.
const patientAfter = 8

// candidates are the partitions that a Fetch to one broker could name.
type candidates struct {
	parts []*part
	brief bool      // others will want to be named soon
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
	share := pl.share()
	pl.m.each(func(p *part) {
		switch {
		case p.soon():
			c.brief = true
		case p.source() != pl.b.id || !p.readable():
		case p.waits(pl.now):
			if c.later.IsZero() || p.retryAt.Before(c.later) {
				c.later = p.retryAt
			}
		case p.buffered >= share:
			c.brief = true
		default:
			c.parts = append(c.parts, p)
		}
	})
	return c
}

// share is how much of a partition may wait: enough for one fetch, and no more
// than would leave no room for the others (F28).
func (pl plan) share() int64 {
	m := pl.m
	return max(m.cfg.Budget/2/int64(max(m.parts, 1)), int64(m.cfg.PartitionMaxBytes))
}

// room is how many bytes a Fetch may reserve now; 0 is none (F24).
func (pl plan) room() int64 {
	m := pl.m
	each := m.cfg.Budget / 2 / int64(max(len(m.ids), 1))
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
	room := pl.room()
	if room == 0 && pl.dropPaused() {
		room = pl.room()
	}
	if room == 0 {
		return nil
	}
	m := pl.m
	m.lastID++
	r := &request{
		id: m.lastID, parts: rotate(c.parts, pl.b.served), reserved: room, sent: pl.now, wait: c.wait(pl.now, m.cfg.MaxWait),
	}
	pl.b.fetch = r
	m.reserved += room
	return &FetchAction{ID: r.id, Broker: pl.b.id, Req: pl.request(r), request: r, home: &m.shelf.spares}
}

// wait is how long the broker may hold the Fetch back.
func (c *candidates) wait(now time.Time, longest time.Duration) time.Duration {
	if c.brief {
		longest = min(longest, briefWait)
	}
	if !c.later.IsZero() {
		longest = min(longest, max(c.later.Sub(now), time.Millisecond))
	}
	return longest
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
