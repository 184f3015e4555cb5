package fetch

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// sessionRetry is how long a broker that grants no session is not asked again.
const sessionRetry = time.Minute

// session is the incremental fetch session with one broker (KIP-227): the
// broker remembers what it was asked for, and a Fetch names only what changed.
type session struct {
	id    int32 // 0 = none
	epoch int32 // of the next request; 0 = that is a full one
	asked map[kafka.TopicPartition]asked
	again time.Time // the broker grants none: it is not asked before
}

// asked is what a broker was last told of a partition.
type asked struct {
	topic   kafka.TopicID // zero: by name
	offset  kafka.Offset
	epoch   kafka.LeaderEpoch
	limit   int32
	request uint64 // the last one that meant the partition, named or not
}

// holds reports whether the broker may answer for a partition of a topic, by id
// or by name.
func (s *session) holds(rt *kmsg.FetchResponseTopic, byID bool, partition int32) bool {
	if !byID {
		_, ok := s.asked[kafka.TopicPartition{Topic: rt.Topic, Partition: partition}]
		return ok
	}
	for tp, a := range s.asked {
		if a.topic == rt.TopicID && tp.Partition == partition {
			return true
		}
	}
	return false
}

// end has the next Fetch be a full one, which also replaces the session that
// the broker may still keep.
func (s *session) end() {
	s.epoch = 0
	clear(s.asked)
}

// forget ends a session that the broker does not keep either.
func (s *session) forget() {
	s.end()
	s.id = 0
}

// refused is for a broker that grants no session.
func (s *session) refused(now time.Time) {
	s.forget()
	s.again = now.Add(sessionRetry)
}

// accepted takes in the session part of an answer that was in order.
func (s *session) accepted(now time.Time, use sessionUse, resp *kmsg.FetchResponse) {
	switch {
	case use == sessionLeft:
	case use == sessionGoes && resp.SessionID != s.id, onlyThrottle(resp):
		s.forget()
	case resp.SessionID == 0:
		s.refused(now)
	case s.epoch == math.MaxInt32:
		s.epoch = 1
	default:
		s.id = resp.SessionID
		s.epoch++
	}
}

// onlyThrottle is for an answer in place of a full one, which says nothing about
// partitions or sessions.
func onlyThrottle(resp *kmsg.FetchResponse) bool {
	return resp.SessionID == 0 && resp.ThrottleMillis > 0 && len(resp.Topics) == 0
}

// failed takes in a code that is about the session.
func (s *session) failed(now time.Time, code int16) {
	switch code {
	case codeSessionUnknown:
		s.forget()
	case codeSessionTopicID: // ids and names do not mix in one; asking again would repeat it
		s.refused(now)
	default:
		s.end()
	}
}

// changed reports whether the broker has to be told of p, and notes it.
func (s *session) changed(p *part, limit int32, request uint64) bool {
	is := asked{topic: p.topic.id, offset: p.next, epoch: p.epoch, limit: limit, request: request}
	was, ok := s.asked[p.tp]
	s.asked[p.tp] = is
	was.request = request
	return !ok || was != is
}

// sessionUse is what a request has to do with a session.
type sessionUse uint8

const (
	sessionLeft  sessionUse = iota // none: the broker grants none
	sessionOpens                   // a full request, which asks for one
	sessionGoes                    // an incremental request
)

// begin decides what the request is.
func (s *session) begin(now time.Time, req *kmsg.FetchRequest, parts []*part) sessionUse {
	if s.epoch != 0 && s.mixesTopics(parts) {
		s.end()
	}
	req.SessionID, req.SessionEpoch = s.id, s.epoch
	switch {
	case s.epoch != 0:
		return sessionGoes
	case now.Before(s.again):
		clear(s.asked)
		req.SessionEpoch = -1
		return sessionLeft
	}
	clear(s.asked)
	return sessionOpens
}

// mixesTopics reports whether a partition of the session is asked for under
// another topic id. A session cannot say that: whoever adds a partition and
// forgets it by another key in one request may lose it.
func (s *session) mixesTopics(parts []*part) bool {
	return slices.ContainsFunc(parts, func(p *part) bool {
		was, ok := s.asked[p.tp]
		return ok && was.topic != p.topic.id
	})
}

// forgotten lists what the request does not mean any more, under the ids it
// was asked for.
func (s *session) forgotten(request uint64) (topics []kmsg.FetchRequestForgottenTopic) {
	var gone []kafka.TopicPartition
	for tp, a := range s.asked {
		if a.request != request {
			gone = append(gone, tp)
		}
	}
	slices.SortFunc(gone, func(a, b kafka.TopicPartition) int {
		return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	for i, tp := range gone {
		if i == 0 || gone[i-1].Topic != tp.Topic || s.asked[gone[i-1]].topic != s.asked[tp].topic {
			t := kmsg.NewFetchRequestForgottenTopic()
			t.Topic, t.TopicID = tp.Topic, s.asked[tp].topic
			topics = append(topics, t)
		}
		t := &topics[len(topics)-1]
		t.Partitions = append(t.Partitions, tp.Partition)
	}
	for _, tp := range gone {
		delete(s.asked, tp)
	}
	return topics
}

// goodbye is the request that closes the session with a broker, nil if there is
// none, or nobody to tell.
func (b *broker) goodbye() *FetchAction {
	if b.session.id == 0 || b.attempt > 0 {
		return nil
	}
	req := kmsg.NewPtrFetchRequest()
	req.ReplicaID = -1
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes = 0, 0, 0
	req.SessionID, req.SessionEpoch = b.session.id, -1
	b.session.forget()
	return &FetchAction{Broker: b.id, Req: req}
}
