package admin

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
)

// HangingTransaction is a transaction that is open in a partition while no
// coordinator will ever end it: readers of committed records stop there.
type HangingTransaction struct {
	kafka.TopicPartition
	ActiveProducer
	TransactionalID string // of the producer id, if a coordinator still knows one
}

// HangingTransactions looks for hanging transactions in partitions, in those of
// all topics if none is named, as KIP-664 describes it: a transaction without a
// write for olderThan (0 = 15 min, the brokers' default transaction.max.timeout.ms)
// whose producer id no coordinator knows, or whose coordinator's transaction
// does not include the partition. What is found is looked at a second time
// before it is told.
//
// Partitions and transactions that could not be looked at are named by a
// [*cluster.PartialError] beside what was found in the others. It changes
// nothing.
func (a *Admin) HangingTransactions(ctx context.Context, tps []kafka.TopicPartition, olderThan time.Duration) ([]HangingTransaction, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	if len(tps) == 0 {
		topics, err := a.ListTopics(ctx)
		if err != nil {
			return nil, err
		}
		for i := range topics {
			for _, p := range topics[i].Partitions {
				tps = append(tps, kafka.TopicPartition{Topic: topics[i].Name, Partition: p.Partition})
			}
		}
	}
	if olderThan <= 0 {
		olderThan = 15 * time.Minute
	}
	s := &hangingSearch{a: a, old: time.Now().Add(-olderThan)}
	found := s.unowned(ctx, s.open(ctx, tps))
	if len(found) > 0 {
		var again []kafka.TopicPartition
		for _, h := range found {
			again = append(again, h.TopicPartition)
		}
		still := s.open(ctx, slices.Compact(again))
		found = slices.DeleteFunc(found, func(h HangingTransaction) bool {
			return !slices.ContainsFunc(still, func(o HangingTransaction) bool {
				return o.TopicPartition == h.TopicPartition && o.ID == h.ID && o.TxnStart == h.TxnStart
			})
		})
	}
	if len(s.failed) > 0 {
		return found, &cluster.PartialError{Op: "find hanging transactions", Failed: s.failed}
	}
	return found, nil
}

// hangingSearch is one search, with what could not be looked at.
type hangingSearch struct {
	a      *Admin
	old    time.Time // transactions without a write since then are looked into
	failed []cluster.Failure
}

func (s *hangingSearch) fail(item string, err error) {
	s.failed = append(s.failed, cluster.Failure{Item: item, Broker: kafka.NoNode, Err: err})
}

// open are the old open transactions of partitions.
func (s *hangingSearch) open(ctx context.Context, tps []kafka.TopicPartition) []HangingTransaction {
	var out []HangingTransaction
	for _, r := range s.a.DescribeProducers(ctx, tps) {
		if r.Err != nil {
			s.fail(r.Item.String(), r.Err)
		}
		for _, p := range r.Value {
			if p.TxnStart >= 0 && p.LastTime.Before(s.old) {
				out = append(out, HangingTransaction{TopicPartition: r.Item, ActiveProducer: p})
			}
		}
	}
	return out
}

// unowned are those that no coordinator is going to end.
func (s *hangingSearch) unowned(ctx context.Context, open []HangingTransaction) []HangingTransaction {
	if len(open) == 0 {
		return nil
	}
	var producers []kafka.ProducerID
	for _, o := range open {
		producers = append(producers, o.ID)
	}
	slices.Sort(producers)
	listed, err := s.a.ListTransactions(ctx, TransactionFilter{ProducerIDs: slices.Compact(producers)})
	if err != nil { // a coordinator that was not asked may know any of them
		s.fail("", err)
		return nil
	}
	names := make(map[kafka.ProducerID]string)
	var ids []string
	for _, l := range listed {
		names[l.ProducerID] = l.ID
		ids = append(ids, l.ID)
	}
	covered := make(map[string][]kafka.TopicPartition)
	for _, r := range s.a.DescribeTransactions(ctx, ids) {
		if r.Err != nil && !errors.Is(r.Err, kerr.TransactionalIDNotFound) {
			s.fail(r.Item, r.Err)
			open = slices.DeleteFunc(open, func(o HangingTransaction) bool { return names[o.ID] == r.Item })
		}
		covered[r.Item] = r.Value.Partitions
	}
	var out []HangingTransaction
	for _, o := range open {
		o.TransactionalID = names[o.ID]
		if o.TransactionalID == "" || !slices.Contains(covered[o.TransactionalID], o.TopicPartition) {
			out = append(out, o)
		}
	}
	return out
}
