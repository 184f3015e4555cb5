package cli

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// demoLog is a records part that has written and read what a test says.
func demoLog(written []uint64, read map[uint64]int) *recordsDemo {
	d := &recordsDemo{newest: map[laneKey]uint64{}}
	for i := range demoProducers {
		d.writtenN[i], d.seen[i] = map[uint64]bool{}, map[uint64]int{}
	}
	for _, seq := range written {
		d.writtenN[0][seq] = true
	}
	for seq, times := range read {
		d.seen[0][seq] = times
	}
	return d
}

func TestTheDemoCanFail(t *testing.T) {
	for name, c := range map[string]struct {
		written  []uint64
		read     map[uint64]int
		disorder int64
		want     demoRecords
		ok       bool
	}{
		"all is well":    {[]uint64{0, 1}, map[uint64]int{0: 1, 1: 1}, 0, demoRecords{Produced: 2, Consumed: 2}, true},
		"one is lost":    {[]uint64{0, 1}, map[uint64]int{0: 1}, 0, demoRecords{Produced: 2, Consumed: 1, Lost: 1}, false},
		"one is double":  {[]uint64{0, 1}, map[uint64]int{0: 1, 1: 3}, 0, demoRecords{Produced: 2, Consumed: 2, Duplicated: 2}, false},
		"out of order":   {[]uint64{0, 1}, map[uint64]int{0: 1, 1: 1}, 1, demoRecords{Produced: 2, Consumed: 2}, false},
		"nothing at all": {nil, nil, 0, demoRecords{}, false},
	} {
		d := demoLog(c.written, c.read)
		d.disorder = c.disorder
		if got := d.result(); got.demoRecords != c.want || got.ok() != c.ok {
			t.Errorf("%s: %+v, ok %v", name, got, got.ok())
		}
	}
}

func TestTheLeaderPartOfTheDemoCanFail(t *testing.T) {
	for name, c := range map[string]struct {
		d  demoLeader
		ok bool
	}{
		"all is well":             {demoLeader{Handovers: 2, FencedWrites: 2}, true},
		"a late write was taken":  {demoLeader{Handovers: 2, FencedWrites: 1}, false},
		"no second hand-over":     {demoLeader{Handovers: 1, FencedWrites: 1}, false},
		"an old leader wrote":     {demoLeader{Handovers: 2, FencedWrites: 2, Overlaps: 1}, false},
		"nothing happened at all": {demoLeader{}, false},
	} {
		if c.d.ok() != c.ok {
			t.Errorf("%s: %+v is ok: %v", name, c.d, !c.ok)
		}
	}
}

func TestTheDemoReadsToTheEndsOfItsPartitions(t *testing.T) {
	d := demoLog(nil, nil)
	next := map[int32]kafka.Offset{0: 5, 2: 7}
	if d.reached(next) {
		t.Error("the ends are not known yet")
	}
	d.ends = map[int32]kafka.Offset{0: 5, 1: 100, 2: 8}
	if d.reached(next) {
		t.Error("partition 2 is not read to its end")
	}
	next[2] = 8
	if !d.reached(next) {
		t.Error("both partitions are read to their ends")
	}
}

func TestCutConnectionsAreClosedAndRefusedUntilTheyMayComeBack(t *testing.T) {
	b := startBroker(t)
	c := newCutter()
	one, err := c.dial(t.Context(), "tcp", b.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	if n := c.cutOff(b.bootstrap); n != 1 {
		t.Errorf("%d connections were cut", n)
	}
	if _, err := one.Read(make([]byte, 1)); err == nil {
		t.Error("the connection is still open")
	}
	if _, err := c.dial(t.Context(), "tcp", b.bootstrap); err == nil {
		t.Error("a new connection was made")
	}
	c.restore(b.bootstrap)
	two, err := c.dial(t.Context(), "tcp", b.bootstrap)
	if err != nil {
		t.Fatal(err)
	}
	two.Close()
	if n := c.cutOff(b.bootstrap); n != 0 {
		t.Errorf("%d connections were left", n)
	}
}

// TestATopicWhoseMakingIsInterruptedIsStillDeleted although the signal comes
// while the brokers have not answered yet.
func TestATopicWhoseMakingIsInterruptedIsStillDeleted(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{})
	a := &app{work: t.Context(), notes: newNotes(io.Discard)}
	a.shared.bootstrap = strings.Join(e.Bootstrap(), ",")
	c, err := cluster.Connect(t.Context(), cluster.Config{Bootstrap: e.Bootstrap()})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	stop, interrupt := context.WithCancelCause(t.Context())
	made := make(chan func(), 1)
	go func() {
		drop, err := makeOwnTopic(stop, a, &client{Cluster: c}, "own", 1)
		if err != nil && !errors.Is(err, errInterrupted) {
			t.Error(err)
		}
		made <- drop
	}()
	for len(e.Journal(int16(kmsg.CreateTopics))) == 0 {
		time.Sleep(100 * time.Microsecond)
	}
	for id := range kafka.NodeID(3) {
		e.Hang(id)
	}
	interrupt(errInterrupted)
	for id := range kafka.NodeID(3) {
		e.Resume(id)
	}
	if drop := <-made; drop != nil {
		drop()
	}
	e.ottla("topics", "list").want(t, "")
}
