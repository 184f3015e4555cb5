package admin

import (
	"iter"
	"maps"
	"slices"

	"github.com/ottla/ottla/kafka"
)

// partitions are the keys of a map in their order.
func partitions[V any](m map[kafka.TopicPartition]V) []kafka.TopicPartition {
	return slices.SortedFunc(maps.Keys(m), kafka.TopicPartition.Compare)
}

// byTopic groups sorted partitions by their topics.
func byTopic(tps []kafka.TopicPartition) iter.Seq2[string, []int32] {
	return func(yield func(string, []int32) bool) {
		for len(tps) > 0 {
			topic := tps[0].Topic
			var ps []int32
			for len(tps) > 0 && tps[0].Topic == topic {
				ps, tps = append(ps, tps[0].Partition), tps[1:]
			}
			if !yield(topic, ps) {
				return
			}
		}
	}
}

// answer is what a broker says about one partition.
type answer[V any] struct {
	value V
	code  int16
	text  *string
}

// answered collects what brokers say about partitions.
type answered[V any] map[kafka.TopicPartition]answer[V]

func (m answered[V]) add(topic string, p int32, a answer[V]) {
	m[kafka.TopicPartition{Topic: topic, Partition: p}] = a
}

// results are the answers in the order of the partitions asked for; none is the
// value of those that failed.
func (m answered[V]) results(op string, tps []kafka.TopicPartition, l lost, none V) Results[kafka.TopicPartition, V] {
	res := make(Results[kafka.TopicPartition, V], len(tps))
	for i, tp := range tps {
		res[i].Item, res[i].Value = tp, none
		a, ok := m[tp]
		err := l.of(tp.String(), a.code, a.text)
		if err == nil && !ok {
			err = errLeftOut
		}
		if err == nil {
			res[i].Value = a.value
		}
		res[i].Err = partitionError(op, tp, err)
	}
	return res
}
