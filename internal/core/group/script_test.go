package group

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/transcript"
	"github.com/ottla/ottla/kafka"
)

// TestTranscripts plays the scripts of testdata/member, which are named after
// the rules that they show.
func TestTranscripts(t *testing.T) {
	transcript.Run(t, "member/*.txt", func(t *testing.T) func([]string) string {
		p := &player{t: t, now: time.Unix(0, 0)}
		p.make(Config{})
		return p.do
	})
}

// player drives one member.
type player struct {
	t     *testing.T
	now   time.Time
	m     *Machine
	sends []*Send // without an answer
	taken uint64  // the last revocation
}

func (p *player) make(cfg Config) {
	cfg.Group = "g"
	cfg.Session, cfg.Heartbeat, cfg.Rebalance = 45*time.Second, 3*time.Second, 60*time.Second
	if cfg.Assignors == nil {
		cfg.Assignors = []string{CooperativeSticky}
	}
	p.m = New(cfg, nil)
}

func (p *player) do(f []string) string {
	switch f[0] {
	case "member":
		p.config(f[1:])
	case "subscribe":
		p.m.Subscribe(p.now, words(f[1]), "")
	case "pattern":
		p.m.Subscribe(p.now, nil, f[1])
	case "counts":
		counts := map[string]int32{}
		for _, s := range f[1:] {
			name, n, _ := strings.Cut(s, "=")
			counts[name] = int32(p.number(n))
		}
		p.m.OnCounts(counts)
	case "names":
		p.names(f[1:])
	case "revoked":
		p.m.OnRevoked(p.now, p.taken)
	case "suspend":
		p.m.Suspend(strings.Join(f[1:], " "))
	case "resume":
		p.m.Resume(p.now)
	case "leave":
		p.m.Leave("closed", len(f) > 1 && f[1] == "for-good")
	case "commit":
		p.m.Commit(p.offsets(f[1:]))
	case "load":
		p.m.Load(partitions(f[1:]))
	case "wait":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			p.t.Fatal(err)
		}
		p.now = p.now.Add(d)
	default:
		p.answer(f)
	}
	return p.drain()
}

func words(s string) []string {
	if s == "-" {
		return nil
	}
	return strings.Split(s, ",")
}

func (p *player) config(fs []string) {
	cfg := Config{}
	for _, f := range fs {
		name, v, _ := strings.Cut(f, "=")
		switch name {
		case "consumer":
			cfg.Consumer, cfg.MemberID, cfg.HeartbeatV1 = true, "uuid", true
		case "v0":
			cfg.HeartbeatV1, cfg.MemberID = false, ""
		case "instance":
			cfg.InstanceID = v
		case "assignors":
			cfg.Assignors = words(v)
		case "rack":
			cfg.Rack = v
		case "server":
			cfg.ServerAssignor = v
		default:
			p.t.Fatalf("unknown setting %q", f)
		}
	}
	p.make(cfg)
}

func (p *player) number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		p.t.Fatal(err)
	}
	return n
}

func (p *player) names(fs []string) {
	names := map[kafka.TopicID]string{}
	var missing []kafka.TopicID
	for _, f := range fs {
		id, name, ok := strings.Cut(f, "=")
		if ok {
			names[topicID(id)] = name
		} else {
			missing = append(missing, topicID(id))
		}
	}
	p.m.OnNames(names, missing)
}

func topicID(s string) (id kafka.TopicID) {
	copy(id[:], s)
	return id
}

func (p *player) offsets(fs []string) Offsets {
	o := Offsets{}
	for _, f := range fs {
		tp, at, _ := strings.Cut(f, "=")
		o[partitions([]string{tp})[0]] = kafka.Commit{Offset: kafka.Offset(p.number(at)), LeaderEpoch: kafka.NoEpoch}
	}
	return o
}

// answer answers the newest request of a kind: "join 0 gen=1 me=m1 …", "beat
// 27", "commit lost".
func (p *player) answer(f []string) {
	kind := map[string]int16{"joined": 11, "synced": 14, "beat": 12, "beat848": 68, "left": 13, "committed": 8, "loaded": 9}[f[0]]
	if kind == 0 {
		p.t.Fatalf("unknown command %q", f)
	}
	for i, s := range slices.Backward(p.sends) {
		if s.Req.Key() != kind && !(f[0] == "left" && s.Req.Key() == 68) {
			continue
		}
		p.sends = slices.Delete(p.sends, i, i+1)
		switch f[1] {
		case "lost":
			p.m.OnAnswer(p.now, s.ID, nil, &kafka.ConnError{Addr: "b:1", Err: errors.New("reset"), Written: 9})
			return
		case "unsent":
			p.m.OnAnswer(p.now, s.ID, nil, &kafka.DialError{Addr: "b:1", Err: errors.New("refused")})
			return
		case "version":
			p.m.OnAnswer(p.now, s.ID, nil, &kafka.VersionError{API: 68})
			return
		}
		p.m.OnAnswer(p.now, s.ID, p.response(s.Req, f), nil)
		return
	}
	p.t.Fatalf("no request for %q", f)
}

func (p *player) response(req kmsg.Request, f []string) kmsg.Response {
	code := int16(p.number(f[1]))
	kv := map[string]string{}
	var rest []string
	for _, s := range f[2:] {
		if k, v, ok := strings.Cut(s, "="); ok && !strings.Contains(k, "/") {
			kv[k] = v
		} else {
			rest = append(rest, s)
		}
	}
	switch r := req.ResponseKind().(type) {
	case *kmsg.JoinGroupResponse:
		p.joined(r, code, kv, rest)
		return r
	case *kmsg.SyncGroupResponse:
		r.ErrorCode = code
		r.MemberAssignment = AppendAssignment(nil, partitions(rest))
		if v, ok := kv["protocol"]; ok {
			r.Protocol = &v
		}
		if v, ok := kv["hex"]; ok {
			r.MemberAssignment = unhex(p.t, v)
		}
		return r
	case *kmsg.HeartbeatResponse:
		r.ErrorCode = code
		return r
	case *kmsg.ConsumerGroupHeartbeatResponse:
		p.beat848(r, code, kv, rest)
		return r
	case *kmsg.OffsetCommitResponse:
		p.committed(r, req.(*kmsg.OffsetCommitRequest), code, rest)
		return r
	case *kmsg.OffsetFetchResponse:
		p.loaded(r, code, rest)
		return r
	case *kmsg.LeaveGroupResponse:
		r.ErrorCode = code
		return r
	}
	p.t.Fatalf("no answer for %T", req)
	return nil
}

// joined: gen=1 me=m1 leader=m1 protocol=x skip=, then members as
// "m2:topics:owned,owned:generation".
func (p *player) joined(r *kmsg.JoinGroupResponse, code int16, kv map[string]string, members []string) {
	r.ErrorCode, r.MemberID, r.LeaderID = code, kv["me"], kv["leader"]
	if code != 0 {
		return
	}
	r.Generation = int32(p.number(kv["gen"]))
	name := kv["protocol"]
	if name == "" {
		name = p.m.cfg.Assignors[0]
	}
	if name != "null" {
		r.Protocol = &name
	}
	if kind, ok := kv["type"]; ok {
		r.ProtocolType = &kind
	}
	_, r.SkipAssignment = kv["skip"]
	for _, s := range members {
		fs := strings.Split(s, ":")
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID = fs[0]
		sub := Subscription{Topics: words(fs[1]), Generation: NoGeneration}
		if len(fs) > 3 {
			sub.Owned, sub.Generation = partitions(words(fs[2])), int32(p.number(fs[3]))
		}
		m.ProtocolMetadata = sub.Append(nil)
		if fs[1] == "garbage" {
			m.ProtocolMetadata = []byte{0, 3, 0x7f}
		}
		r.Members = append(r.Members, m)
	}
}

// beat848: epoch=3 [none], then the assignment as "T1/0".
func (p *player) beat848(r *kmsg.ConsumerGroupHeartbeatResponse, code int16, kv map[string]string, rest []string) {
	r.ErrorCode, r.HeartbeatIntervalMillis = code, 5000
	if code != 0 {
		return
	}
	r.MemberEpoch = int32(p.number(kv["epoch"]))
	if v, ok := kv["me"]; ok {
		r.MemberID = &v
	}
	if len(rest) == 1 && rest[0] == "same" {
		return
	}
	a := kmsg.NewConsumerGroupHeartbeatResponseAssignment()
	for topic, ps := range byTopic(partitions(rest)) {
		t := kmsg.NewConsumerGroupHeartbeatResponseAssignmentTopic()
		t.TopicID, t.Partitions = topicID(topic), ps
		a.Topics = append(a.Topics, t)
	}
	r.Assignment = &a
}

// committed: the code for all, and others as "t/0=25"; "t/0=none" leaves one out.
func (p *player) committed(r *kmsg.OffsetCommitResponse, req *kmsg.OffsetCommitRequest, code int16, rest []string) {
	codes := map[string]int16{}
	for _, s := range rest {
		if tp, c, _ := strings.Cut(s, "="); c == "none" {
			codes[tp] = noItem
		} else {
			codes[tp] = int16(p.number(c))
		}
	}
	for _, t := range req.Topics {
		rt := kmsg.NewOffsetCommitResponseTopic()
		rt.Topic = t.Topic
		for _, q := range t.Partitions {
			rp := kmsg.NewOffsetCommitResponseTopicPartition()
			rp.Partition, rp.ErrorCode = q.Partition, code
			if c, ok := codes[fmt.Sprintf("%s/%d", t.Topic, q.Partition)]; ok {
				rp.ErrorCode = c
			}
			if rp.ErrorCode != noItem {
				rt.Partitions = append(rt.Partitions, rp)
			}
		}
		r.Topics = append(r.Topics, rt)
	}
}

const noItem = -100 // no code of Kafka's

// loaded: the code of the group, then "t/0=17" or "t/0=code88".
func (p *player) loaded(r *kmsg.OffsetFetchResponse, code int16, rest []string) {
	g := kmsg.NewOffsetFetchResponseGroup()
	g.Group, g.ErrorCode = "g", code
	for _, s := range rest {
		name, v, _ := strings.Cut(s, "=")
		tp := partitions([]string{name})[0]
		t := kmsg.NewOffsetFetchResponseGroupTopic()
		t.Topic = tp.Topic
		q := kmsg.NewOffsetFetchResponseGroupTopicPartition()
		q.Partition, q.Offset = tp.Partition, -1
		if c, ok := strings.CutPrefix(v, "code"); ok {
			q.ErrorCode = int16(p.number(c))
		} else {
			q.Offset = int64(p.number(v))
		}
		t.Partitions = append(t.Partitions, q)
		g.Topics = append(g.Topics, t)
	}
	r.Groups = append(r.Groups, g)
}

// drain is what the machine wants, and how it stands.
func (p *player) drain() string {
	var out strings.Builder
	for range 100 {
		a, ok := p.m.Next(p.now)
		if !ok {
			break
		}
		fmt.Fprintln(&out, p.line(a))
		checkMachine(p.t, p.m)
	}
	until := "-"
	if d := p.m.Deadline(); !d.IsZero() {
		until = d.Sub(p.now).String()
	}
	fmt.Fprintf(&out, "= %s, owns %s, next in %s\n", p.m.State(), list(p.m.Owned()), until)
	return out.String()
}

// checkMachine holds what is always true of a member.
func checkMachine(t testing.TB, m *Machine) {
	t.Helper()
	beats := 0
	for _, f := range m.flights {
		if f.kind == flightHeartbeat {
			beats++
		}
	}
	if beats > 1 {
		t.Fatalf("%d heartbeats are out", beats)
	}
	if m.state.over() && len(m.owned) > 0 {
		t.Fatalf("%s and owns %v", m.state, m.Owned())
	}
	for _, tp := range m.revoking.tps {
		if !m.Owns(tp) {
			t.Fatalf("%s is being revoked and not owned", tp)
		}
	}
	if m.flying(flightJoin) && m.flying(flightCommit) {
		t.Fatal("a JoinGroup and a commit are out together")
	}
}

func list(tps []kafka.TopicPartition) string {
	if len(tps) == 0 {
		return "nothing"
	}
	var names []string
	for _, tp := range tps {
		names = append(names, fmt.Sprintf("%s/%d", tp.Topic, tp.Partition))
	}
	return strings.Join(names, " ")
}

func (p *player) line(a Action) string {
	switch a := a.(type) {
	case *Send:
		p.sends = append(p.sends, a)
		s := describe(a.Req)
		if a.Wait > 0 {
			s += ", waits " + a.Wait.String()
		}
		return s
	case *Given:
		return "given " + list(a.Partitions)
	case *Taken:
		if a.Lost {
			return fmt.Sprintf("lost %s: %v", list(a.Partitions), a.Why)
		}
		p.taken = a.ID
		return "revoke " + list(a.Partitions)
	case *Forget:
		return "look the coordinator up"
	case *WatchCounts:
		return "watch " + strings.Join(a.Topics, " ")
	case *ResolveIDs:
		var names []string
		for _, id := range a.IDs {
			names = append(names, strings.TrimRight(string(id[:]), "\x00"))
		}
		return "resolve " + strings.Join(names, " ")
	case *Event:
		s := "event " + [...]string{"joined", "rebalance", "doubtful", "confirmed", "trouble", "over", "outside"}[a.Kind]
		if a.Cause != "" {
			s += ": " + a.Cause
		}
		if a.Err != nil {
			s += ": " + a.Err.Error()
		}
		return s
	case *Committed:
		var parts []string
		for tp, err := range a.Results {
			doubt := ""
			if err != nil && kafka.MayHaveHappened(err) {
				doubt = "?"
			}
			parts = append(parts, fmt.Sprintf("%s/%d%s %v", tp.Topic, tp.Partition, doubt, err))
		}
		slices.Sort(parts)
		return "committed " + strings.Join(parts, ", ")
	case *Loaded:
		if a.Err != nil {
			return "loaded: " + a.Err.Error()
		}
		var parts []string
		for tp, c := range a.Offsets {
			parts = append(parts, fmt.Sprintf("%s/%d=%d", tp.Topic, tp.Partition, c.Offset))
		}
		slices.Sort(parts)
		return "loaded " + strings.Join(parts, " ")
	}
	return fmt.Sprintf("%T", a)
}

func opt(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// describe is a request in words.
func describe(req kmsg.Request) string {
	switch r := req.(type) {
	case *kmsg.JoinGroupRequest:
		out := fmt.Sprintf("JoinGroup id=%q instance=%q reason=%q", r.MemberID, opt(r.InstanceID), opt(r.Reason))
		for _, q := range r.Protocols {
			s, err := ParseSubscription(q.Metadata)
			out += fmt.Sprintf(" %s(%s owns %s of %d%v)", q.Name, strings.Join(s.Topics, ","), list(s.Owned), s.Generation, errText(err))
		}
		return out
	case *kmsg.SyncGroupRequest:
		out := fmt.Sprintf("SyncGroup id=%s gen=%d protocol=%s", r.MemberID, r.Generation, opt(r.Protocol))
		for _, a := range r.GroupAssignment {
			tps, err := ParseAssignment(a.MemberAssignment)
			out += fmt.Sprintf(" %s(%s%v)", a.MemberID, list(tps), errText(err))
		}
		return out
	case *kmsg.HeartbeatRequest:
		return fmt.Sprintf("Heartbeat id=%s gen=%d", r.MemberID, r.Generation)
	case *kmsg.LeaveGroupRequest:
		return fmt.Sprintf("LeaveGroup id=%s instance=%q reason=%q", r.MemberID, opt(r.Members[0].InstanceID), opt(r.Members[0].Reason))
	case *kmsg.OffsetCommitRequest:
		out := fmt.Sprintf("OffsetCommit id=%s gen=%d", r.MemberID, r.Generation)
		for _, t := range r.Topics {
			for _, q := range t.Partitions {
				out += fmt.Sprintf(" %s/%d=%d", t.Topic, q.Partition, q.Offset)
			}
		}
		return out
	case *kmsg.OffsetFetchRequest:
		out := fmt.Sprintf("OffsetFetch stable=%v epoch=%d", r.RequireStable, r.Groups[0].MemberEpoch)
		for _, t := range r.Topics {
			for _, q := range t.Partitions {
				out += fmt.Sprintf(" %s/%d", t.Topic, q)
			}
		}
		return out
	case *kmsg.ConsumerGroupHeartbeatRequest:
		return describe848(r)
	}
	return fmt.Sprintf("%T", req)
}

func describe848(r *kmsg.ConsumerGroupHeartbeatRequest) string {
	out := fmt.Sprintf("ConsumerGroupHeartbeat id=%q epoch=%d", r.MemberID, r.MemberEpoch)
	if r.InstanceID != nil {
		out += " instance=" + *r.InstanceID
	}
	if r.RebalanceTimeoutMillis >= 0 {
		out += fmt.Sprintf(" rebalance=%dms", r.RebalanceTimeoutMillis)
	}
	if r.SubscribedTopicNames != nil {
		out += fmt.Sprintf(" topics=%v", r.SubscribedTopicNames)
	}
	if r.SubscribedTopicRegex != nil {
		out += fmt.Sprintf(" regex=%q", *r.SubscribedTopicRegex)
	}
	if r.RackID != nil {
		out += " rack=" + *r.RackID
	}
	if r.ServerAssignor != nil {
		out += " assignor=" + *r.ServerAssignor
	}
	if r.Topics != nil {
		var owned []string
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				owned = append(owned, fmt.Sprintf("%s/%d", strings.TrimRight(string(t.TopicID[:]), "\x00"), p))
			}
		}
		out += fmt.Sprintf(" owned=%v", owned)
	}
	return out
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return " " + err.Error()
}
