package ottlatest

import (
	"testing"

	"github.com/ottla/ottla/cluster"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A pair that was deposed is refused, the one before the current is answered
// again, as coordinators do (the tests of leader on a real Kafka hold the same).
// Mutation: leave the hook out.
func TestADeposedProducerCannotInitAgain(t *testing.T) {
	everywhere(t, Config{}, func(t *testing.T, c *Cluster) {
		client, err := cluster.Connect(t.Context(), c.ClientConfig())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		init := func(has pair) (pair, int16) {
			req := kmsg.NewPtrInitProducerIDRequest()
			req.TransactionalID, req.TransactionTimeoutMillis = kmsg.StringPtr("x"), 10_000
			req.ProducerID, req.ProducerEpoch = has.id, has.epoch
			resp, err := client.Request(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			r := resp.(*kmsg.InitProducerIDResponse)
			return pair{r.ProducerID, r.ProducerEpoch}, r.ErrorCode
		}
		old, _ := init(noPair)
		current, _ := init(noPair)
		if current.id == old.id && current.epoch <= old.epoch {
			t.Fatalf("%v after %v", current, old)
		}
		if got, code := init(old); code != kerr.ProducerFenced.Code {
			t.Errorf("a deposed pair is given %v, code %d", got, code)
		}
		next, code := init(current)
		if code != 0 || next == current {
			t.Fatalf("the current pair is given %v, code %d", next, code)
		}
		if again, code := init(current); code != 0 || again != next {
			t.Errorf("a repetition is given %v, code %d, and not %v again", again, code, next)
		}
		if last, code := init(next); code != 0 || last == next {
			t.Errorf("after the repetition: %v, code %d", last, code)
		}
	})
}
