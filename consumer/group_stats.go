package consumer

import (
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// groupCounts counts what a member did.
type groupCounts struct {
	rebalances            map[string]int64
	given, revoked, lost  int64
	beats, misses         int64
	beatTime              time.Duration
	done, refused, unsure int64
	stalls                int64
	events                [GroupSkipped + 1]int64
}

// answered counts a heartbeat.
func (c *groupCounts) answered(req kmsg.Request, err error, took time.Duration) {
	switch req.(type) {
	case *kmsg.HeartbeatRequest, *kmsg.ConsumerGroupHeartbeatRequest:
	default:
		return
	}
	c.beats++
	c.beatTime = took
	if err != nil {
		c.misses++
	}
}

// committed counts the outcomes of a commit.
func (c *groupCounts) committed(results map[kafka.TopicPartition]error) {
	for _, err := range results {
		switch {
		case err == nil:
			c.done++
		case kafka.MayHaveHappened(err):
			c.unsure++
		default:
			c.refused++
		}
	}
}

// GroupStats is what a member of a group did and holds, at one moment.
type GroupStats struct {
	State      string // idle, joining, syncing, revoking, stable, left, failed
	MemberID   string
	Partitions int // owned

	Rebalances           map[string]int64 // by cause
	Given, Revoked, Lost int64            // partitions
	Heartbeats, Misses   int64            // answered or not; not answered
	HeartbeatTime        time.Duration    // what the last one took

	Committed, CommitsRefused, CommitsInDoubt int64 // offsets

	Dropped int64 // by this member as the leader of a classic group: subscriptions, members and claims that made no sense

	Unfinished time.Duration            // age of the oldest work that is handed out and not finished
	Stalls     int64                    // times that it was told
	Events     map[GroupEventKind]int64 // told to OnEvent, or would have been
}
