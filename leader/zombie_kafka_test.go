//go:build kafka

package leader

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/ottla/ottla/internal/core/lead"
	"github.com/ottla/ottla/kafka"
)

// longFacts has the tests run that need a Java compiler, or minutes.
func longFacts() bool { return os.Getenv("OTTLA_FACTS") == "long" }

// idler is a holder of a role by another client, which is not pinned: it has
// committed, and is idle while a successor takes the role.
type idler interface {
	// transaction writes a value and commits or aborts it; where that fails it
	// aborts, and the error says so.
	transaction(commit bool, value string) error
}

// F11 on real brokers and with real clients: with a mint alone an idle holder
// that is not pinned takes its pinned successor's pair for its own, by an EndTxn
// 5 that the coordinator takes for a repetition; after a mint and a re-init it
// stays fenced.
func TestKafkaF11AnIdleHolderOfPart2(t *testing.T) {
	if !hasLevels() {
		testIdler(t, false, newFranz) // part 1 has no such door
		return
	}
	levels := []int16{2}
	if longFacts() {
		levels = []int16{1, 2}
	}
	for _, level := range levels {
		t.Run(fmt.Sprint("franz-go, level ", level), func(t *testing.T) {
			setLevel(t, dialKafka(t), level)
			t.Cleanup(restoreLevel)
			testIdler(t, level == 2, newFranz)
		})
	}
	if longFacts() {
		t.Run("Java", func(t *testing.T) { testIdler(t, true, newJava) })
	}
}

// testIdler has holders made by open. bumping says that they write by part 2.
func testIdler(t *testing.T, bumping bool, open func(t *testing.T, role, topic string) idler) {
	e := onKafka(t, Config{})
	topic := fmt.Sprint("idler", time.Now().UnixNano())
	createTopic(t, dialKafka(t), topic)
	for _, whole := range []bool{false, true} {
		name := "a mint alone"
		if whole {
			name = "a mint and a re-init"
		}
		t.Run(name, func(t *testing.T) {
			role := roleOf(t)
			h := open(t, role, topic)
			if err := h.transaction(true, role+"-before"); err != nil {
				t.Fatal(err)
			}
			succeed(t, e, role, whole)
			first, second := h.transaction(true, role+"-first"), h.transaction(true, role+"-second")
			t.Logf("the old holder's transactions: %v; %v", first, second)
			if first == nil {
				t.Error("the old holder's first transaction was not refused")
			}
			robbed := bumping && !whole
			if (second == nil) != robbed {
				t.Errorf("its second transaction: %v, want robbed %v", second, robbed)
			}
			var got []string
			readCommitted(t, topic, func(r kafka.Record) { got = append(got, string(r.Value)) })
			if slices.Contains(got, role+"-second") != robbed || slices.Contains(got, role+"-first") {
				t.Errorf("committed: %q", got)
			}
		})
	}
}

// succeed takes the role and leaves it with an aborted transaction, as the old
// holder will ask for. whole is what a campaign does; else it mints once.
func succeed(t *testing.T, e *Elector, role string, whole bool) {
	t.Helper()
	ctx := within(t, 2*time.Minute)
	if _, err := e.topic.ensure(ctx); err != nil {
		t.Fatal(err)
	}
	p, err := e.place(ctx, role)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := e.initUntil(ctx, role, lead.NoToken, 1<<62)
	if err == nil && whole {
		pair, err = e.initUntil(ctx, role, pair, 1<<62)
	}
	if err != nil {
		t.Fatal(err)
	}
	l := &leaseWriter{e: e, role: role, partition: p.id, turn: make(chan struct{}, 1), term: -1}
	for _, step := range []lead.Step{lead.Add, lead.Abort} {
		for code := int16(51); code == 51; time.Sleep(5 * time.Millisecond) {
			a, err := l.send(ctx, lead.Action{Step: step, Pair: pair}, leaseRecord{})
			if err != nil || a.Code != 0 && a.Code != 51 {
				t.Fatal(step, a.Code, err)
			}
			code = a.Code
		}
	}
}

// franz is a holder by franz-go.
type franz struct {
	cl    *kgo.Client
	topic string
}

func newFranz(t *testing.T, role, topic string) idler {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(real.Bootstrap(), ",")...), kgo.TransactionalID(role),
		kgo.UnknownTopicRetries(-1)) // brokers may hear of the topic late
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cl.Close)
	return &franz{cl, topic}
}

func (f *franz) transaction(commit bool, value string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := f.cl.BeginTransaction(); err != nil {
		return err
	}
	err := f.cl.ProduceSync(ctx, &kgo.Record{Topic: f.topic, Value: []byte(value)}).FirstErr()
	if err == nil {
		err = f.cl.EndTransaction(ctx, kgo.TransactionEndTry(commit))
	}
	if err != nil {
		return fmt.Errorf("%w; its abort: %v", err, f.cl.EndTransaction(ctx, kgo.TryAbort))
	}
	return nil
}

// java is a holder by the Java client.
type java struct {
	in  io.Writer
	out *bufio.Scanner
}

func newJava(t *testing.T, role, topic string) idler {
	t.Helper()
	cmd, err := real.ToolCommand(t.Context(), "org.apache.kafka.Holder")
	if err != nil {
		t.Fatal(err)
	}
	i := slices.Index(cmd.Args, "org.apache.kafka.Holder")
	cmd.Args = append(cmd.Args[:i], "testdata/Holder.java", real.Bootstrap(), role, topic)
	return startJava(t, cmd)
}

func startJava(t *testing.T, cmd *exec.Cmd) *java {
	t.Helper()
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close(); _ = cmd.Wait() })
	j := &java{in, bufio.NewScanner(out)}
	if !j.out.Scan() || j.out.Text() != "ready" {
		t.Fatalf("the holder says %q, %v", j.out.Text(), j.out.Err())
	}
	return j
}

func (j *java) transaction(commit bool, value string) error {
	what := "abort "
	if commit {
		what = "commit "
	}
	if _, err := fmt.Fprintln(j.in, what+value); err != nil {
		return err
	}
	if !j.out.Scan() {
		return fmt.Errorf("the holder is gone: %w", j.out.Err())
	}
	if said := j.out.Text(); said != "done" {
		return fmt.Errorf("%s", said)
	}
	return nil
}
