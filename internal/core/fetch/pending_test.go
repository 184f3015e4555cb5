package fetch

import (
	"testing"

	"github.com/ottla/ottla/kafka"
)

// Mutation: Begin for partitions in any state.
func TestF35_F38_R39ASeekWinsAgainstAStartThatIsStillLookedFor(t *testing.T) {
	r := newRig(t, testConfig())
	two := tp("t", 1)
	r.m.Add(map[kafka.TopicPartition]Start{tp0: Pending(), two: Pending()})
	r.step()
	r.m.OnTopic(r.now, "t", info("t", 1, 1))
	r.step()
	if _, asked := maybe[*ListAction](r); asked {
		t.Error("a position is asked for that somebody else is to tell")
	}
	if f, fetched := maybe[*FetchAction](r); fetched {
		t.Errorf("fetched: %+v", f)
	}
	if !r.m.Seek(tp0, AtOffset(7)) {
		t.Fatal("no such partition")
	}
	r.m.Begin(map[kafka.TopicPartition]Start{tp0: AtOffset(3), two: AtOffset(4), tp("t", 2): AtOffset(5)})
	r.step()
	for want, id := range map[kafka.Offset]kafka.TopicPartition{7: tp0, 4: two} {
		if at, ok := r.m.At(id); !ok || at.Position != want {
			t.Errorf("%s at %d, want %d", id, at.Position, want)
		}
	}
	if _, ok := r.m.At(tp("t", 2)); ok {
		t.Error("Begin assigned a partition")
	}
}

func TestG6WhileShutNothingIsHandedOut(t *testing.T) {
	r := reading(t, testConfig(), 0)
	r.m.Shut = true
	r.answer("t", partAnswer{hw: 100, lso: 100, data: batches(data(0, 9))})
	if r.m.Ready() {
		t.Error("ready while shut")
	}
	if _, ok := r.m.Take(r.now); ok {
		t.Error("taken while shut")
	}
	r.m.Shut = false
	if _, ok := r.m.Take(r.now); !ok {
		t.Error("nothing was kept")
	}
}
