//go:build kafka

package transact

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/kafka"
)

// calm is the session timeout where nobody is killed: a machine under load must
// not be taken for one that is.
const calm = 30 * time.Second

// roll replaces the members of a group one by one, in order: the next one has
// joined and owns something, and the group has come to rest, before its
// predecessor ends.
func (g *troupe) roll(ctx context.Context, client *cluster.Cluster, java bool) {
	g.t.Helper()
	for _, old := range g.living() {
		g.settled(ctx, client, g.join(java))
		old.stop()
		g.ended(ctx)
	}
	g.settled(ctx, client, nil)
}

// settled waits until a member owns something and the group is at rest.
func (g *troupe) settled(ctx context.Context, client *cluster.Cluster, a *actor) {
	g.t.Helper()
	wait(ctx, g.t, g.part.Group+" at rest", func() bool {
		if a != nil && !a.lives() {
			g.t.Fatalf("%s ended: %v\n%s", a.name, a.reports, tail(a.log.String()))
		}
		_, state := look(ctx, g.t, client, g.part.Group)
		return state == "Stable" && (a == nil || a.owns())
	})
}

// undoubled holds that everything was handled once: all members ended in order.
// Java's tool lets a commit go that meets a rebalance, so that what it had is
// handled again.
func (g *troupe) undoubled(ctx context.Context, client *cluster.Cluster) {
	g.t.Helper()
	ends := ends(ctx, g.t, client, g.part.Topic)
	wait(ctx, g.t, "all records", func() bool { return g.covers(ends) == nil })
	for _, a := range g.living() {
		a.stop()
	}
	g.ended(ctx)
	g.oneOwner()
	_, again := g.coverage()
	if again[false] > 0 {
		g.t.Errorf("%d records of a member of ottla were handled again, though every member ended in order", again[false])
	}
	g.t.Logf("%s: %d records of Java's tool were handled again", g.part.Group, again[true])
}

// look is what the coordinator takes a group for, and its state.
func look(ctx context.Context, t *testing.T, c *cluster.Cluster, group string) (kind, state string) {
	t.Helper()
	resp, err := c.Request(ctx, kmsg.NewPtrListGroupsRequest())
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range resp.(*kmsg.ListGroupsResponse).Groups {
		if g.Group == group {
			return strings.ToLower(g.GroupType), g.GroupState
		}
	}
	return "", ""
}

// A group under load changes from the classic protocol to the consumer protocol
// and back, member by member. Nothing is lost or handled twice; a group that
// copies in transactions changes beside it, and its output is its input.
func TestG21_G41OnKafkaALiveGroupMovesToTheConsumerProtocolAndBack(t *testing.T) {
	if len(protocols()) == 1 {
		t.Log("this broker has classic groups only")
		return
	}
	t.Parallel() // mostly it waits for rebalances
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	client := connect(ctx, t)
	create(ctx, t, client, chaosPartitions, "moving", "moved")
	stop := load(ctx, t, client, "moving")
	readers := &troupe{t: t, part: part{Bootstrap: broker.Bootstrap(), Group: "moving-readers", Topic: "moving", Session: calm}}
	copiers := &troupe{t: t, part: part{Bootstrap: broker.Bootstrap(), Group: "moving-copiers", Topic: "moving", Session: calm, Out: "moved"}}
	for _, g := range []*troupe{readers, copiers} {
		for range 2 {
			g.settled(ctx, client, g.join(false))
		}
	}
	for _, protocol := range []kafka.GroupKind{kafka.ConsumerGroup, kafka.ClassicGroup} {
		for _, g := range []*troupe{readers, copiers} {
			g.part.Protocol = protocol
			g.roll(ctx, client, false)
			if got, _ := look(ctx, t, client, g.part.Group); got != protocol.String() {
				t.Errorf("%s is a %q group with %s members only", g.part.Group, got, protocol)
			}
		}
	}
	n := stop()
	readers.undoubled(ctx, client)
	exactlyOnce(ctx, t, client, "moved", n)
	for _, a := range copiers.living() {
		a.stop()
	}
	copiers.ended(ctx)
	copiers.oneOwner()
}

// A group of KIP-848 turns classic under load when its last member of that protocol
// goes and classic ones stay: once it dies, once it ends in order before the group
// has come to rest. Classic members read on, everything is handled, nothing by two
// at a time, and the output of a group that copies in transactions is its input.
func TestG21_G27_G41OnKafkaALiveGroupTurnsClassicWhenItsLastConsumerMemberGoes(t *testing.T) {
	if len(protocols()) == 1 {
		t.Log("this broker has classic groups only")
		return
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	client := connect(ctx, t)
	create(ctx, t, client, chaosPartitions, "falling", "fallen")
	stop := load(ctx, t, client, "falling")
	readers := &troupe{t: t, part: part{Bootstrap: broker.Bootstrap(), Group: "falling-readers", Topic: "falling", Session: calm}}
	copiers := &troupe{t: t, part: part{Bootstrap: broker.Bootstrap(), Group: "falling-copiers", Topic: "falling", Session: calm, Out: "fallen"}}
	groups := []*troupe{readers, copiers}
	for _, g := range groups {
		hasten(ctx, t, client, g.part.Group, session)
		g.part.Protocol = kafka.ConsumerGroup
		g.join(false)
	}
	for _, g := range groups {
		g.settled(ctx, client, g.members[0])
		g.part.Protocol = kafka.ClassicGroup
		for range 2 {
			g.settled(ctx, client, g.join(false))
		}
		g.isConsumer(ctx, client)
		g.members[0].kill()
	}
	for _, g := range groups {
		g.fallen(ctx, client)
		g.part.Protocol = kafka.ConsumerGroup
		last := g.join(false)
		wait(ctx, t, last.name+" of "+g.part.Group, last.owns)
		g.isConsumer(ctx, client)
		last.stop()
	}
	for _, g := range groups {
		g.fallen(ctx, client)
	}
	n := stop()
	ends := ends(ctx, t, client, "falling")
	wait(ctx, t, "all records", func() bool { return readers.covers(ends) == nil })
	exactlyOnce(ctx, t, client, "fallen", n)
	for _, g := range groups {
		g.fell()
		for _, a := range g.living() {
			a.stop()
		}
		g.ended(ctx)
		g.oneOwner()
	}
}

func (g *troupe) isConsumer(ctx context.Context, client *cluster.Cluster) {
	g.t.Helper()
	if kind, _ := look(ctx, g.t, client, g.part.Group); kind != kafka.ConsumerGroup.String() {
		g.t.Errorf("%s is a %q group with a member of the consumer protocol", g.part.Group, kind)
	}
}

// fallen waits until a group is classic and at rest.
func (g *troupe) fallen(ctx context.Context, client *cluster.Cluster) {
	g.t.Helper()
	wait(ctx, g.t, g.part.Group+" classic and at rest", func() bool {
		kind, state := look(ctx, g.t, client, g.part.Group)
		return kind == kafka.ClassicGroup.String() && state == "Stable"
	})
}

// Members of ottla are replaced by members in Java and those by members of ottla,
// one by one and under load. Meanwhile both share the partitions, and each goes on
// at what the other has committed.
func TestG10_G15_G19OnKafkaMembersOfOttlaAndInJavaReplaceEachOther(t *testing.T) {
	t.Parallel()
	const strategy = " --session-timeout 30000 --assignment-strategy org.apache.kafka.clients.consumer."
	for _, one := range []struct {
		name, java string
		protocol   kafka.GroupKind
		assignors  []consumer.Assignor
	}{
		{name: "range", java: strategy + "RangeAssignor", assignors: []consumer.Assignor{consumer.Range}},
		{name: "cooperative-sticky", java: strategy + "CooperativeStickyAssignor"},
		{name: "consumer", java: " --group-protocol CONSUMER", protocol: kafka.ConsumerGroup},
	} {
		t.Run(one.name, func(t *testing.T) {
			if one.protocol == kafka.ConsumerGroup && len(protocols()) == 1 {
				t.Log("this broker has classic groups only")
				return
			}
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
			defer cancel()
			client := connect(ctx, t)
			topic := "replaced-" + one.name
			create(ctx, t, client, chaosPartitions, topic)
			stop := load(ctx, t, client, topic)
			g := &troupe{
				t:    t,
				part: part{Bootstrap: broker.Bootstrap(), Group: topic, Topic: topic, Session: calm, Protocol: one.protocol, Assignors: one.assignors},
				java: "VerifiableConsumer --topic " + topic + " --group-id " + topic + one.java,
			}
			for range 2 {
				g.settled(ctx, client, g.join(false))
			}
			g.roll(ctx, client, true)
			g.roll(ctx, client, false)
			stop()
			g.undoubled(ctx, client)
		})
	}
}
