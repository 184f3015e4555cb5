package group

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// roster is the group as JoinGroup told its leader.
type roster struct {
	assignor string
	members  []Member
	topics   []string // subscribed by somebody, sorted
	dropped  Dropped
}

// newRoster reads the members of a JoinGroup answer. A member whose
// subscription cannot be read takes part with no topic, so it gets nothing; one
// that is listed twice counts once.
func newRoster(assignor string, listed []kmsg.JoinGroupResponseMember) *roster {
	r := &roster{assignor: assignor}
	seen := make(map[string]bool, len(listed))
	var last []string
	for _, l := range listed {
		if seen[l.MemberID] {
			r.dropped.Members++
			continue
		}
		seen[l.MemberID] = true
		m := Member{ID: l.MemberID, Generation: NoGeneration}
		if l.InstanceID != nil {
			m.InstanceID = *l.InstanceID
		}
		s, err := ParseSubscription(l.ProtocolMetadata)
		if err != nil {
			r.dropped.Blobs++
		} else {
			if !slices.Equal(s.Topics, last) { // most groups have one subscription
				r.topics = append(r.topics, s.Topics...)
				last = s.Topics
			}
			m.Topics, m.Rack = last, s.Rack
			m.Owned, m.Generation = s.claim(assignor)
		}
		r.members = append(r.members, m)
	}
	slices.Sort(r.topics)
	r.topics = slices.Compact(r.topics)
	return r
}

// plan divides the partitions, and checks the outcome: a wrong plan would have
// partitions read twice or not at all.
func (r *roster) plan(of layout) (Plan, error) {
	p := divide(r.assignor, r.members, of, &r.dropped)
	return p, r.check(p, of.counts)
}

// check holds that every member is in the plan, that nothing is given twice,
// that each gets what it subscribed to, and that what nobody gets is withheld.
func (r *roster) check(p Plan, counts map[string]int32) error {
	owner := map[kafka.TopicPartition]string{}
	claimed := map[kafka.TopicPartition]bool{}
	for _, m := range r.members {
		tps, ok := p[m.ID]
		if !ok {
			return fmt.Errorf("ottla: group: the plan lacks member %s", m.ID)
		}
		for _, tp := range tps {
			if other, twice := owner[tp]; twice {
				return fmt.Errorf("ottla: group: the plan gives %s to %s and %s", tp, other, m.ID)
			}
			if !slices.Contains(m.Topics, tp.Topic) || tp.Partition < 0 || tp.Partition >= counts[tp.Topic] {
				return fmt.Errorf("ottla: group: the plan gives %s to %s, which is not subscribed to it", tp, m.ID)
			}
			owner[tp] = m.ID
		}
		for _, tp := range m.Owned {
			claimed[tp] = true
		}
	}
	if len(p) != len(r.members) {
		return fmt.Errorf("ottla: group: the plan has %d members of %d", len(p), len(r.members))
	}
	for _, t := range r.topics {
		for n := range counts[t] {
			tp := kafka.TopicPartition{Topic: t, Partition: n}
			withheld := Cooperative(r.assignor) && claimed[tp]
			if _, given := owner[tp]; !given && !withheld {
				return fmt.Errorf("ottla: group: the plan gives %s to nobody", tp)
			}
		}
	}
	return nil
}

// sync is the plan as SyncGroup carries it.
func (p Plan) sync(members []Member) []kmsg.SyncGroupRequestGroupAssignment {
	out := make([]kmsg.SyncGroupRequestGroupAssignment, 0, len(members))
	for _, m := range members {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID = m.ID
		a.MemberAssignment = AppendAssignment(nil, p[m.ID])
		out = append(out, a)
	}
	return out
}
