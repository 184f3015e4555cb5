//go:build kafka

package realkafka

import (
	"os"
	"strings"
	"testing"
)

var one *Cluster

func TestMain(m *testing.M) {
	os.Exit(Run(m, Options{}, func(c *Cluster) { one = c }))
}

func TestOneBrokerServesJavasTools(t *testing.T) {
	if out, err := one.Tool("TopicCommand", "--create", "--topic", "tools", "--partitions", "2"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := one.ToolInput("a\nb\nc\n", "ConsoleProducer", "--topic", "tools"); err != nil {
		t.Fatal(err, out)
	}
	out, err := one.Tool("consumer.ConsoleConsumer", "--topic", "tools", "--from-beginning", "--max-messages", "3", "--timeout-ms", "20000")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "b", "c"} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("record %q is missing in %q", want, out)
		}
	}
}
