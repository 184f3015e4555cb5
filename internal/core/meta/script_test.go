package meta

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/transcript"
	"github.com/ottla/ottla/kafka"
)

// TestMap runs the transcripts of testdata/map; each file is named after the
// rows and cases that it holds.
func TestMap(t *testing.T) {
	transcript.Run(t, "map/*.txt", func(t *testing.T) func([]string) string {
		s := newScript(t)
		return func(cmd []string) string {
			out := s.run(cmd)
			s.m.check(t)
			return out
		}
	})
}

// check holds the invariants of the map.
func (m *Map) check(t *testing.T) {
	t.Helper()
	s := m.Snapshot()
	for name, e := range s.Topics {
		if e.Topic == nil {
			continue
		}
		if !e.Topic.ID.IsZero() && s.Names[e.Topic.ID] != name {
			t.Errorf("topic %s: its id leads to %q", name, s.Names[e.Topic.ID])
		}
		if _, ok := s.Names[kafka.TopicID{}]; ok {
			t.Error("the zero topic id is a key")
		}
	}
	for id, name := range s.Names {
		if e := s.Topics[name]; e.Topic == nil || e.Topic.ID != id {
			t.Errorf("id %v leads to %q, which is not or no more that topic", id, name)
		}
	}
	if _, ok := s.Broker(s.Controller); !ok && s.Controller != kafka.NoNode {
		t.Errorf("controller %d is no broker", s.Controller)
	}
}

// script is a map under test, with a clock of its own.
type script struct {
	t     *testing.T
	m     *Map
	start time.Time
	now   time.Time
}

func newScript(t *testing.T) *script {
	now := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
	cfg := Config{MaxAge: 5 * time.Minute, Patience: 5 * time.Second, Rebootstrap: 5 * time.Minute, Create: true}
	return &script{t: t, m: NewMap(cfg, rand.New(rand.NewPCG(1, 2)), now), start: now, now: now}
}

func (s *script) run(f []string) string {
	switch f[0] {
	case "after":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			s.t.Fatal(err)
		}
		s.now = s.now.Add(d)
		return ""
	case "want":
		n := Need{}
		for _, o := range f[2:] {
			n.Force, n.Create, n.Track = n.Force || o == "force", n.Create || o == "create", n.Track || o == "track"
		}
		s.m.Want(f[1], n)
		return ""
	case "cluster":
		s.m.WantCluster()
		return ""
	case "next":
		r, ok := s.m.Next(s.now)
		if !ok {
			return fmt.Sprintf("nothing; deadline %s\n", s.at(s.m.Deadline()))
		}
		doubt := ""
		if r.Doubt {
			doubt = " doubt"
		}
		return fmt.Sprintf("refresh %v create=%v forced=%v avoid=%v%s\n", r.Topics, r.Create, r.Forced, r.Avoid, doubt)
	case "answer":
		v, err := s.m.OnAnswer(s.now, f[1], parseAnswer(s.t, f[2:]))
		return fmt.Sprintf("verdict %d%s\n", v, suffix(err)) + s.events()
	case "failure":
		return fmt.Sprintf("rebootstrap=%v\n", s.m.OnFailure(s.now, len(f) > 1 && f[1] == "refused"))
	case "rebootstrap":
		s.m.Rebootstrap(s.now, nil)
		return s.events()
	case "invalidate":
		return fmt.Sprintln(s.m.InvalidateLeader(s.tp(f[1]), kafka.NoNode))
	case "invalidate-controller":
		return fmt.Sprintln(s.m.InvalidateController(kafka.NodeID(num(s.t, f[1]))))
	case "hint":
		var eps []kafka.Broker
		for _, o := range f[4:] {
			eps = append(eps, parseBroker(s.t, o))
		}
		ok := s.m.OnHint(s.tp(f[1]), kafka.NodeID(num(s.t, f[2])), kafka.LeaderEpoch(num(s.t, f[3])), eps)
		return fmt.Sprintln(ok) + s.events()
	case "forget":
		s.m.ForgetTopic(f[1])
		return ""
	case "stale":
		return fmt.Sprintln(s.m.Snapshot().Topics[f[1]].Topic.IsStale(s.now, 5*time.Minute))
	case "state":
		return s.state()
	}
	s.t.Fatalf("unknown command %q", strings.Join(f, " "))
	return ""
}

func suffix(err error) string {
	if err == nil {
		return ""
	}
	return ": " + err.Error()
}

func (s *script) at(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.Sub(s.now).String()
}

func (s *script) events() string {
	var b strings.Builder
	for _, e := range s.m.TakeEvents() {
		fmt.Fprintf(&b, "event %s", e.Kind)
		switch e.Kind {
		case kafka.LeaderChanged:
			fmt.Fprintf(&b, " %s-%d to %d at epoch %d", e.Topic, e.Partition, e.Broker.ID, e.Epoch)
		case kafka.TopicFound, kafka.TopicGrew:
			fmt.Fprintf(&b, " %s %d->%d", e.Topic, e.Before, e.After)
		case kafka.TopicRecreated:
			fmt.Fprintf(&b, " %s %d->%d", e.Topic, e.OldID[0], e.NewID[0])
		case kafka.TopicFailed:
			fmt.Fprintf(&b, " %s: %v", e.Topic, e.Err)
		case kafka.BrokerAdded, kafka.BrokerGone:
			fmt.Fprintf(&b, " %d@%s", e.Broker.ID, e.Broker.Addr())
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (s *script) state() string {
	var b strings.Builder
	snap := s.m.Snapshot()
	fmt.Fprintf(&b, "cluster %q controller %d brokers", snap.ClusterID, snap.Controller)
	for _, br := range snap.Brokers {
		fmt.Fprintf(&b, " %d@%s", br.ID, br.Addr())
	}
	b.WriteString("\n")
	for _, name := range s.m.sortedTopics() {
		e := snap.Topics[name]
		fmt.Fprintf(&b, "%s:", name)
		if e.Topic != nil {
			fmt.Fprintf(&b, " id %d, %v old,", e.Topic.ID[0], s.now.Sub(e.Topic.Updated))
			for i, p := range e.Topic.Partitions {
				fmt.Fprintf(&b, " %d=%d@%d", i, p.Leader, p.Epoch)
			}
		}
		if e.Err != nil {
			fmt.Fprintf(&b, " (%v)", e.Err)
		}
		b.WriteString("\n")
	}
	return b.String()
}

func (s *script) tp(v string) kafka.TopicPartition {
	topic, p, _ := strings.Cut(v, "-")
	return kafka.TopicPartition{Topic: topic, Partition: int32(num(s.t, p))}
}

func num(t *testing.T, v string) int {
	n, err := strconv.Atoi(v)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseBroker(t *testing.T, v string) kafka.Broker {
	id, host, _ := strings.Cut(v, "@")
	if host == "" {
		host = "b" + id
	}
	return kafka.Broker{ID: kafka.NodeID(num(t, id)), Host: host, Port: 9092}
}

// parseAnswer makes an answer of words: brokers=1,2@host controller=1
// cluster=c code=129 and, per topic, t or t!code or t:id=5,0=1@7,1=!5 where
// 0=1@7 is partition 0 led by broker 1 at epoch 7 and 1=!5 has code 5.
func parseAnswer(t *testing.T, words []string) *kmsg.MetadataResponse {
	resp := kmsg.NewPtrMetadataResponse()
	resp.ControllerID = -1
	for _, w := range words {
		key, val, _ := strings.Cut(w, "=")
		switch key {
		case "brokers":
			for _, v := range strings.Split(val, ",") {
				b := parseBroker(t, v)
				resp.Brokers = append(resp.Brokers, kmsg.MetadataResponseBroker{NodeID: int32(b.ID), Host: b.Host, Port: b.Port})
			}
		case "controller":
			resp.ControllerID = int32(num(t, val))
		case "cluster":
			resp.ClusterID = &val
		case "code":
			resp.ErrorCode = int16(num(t, val))
		default:
			resp.Topics = append(resp.Topics, parseTopic(t, w))
		}
	}
	return resp
}

func parseTopic(t *testing.T, w string) kmsg.MetadataResponseTopic {
	rt := kmsg.NewMetadataResponseTopic()
	name, rest, _ := strings.Cut(w, ":")
	if n, code, ok := strings.Cut(name, "!"); ok {
		name, rt.ErrorCode = n, int16(num(t, code))
	}
	rt.Topic = &name
	for _, p := range strings.FieldsFunc(rest, func(r rune) bool { return r == ',' }) {
		key, val, _ := strings.Cut(p, "=")
		if key == "id" {
			rt.TopicID[0] = byte(num(t, val))
			continue
		}
		rp := kmsg.NewMetadataResponseTopicPartition()
		rp.Partition = int32(num(t, key))
		rp.Leader, rp.LeaderEpoch = -1, -1
		if code, ok := strings.CutPrefix(val, "!"); ok {
			rp.ErrorCode = int16(num(t, code))
		} else {
			leader, epoch, hasEpoch := strings.Cut(val, "@")
			rp.Leader = int32(num(t, leader))
			if hasEpoch {
				rp.LeaderEpoch = int32(num(t, epoch))
			}
		}
		rt.Partitions = append(rt.Partitions, rp)
	}
	return rt
}
