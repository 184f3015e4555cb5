package cluster

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

func TestB022K6RebootstrapStartsAgainFromTheBootstrapNames(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		ips, err := r.net.Resolve(t.Context(), "b1")
		mustDo(t, err)
		r.net.SetAddrs("boot", ips...)
		r.topic("t", 2, 3)
		r.answerOffsets()
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"boot:9092"} })
		mustDo(t, second(c.Request(r.within(time.Minute), listOffsets(tp("t", 0), tp("t", 1)))))
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		r.everywhere(10, func(q *sim.Request) sim.Answer { // at a node that no map names
			resp := r.sim.FindCoordinator(q)
			for i := range resp.Coordinators {
				resp.Coordinators[i].NodeID = 9
			}
			return sim.Reply(resp)
		})
		if b, err := c.Coordinator(r.within(time.Minute), GroupCoordinator, "g"); err != nil || b.Host != "b1" {
			t.Fatalf("coordinator %v, %v", b, err)
		}
		w := c.Watch()
		defer w.Close()
		// Every broker says 129; the name points to a new one.
		r.sim.Update(func(tp *sim.Topology) { tp.Error = kerr.RebootstrapRequired.Code })
		moved := sim.New(t, r.listen("m1:9092"))
		moved.Update(func(tp *sim.Topology) { tp.ClusterID = "sim" })
		moved.SetTopic("t", 1, 1)
		moved.Broker(1).Handle(2, func(q *sim.Request) sim.Answer { return sim.Reply(offsetsOf(q)) })
		ips, err = r.net.Resolve(t.Context(), "m1")
		mustDo(t, err)
		r.net.SetAddrs("boot", ips...)
		moved.Broker(1).Handle(3, func(q *sim.Request) sim.Answer {
			return sim.Answer{Response: moved.Metadata(q), Delay: 50 * time.Millisecond}
		})
		err = c.refresh(t.Context(), []string{"t"}, needNow)
		if !errors.Is(err, kerr.RebootstrapRequired) {
			t.Errorf("the refresh that was told: %v", err)
		}
		top, _ := c.CachedTopic("t")
		if top.Count() != 2 || top.Partitions[0].Leader != kafka.NoNode || top.Partitions[1].Leader != kafka.NoNode || len(c.Brokers()) != 0 {
			t.Errorf("after the drop: %+v, brokers %v", top, c.Brokers())
		}
		resp, err := c.Request(r.within(time.Minute), listOffsets(tp("t", 0), tp("t", 1)))
		if err != nil || offsets(t, resp)[tp("t", 1)] != 1001 {
			t.Errorf("%v, %v", resp, err)
		}
		if b, err := c.Coordinator(r.within(time.Minute), GroupCoordinator, "g"); err != nil || b.Host != "m1" {
			t.Errorf("a coordinator of the old brokers outlived them: %v, %v", b, err)
		}
		time.Sleep(time.Second)
		for _, b := range r.sim.Brokers() {
			if n := len(b.Open()); n != 0 {
				t.Errorf("%d sockets to the old broker %d", n, b.ID)
			}
		}
		if !slices.ContainsFunc(w.Take(), func(e Event) bool { return e.Kind == Rebootstrapped && errors.Is(e.Err, kerr.RebootstrapRequired) }) {
			t.Error("no event")
		}
	})
}

func TestK6RebootstrapAfterFiveMinutesWithoutAnyAnswer(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.topic("t", 2)
		c := r.connect()
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		w := c.Watch()
		defer w.Close()
		for _, b := range r.sim.Brokers() {
			b.Close()
		}
		start := time.Now()
		for range w.Ready() {
			es := w.Take()
			if slices.ContainsFunc(es, func(e Event) bool { return e.Kind == Rebootstrapped }) {
				break
			}
		}
		if took := time.Since(start); took < 299*time.Second || took > 310*time.Second {
			t.Errorf("after %v", took)
		}
		top, _ := c.CachedTopic("t")
		if top.Count() != 1 || top.Partitions[0].Leader != kafka.NoNode {
			t.Errorf("counts survive, leaders do not: %+v", top)
		}
	})
}

func TestB047AnAnswerWithoutBrokersTurnsToTheSeeds(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.topic("t", 1)
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		empty := func(q *sim.Request) sim.Answer { return sim.Reply(q.Response()) }
		r.everywhere(3, empty)
		for range 3 {
			if err := c.refresh(r.within(time.Minute), []string{"t"}, needNow); err == nil {
				t.Error("an answer without brokers is no answer")
			}
		}
		if r.sim.Broker(1).Count(3) < 4 || r.sim.Broker(2).Count(3) == 0 {
			t.Errorf("%d and %d requests: not all addresses were tried", r.sim.Broker(1).Count(3), r.sim.Broker(2).Count(3))
		}
		if b, err := c.Leader(r.within(time.Minute), tp("t", 0)); err != nil || b.ID != 1 || len(c.Brokers()) != 2 {
			t.Errorf("the map was touched: %v, %v", b, err)
		}
		r.everywhere(3, nil)
		mustDo(t, c.refresh(r.within(time.Minute), []string{"t"}, needNow))
	})
}

func TestK10R10TheRecreatedTopicIsToldOnceAndAStaleAnswerIgnored(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.topic("t", 1, 1)
		c := r.connect()
		old, err := c.Topic(r.within(time.Minute), "t")
		mustDo(t, err)
		w := c.Watch()
		defer w.Close()
		id := [16]byte{1}
		r.sim.Update(func(tp *sim.Topology) { tp.Topics[0].ID, tp.Topics[0].Partitions = id, tp.Topics[0].Partitions[:1] })
		for range 3 {
			mustDo(t, c.refresh(r.within(time.Minute), []string{"t"}, needNow))
		}
		r.sim.Update(func(tp *sim.Topology) { tp.Topics[0].ID = old.ID })
		mustDo(t, c.refresh(r.within(time.Minute), []string{"t"}, needNow))
		top, _ := c.CachedTopic("t")
		if top.ID != id || top.Count() != 1 {
			t.Errorf("%+v", top)
		}
		n := 0
		for _, e := range w.Take() {
			if e.Kind == TopicRecreated && e.OldID == old.ID && e.NewID == id {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%d events", n)
		}
		if name, err := c.TopicName(t.Context(), id); name != "t" || err != nil {
			t.Errorf("the name of the new id: %q, %v", name, err)
		}
		if _, ok := c.snap.Load().Names[old.ID]; ok {
			t.Error("the old id still leads to the name")
		}
	})
}

func TestK15NamesAreListedAtTheMetadataAgeWithoutInternalTopics(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.topic("b", 1)
		r.topic("a", 1)
		r.sim.Update(func(tp *sim.Topology) {
			tp.Topics = append(tp.Topics, sim.Topic{Name: "__consumer_offsets", Internal: true}, sim.Topic{Name: "gone", Error: 3})
		})
		c := r.connect()
		all := func() (n int) {
			for _, m := range r.allMetadata() {
				if m.Topics == nil {
					n++
					if m.AllowAutoTopicCreation {
						t.Error("C58: a list of names may create topics")
					}
				}
			}
			return n
		}
		for range 10 {
			names, err := c.TopicNames(r.within(time.Minute))
			if err != nil || !slices.Equal(names, []string{"a", "b"}) {
				t.Fatalf("%v, %v", names, err)
			}
			names[0] = "the caller's own"
			time.Sleep(29 * time.Second)
		}
		if all() != 1 {
			t.Errorf("listed %d times in five minutes", all())
		}
		time.Sleep(10 * time.Second)
		mustDo(t, second(c.TopicNames(r.within(time.Minute))))
		if all() != 2 {
			t.Errorf("listed %d times after the age", all())
		}
		if n := c.Stats().Topics; n != 0 {
			t.Errorf("%d topics entered the map", n)
		}
		// By id: only the id is asked for.
		var id kafka.TopicID
		r.sim.Update(func(tp *sim.Topology) { id = tp.Topics[1].ID })
		name, err := c.TopicName(r.within(time.Minute), id)
		if err != nil || name != "a" {
			t.Errorf("%q, %v", name, err)
		}
		last := r.allMetadata()[len(r.allMetadata())-1]
		if len(last.Topics) != 1 || last.Topics[0].Topic != nil || last.Topics[0].TopicID != id || last.AllowAutoTopicCreation {
			t.Errorf("%+v", last)
		}
		if _, err := c.TopicName(r.within(time.Minute), kafka.TopicID{9}); !errors.Is(err, kerr.UnknownTopicID) {
			t.Errorf("an unknown id: %v", err)
		}
	})
}

func TestK14EventsNeverBlockTheClientAndAreMergedUntilTaken(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.topic("t", 1, 1)
		c := r.connect()
		mustDo(t, second(c.Topic(r.within(time.Minute), "t")))
		idle, used := c.Watch(), c.Watch()
		defer idle.Close()
		used.Take()
		for i := range 50 { // nobody takes
			r.sim.SetLeader("t", 0, int32(1+i%2))
			mustDo(t, c.refresh(r.within(time.Minute), []string{"t"}, needNow))
		}
		es := used.Take()
		if len(es) != 1 || es[0].Kind != LeaderChanged || es[0].Partition != 0 {
			t.Errorf("%d events wait: %+v", len(es), es)
		}
		if len(used.Take()) != 0 {
			t.Error("delivered twice")
		}
		used.Close()
		r.sim.Update(func(tp *sim.Topology) {
			tp.Topics[0].Partitions = append(tp.Topics[0].Partitions, sim.Partition{Leader: 1})
		})
		mustDo(t, c.refresh(r.within(time.Minute), []string{"t"}, needNow))
		if len(used.Take()) != 0 {
			t.Error("delivered after Close")
		}
		var kinds []EventKind
		ctx := r.within(time.Second)
		for e := range c.Events(ctx) {
			kinds = append(kinds, e.Kind)
		}
		if ctx.Err() == nil || len(kinds) != 0 {
			t.Errorf("events of the time before: %v", kinds)
		}
		go func() {
			time.Sleep(time.Second)
			c.Close()
		}()
		for e := range c.Events(t.Context()) {
			t.Errorf("%+v", e)
		}
		<-idle.Ready()
		if c.Stats().Events[TopicGrew] != 1 || c.Stats().Events[LeaderChanged] == 0 {
			t.Errorf("O7: counts %v", c.Stats().Events)
		}
	})
}

func TestC6StatsCountConnectionsByPurposeAndState(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		c := r.connect(func(cfg *Config) { cfg.Bootstrap = []string{"b1:9092"} })
		find := func(addr, purpose string) Connection {
			for _, x := range c.Stats().Connections {
				if x.Addr == addr && x.Purpose == purpose {
					return x
				}
			}
			return Connection{}
		}
		if x := find("b1:9092", "general"); x.State != "open" || x.Dials != 1 || x.Requests < 1 || x.BytesIn == 0 || x.BytesOut == 0 {
			t.Errorf("after Connect: %+v", x)
		}
		r.sim.Broker(2).Handle(12, func(q *sim.Request) sim.Answer { return sim.Answer{Response: q.Response(), Delay: time.Second} })
		c.Broker(2).Start(t.Context(), kmsg.NewPtrHeartbeatRequest(), func(kmsg.Response, error) {})
		time.Sleep(100 * time.Millisecond)
		if x := find("b2:9092", "coordinator"); x.State != "open" || x.InFlight != 1 {
			t.Errorf("with a request under way: %+v", x)
		}
		time.Sleep(time.Second)
		if x := find("b2:9092", "coordinator"); x.InFlight != 0 || x.Requests < 1 {
			t.Errorf("after it: %+v", x)
		}
		if n := len(c.Stats().Connections); n != 2 {
			t.Errorf("%d connections", n)
		}
	})
}
