package produce

import (
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/ottla/ottla/kafka"
)

// A batch that comes when EndTxn is on its way is no part of the transaction,
// and must not wait for the next one. The mutation: the machine goes on taking
// batches until the answer is there.
func TestP42ABatchBehindTheEndIsRefused(t *testing.T) {
	m := New(Config{}, rand.New(rand.NewPCG(1, 2)))
	x := NewTransactions(m)
	now := time.Unix(1000, 0)
	finished := map[BatchID]error{}
	var sent []Send
	drain := func() {
		for {
			a, more := m.Next(now)
			if !more {
				return
			}
			switch a := a.(type) {
			case InitProducer:
				x.OnReply(now, Reply{ID: 7, Epoch: 0})
			case Enrol:
				x.OnReply(now, Reply{Parts: []PartitionCode{{Partition: a.Partitions[0]}}})
			case Seal:
				m.OnSealed(now, a.Batch, 100)
			case Resolve:
				m.OnLeader(now, a.Partition, 1, nil)
			case Send:
				sent = append(sent, a)
				m.OnAnswer(now, a.Request, []Answer{{Partition: kafka.TopicPartition{Topic: "t"}, Leader: kafka.NoNode}})
			case Finish:
				finished[a.Batch] = a.Outcome.Err
			}
		}
	}
	batch := func(id BatchID) {
		m.OnBatch(now, Batch{ID: id, Partition: kafka.TopicPartition{Topic: "t"}, Count: 1, Since: now})
		drain()
	}
	x.OnBegin(1)
	drain()
	batch(1)
	x.OnCommit(now, 2)
	drain()
	batch(2)
	if finished[1] != nil || !errors.Is(finished[2], kafka.ErrNoTransaction) || kafka.MayHaveHappened(finished[2]) {
		t.Errorf("results: %v", finished)
	}
	x.OnReply(now, Reply{ID: -1})
	drain()
	x.OnBegin(3)
	drain()
	if len(sent) != 1 {
		t.Errorf("%d requests for one batch", len(sent))
	}
	batch(3)
	if len(sent) != 2 || finished[3] != nil {
		t.Errorf("the next transaction: %d requests, %v", len(sent), finished[3])
	}
}
