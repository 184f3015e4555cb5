package admin

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/sim"
	"github.com/ottla/ottla/kafka"
)

// listsTransactions has a broker list transactions, by their ids and producers.
func listsTransactions(b *sim.Broker, state string, of map[string]int64) {
	b.Handle(66, func(q *sim.Request) sim.Answer {
		req, resp := q.Req.(*kmsg.ListTransactionsRequest), q.Response().(*kmsg.ListTransactionsResponse)
		for id, producer := range of {
			if len(req.ProducerIDFilters) > 0 && !slices.Contains(req.ProducerIDFilters, producer) {
				continue
			}
			t := kmsg.NewListTransactionsResponseTransactionState()
			t.TransactionalID, t.ProducerID, t.TransactionState = id, producer, state
			resp.TransactionStates = append(resp.TransactionStates, t)
		}
		return sim.Reply(resp)
	})
}

// TestB277_A2_A26ListsHaveNoDoublesAndNameWhoIsMissing: two brokers list the same
// transaction in different states, a third is down.
func TestB277_A2_A26ListsHaveNoDoublesAndNameWhoIsMissing(t *testing.T) {
	inBubble(t, 3, func(t *testing.T, r *rig) {
		listsTransactions(r.sim.Broker(1), "Ongoing", map[string]int64{"both": 1, "z": 2})
		listsTransactions(r.sim.Broker(2), "Empty", map[string]int64{"both": 1, "a": 3})
		a := r.admin()
		r.sim.Broker(3).Close()
		got, err := a.ListTransactions(r.within(5*time.Second), TransactionFilter{})
		want := []ListedTransaction{{"a", 3, "Empty"}, {"both", 1, "Ongoing"}, {"z", 2, "Ongoing"}}
		if !slices.Equal(got, want) {
			t.Errorf("%+v", got)
		}
		var pe *cluster.PartialError
		if !errors.As(err, &pe) || len(pe.Failed) != 1 || pe.Failed[0].Broker != 3 {
			t.Errorf("%v", err)
		}
	})
}

func TestA26FiltersThatABrokerDoesNotHaveAreRefused(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, r *rig) {
		r.sim.Broker(1).Handle(66, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.ListTransactionsResponse)
			for _, s := range q.Req.(*kmsg.ListTransactionsRequest).StateFilters {
				if s != "Ongoing" {
					resp.UnknownStateFilters = append(resp.UnknownStateFilters, s)
				}
			}
			return sim.Reply(resp)
		})
		a := r.admin()
		f := TransactionFilter{States: []string{"Ongoing"}, ProducerIDs: []kafka.ProducerID{7}, OlderThan: time.Microsecond, Pattern: "a.*"}
		if _, err := a.ListTransactions(r.within(time.Minute), f); err != nil {
			t.Error(err)
		}
		req := sent[*kmsg.ListTransactionsRequest](r.sim.Broker(1))[0]
		if req.StateFilters[0] != "Ongoing" || req.ProducerIDFilters[0] != 7 || req.DurationFilterMillis != 1 || *req.TransactionalIDPattern != "a.*" {
			t.Errorf("%+v", req)
		}
		if _, err := a.ListTransactions(r.within(time.Minute), TransactionFilter{States: []string{"Gone"}}); err == nil || kafka.MayHaveHappened(err) {
			t.Errorf("a state that does not exist: %v", err)
		}
		r.old(66, 0) // Kafka 3.7
		r.sim.Broker(1).EndAll(sim.Close)
		time.Sleep(time.Second)
		var ve *kafka.VersionError
		if got, err := a.ListTransactions(r.within(time.Minute), f); !errors.As(err, &ve) || got != nil {
			t.Errorf("%v, %v", got, err)
		}
		if _, err := a.ListTransactions(r.within(time.Minute), TransactionFilter{}); err != nil {
			t.Error(err)
		}
	})
}

func TestA26TransactionsAreDescribedByTheirCoordinators(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.Update(func(tp *sim.Topology) { tp.Coordinators = map[string]int32{"x": 1, "y": 2, "none": 2} })
		r.everywhere(65, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeTransactionsResponse)
			for _, id := range q.Req.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
				s := kmsg.NewDescribeTransactionsResponseTransactionState()
				s.TransactionalID, s.State, s.TimeoutMillis, s.ProducerID, s.ProducerEpoch = id, "Ongoing", 60_000, int64(q.Broker.ID), 3
				s.StartTimestamp = 1_000
				s.Topics = []kmsg.DescribeTransactionsResponseTransactionStateTopic{{Topic: "t", Partitions: []int32{2, 0}}}
				if id == "none" {
					s.ErrorCode = kerr.TransactionalIDNotFound.Code
				}
				resp.TransactionStates = append(resp.TransactionStates, s)
			}
			return sim.Reply(resp)
		})
		a := r.admin()
		res := a.DescribeTransactions(r.within(time.Minute), []string{"y", "none", "x"})
		if !errors.Is(res[1].Err, kerr.TransactionalIDNotFound) || res[1].Value.State != "" {
			t.Errorf("%+v", res[1])
		}
		got := res[0].Value
		if res[0].Item != "y" || got.ProducerID != 2 || got.Epoch != 3 || got.Timeout != time.Minute || got.Start.UnixMilli() != 1000 ||
			!slices.Equal(got.Partitions, []kafka.TopicPartition{tp("t", 0), tp("t", 2)}) || res[2].Value.ProducerID != 1 {
			t.Errorf("%+v, %v", res, res.Err())
		}
	})
}

// describesProducers has the leaders remember producers, by partition.
func (r *rig) describesProducers(of map[int32][]kmsg.DescribeProducersResponseTopicPartitionActiveProducer) {
	r.everywhere(61, func(q *sim.Request) sim.Answer {
		resp := q.Response().(*kmsg.DescribeProducersResponse)
		for _, x := range q.Req.(*kmsg.DescribeProducersRequest).Topics {
			rt := kmsg.NewDescribeProducersResponseTopic()
			rt.Topic = x.Topic
			for _, p := range x.Partitions {
				rp := kmsg.NewDescribeProducersResponseTopicPartition()
				rp.Partition, rp.ActiveProducers = p, of[p]
				rt.Partitions = append(rt.Partitions, rp)
			}
			resp.Topics = append(resp.Topics, rt)
		}
		return sim.Reply(resp)
	})
}

func TestA26ProducersAreDescribedByTheLeaders(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.SetTopic("t", 1, 2)
		r.describesProducers(map[int32][]kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
			1: {{ProducerID: 9, ProducerEpoch: 2, LastSequence: 41, LastTimestamp: 5, CoordinatorEpoch: 7, CurrentTxnStartOffset: -1}},
		})
		a := r.admin()
		res := a.DescribeProducers(r.within(time.Minute), []kafka.TopicPartition{tp("t", 1), tp("t", 0), tp("gone", 0)})
		want := ActiveProducer{ID: 9, Epoch: 2, LastSequence: 41, LastTime: time.UnixMilli(5).UTC(), CoordinatorEpoch: 7, TxnStart: -1}
		if res[0].Item != tp("t", 1) || len(res[0].Value) != 1 || res[0].Value[0] != want || res[1].Err != nil || res[1].Value != nil {
			t.Errorf("%+v", res)
		}
		if !errors.Is(res[2].Err, kerr.UnknownTopicOrPartition) || r.sim.Broker(1).Count(61) != 1 || r.sim.Broker(2).Count(61) != 1 {
			t.Errorf("%v", res[2].Err)
		}
	})
}

// TestA26HangingTransactionsAreFound has seven old open transactions in seven
// partitions, of which three hang: nobody knows the producer, the coordinator
// says that the id is gone, the coordinator's transaction is elsewhere.
func TestA26HangingTransactionsAreFound(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, r *rig) {
		r.sim.SetTopic("t", 1, 2, 1, 2, 1, 2, 1)
		long := time.Now().Add(-time.Hour).UnixMilli()
		open := func(producer, last int64) []kmsg.DescribeProducersResponseTopicPartitionActiveProducer {
			return []kmsg.DescribeProducersResponseTopicPartitionActiveProducer{{ProducerID: producer, LastTimestamp: last, CurrentTxnStartOffset: 100 + producer}}
		}
		closed := open(6, long)
		closed[0].CurrentTxnStartOffset = -1
		r.describesProducers(map[int32][]kmsg.DescribeProducersResponseTopicPartitionActiveProducer{
			0: open(1, long), // hangs: unknown producer
			1: open(2, long), // is going on
			2: open(3, long), // hangs: its transactional id is gone
			3: open(4, long), // hangs: its transaction does not have the partition
			4: open(5, time.Now().UnixMilli()),
			5: closed,
			6: open(7, long), // cannot be told: its coordinator refuses
		})
		listsTransactions(r.sim.Broker(1), "Ongoing", map[string]int64{"two": 2, "three": 3})
		listsTransactions(r.sim.Broker(2), "Ongoing", map[string]int64{"four": 4, "seven": 7})
		r.everywhere(65, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.DescribeTransactionsResponse)
			for _, id := range q.Req.(*kmsg.DescribeTransactionsRequest).TransactionalIDs {
				s := kmsg.NewDescribeTransactionsResponseTransactionState()
				s.TransactionalID = id
				switch id {
				case "two":
					s.Topics = []kmsg.DescribeTransactionsResponseTransactionStateTopic{{Topic: "t", Partitions: []int32{1}}}
				case "three":
					s.ErrorCode = kerr.TransactionalIDNotFound.Code
				case "four":
					s.Topics = []kmsg.DescribeTransactionsResponseTransactionStateTopic{{Topic: "t", Partitions: []int32{1}}}
				case "seven":
					s.ErrorCode = kerr.TransactionalIDAuthorizationFailed.Code
				}
				resp.TransactionStates = append(resp.TransactionStates, s)
			}
			return sim.Reply(resp)
		})
		a := r.admin()
		got, err := a.HangingTransactions(r.within(time.Minute), nil, 0)
		var names []string
		for _, h := range got {
			names = append(names, h.TopicPartition.String()+"/"+h.TransactionalID)
		}
		if !slices.Equal(names, []string{"t-0/", "t-2/three", "t-3/four"}) {
			t.Errorf("%v", names)
		}
		var pe *cluster.PartialError
		if !errors.As(err, &pe) || len(pe.Failed) != 1 || pe.Failed[0].Item != "seven" || !errors.Is(err, kerr.TransactionalIDAuthorizationFailed) {
			t.Errorf("%v", err)
		}
		r.sim.Broker(2).Handle(66, func(q *sim.Request) sim.Answer {
			resp := q.Response().(*kmsg.ListTransactionsResponse)
			resp.ErrorCode = kerr.ClusterAuthorizationFailed.Code
			return sim.Reply(resp)
		})
		if got, err := a.HangingTransactions(r.within(time.Minute), nil, 0); len(got) != 0 || !errors.Is(err, kerr.ClusterAuthorizationFailed) {
			t.Errorf("a coordinator told nothing, and may know them all: %v, %v", got, err)
		}
	})
}
