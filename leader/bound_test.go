package leader

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/producer"
)

// write appends one record to topic "out" in a transaction of the term.
func write(ctx context.Context, t *Term, value string) error {
	return t.Transact(ctx, func(ctx context.Context, tx *producer.Tx) error {
		_, err := tx.Append(ctx, kafka.Record{Topic: "out", Value: []byte(value)})
		return err
	})
}

func TestP50P7TheBoundProducerSharesThePairAndRenewsTheLease(t *testing.T) {
	inBubble(t, func(t *testing.T, k *fake) {
		if err := k.CreateTopic("out", 1); err != nil {
			t.Fatal(err)
		}
		a := k.open(Config{Member: "a"})
		defer a.Close()
		ta := win(t, a, "r")
		token := ta.Token()
		for i := range 60 {
			if err := write(t.Context(), ta, strconv.Itoa(i)); err != nil {
				t.Fatal(i, err)
			}
			time.Sleep(time.Second)
		}
		if ta.Err() != nil || ta.Token() != token {
			t.Fatalf("after a minute of transactions: %v, token %v was %v", ta.Err(), ta.Token(), token)
		}
		records, err := k.Records("out", 0)
		if err != nil || len(records) != 60 {
			t.Errorf("%d records are there, want 60; %v", len(records), err)
		}
		inits, ends := 0, 0
		for _, r := range k.Journal(0, 22, 24, 26) {
			switch q := r.Body.(type) {
			case *kmsg.InitProducerIDRequest:
				if q.TransactionalID != nil {
					inits++
				}
			case *kmsg.EndTxnRequest:
				ends++
				if r.Version > 4 {
					t.Fatalf("EndTxn was sent in version %d", r.Version)
				}
			case *kmsg.AddPartitionsToTxnRequest:
				if r.Version > 3 {
					t.Fatalf("AddPartitionsToTxn was sent in version %d", r.Version)
				}
			case *kmsg.ProduceRequest:
				if q.TransactionID != nil && r.Version > 11 {
					t.Fatalf("a Produce in a transaction was sent in version %d", r.Version)
				}
			}
		}
		if inits != 2 {
			t.Errorf("InitProducerId for the role was sent %d times: the bound producer must not", inits)
		}
		if a.Stats().Renewals < 5 || ends > 60+3 {
			t.Errorf("%d renewals in %d transactions: the lease must go with the user's", a.Stats().Renewals, ends)
		}
	})
}

func TestP50AResignedOrDeposedLeaderWritesNothing(t *testing.T) {
	inBubble(t, func(t *testing.T, k *fake) {
		if err := k.CreateTopic("out", 1); err != nil {
			t.Fatal(err)
		}
		a, b := k.open(Config{Member: "a"}), k.open(Config{Member: "b"})
		defer a.Close()
		defer b.Close()
		ta := win(t, a, "r")
		p := ta.Producer()
		tx, err := p.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Send(t.Context(), kafka.Record{Topic: "out", Value: []byte("open")}); err != nil {
			t.Fatal(err)
		}
		if err := ta.Resign(within(t, time.Minute)); err != nil {
			t.Fatalf("I4: a resignation with an open transaction: %v", err)
		}
		if err := tx.Commit(within(t, time.Minute)); err == nil {
			t.Error("a transaction is committed after the resignation")
		}
		if _, err := p.Begin(t.Context()); err == nil || ta.Producer() != nil {
			t.Errorf("the producer of a leadership that is over: %v", err)
		}
		tb := win(t, b, "r")
		if err := write(t.Context(), tb, "b"); err != nil {
			t.Fatal(err)
		}
		// An operator takes the epoch: the next transaction of b is refused, and ends its term.
		id := "r"
		mint := kmsg.NewPtrInitProducerIDRequest()
		mint.TransactionalID, mint.TransactionTimeoutMillis = &id, 10_000
		if _, err := k.cl.Request(t.Context(), mint); err != nil {
			t.Fatal(err)
		}
		if err := write(within(t, time.Minute), tb, "zombie"); err == nil || kafka.MayHaveHappened(err) && !IsFence(err) {
			t.Errorf("H1: a deposed leader writes: %v", err)
		}
		select {
		case <-tb.Done():
		case <-time.After(30 * time.Second):
			t.Fatal("the fence of the bound producer does not end the leadership")
		}
		if !errors.Is(tb.Err(), ErrFenced) {
			t.Error(tb.Err())
		}
	})
}

func TestScenario32ATransactionThatTakesTooLongIsAborted(t *testing.T) {
	inBubble(t, func(t *testing.T, k *fake) {
		if err := k.CreateTopic("out", 1); err != nil {
			t.Fatal(err)
		}
		a := k.open(Config{Member: "a"})
		defer a.Close()
		ta := win(t, a, "r")
		began := time.Now()
		err := ta.Transact(t.Context(), func(ctx context.Context, tx *producer.Tx) error {
			if _, err := tx.Send(ctx, kafka.Record{Topic: "out", Value: []byte("slow")}); err != nil {
				return err
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if err == nil || time.Since(began) > 11*time.Second {
			t.Errorf("it ended after %v with %v", time.Since(began), err)
		}
		tx, err := ta.Producer().Begin(t.Context()) // and one that nobody ends
		if err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Send(t.Context(), kafka.Record{Topic: "out", Value: []byte("forgotten")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		if ta.Err() != nil {
			t.Errorf("a forgotten transaction cost the leadership: %v", ta.Err())
		}
		if err := write(t.Context(), ta, "good"); err != nil {
			t.Error(err)
		}
	})
}
