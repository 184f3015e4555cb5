package fetch

import (
	"fmt"
	"io"
	"math"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// inSession is a rig that reads two partitions of t and one of u from a broker
// with sessions, and what the broker keeps. Its first fetch is out.
func inSession(t *testing.T) (*rig, *sim.FetchSessions) {
	r := newRig(t, testConfig())
	r.m.Assign(map[kafka.TopicPartition]Start{tp("t", 0): AtOffset(0), tp("t", 1): AtOffset(0), tp("u", 0): AtOffset(0)})
	r.step()
	r.settleLookups(map[string]TopicInfo{"t": info("t", 1, 1), "u": info("u", 1)})
	return r, &sim.FetchSessions{}
}

// serve answers the Fetch that is out with data for the partitions named, and
// gives the request.
func (r *rig) serve(s *sim.FetchSessions, with ...kafka.TopicPartition) *kmsg.FetchRequest {
	r.t.Helper()
	r.waitFetch()
	a := take[*FetchAction](r)
	id, full, code := s.Expand(a.Req)
	if faults := s.Faults(); code != 0 || len(faults) > 0 {
		r.t.Fatalf("code %d, %v", code, faults)
	}
	resp := fetchAnswer("t")
	resp.Topics = nil
	for _, rt := range full.Topics {
		var parts []partAnswer
		for _, rp := range rt.Partitions {
			p := partAnswer{p: rp.Partition, hw: 1000, lso: 1000}
			for _, tp := range with {
				if tp.Topic == rt.Topic && tp.Partition == rp.Partition {
					p.data = data(kafka.Offset(rp.FetchOffset), kafka.Offset(rp.FetchOffset)+1).build()
				}
			}
			parts = append(parts, p)
		}
		resp.Topics = append(resp.Topics, fetchAnswer(rt.Topic, parts...).Topics...)
	}
	s.Finish(id, a.Req, resp)
	r.m.OnFetch(r.now, a.ID, resp, nil)
	r.step()
	return a.Req
}

// serveNamed serves until a request says something, and gives that.
func (r *rig) serveNamed(s *sim.FetchSessions, with ...kafka.TopicPartition) *kmsg.FetchRequest {
	r.t.Helper()
	for range 5 {
		if req := r.serve(s, with...); named(req) != "" {
			return req
		}
	}
	r.t.Fatal("no request names anything")
	return nil
}

// named lists what a request names and forgets.
func named(req *kmsg.FetchRequest) (s string) {
	for _, rt := range req.Topics {
		for _, rp := range rt.Partitions {
			s += fmt.Sprintf(" %s-%d@%d", rt.Topic, rp.Partition, rp.FetchOffset)
		}
	}
	for _, ft := range req.ForgottenTopics {
		s += fmt.Sprintf(" -%s%v", ft.Topic, ft.Partitions)
	}
	return s
}

func wantNamed(t testing.TB, req *kmsg.FetchRequest, want string) {
	t.Helper()
	if got := named(req); got != want {
		t.Errorf("the request names%s, want%s", got, want)
	}
}

// Mutation: changed that says true always.
func TestF2ASessionNamesOnlyWhatChanged(t *testing.T) {
	r, s := inSession(t)
	wantNamed(t, r.serve(s, tp("t", 1)), " t-0@0 t-1@0 u-0@0")
	wantNamed(t, r.serve(s, tp("u", 0)), " t-1@2")
	wantNamed(t, r.serve(s), " u-0@2")
	r.m.part(tp("t", 0)).limit = 2 << 20
	wantNamed(t, r.serveNamed(s), " t-0@0")
	ti := info("t", 1, 1)
	ti.Partitions[1].Epoch++
	r.m.OnTopic(r.now, "t", ti) // a new epoch of the same leader
	r.vettedAll()
	wantNamed(t, r.serveNamed(s), " -t[1]") // meanwhile
	wantNamed(t, r.serveNamed(s), " t-1@2")
}

// vettedAll answers the question that is out for epochs, without information.
func (r *rig) vettedAll() {
	r.t.Helper()
	r.wait()
	a := take[*EpochAction](r)
	resp := epochResponse(tp0, -1, 0)
	resp.Topics[0].Partitions[0].Partition = a.Req.Topics[0].Partitions[0].Partition
	r.m.OnEpochs(r.now, a.ID, resp, nil)
	r.step()
}

// Pausing, seeking and another assignment are told within the session, by the
// id under which a partition was asked for. The broker's session is the
// machine's. Mutations: forgotten without the topic's id, forgotten by the id of
// now, no forgotten list.
func TestF2_B136WhatIsNotReadAnyMoreIsForgotten(t *testing.T) {
	r, s := inSession(t)
	r.serve(s, tp("t", 1))
	r.m.Pause(tp("t", 0), true)
	r.m.Remove([]kafka.TopicPartition{tp("u", 0)})
	wantNamed(t, r.serveNamed(s), " t-1@2") // it was out before
	req := r.serveNamed(s)
	wantNamed(t, req, " -t[0] -u[0]")
	if id := topicID("t"); req.ForgottenTopics[0].TopicID != id {
		t.Errorf("forgotten by id %x", req.ForgottenTopics[0].TopicID)
	}
	if h := s.Holds(1); len(h) != 1 || h["t-1"] != 2 {
		t.Errorf("the broker's session holds %v", h)
	}
	r.m.Pause(tp("t", 0), false)
	r.m.Add(map[kafka.TopicPartition]Start{tp("u", 0): AtOffset(7)})
	r.m.OnTopic(r.now, "u", info("u", 1))
	r.m.Seek(tp("t", 1), AtOffset(40))
	wantNamed(t, r.serveNamed(s), " u-0@7 t-0@0 t-1@40")

	// A topic that was created again is forgotten by its old id.
	again := info("u", 1)
	again.ID = topicID("u, the second")
	r.m.OnTopic(r.now, "u", again)
	req = r.serveNamed(s)
	wantNamed(t, req, " -u[0]")
	if id := topicID("u"); req.ForgottenTopics[0].TopicID != id {
		t.Error("forgotten by the new id: the broker keeps the old one")
	}
	if s.Open() != 1 || req.SessionEpoch < 3 {
		t.Errorf("%d sessions, epoch %d: one was reset", s.Open(), req.SessionEpoch)
	}
	// And it is read again under the new one when the user says so.
	r.m.Seek(tp("u", 0), AtOffset(0))
	wantNamed(t, r.serveNamed(s), " u-0@0")
}

// A partition that is taken away and given back between two fetches is not
// forgotten and named in one: the broker would take it out. Mutation: forgotten by
// identity of the partition instead of by its name.
func TestF2APartitionThatCameBackStaysInTheSession(t *testing.T) {
	r, s := inSession(t)
	r.serve(s, tp("t", 1))
	r.m.Remove([]kafka.TopicPartition{tp("u", 0)})
	r.m.Add(map[kafka.TopicPartition]Start{tp("u", 0): AtOffset(5)})
	r.m.OnTopic(r.now, "u", info("u", 1))
	r.serve(s) // it was out before
	wantNamed(t, r.serveNamed(s), " u-0@5")
	if h := s.Holds(1); len(h) != 3 || h["u-0"] != 5 {
		t.Errorf("the broker's session holds %v", h)
	}
	// The same under another id: a session cannot say that at once.
	r.m.Remove([]kafka.TopicPartition{tp("u", 0)})
	r.m.Add(map[kafka.TopicPartition]Start{tp("u", 0): AtOffset(6)})
	again := info("u", 1)
	again.ID = topicID("u, the second")
	r.m.OnTopic(r.now, "u", again)
	if req := r.serveNamed(s); req.SessionEpoch != 0 {
		t.Errorf("session epoch %d, want a full request", req.SessionEpoch)
	}
}

// Mutation: no wrap.
func TestF3TheSessionEpochAdvancesAndWraps(t *testing.T) {
	r, s := inSession(t)
	for want := range int32(3) {
		if req := r.serve(s, tp("t", 0)); req.SessionEpoch != want {
			t.Errorf("epoch %d, want %d", req.SessionEpoch, want)
		}
	}
	b := r.m.brokers[1]
	r.out = nil // the fetch that is out
	b.session.epoch = math.MaxInt32
	a := b.fetch.id
	resp := fetchAnswer("t")
	resp.Topics, resp.SessionID = nil, b.session.id
	r.m.OnFetch(r.now, a, resp, nil)
	r.step()
	r.waitFetch()
	if f := take[*FetchAction](r); f.Req.SessionEpoch != 1 {
		t.Errorf("epoch %d behind 2^31-1, want 1", f.Req.SessionEpoch)
	}
}

// A broker that grants no session gets full requests, paced, and is asked for a
// session once a minute. Mutations: session 0 taken for a session, no again.
func TestF3_R8_B134ABrokerThatGrantsNoSession(t *testing.T) {
	r, s := inSession(t)
	s.Refuse = func() bool { return true }
	if req := r.serve(s); req.SessionEpoch != 0 {
		t.Fatalf("epoch %d", req.SessionEpoch)
	}
	began, asked, n := r.now, 0, 0
	for ; r.now.Sub(began) < 10*time.Minute; n++ {
		req := r.serve(s)
		switch {
		case req.SessionID != 0 || req.SessionEpoch > 0:
			t.Fatalf("session %d epoch %d", req.SessionID, req.SessionEpoch)
		case len(req.Topics) != 2 || len(req.ForgottenTopics) > 0:
			t.Fatalf("not a full request:%s", named(req))
		case req.SessionEpoch == 0:
			asked++
		}
	}
	if asked < 8 || asked > 10 {
		t.Errorf("asked for a session %d times in 10 minutes", asked)
	}
	if n > 2000 {
		t.Errorf("%d requests in 10 minutes without data: a spin", n)
	}
}

// Mutations: an end without clear, failed that keeps the session.
func TestF4WhatEndsASession(t *testing.T) {
	for name, c := range map[string]struct {
		ends    func(r *rig, a *FetchAction)
		epoch   int32
		atOnce  bool
		without bool // no session is asked for
	}{
		"unknown (70)":        {func(r *rig, a *FetchAction) { r.code(a, 70) }, 0, true, false},
		"epoch (71)":          {func(r *rig, a *FetchAction) { r.code(a, 71) }, 0, true, false},
		"B137 topic id (106)": {func(r *rig, a *FetchAction) { r.code(a, 106) }, -1, true, true},
		"lost":                {func(r *rig, a *FetchAction) { r.m.OnFetch(r.now, a.ID, nil, io.EOF) }, 0, false, false},
		"unasked": {func(r *rig, a *FetchAction) {
			resp := fetchAnswer("t", partAnswer{p: 7, hw: 5, lso: 5})
			resp.SessionID = 1
			r.m.OnFetch(r.now, a.ID, resp, nil)
		}, 0, false, false},
		"another id": {func(r *rig, a *FetchAction) {
			resp := fetchAnswer("t", partAnswer{p: 0, hw: 5, lso: 5, data: data(2, 2).build()})
			resp.SessionID = 44
			r.m.OnFetch(r.now, a.ID, resp, nil)
		}, 0, true, false},
		"the whole answer is an error": {func(r *rig, a *FetchAction) { r.code(a, -1) }, 0, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, s := inSession(t)
			r.serve(s, tp("t", 0), tp("u", 0))
			began := r.now
			c.ends(r, take[*FetchAction](r))
			r.step()
			r.settleLookups(map[string]TopicInfo{"t": info("t", 1, 1), "u": info("u", 1)})
			if _, ok := maybe[*FetchAction](r); ok != c.atOnce {
				t.Errorf("the next fetch goes out at once: %v", ok)
			} else if ok {
				r.now = began
			}
			req := r.m.brokers[1].fetch
			if !c.atOnce {
				r.waitFetch()
				req = r.m.brokers[1].fetch
				take[*FetchAction](r)
			}
			if len(req.parts) != 3 || req.session == sessionGoes || c.without != (req.session == sessionLeft) {
				t.Errorf("%d partitions, use %d: not a full fetch", len(req.parts), req.session)
			}
			wantOffsets(t, offsetsOf(r.poll(), tp("u", 0)), 0, 1)
			if err := r.err(); err != nil {
				t.Errorf("the user sees %v", err)
			}
		})
	}
}

func (r *rig) code(a *FetchAction, code int16) {
	resp := fetchAnswer("t")
	resp.Topics, resp.ErrorCode = nil, code
	r.m.OnFetch(r.now, a.ID, resp, nil)
}

func offsetsOf(recs []got, tp kafka.TopicPartition) (os []kafka.Offset) {
	for _, g := range recs {
		if g.tp == tp {
			os = append(os, g.o)
		}
	}
	return os
}

// A broker that refuses full requests too is asked with patience. Mutation:
// noSession that never paces.
func TestF4ABrokerThatKnowsNoSessionAtAll(t *testing.T) {
	r, _ := inSession(t)
	began, n := r.now, 0
	for ; r.now.Sub(began) < time.Minute; n++ {
		r.waitFetch()
		r.code(take[*FetchAction](r), 70)
		r.step()
	}
	if n > 500 || n < 50 {
		t.Errorf("%d requests in a minute", n)
	}
}

// An empty full answer with a throttle says nothing about sessions. Mutation:
// accepted without onlyThrottle, which gives the session up for a minute.
func TestF4AnEmptyFullAnswerWithAThrottleIsOnlyAThrottle(t *testing.T) {
	r, s := inSession(t)
	a := take[*FetchAction](r)
	resp := fetchAnswer("t")
	resp.Topics, resp.ThrottleMillis = nil, 1500
	r.m.OnFetch(r.now, a.ID, resp, nil)
	r.step()
	if req := r.serve(s, tp("t", 0)); req.SessionEpoch != 0 || len(req.Topics) != 2 {
		t.Errorf("epoch %d,%s: want a full request for a session", req.SessionEpoch, named(req))
	}
	if req := r.serve(s); req.SessionEpoch != 1 {
		t.Errorf("epoch %d", req.SessionEpoch)
	}
	if len(r.m.Failures()) > 0 || r.err() != nil {
		t.Error("a throttle is told as a failure")
	}
}

// A partition that was removed while its answer was on the way does not end the
// session. Mutation: unasked that always ends it.
func TestF2AnAnswerForARemovedPartitionEndsNoSession(t *testing.T) {
	for _, all := range []bool{false, true} { // of a topic
		r, s := inSession(t)
		r.serve(s, tp("t", 0))
		gone := []kafka.TopicPartition{tp("t", 1)}
		if all {
			gone = append(gone, tp("t", 0))
		}
		r.m.Remove(gone)
		r.serve(s, tp("t", 0), tp("t", 1), tp("u", 0))
		if req := r.serve(s); req.SessionEpoch != 2 || s.Open() != 1 {
			t.Errorf("epoch %d, %d sessions", req.SessionEpoch, s.Open())
		}
		for _, g := range r.poll() {
			if g.tp == tp("t", 1) {
				t.Errorf("%s was removed and is handed out", g.tp)
			}
		}
	}
}

// Who leaves a broker, or ends, closes the session. Mutations: tidy without
// goodbye, goodbye without forget.
func TestF4_F51LeavingABrokerClosesItsSession(t *testing.T) {
	r, s := inSession(t)
	r.serve(s, tp("t", 0))
	r.m.OnTopic(r.now, "t", info("t", 2, 2))
	r.m.OnTopic(r.now, "u", info("u", 2))
	r.step()
	a := take[*FetchAction](r)
	r.serve2(s, a)
	for {
		a, ok := maybe[*FetchAction](r)
		if !ok {
			t.Fatal("the session is left open")
		}
		if a.ID == 0 {
			s.Expand(a.Req)
			break
		}
	}
	if s.Open() != 0 {
		t.Error("the session is open")
	}
	if g := r.m.Goodbyes(); len(g) != 0 {
		t.Errorf("%d sessions, but no broker granted one", len(g))
	}

	r, s = inSession(t)
	r.serve(s, tp("t", 0))
	g := r.m.Goodbyes()
	if len(g) != 1 || g[0].Broker != 1 || g[0].Req.SessionEpoch != -1 || g[0].Req.SessionID != 1 {
		t.Fatalf("%+v", g)
	}
	if len(r.m.Goodbyes()) != 0 {
		t.Error("closed twice")
	}
}

// serve2 answers a Fetch that is out without data.
func (r *rig) serve2(s *sim.FetchSessions, a *FetchAction) {
	r.t.Helper()
	id, _, code := s.Expand(a.Req)
	if code != 0 {
		r.t.Fatal(code)
	}
	resp := fetchAnswer("t")
	resp.Topics, resp.SessionID = nil, id
	r.m.OnFetch(r.now, a.ID, resp, nil)
	r.step()
}

// B137, R10: partition codes about topic ids end nothing but that partition, which
// refreshes and waits; the other goes on. When metadata has the new id the topic is
// reported once.
func TestB137PartitionCodesAboutTopicIDs(t *testing.T) {
	for _, code := range []int16{100, 103} {
		r, s := inSession(t)
		r.serve(s, tp("u", 0))
		a := take[*FetchAction](r)
		id, _, _ := s.Expand(a.Req)
		resp := fetchAnswer("t", partAnswer{p: 0, code: code}, partAnswer{p: 1, code: code})
		resp.SessionID = id
		r.m.OnFetch(r.now, a.ID, resp, nil)
		r.step()
		if l := take[*LookupAction](r); l.Topic != "t" || len(l.Stale) != 2 {
			t.Errorf("%+v", l)
		}
		req := r.serveNamed(s, tp("u", 0))
		if len(req.ForgottenTopics) != 1 {
			t.Errorf("%s: the partitions stay in the session", named(req))
		}
		again := info("t", 1, 1)
		again.ID = topicID("t, the second")
		r.m.OnTopic(r.now, "t", again)
		r.step()
		if e := asError[*kafka.RecreatedError](t, r.err()); e.Topic != "t" {
			t.Errorf("%v", e)
		}
		for range 5 {
			r.serve(s, tp("u", 0))
		}
		if r.err() != nil {
			t.Error("told twice")
		}
		if got := offsetsOf(r.poll(), tp("u", 0)); len(got) != 14 {
			t.Errorf("u gave %v", got)
		}
	}
}
