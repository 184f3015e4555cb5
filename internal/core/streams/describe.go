package streams

import (
	"math/rand/v2"
	"time"
)

// describe finds lists that were lost with an answer: a coordinator never sends
// them again.
type describe struct {
	uncertain bool // a heartbeat failed since the last that succeeded
	wanted    bool
	due       time.Time
	running   uint64 // 0 = none
	failures  int
}

// describeJitter spreads the members of many processes.
const describeJitter = time.Second

// onFailure drops what is under way: its answer may be older than the lists that
// this failure lost.
func (d *describe) onFailure() { *d = describe{uncertain: true} }

// onSuccess is a heartbeat that succeeded, with lists or without.
func (d *describe) onSuccess(now time.Time, lists bool, rng *rand.Rand) {
	switch {
	case lists:
		*d = describe{}
	case d.uncertain:
		*d = describe{wanted: true, due: now.Add(time.Duration(rng.Int64N(int64(describeJitter))))}
	}
}

func (m sender) nextDescribe(now time.Time) Action {
	d := &m.describe
	if !d.wanted || now.Before(d.due) || !m.state.InGroup() {
		return nil
	}
	m.beat.lastID++
	d.wanted, d.running = false, m.beat.lastID
	m.counts.Describes++
	return &DescribeAction{ID: d.running, Member: m.id.member}
}

// OnDescribed is the member's assignment as the coordinator describes it. found
// is false if the group does not have the member, of which the next heartbeat
// will tell.
func (m *Machine) OnDescribed(now time.Time, id uint64, t Tasks, found bool, err error) {
	d := &m.describe
	if id != d.running || !m.state.InGroup() {
		return
	}
	d.running = 0
	if err != nil {
		d.failures++
		d.wanted, d.due = true, now.Add(m.cfg.Backoff.Delay(d.failures, m.rng))
		m.logEvery(now, "describe", "task lists may be lost, and the group cannot be described to find them", "err", err)
		return
	}
	d.failures = 0
	if !found {
		return
	}
	u := t.Update()
	a, err := reader{&m.member}.read(appendTasks(u.Active), appendTasks(u.Standby), appendTasks(u.Warmup))
	if err != nil {
		m.fatal(now, err, mayLeave)
		return
	}
	next := m.snap
	next.Epoch = m.id.epoch
	m.target(&next, a)
	m.publish(next)
}

// push is the description of the topology, which a coordinator may ask for
// (KIP-1331).
type push struct{ wanted, running bool }

func (m sender) nextPush() Action {
	if !m.push.wanted || m.push.running || !m.state.InGroup() {
		return nil
	}
	m.push = push{running: true}
	return &PushAction{Member: m.id.member, Epoch: m.cfg.Topology.Epoch}
}

// OnPushed is the outcome of a push. One that failed is not repeated: the
// coordinator asks again.
func (m *Machine) OnPushed(err error) {
	m.push.running = false
	if err != nil {
		m.log(LevelWarn, "the topology's description was not taken", "err", err)
	}
}

// notes are what was logged already.
type notes struct {
	said map[string]bool
	at   map[string]time.Time
}

func (m *member) log(l Level, text string, attrs ...any) {
	attrs = append([]any{"group", m.cfg.Group, "member", m.id.member}, attrs...)
	m.queue(&LogAction{Level: l, Text: text, Attrs: attrs})
}

// logOnce logs what has not been logged under its key.
func (m *member) logOnce(key string, l Level, text string, attrs ...any) {
	if m.notes.said == nil {
		m.notes.said = map[string]bool{}
	}
	if !m.notes.said[key] {
		m.notes.said[key] = true
		m.log(l, text, attrs...)
	}
}

// logEvery warns at most once in reportEvery for each key.
func (m *member) logEvery(now time.Time, key, text string, attrs ...any) {
	if m.notes.at == nil {
		m.notes.at = map[string]time.Time{}
	}
	if last, ok := m.notes.at[key]; ok && now.Sub(last) < reportEvery {
		return
	}
	m.notes.at[key] = now
	m.log(LevelWarn, text, attrs...)
}
