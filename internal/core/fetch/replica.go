package fetch

import (
	"time"

	"github.com/ottla/ottla/kafka"
)

// shunTime is for how long no replica is read from after one has failed.
const shunTime = 30 * time.Second

// source is the broker that the partition is read from (KIP-392).
func (l *lead) source() kafka.NodeID {
	if l.replica != kafka.NoNode {
		return l.replica
	}
	return l.leader
}

// prefer takes the replica that the leader names, from the next fetch on.
func (l *lead) prefer(id kafka.NodeID, until time.Time) {
	if id != l.leader {
		l.replica, l.until = id, until
	}
}

// ask returns to the leader once the replica has served its time: the leader may
// name another.
func (l *lead) ask(now time.Time) {
	if !now.Before(l.until) {
		l.replica = kafka.NoNode
	}
}

// shun returns to the leader after the replica id refused or failed, and
// reports whether it was read from.
func (l *lead) shun(now time.Time, id kafka.NodeID) bool {
	if id != l.replica || id == kafka.NoNode {
		return false
	}
	l.replica, l.shunned = kafka.NoNode, now.Add(shunTime)
	return true
}

// leaves reports whether a code that a replica answers sends the partition back
// to its leader.
func leaves(code int16) bool {
	switch code {
	case 1, 3, 6, 9, 56, 74, 78, 109:
		return true
	}
	return false
}

// rack is what to say of the reader's place. A leader that knows it names a
// replica in place of data, so nothing is said while one is shunned.
func (pl plan) rack(parts []*part) string {
	for _, p := range parts {
		if p.leader == pl.b.id && pl.now.Before(p.shunned) {
			return ""
		}
	}
	return pl.m.cfg.Rack
}
