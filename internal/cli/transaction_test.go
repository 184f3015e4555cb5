package cli

import (
	"context"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"
)

// transact writes each word in a transaction of its own; those that begin with
// an exclamation mark are aborted.
func transact(t *testing.T, bootstrap []string, topic string, words ...string) {
	t.Helper()
	c, err := kgo.NewClient(kgo.SeedBrokers(bootstrap...), kgo.TransactionalID("cli-"+topic), kgo.DefaultProduceTopic(topic))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for _, word := range words {
		if err := c.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := c.ProduceSync(context.Background(), kgo.StringRecord(word)).FirstErr(); err != nil {
			t.Fatal(err)
		}
		if err := c.EndTransaction(context.Background(), kgo.TransactionEndTry(!strings.HasPrefix(word, "!"))); err != nil {
			t.Fatal(err)
		}
	}
}

// checkMarkers reads a topic that ends with markers of transactions.
func checkMarkers(t *testing.T, env []string, bootstrap []string, topic string) {
	t.Helper()
	transact(t, bootstrap, topic, "one", "!two", "three", "!four")
	consume := func(args ...string) result {
		return run{args: append([]string{"consume", topic, "-e"}, args...), env: env}.do(t)
	}
	consume().want(t, "one\nthree\n")
	consume("--isolation", "committed", "-f", "%o ").want(t, "0 4 ")
	consume("--isolation", "uncommitted").want(t, "one\n!two\nthree\n!four\n")
	consume("-X", "isolation.level=read_uncommitted", "-o", "-3").want(t, "!four\n")
	consume("-o", "-1").want(t, "")
}
