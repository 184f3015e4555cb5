package cli

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/ottlatest"
)

func TestVAddsTheChainAndVVTheWire(t *testing.T) {
	e := newEmbedded(t, ottlatest.Config{Brokers: 1})
	e.Fail(int16(kmsg.CreateTopics), kerr.PolicyViolation.Code, -1, 0)
	plain := e.ottla("topics", "create", "x")
	plain.wantError(t, 1, "POLICY_VIOLATION")
	chain := e.ottla("topics", "create", "x", "-v")
	if !strings.HasPrefix(chain.stderr, plain.stderr) || !strings.Contains(chain.stderr, "*kafka.BrokerError: ") || strings.Contains(chain.stderr, "  wire ") {
		t.Errorf("-v: %s", chain.stderr)
	}
	wire := e.ottla("topics", "create", "x", "-vv")
	for _, part := range []string{"*kafka.BrokerError: ", "  wire ", "-> " + e.Bootstrap()[0] + "/general CreateTopics v", "<- "} {
		if !strings.Contains(wire.stderr, part) {
			t.Errorf("-vv: %q is missing in %s", part, wire.stderr)
		}
	}
	if strings.Contains(wire.stderr, "goroutine ") {
		t.Errorf("a stack trace: %s", wire.stderr)
	}
	refused := run{args: []string{"brokers", "-vv", "-b", e.Bootstrap()[0], "--sasl", "plain", "--user", "u"}, env: []string{"OTTLA_PASSWORD=hunter2"}}.do(t)
	if refused.status != 1 || !strings.Contains(refused.stderr, "  wire ") || strings.Contains(refused.stderr, "hunter2") {
		t.Errorf("a refused login with -vv: %s", refused.stderr)
	}
}
