package sim

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func sessionRequest(id, epoch int32, at map[int32]int64, forget ...int32) *kmsg.FetchRequest {
	req := kmsg.NewPtrFetchRequest()
	req.SessionID, req.SessionEpoch = id, epoch
	t := kmsg.NewFetchRequestTopic()
	t.Topic = "t"
	for p := range int32(3) {
		if o, ok := at[p]; ok {
			rp := kmsg.NewFetchRequestTopicPartition()
			rp.Partition, rp.FetchOffset = p, o
			t.Partitions = append(t.Partitions, rp)
		}
	}
	if len(t.Partitions) > 0 {
		req.Topics = append(req.Topics, t)
	}
	if len(forget) > 0 {
		f := kmsg.NewFetchRequestForgottenTopic()
		f.Topic, f.Partitions = "t", forget
		req.ForgottenTopics = append(req.ForgottenTopics, f)
	}
	return req
}

// A session remembers what it was asked for, refuses what does not follow, and
// tells of requests that no client may make.
func TestFetchSessionsRememberWhatTheyWereAskedFor(t *testing.T) {
	var s FetchSessions
	id, full, code := s.Expand(sessionRequest(0, 0, map[int32]int64{0: 10, 1: 20}))
	if id != 1 || code != 0 || len(full.Topics[0].Partitions) != 2 {
		t.Fatalf("session %d, code %d", id, code)
	}
	if _, _, code := s.Expand(sessionRequest(1, 3, nil)); code != 71 {
		t.Errorf("a wrong epoch is answered %d", code)
	}
	if _, _, code := s.Expand(sessionRequest(9, 1, nil)); code != 70 {
		t.Errorf("an unknown session is answered %d", code)
	}
	_, full, _ = s.Expand(sessionRequest(1, 1, map[int32]int64{1: 25}, 0))
	if ps := full.Topics[0].Partitions; len(ps) != 1 || ps[0].Partition != 1 || ps[0].FetchOffset != 25 {
		t.Errorf("%+v", ps)
	}
	if h := s.Holds(1); len(h) != 1 || h["t-1"] != 25 || len(s.Faults()) > 0 {
		t.Errorf("%v %v", h, s.Faults())
	}
	s.Expand(sessionRequest(1, 2, nil, 2))
	if len(s.Faults()) != 1 {
		t.Error("a partition that was not there was forgotten without a fault")
	}
	s.Expand(sessionRequest(1, -1, nil))
	if s.Open() != 0 {
		t.Error("a closed session is open")
	}
}

// An incremental answer leaves out what did not change.
func TestFetchSessionsLeaveOutWhatDidNotChange(t *testing.T) {
	var s FetchSessions
	answer := func(hw int64) *kmsg.FetchResponse {
		resp := kmsg.NewPtrFetchResponse()
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic = "t"
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.HighWatermark = hw
		rt.Partitions = append(rt.Partitions, rp)
		resp.Topics = append(resp.Topics, rt)
		return resp
	}
	for i, want := range []int{1, 0, 1, 0} {
		req := sessionRequest(min(int32(i), 1), int32(i), nil)
		if i == 0 {
			req = sessionRequest(0, 0, map[int32]int64{0: 10})
		}
		id, _, code := s.Expand(req)
		resp := answer(int64(10 + i/2))
		s.Finish(id, req, resp)
		if code != 0 || resp.SessionID != 1 || len(resp.Topics) != want {
			t.Errorf("answer %d: code %d, session %d, %d topics, want %d", i, code, resp.SessionID, len(resp.Topics), want)
		}
	}
}
