//go:build kafka

package transact

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/consumer"
	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// chaosLength is how long the chaos lasts in all: OTTLA_GROUP_CHAOS, such as
// 20m; false is the short form, which does each thing once.
func chaosLength(t *testing.T) (time.Duration, bool) {
	s := os.Getenv("OTTLA_GROUP_CHAOS")
	if s == "" {
		return 0, false
	}
	d, err := time.ParseDuration(s)
	if err != nil {
		t.Fatal(err)
	}
	return d, true
}

// protocols are the kinds of groups that the broker under test has by default.
func protocols() []kafka.GroupKind {
	if strings.HasPrefix(broker.Version(), "3.") {
		return []kafka.GroupKind{kafka.ClassicGroup}
	}
	return []kafka.GroupKind{kafka.ClassicGroup, kafka.ConsumerGroup}
}

// On a cluster of three brokers, two groups read one topic under load: one
// commits what is finished, one copies in transactions. Members of ottla and in
// Java join, leave, are killed and stand still, and brokers are killed. Every
// record is handled at least once by the first group and is exactly once in the
// output of the second; and by the record of the callbacks no partition has two
// owners at a time, nor is handled by who does not own it.
//
// Mutations: a commit of what was handed out and not handled; positions before
// the batch in SendOffsets; a machine that keeps reading what it gave up; a
// Taken that is lost without a stop of its reading.
func TestG23_G37_G40_G41_G42_G43OnKafkaChaos(t *testing.T) {
	length, long := chaosLength(t)
	length /= time.Duration(len(protocols()))
	for _, protocol := range protocols() {
		t.Run(protocol.String(), func(t *testing.T) {
			ctx, cancel := context.WithTimeout(context.Background(), length+5*time.Minute)
			defer cancel()
			c := newChaos(ctx, t, protocol)
			if long {
				c.forAWhile(ctx, length)
			} else {
				c.onceEach(ctx)
			}
			c.judge(ctx)
		})
	}
}

// chaos is one run.
type chaos struct {
	t       *testing.T
	client  *cluster.Cluster
	rng     *rand.Rand
	in, out string
	counts  map[string]int

	readers, copiers *troupe
	stop             func() int // the load; how many records there were
}

const chaosPartitions = 6

func newChaos(ctx context.Context, t *testing.T, protocol kafka.GroupKind) *chaos {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	c := &chaos{t: t, client: connect(ctx, t), rng: rand.New(rand.NewPCG(seed, 1)), counts: map[string]int{}}
	c.in, c.out = "chaos-"+protocol.String()+"-in", "chaos-"+protocol.String()+"-out"
	create(ctx, t, c.client, chaosPartitions, c.in, c.out)
	c.stop = load(ctx, t, c.client, c.in)

	reader := part{Bootstrap: broker.Bootstrap(), Group: c.in + "-readers", Topic: c.in, Protocol: protocol, Session: session}
	copier := reader
	copier.Group, copier.Out = c.in+"-copiers", c.out
	java := "VerifiableConsumer --topic " + c.in + " --group-id " + reader.Group
	if protocol == kafka.ClassicGroup {
		java += " --session-timeout 8000 --assignment-strategy org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
		copier.Assignors = []consumer.Assignor{consumer.CooperativeSticky, consumer.Range} // the one in Java has range only
	} else {
		java += " --group-protocol CONSUMER"
	}
	if protocol == kafka.ConsumerGroup {
		hasten(ctx, t, c.client, reader.Group, session)
		hasten(ctx, t, c.client, copier.Group, session)
	}
	c.readers = &troupe{t: t, part: reader, java: java}
	c.copiers = &troupe{t: t, part: copier, java: "TransactionalMessageCopier --group-mode --use-group-metadata --input-partition 0 --max-messages 2000" +
		" --transaction-size 20 --transaction-timeout 20000 --broker-list " + broker.Bootstrap() +
		" --input-topic " + c.in + " --output-topic " + c.out + " --consumer-group " + copier.Group + " --transactional-id ROLE"}
	for _, g := range c.troupes() {
		for _, java := range []bool{false, false, true} {
			g.join(java)
		}
	}
	return c
}

func (c *chaos) troupes() []*troupe { return []*troupe{c.readers, c.copiers} }

// onceEach does each thing once to each group, with a pause long enough to be
// noticed by the brokers. Who joins takes the role of the one that was killed over.
func (c *chaos) onceEach(ctx context.Context) {
	for _, g := range c.troupes() {
		wait(ctx, c.t, "members of "+g.part.Group, func() bool { return g.members[0].owns() || g.members[1].owns() })
	}
	for _, what := range []string{"suspend", "broker", "kill", "join", "stop"} {
		c.do(ctx, what, c.readers)
		if what != "broker" {
			c.do(ctx, what, c.copiers)
		}
		_ = task.Sleep(ctx, time.Second)
	}
}

// owns reports whether a member was given partitions.
func (a *actor) owns() bool {
	return a.has(func(r report) bool { return r.Name == assigned && len(r.Partitions) > 0 })
}

func (c *chaos) forAWhile(ctx context.Context, d time.Duration) {
	nextBroker := time.Now()
	for end := time.Now().Add(d); time.Now().Before(end) && ctx.Err() == nil; {
		g := c.troupes()[c.rng.IntN(2)]
		what := []string{"join", "join", "stop", "kill", "pause", "suspend"}[c.rng.IntN(6)]
		if time.Now().After(nextBroker) {
			what, nextBroker = "broker", time.Now().Add(time.Duration(20+c.rng.IntN(20))*time.Second)
		}
		c.do(ctx, what, g)
		_ = task.Sleep(ctx, time.Duration(500+c.rng.IntN(3000))*time.Millisecond)
		for _, g := range c.troupes() {
			g.fell()
		}
	}
}

// do is one event. There are always one member of ottla and at most five.
func (c *chaos) do(ctx context.Context, what string, g *troupe) {
	alive := g.living()
	ours := g.living(false)
	if len(ours) == 0 || what == "join" && len(alive) < 5 {
		g.join(len(ours) > 0 && len(g.living(true)) == 0)
		c.counts["join"]++
		return
	}
	a := alive[c.rng.IntN(len(alive))]
	alone := len(ours) == 1 && a == ours[0]
	switch {
	case what == "broker":
		c.loseBroker(ctx)
	case what == "pause":
		a.pause(time.Duration(500+c.rng.IntN(2000)) * time.Millisecond)
	case what == "suspend":
		a.pause(session + 3*time.Second)
	case what == "kill" && !alone:
		a.kill()
	case what == "stop" && !alone:
		a.stop()
	default:
		return
	}
	c.counts[what]++
}

func (c *chaos) loseBroker(ctx context.Context) {
	id := 1 + c.rng.IntN(3)
	if err := broker.Kill(id); err != nil {
		c.t.Fatal(err)
	}
	_ = task.Sleep(ctx, time.Duration(1000+c.rng.IntN(2000))*time.Millisecond)
	for try := 1; ; try++ {
		err := broker.Restart(id)
		if err == nil {
			return
		}
		if try == 3 { // a busy machine may starve one until it gives up
			c.t.Fatal(err)
		}
		c.t.Logf("try %d to start a broker: %.200s", try, err)
		_ = broker.Kill(id)
	}
}

// judge ends the load, waits until everything is handled, and checks.
func (c *chaos) judge(ctx context.Context) {
	n := c.stop()
	for _, g := range c.troupes() {
		for _, a := range g.members {
			a.wake()
		}
		if len(g.living(false)) == 0 {
			g.join(false)
		}
	}
	ends := ends(ctx, c.t, c.client, c.in)
	deadline, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	for err := c.readers.covers(ends); err != nil; err = c.readers.covers(ends) {
		if task.Sleep(deadline, 200*time.Millisecond) != nil {
			c.t.Error(err)
			c.readers.tell(err.partition)
			return
		}
	}
	exactlyOnce(deadline, c.t, c.client, c.out, n)
	for _, g := range c.troupes() {
		g.fell()
		for _, a := range g.living() {
			a.stop()
		}
		g.ended(deadline)
		g.oneOwner()
	}
	_, again := c.readers.coverage()
	c.t.Logf("%d records; readers handled %v again, by the kind that had them first; %v", n, again, c.counts)
}

// load produces numbered records until it is stopped, and tells how many.
func load(ctx context.Context, t *testing.T, client *cluster.Cluster, topic string) (stop func() int) {
	t.Helper()
	p, err := producer.New(client, producer.Config{Partitioner: producer.Manual, DeliveryTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	enough, cancel := context.WithCancel(ctx)
	done := make(chan int, 1)
	go func() {
		defer p.Close()
		n := 0
		for enough.Err() == nil {
			for range 20 {
				if _, err := p.Append(ctx, kafka.Record{Topic: topic, Partition: int32(n % chaosPartitions), Value: fmt.Append(nil, n)}); err != nil {
					t.Errorf("produce: %v", err)
					break
				}
				n++
			}
			_ = task.Sleep(enough, 100*time.Millisecond)
		}
		if err := p.Flush(ctx); err != nil {
			t.Errorf("flush: %v", err)
		}
		done <- n
	}()
	return func() int {
		cancel()
		return <-done
	}
}

func wait(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		if task.Sleep(ctx, 50*time.Millisecond) != nil {
			t.Fatalf("%s: %v", what, context.Cause(ctx))
		}
	}
}
