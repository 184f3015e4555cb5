//go:build kafka

package streams

import (
	"context"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/realkafka"
)

const javaProject = "../interop/streams"

// onOwnKafka is a stage on a cluster with users and, from 4.4 on, a plug-in that
// keeps descriptions of topologies.
func onOwnKafka(t *testing.T) (*stage, *realkafka.Cluster, *realkafka.JavaClasses) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 6*time.Minute)
	t.Cleanup(cancel)
	java, err := realkafka.Compile(ctx, javaProject, os.Stderr)
	if err != nil {
		t.Fatal(err)
	}
	s := &stage{t: t, ctx: ctx, minor: minorOf(t)}
	o := realkafka.Options{Secure: true, Props: map[string]string{
		"group.streams.session.timeout.ms": "10000", "group.streams.min.session.timeout.ms": "1000",
		"group.streams.heartbeat.interval.ms": "200", "group.streams.min.heartbeat.interval.ms": "100",
		"group.streams.initial.rebalance.delay.ms": "0",
		"offsets.retention.check.interval.ms":      keepEmptyGroups,
	}}
	if s.minor >= 4 {
		o.Props["group.streams.topology.description.plugin.class"] = "Descriptions"
		o.ClassPath = []string{java.Dir}
	}
	k := realkafka.Start(t, o)
	s.k = connect(t, ctx, cluster.Config{Bootstrap: strings.Split(k.Bootstrap(), ",")})
	return s, k, java
}

func connect(t *testing.T, ctx context.Context, cfg cluster.Config) *cluster.Cluster {
	t.Helper()
	c, err := cluster.Connect(ctx, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// TestKafkaInterop has Java's members and ours on one cluster.
func TestKafkaInterop(t *testing.T) {
	s, k, java := onOwnKafka(t)
	for name, n := range map[string]int{"orders": 4, "payments": 4, "counted": 1} {
		createTopic(s, name, n, 1)
	}
	member := startJava(s, k, java, "app")
	t.Run("C17AMixedGroupSharesItsTasks", func(t *testing.T) { s.on(t).mixed(member) })
	t.Run("C10DescriptionsArePushedAndKept", func(t *testing.T) { s.on(t).descriptions() })
	t.Run("C15RightsThatAreMissing", func(t *testing.T) { s.on(t).rights(k) })
}

// on is the stage for a part of a test.
func (s *stage) on(t *testing.T) *stage {
	one := *s
	one.t = t
	return &one
}

// javaMember is a member of Kafka Streams in a process of its own.
type javaMember struct {
	process *realkafka.Program

	mu     sync.Mutex
	active []string // guarded by mu
	left   bool     // guarded by mu
}

func startJava(s *stage, k *realkafka.Cluster, java *realkafka.JavaClasses, group string) *javaMember {
	s.t.Helper()
	args := []string{
		"application.id=" + group, "bootstrap.servers=" + k.Bootstrap(), "x=orders", "y=payments", "z=counted",
		"application.server=java:7001", "client.rack=r1", "client.tag.zone=a", "state.dir=" + s.t.TempDir(),
	}
	if s.minor >= 4 {
		args = append(args, "group.instance.id=java")
	}
	cmd := java.Command(s.ctx, "Member", args...)
	cmd.Stderr = os.Stderr
	m := &javaMember{}
	var err error
	m.process, err = k.Launch(cmd, func(line string) {
		m.mu.Lock()
		defer m.mu.Unlock()
		if tasks, ok := strings.CutPrefix(line, "active "); ok {
			m.active = strings.Fields(tasks)
		}
		m.left = m.left || line == "left"
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return m
}

// leave has the member leave, and waits for its end.
func (m *javaMember) leave(s *stage) {
	m.process.Stop()
	<-m.process.Done()
	if !m.left {
		s.t.Error("the Java member did not leave")
	}
}

func (m *javaMember) tasks() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.active)
}

// counting is the topology of the Java member in a group.
func counting(group string) Topology {
	store := map[string]string{"cleanup.policy": "compact", "message.timestamp.type": "CreateTime"}
	return Topology{JavaOrder: true, Subtopologies: []Subtopology{
		{
			ID: "0", Sources: []string{"orders", "payments"}, RepartitionSinks: []string{group + "-counts-repartition"},
			Changelogs:        []InternalTopic{{Name: group + "-table-changelog", Configs: store}},
			CopartitionGroups: [][]string{{"orders", "payments"}},
		},
		{
			ID: "1", Changelogs: []InternalTopic{{Name: group + "-counts-changelog", Configs: store}},
			Repartitions: []InternalTopic{{Name: group + "-counts-repartition", Configs: map[string]string{
				"cleanup.policy": "delete", "retention.ms": "-1", "segment.bytes": "52428800", "message.timestamp.type": "CreateTime",
			}}},
		},
	}}
}

// sorted are tasks by name.
func sortedNames(ids []TaskID) []string {
	var out []string
	for _, id := range ids {
		out = append(out, id.String())
	}
	slices.Sort(out)
	return out
}

func (s *stage) mixed(java *javaMember) {
	s.until("the Java member runs all tasks", func() bool { return len(java.tasks()) == 8 })
	sorted := counting("app")
	sorted.JavaOrder = false
	var be *BrokerError
	if _, err := Join(s.ctx, s.k, Config{Group: "app", Topology: sorted}); !errors.As(err, &be) || be.Code != 42 {
		s.t.Fatalf("with the copartition group in another order: %v", err)
	}
	cfg := Config{
		Group: "app", Topology: counting("app"), Endpoint: &Endpoint{Host: "go", Port: 7002}, RackID: "r2", Tags: map[string]string{"zone": "b"},
		ProcessID: "go-1", MemberID: "go-1",
	}
	if s.minor >= 4 {
		cfg.InstanceID = "go"
	}
	first := s.ownedBy(cfg)
	shared := func(m *Member) func() bool {
		return func() bool {
			ours, theirs := sortedNames(m.Owned().Active), java.tasks()
			both := slices.Concat(ours, theirs)
			slices.Sort(both)
			return len(ours) == 4 && len(theirs) == 4 && len(slices.Compact(both)) == 8
		}
	}
	s.until("ours and theirs have four tasks each", shared(first))
	s.sameFields(first.Info().MemberID, java)
	if err := first.Leave(s.ctx); err != nil {
		s.t.Fatal(err)
	}
	if s.minor >= 4 { // it left for a while: its successor has the tasks at once
		s.until("the tasks of a static member wait", func() bool { return len(java.tasks()) == 4 })
	} else {
		s.until("the Java member takes over", func() bool { return len(java.tasks()) == 8 })
	}
	cfg.MemberID, cfg.OnLeave = "go-2", LeaveGroup
	second := s.ownedBy(cfg)
	s.until("the successor has four tasks", shared(second))
	s.leave(second)
	s.until("the Java member takes all tasks over", func() bool { return len(java.tasks()) == 8 })
	cfg.MemberID = "go-3"
	third := s.ownedBy(cfg)
	s.until("ours and theirs have four tasks each again", shared(third))
	java.leave(s)
	s.until("our member takes all tasks over", func() bool { return len(third.Owned().Active) == 8 })
}

// sameFields holds that describe shows ours and theirs with the same fields
// filled, and with the tasks that each believes to have.
func (s *stage) sameFields(id string, java *javaMember) {
	g, err := Describe(s.ctx, s.k, "app", DescribeOptions{})
	if err != nil || len(g.Members) != 2 || g.State != "Stable" {
		s.t.Fatalf("%+v, %v", g, err)
	}
	ours, theirs := g.Members[0], g.Members[1]
	if ours.ID != id {
		ours, theirs = theirs, ours
	}
	a, b := reflect.ValueOf(ours), reflect.ValueOf(theirs)
	for i := range a.NumField() {
		if a.Field(i).IsZero() != b.Field(i).IsZero() {
			s.t.Errorf("%s is %v of our member, %v of Java's", a.Type().Field(i).Name, a.Field(i), b.Field(i))
		}
	}
	if got := sortedNames(theirs.Tasks.Active); !slices.Equal(got, java.tasks()) {
		s.t.Errorf("describe says that Java's member has %v, it says %v", got, java.tasks())
	}
	want, err := counting("app").Canonical()
	if err != nil {
		s.t.Fatal(err)
	}
	for i := range want.Subtopologies { // as the broker describes them: without groups, with the numbers that it derived
		sub := &want.Subtopologies[i]
		sub.CopartitionGroups = nil
		for _, l := range [][]InternalTopic{sub.Changelogs, sub.Repartitions} {
			for j := range l {
				l[j].Partitions = 4
			}
		}
	}
	want.JavaOrder = false
	if d := cmp.Diff(want, *g.Topology); d != "" {
		s.t.Errorf("the topology of the group (+) is not ours (-):\n%s", d)
	}
}

func (s *stage) descriptions() {
	if s.minor < 4 {
		return // they came with 4.4
	}
	read := func(group string) *GroupDescription {
		g, err := Describe(s.ctx, s.k, group, DescribeOptions{TopologyDescription: true})
		if err != nil {
			s.t.Fatal(err)
		}
		return g
	}
	theirs := read("app")
	if theirs.DescriptionStatus != Available || theirs.Description == nil {
		s.t.Fatalf("Java's member pushed nothing: status %v", theirs.DescriptionStatus)
	}
	types := map[NodeType]int{}
	for _, sub := range theirs.Description.Subtopologies {
		for _, n := range sub.Nodes {
			types[n.Type]++
		}
	}
	if types[SourceNode] != 3 || types[SinkNode] != 2 || types[ProcessorNode] == 0 || len(types) != 3 {
		s.t.Errorf("nodes by type: %v", types)
	}
	s.ownedBy(Config{Group: "silent", Topology: counting("silent"), MemberID: "silent"})
	if g := read("silent"); g.DescriptionStatus != NotStored {
		s.t.Errorf("nobody described it: status %v", g.DescriptionStatus)
	}
	s.ownedBy(Config{
		Group: "ours", Topology: counting("ours"), MemberID: "ours",
		Description: func() TopologyDescription { return *theirs.Description },
	})
	var ours *GroupDescription
	s.until("our description is kept", func() bool {
		ours = read("ours")
		return ours.DescriptionStatus == Available
	})
	if d := cmp.Diff(theirs.Description, ours.Description); d != "" {
		s.t.Errorf("what we pushed (+) comes back unlike what Java pushed (-):\n%s", d)
	}
}

// allow gives the user without rights one, and take takes all on a resource away.
func (s *stage) allow(kind kmsg.ACLResourceType, name string, op kmsg.ACLOperation) {
	s.t.Helper()
	req := kmsg.NewPtrCreateACLsRequest()
	c := kmsg.NewCreateACLsRequestCreation()
	c.ResourceType, c.ResourceName, c.ResourcePatternType = kind, name, kmsg.ACLResourcePatternTypeLiteral
	c.Principal, c.Host, c.Operation, c.PermissionType = "User:"+realkafka.Carol().Name, "*", op, kmsg.ACLPermissionTypeAllow
	req.Creations = append(req.Creations, c)
	resp, err := s.k.Request(s.ctx, req)
	if err != nil {
		s.t.Fatal(err)
	}
	if r := resp.(*kmsg.CreateACLsResponse).Results[0]; r.ErrorCode != 0 {
		s.t.Fatalf("an ACL: %d %s", r.ErrorCode, deref(r.ErrorMessage))
	}
}

func (s *stage) rights(k *realkafka.Cluster) {
	user := realkafka.Carol()
	carol := connect(s.t, s.ctx, cluster.Config{
		Bootstrap: strings.Split(k.Listener(realkafka.SASLP), ","),
		SASL:      []sasl.Mechanism{plain.Auth{User: user.Name, Pass: user.Password}.AsMechanism()},
	})
	cfg := Config{Group: "carols", Topology: reading("orders"), MemberID: "m", MaxRetries: -1}
	cfg.Topology.Subtopologies[0].Changelogs = []InternalTopic{{Name: "carols-changelog"}}
	refused := func(code int16) {
		s.t.Helper()
		var be *BrokerError
		s.until(fmt.Sprintf("the join is refused with %d", code), func() bool {
			m, err := Join(s.ctx, carol, cfg)
			if err == nil {
				m.Close()
				s.t.Fatalf("the join is not refused with %d", code)
			}
			return errors.As(err, &be) && be.Code == code
		})
	}
	refused(30) // by the look-up of the coordinator
	s.allow(kmsg.ACLResourceTypeGroup, "carols", kmsg.ACLOperationDescribe)
	s.until("the coordinator may be looked up", func() bool {
		_, err := carol.Coordinator(s.ctx, cluster.GroupCoordinator, "carols")
		return err == nil
	})
	refused(30) // by the heartbeat
	s.allow(kmsg.ACLResourceTypeGroup, "carols", kmsg.ACLOperationRead)
	refused(29)
	for _, topic := range []string{"orders", "carols-changelog"} {
		s.allow(kmsg.ACLResourceTypeTopic, topic, kmsg.ACLOperationDescribe)
	}
	var m *Member
	s.until("the member is let in", func() bool {
		var err error
		m, err = Join(s.ctx, carol, cfg)
		return err == nil
	})
	defer m.Close()
	const denied = "Unauthorized to CREATE on topics carols-changelog."
	s.until("a status says what may not be created", func() bool { // the text comes and goes
		snap := m.Snapshot()
		return !snap.Ready && slices.ContainsFunc(snap.Statuses, func(st Status) bool {
			return st.Code == MissingInternalTopics && strings.Contains(st.Detail, denied)
		})
	})
	if _, err := m.Heartbeat(s.ctx); err != nil {
		s.t.Errorf("heartbeats do not go on: %v", err)
	}
	if _, err := Describe(s.ctx, carol, "carols", DescribeOptions{}); err != nil {
		s.t.Errorf("READ does not allow to describe: %v", err)
	}
	s.allow(kmsg.ACLResourceTypeTopic, "carols-changelog", kmsg.ACLOperationCreate)
	s.until("the member is ready", func() bool { return m.Snapshot().Ready })
	s.leave(m)
	var be *BrokerError
	if err := Delete(s.ctx, carol, "carols", false); !errors.As(err, &be) || be.Code != 30 {
		s.t.Errorf("a group is deleted without the right to: %v", err)
	}
	s.allow(kmsg.ACLResourceTypeGroup, "carols", kmsg.ACLOperationDelete)
	s.until("the group is deleted", func() bool {
		err := Delete(s.ctx, carol, "carols", false)
		if err != nil && !errors.As(err, &be) {
			s.t.Fatal(err)
		}
		return err == nil
	})
	var gone *GroupTypeError
	if _, err := Describe(s.ctx, carol, "carols", DescribeOptions{}); !errors.As(err, &gone) {
		s.t.Errorf("the group that was deleted is there: %v", err)
	}
}
