package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
)

// ListedTransaction is a transactional id that some coordinator knows.
type ListedTransaction struct {
	ID         string // transactional.id
	ProducerID kafka.ProducerID
	State      string // Kafka's word, such as Ongoing
}

// TransactionFilter says which transactions are listed. The zero value lists
// all.
type TransactionFilter struct {
	States      []string           // Kafka's words, such as Ongoing; none = any
	ProducerIDs []kafka.ProducerID // none = any
	OlderThan   time.Duration      // open for longer than that (KIP-994, from Kafka 3.8 on), unless States says otherwise; 0 = any
	Pattern     string             // RE2 that the id matches (KIP-1152, from 4.1 on); "" = any
}

// ListTransactions asks every broker for the transactional ids that it
// coordinates (KIP-664, from Kafka 3.0 on), and returns them in order of their
// ids. One that two brokers list, as happens while its coordinator moves, is
// there once, as the broker with the lower id has it. Where brokers did not
// answer, what the others list comes with a [*cluster.PartialError].
func (a *Admin) ListTransactions(ctx context.Context, f TransactionFilter) ([]ListedTransaction, error) {
	ctx, cancel := bounded(ctx)
	defer cancel()
	req := kmsg.NewPtrListTransactionsRequest()
	req.StateFilters = f.States
	for _, id := range f.ProducerIDs {
		req.ProducerIDFilters = append(req.ProducerIDFilters, int64(id))
	}
	if f.OlderThan > 0 {
		req.DurationFilterMillis = max(f.OlderThan.Milliseconds(), 1)
		if len(f.States) == 0 { // brokers take an id without an open transaction for an old one
			req.StateFilters = []string{"Ongoing", "PrepareCommit", "PrepareAbort"}
		}
	}
	if f.Pattern != "" {
		req.TransactionalIDPattern = &f.Pattern
	}
	resp, err := req.RequestWith(ctx, a.c)
	if resp == nil {
		return nil, err
	}
	if err == nil && len(resp.UnknownStateFilters) > 0 {
		err = opError("list transactions", "", unsent("the brokers know no state "+strings.Join(resp.UnknownStateFilters, ", ")))
	}
	if err == nil {
		err = opError("list transactions", "", kafka.CodeError(resp.ErrorCode, nil))
	}
	var out []ListedTransaction
	for _, t := range resp.TransactionStates {
		out = append(out, ListedTransaction{t.TransactionalID, kafka.ProducerID(t.ProducerID), t.TransactionState})
	}
	slices.SortFunc(out, func(a, b ListedTransaction) int { return strings.Compare(a.ID, b.ID) })
	return out, err
}

// Transaction is the state of a transactional id as its coordinator has it.
type Transaction struct {
	State      string // Kafka's word, such as Ongoing
	ProducerID kafka.ProducerID
	Epoch      kafka.ProducerEpoch
	Timeout    time.Duration // transaction.timeout.ms of its producer
	Start      time.Time     // of the open transaction; zero if none is open
	Partitions []kafka.TopicPartition
}

// DescribeTransactions asks the coordinators of transactional ids for their
// states (KIP-664, from Kafka 3.0 on). An id that none knows is
// TRANSACTIONAL_ID_NOT_FOUND.
func (a *Admin) DescribeTransactions(ctx context.Context, ids []string) Results[string, Transaction] {
	ctx, cancel := bounded(ctx)
	defer cancel()
	res := make(Results[string, Transaction], len(ids))
	if len(ids) == 0 {
		return res
	}
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = ids
	resp, err := req.RequestWith(ctx, a.c)
	l := lostIn(err)
	got := make(map[string]*kmsg.DescribeTransactionsResponseTransactionState)
	if resp != nil {
		for i := range resp.TransactionStates {
			got[resp.TransactionStates[i].TransactionalID] = &resp.TransactionStates[i]
		}
	}
	for i, id := range ids {
		err := l.of(id, 0, nil)
		if t := got[id]; t != nil {
			err = l.of(id, t.ErrorCode, nil)
		} else if err == nil {
			err = errLeftOut
		}
		if err == nil {
			res[i].Value = transactionOf(got[id])
		}
		res[i].Item, res[i].Err = id, opError(fmt.Sprintf("describe transaction %q", id), "", err)
	}
	return res
}

func transactionOf(t *kmsg.DescribeTransactionsResponseTransactionState) Transaction {
	out := Transaction{
		State: t.State, ProducerID: kafka.ProducerID(t.ProducerID), Epoch: kafka.ProducerEpoch(t.ProducerEpoch),
		Timeout: time.Duration(t.TimeoutMillis) * time.Millisecond,
	}
	if t.StartTimestamp >= 0 {
		out.Start = kafka.Timestamp(t.StartTimestamp).Time()
	}
	for _, topic := range t.Topics {
		for _, p := range topic.Partitions {
			out.Partitions = append(out.Partitions, kafka.TopicPartition{Topic: topic.Topic, Partition: p})
		}
	}
	slices.SortFunc(out.Partitions, kafka.TopicPartition.Compare)
	return out
}
