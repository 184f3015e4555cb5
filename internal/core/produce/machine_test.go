package produce

import (
	"slices"
	"testing"
	"time"

	"github.com/ottla/ottla/kafka"
)

// Sequences that do not wrap make this fail.
func TestP5_R9_B082SequencesWrapInsideABatch(t *testing.T) {
	now := time.Unix(0, 0)
	m := New(Config{}, nil)
	tp := kafka.TopicPartition{Topic: "t"}
	m.OnLeader(now, tp, 1, nil)
	m.ident = identity{state: identKnown, id: 5}
	p := m.partition(tp)
	p.begun, p.ident.ProducerID, p.ident.BaseSequence = true, 5, 2147483640
	var got []int32
	for id := range BatchID(3) {
		m.OnBatch(now, Batch{ID: id + 1, Partition: tp, Count: 5, Since: now})
	}
	for {
		a, ok := m.Next(now)
		if !ok {
			break
		}
		switch a := a.(type) {
		case Seal:
			m.OnSealed(now, a.Batch, 100)
		case Send:
			got = append(got, a.Items[0].Stamp.BaseSequence)
			m.OnAnswer(now, a.Request, []Answer{{Partition: tp, Base: 1, Leader: kafka.NoNode}})
		}
		if err := m.check(); err != nil {
			t.Fatal(err)
		}
	}
	if want := []int32{2147483640, 2147483645, 2}; !slices.Equal(got, want) {
		t.Errorf("base sequences %v, want %v", got, want)
	}
}

// A second request of a partition beside one that is outstanding makes this
// fail.
func TestP7_P8OneBatchOfAPartitionIsOutstandingAtAnUnprovenLeader(t *testing.T) {
	now := time.Unix(0, 0)
	m := New(Config{}, nil)
	tp := kafka.TopicPartition{Topic: "t"}
	m.OnLeader(now, tp, 1, nil)
	sends := 0
	for id := range BatchID(4) {
		m.OnBatch(now, Batch{ID: id + 1, Partition: tp, Count: 1, Since: now})
	}
	for {
		a, ok := m.Next(now)
		if !ok {
			break
		}
		switch a := a.(type) {
		case Identify:
			m.OnIdentity(now, 1, 0, nil)
		case Seal:
			m.OnSealed(now, a.Batch, 100)
		case Send:
			sends++
			m.OnLeader(now, tp, 2, nil) // not even to another leader
		}
	}
	if sends != 1 {
		t.Errorf("%d requests outstanding", sends)
	}
}

func TestMachineCountsOddAnswers(t *testing.T) {
	m := New(Config{}, nil)
	m.OnAnswer(time.Unix(0, 0), 9, []Answer{{Partition: kafka.TopicPartition{Topic: "t"}}})
	if m.OddAnswers() != 1 {
		t.Errorf("%d odd answers", m.OddAnswers())
	}
}

// A machine that is told to keep more on its way than a broker remembers keeps
// to what it remembers, unless nothing has sequences. The mutation: withDefaults
// without the cap.
func TestP7TheWindowIsAtMostWhatABrokerRemembers(t *testing.T) {
	if n := New(Config{Window: 9}, nil).cfg.Window; n != 5 {
		t.Errorf("a window of %d", n)
	}
	if n := New(Config{Window: 9, Plain: true}, nil).cfg.Window; n != 9 {
		t.Errorf("a window of %d without sequences", n)
	}
}

// The time of a batch runs from its first record, not from when it was closed.
// The mutation: the deadline counted from OnBatch.
func TestP48TheDeadlineRunsFromTheFirstRecord(t *testing.T) {
	now := time.Unix(1000, 0)
	m := New(Config{Delivery: 10 * time.Second}, nil)
	m.OnBatch(now, Batch{ID: 1, Partition: kafka.TopicPartition{Topic: "t"}, Count: 1, Since: now.Add(-8 * time.Second)})
	for _, after := range []time.Duration{time.Second, 2 * time.Second} {
		ended := false
		for {
			a, ok := m.Next(now.Add(after))
			if !ok {
				break
			}
			if f, ok := a.(Finish); ok {
				ended = !kafka.MayHaveHappened(f.Outcome.Err)
			}
		}
		if ended != (after == 2*time.Second) {
			t.Errorf("after %v more it has ended: %t", after, ended)
		}
	}
}
