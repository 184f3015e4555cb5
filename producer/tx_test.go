package producer

import (
	"testing"

	"github.com/ottla/ottla/internal/model"
	"github.com/ottla/ottla/kafka"
)

func TestTransactionsCommitAndAbort(t *testing.T) {
	atBothLevels(t, func(r *txRig, level int16) {
		p := r.producer()
		tx := r.begin(p)
		r.must("send", r.send(tx, 0, "a"))
		r.add(tx, 1, "b")
		r.add(tx, 2, "c")
		r.must("commit", tx.Commit(r.ctx))
		tx = r.begin(p)
		r.must("send", r.send(tx, 0, "d"))
		r.add(tx, 1, "given up")
		r.must("abort", tx.Abort(r.ctx))
		tx = r.begin(p)
		r.add(tx, 0, "e")
		r.must("offsets", tx.SendOffsets(r.ctx, kafka.GroupMetadata{Group: "g", Generation: kafka.NoGeneration},
			map[kafka.TopicPartition]kafka.Commit{{Topic: "in", Partition: 0}: {Offset: 7}, {Topic: "in", Partition: 1}: {Offset: 8}}))
		r.must("commit", tx.Commit(r.ctx))
		r.must("shutdown", p.Shutdown(r.ctx))
		r.want(map[string]model.Fate{"a": model.Committed, "b": model.Committed, "c": model.Committed, "d": model.Aborted, "e": model.Committed})
		r.s.Model(func(m *model.Cluster) {
			if at, ok := m.Committed("g", kafka.TopicPartition{Topic: "in", Partition: 1}); !ok || at.Offset != 8 {
				t.Errorf("the group is at %v", at)
			}
		})
	})
}
