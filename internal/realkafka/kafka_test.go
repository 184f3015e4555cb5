//go:build kafka

package realkafka

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

var one *Cluster

func TestMain(m *testing.M) {
	os.Exit(Run(m, Options{}, func(c *Cluster) { one = c }))
}

// TestTheTestsThatNeedAClusterAreKnown, and only they: one that is not would run
// without.
func TestTheTestsThatNeedAClusterAreKnown(t *testing.T) {
	names, others := onKafka()
	if !others {
		t.Error("there are no others, it says")
	}
	for name, want := range map[string]bool{
		"TestBrokersOfThreeComeAndGo": true, "TestSecureListenersServe": true, t.Name(): true,
		"TestMain": false, "TestReservedPortsAreHeld": false,
	} {
		if slices.Contains(names, name) != want {
			t.Errorf("%s is taken for one: %v, want %v; all: %v", name, !want, want, names)
		}
	}
}

func TestOneBrokerServesJavasTools(t *testing.T) {
	if one.inst.java.major >= archiveJava && !exists(one.inst.archive()) {
		t.Error("there is no archive of classes, so every start is slow")
	}
	if out, err := one.Tool("TopicCommand", "--create", "--topic", "tools", "--partitions", "2"); err != nil {
		t.Fatal(err, out)
	}
	if out, err := one.ToolInput("a\nb\nc\n", "ConsoleProducer", "--topic", "tools"); err != nil {
		t.Fatal(err, out)
	}
	out, err := one.Tool("consumer.ConsoleConsumer", "--topic", "tools", "--from-beginning", "--max-messages", "3", "--timeout-ms", "120000")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"a", "b", "c"} {
		if !strings.Contains(out, want+"\n") {
			t.Errorf("record %q is missing in %q", want, out)
		}
	}
	found := 0
	for p := range 2 {
		dump, err := one.DumpLog("tools", p)
		must(t, err)
		for _, want := range []string{"payload: a", "payload: b", "payload: c"} {
			found += strings.Count(dump, want+"\n")
		}
	}
	if found != 3 {
		t.Errorf("DumpLog shows %d of the 3 records", found)
	}
	if _, err := one.DumpLog("nothing", 0); err == nil {
		t.Error("DumpLog of a topic that is not there gives no error")
	}
	if id, err := one.Controller(); id != 1 || err != nil {
		t.Errorf("the controller of one broker is %d (%v)", id, err)
	}
}

// TestColdBrokerHasNoCoordinators: Cold is the way to meet the errors of a
// coordinator's first use; without it they are over.
func TestColdBrokerHasNoCoordinators(t *testing.T) {
	first := func(c *Cluster) error {
		ranges, _, err := versionsOf(t.Context(), c.Addr(1))
		must(t, err)
		_, err = coordinator(t.Context(), c.Addr(1), ranges, 0, "a-group")
		return err
	}
	if err := first(Start(t, Options{Cold: true})); err == nil || !strings.Contains(err.Error(), "error 15") {
		t.Errorf("the first FindCoordinator of a cold broker gives %v, want COORDINATOR_NOT_AVAILABLE (15)", err)
	}
	if err := first(one); err != nil {
		t.Errorf("the first FindCoordinator of a warm broker gives %v", err)
	}
}

// TestOldestLineStarts: with ZooKeeper, and every repair of the class path. A
// killed broker comes back although ZooKeeper still knows the dead one.
func TestOldestLineStarts(t *testing.T) {
	c := Start(t, Options{Version: "0.11.0.3"})
	must(t, c.Kill(1))
	must(t, c.Restart(1))
	if id, err := c.Controller(); id != 1 || err != nil {
		t.Errorf("the controller is %d (%v)", id, err)
	}
}

// TestBrokerThatCannotStartSaysWhy: the reason stands in the error.
func TestBrokerThatCannotStartSaysWhy(t *testing.T) {
	_, err := begin(t.Context(), Options{Props: map[string]string{"num.io.threads": "many"}})
	if err == nil || !strings.Contains(err.Error(), "num.io.threads") {
		t.Errorf("the error does not name the property: %v", err)
	}
	if dirs, _ := filepath.Glob(filepath.Join(tempDir(), "failed-*")); len(dirs) > 0 {
		for _, d := range dirs {
			if strings.Contains(err.Error(), d) {
				must(t, os.RemoveAll(d))
			}
		}
	}
}
