package sim

import (
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// FetchSessions keeps the fetch sessions of one broker (KIP-227) in front of
// whatever answers full requests. The zero value is ready. It is safe for
// concurrent use.
type FetchSessions struct {
	Refuse func() bool // no session for this request; nil = never

	mu     sync.Mutex
	last   int32
	open   map[int32]*fetchSession
	faults []string
}

type fetchSession struct {
	epoch int32 // expected of the next request
	parts []sessionPart
}

// sessionPart is one partition of a session, and what the broker last said of
// it.
type sessionPart struct {
	topic string
	id    [16]byte
	req   kmsg.FetchRequestTopicPartition
	hw    int64
}

// Handler makes sessions for what full answers to full requests.
func (s *FetchSessions) Handler(full Handler) Handler {
	return func(r *Request) Answer {
		req := r.Req.(*kmsg.FetchRequest)
		id, expanded, code := s.Expand(req)
		if code != 0 {
			resp := r.Response().(*kmsg.FetchResponse)
			resp.ErrorCode = code
			return Reply(resp)
		}
		whole := *r
		whole.Req = expanded
		a := full(&whole)
		if resp, ok := a.Response.(*kmsg.FetchResponse); ok {
			s.Finish(id, req, resp)
		}
		return a
	}
}

// Expand is the full request that a request of a session stands for, the id of
// the session, 0 if there is none, and the code of a request that does not fit.
func (s *FetchSessions) Expand(req *kmsg.FetchRequest) (id int32, full *kmsg.FetchRequest, code int16) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = map[int32]*fetchSession{}
	}
	switch req.SessionEpoch {
	case -1:
		delete(s.open, req.SessionID)
		return 0, req, 0
	case 0:
		delete(s.open, req.SessionID)
		if s.Refuse != nil && s.Refuse() {
			return 0, req, 0
		}
		s.last++
		s.open[s.last] = &fetchSession{epoch: 1}
		id = s.last
	default:
		id = req.SessionID
		if s.open[id] == nil {
			return 0, nil, 70
		}
		if s.open[id].epoch != req.SessionEpoch {
			return 0, nil, 71
		}
		s.open[id].epoch++
	}
	fs := s.open[id]
	s.update(fs, req)
	copied := *req
	copied.Topics, copied.ForgottenTopics = nil, nil
	for _, p := range fs.parts {
		n := len(copied.Topics)
		if n == 0 || copied.Topics[n-1].Topic != p.topic || copied.Topics[n-1].TopicID != p.id {
			t := kmsg.NewFetchRequestTopic()
			t.Topic, t.TopicID = p.topic, p.id
			copied.Topics = append(copied.Topics, t)
			n++
		}
		t := &copied.Topics[n-1]
		t.Partitions = append(t.Partitions, p.req)
	}
	return id, &copied, 0
}

// update takes in what a request names and forgets, in the order of Kafka.
func (s *FetchSessions) update(fs *fetchSession, req *kmsg.FetchRequest) {
	for _, t := range req.Topics {
		for _, p := range t.Partitions {
			if i := fs.find(t.Topic, t.TopicID, p.Partition); i >= 0 {
				fs.parts[i].req = p
				continue
			}
			fs.parts = append(fs.parts, sessionPart{topic: t.Topic, id: t.TopicID, req: p, hw: -1})
		}
	}
	for _, t := range req.ForgottenTopics {
		for _, p := range t.Partitions {
			i := fs.find(t.Topic, t.TopicID, p)
			if i < 0 {
				s.faults = append(s.faults, fmt.Sprintf("%s %x partition %d is forgotten and was not there", t.Topic, t.TopicID, p))
				continue
			}
			fs.parts = slices.Delete(fs.parts, i, i+1)
		}
	}
}

// find is by id where there is one.
func (fs *fetchSession) find(topic string, id [16]byte, partition int32) int {
	return slices.IndexFunc(fs.parts, func(p sessionPart) bool {
		return p.req.Partition == partition && p.id == id && (id != [16]byte{} || p.topic == topic)
	})
}

// Finish makes a full answer that of the session: an incremental one leaves out
// what did not change. What has data goes last from here on.
func (s *FetchSessions) Finish(id int32, req *kmsg.FetchRequest, resp *kmsg.FetchResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	resp.SessionID = id
	fs := s.open[id]
	if fs == nil {
		return
	}
	for i := range resp.Topics {
		t := &resp.Topics[i]
		t.Partitions = slices.DeleteFunc(t.Partitions, func(p kmsg.FetchResponseTopicPartition) bool {
			k := fs.find(t.Topic, t.TopicID, p.Partition)
			if k < 0 {
				return false
			}
			same := fs.parts[k].hw == p.HighWatermark && p.ErrorCode == 0 && len(p.RecordBatches) == 0 &&
				p.PreferredReadReplica < 0 && p.DivergingEpoch.EndOffset < 0
			fs.parts[k].hw = p.HighWatermark
			if p.ErrorCode != 0 {
				fs.parts[k].hw = -1
			}
			return same && req.SessionEpoch > 0
		})
	}
	resp.Topics = slices.DeleteFunc(resp.Topics, func(t kmsg.FetchResponseTopic) bool { return len(t.Partitions) == 0 })
}

// Holds lists topic names or ids, with partition and offset, of a session.
func (s *FetchSessions) Holds(id int32) (out map[string]int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out = map[string]int64{}
	if fs := s.open[id]; fs != nil {
		for _, p := range fs.parts {
			out[fmt.Sprintf("%s-%d", p.topic, p.req.Partition)] = p.req.FetchOffset
		}
	}
	return out
}

// Open is the number of sessions that are open.
func (s *FetchSessions) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.open)
}

// Faults are the requests that no client may make.
func (s *FetchSessions) Faults() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.faults)
}
