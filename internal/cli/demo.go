package cli

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/kafka"
	"github.com/ottla/ottla/ottlatest"
)

// demoSummary is the end of a demo. Parts that are not there are absent.
type demoSummary struct {
	OK      bool         `json:"ok"`
	Records *demoRecords `json:"records,omitempty"`
	Leader  *demoLeader  `json:"leader,omitempty"`
	Streams *demoStreams `json:"streams,omitempty"`
	Groups  *demoGroups  `json:"-"` // counted among Records
	TookMS  int64        `json:"took_ms"`
}

// demoRecords counts what the producers were told is written, and what the
// consumers made of it.
type demoRecords struct {
	Produced   int64 `json:"produced"`
	Consumed   int64 `json:"consumed"`
	Lost       int64 `json:"lost"`
	Duplicated int64 `json:"duplicated"`
}

const (
	demoWork  = 6 * time.Second  // producers at work
	demoLimit = 18 * time.Second // everything
)

func demoCommand(a *app) *cobra.Command {
	return outputFlag(&cobra.Command{
		Use:   "demo",
		Short: "Show ottla at work, on a cluster in memory",
		Long: "Show ottla at work: producers and consumers go on while the connections of a broker are cut and come back, two\n" +
			"members of a Streams group share tasks until one leaves, a role is led, resigned and taken over while late writes of\n" +
			"old leaders are refused, and the members of a consumer group come and go.\n\n" +
			"It starts a cluster of three brokers in memory; with --bootstrap it uses that cluster, in topics of its own that\n" +
			"it deletes afterwards, and without the role, whose topic would stay. It ends by itself within 20 s, with status 1 if\n" +
			"a record was lost or came twice, a task was held twice or the role led twice.",
		Example: "  ottla demo\n  ottla demo -o json",
		Args:    takes(),
		RunE:    func(*cobra.Command, []string) error { return demo(a) },
	})
}

// demo runs the parts and prints the summary.
func demo(a *app) error {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(a.stop, demoLimit, fmt.Errorf("the demo took longer than %s", demoLimit))
	defer cancel()
	cfg, stop, err := demoCluster(a)
	if err != nil {
		return err
	}
	defer stop()
	view := newDemoView(a, began)
	tasks := startStreamsDemo(ctx, a, cfg, view)
	role := startLeaderDemo(ctx, a, cfg, view)
	part, err := runRecordsDemo(ctx, a, cfg, view)
	shared, streamsErr := tasks()
	led, leaderErr := role()
	var groups *demoGroups
	if err = cmp.Or(err, streamsErr, leaderErr); err == nil {
		groups, err = runGroupDemo(ctx, a, cfg, view)
	}
	view.end()
	if err != nil {
		if a.interrupted() {
			return errInterrupted
		}
		return err
	}
	part.Produced += groups.Handled + groups.Lost
	part.Consumed += groups.Handled
	part.Lost += groups.Lost
	part.Duplicated += groups.Duplicated
	sum := demoSummary{
		OK:      part.ok() && groups.ok() && (shared == nil || shared.DoubleOwned == 0) && (led == nil || led.ok()),
		Records: &part.demoRecords, Groups: groups, Leader: led, Streams: shared, TookMS: time.Since(began).Milliseconds(),
	}
	if err := printDemo(a, &sum, part); err != nil {
		return err
	}
	if !sum.OK {
		return &toldError{statusFailed}
	}
	return nil
}

// demoCluster is the cluster to use: that of the flag, or one in memory.
func demoCluster(a *app) (cluster.Config, func(), error) {
	if a.shared.bootstrap != "" {
		s, err := a.settings()
		if err != nil {
			return cluster.Config{}, nil, err
		}
		cfg, err := a.clusterConfig(s)
		return cfg, func() {}, err
	}
	c, err := ottlatest.Start(ottlatest.Config{Streams: ottlatest.Streams{Heartbeat: 500 * time.Millisecond}})
	if err != nil {
		return cluster.Config{}, nil, err
	}
	return cluster.Config{Bootstrap: c.Bootstrap(), NoTopicCreation: true}, func() { c.Close() }, nil
}

// printDemo prints the summary.
func printDemo(a *app, sum *demoSummary, part *demoResult) error {
	if a.stdout.json {
		return a.stdout.document(sum)
	}
	verdict := "ok: nothing was lost, nothing came twice, and all came in order"
	if !sum.OK {
		verdict = "FAILED"
		if part.disordered > 0 {
			verdict += fmt.Sprintf(": %s came out of order", count(part.disordered, "record"))
		}
	}
	r := sum.Records
	g := sum.Groups
	if err := a.stdout.printf("records: %d produced, %d consumed, %d lost, %d duplicated\n"+
		"group: %d members handled %d of them, %d partitions had two owners",
		r.Produced, r.Consumed, r.Lost, r.Duplicated, g.Members, g.Handled, g.DoubleOwned); err != nil {
		return err
	}
	if l := sum.Leader; l != nil {
		if err := a.stdout.printf("leader: %d hand-overs, %d late writes of old leaders refused, %d overlaps", l.Handovers, l.FencedWrites, l.Overlaps); err != nil {
			return err
		}
	}
	if s := sum.Streams; s != nil {
		if err := a.stdout.printf("streams: %d members shared %d tasks, %d held by both at once", s.Members, s.Tasks, s.DoubleOwned); err != nil {
			return err
		}
	}
	return a.stdout.printf("%s (%.1f s)", verdict, float64(sum.TookMS)/1000)
}

// demoTopic is a name that nobody else has.
func demoTopic() string { return "ottla-demo-" + strings.ToLower(rand.Text()[:10]) }

// ownTopicTime is how long making or deleting a topic may take.
const ownTopicTime = 10 * time.Second

// makeOwnTopic makes a topic of the command's own. What it returns deletes it, also
// after a signal. A signal does not cut the making short: a topic of which
// nobody knows whether it is there would be left behind.
func makeOwnTopic(ctx context.Context, a *app, c *client, name string, partitions int32) (drop func(), err error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	drop = func() { a.dropOwnTopic(c, name) }
	making, cancel := context.WithTimeout(a.work, ownTopicTime)
	defer cancel()
	if _, err = makeTopics(making, c, []string{name}, newTopic{partitions: partitions, replicas: -1}); err != nil {
		if kafka.MayHaveHappened(err) {
			drop()
		}
		return nil, err
	}
	return drop, nil
}

// dropOwnTopic leaves nothing behind.
func (a *app) dropOwnTopic(c *client, name string) {
	if a.shared.bootstrap == "" {
		return // the cluster goes with the command
	}
	ctx, cancel := context.WithTimeout(a.work, ownTopicTime)
	defer cancel()
	if _, err := dropTopics(ctx, c, []string{name}); err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		a.notes.printf("ottla: topic %s is left behind: %s", name, oneLine(a.explain(err)))
	}
}

// demoView is the live view: one screen on a terminal, plain lines elsewhere,
// nothing with -o json. The parts share it.
type demoView struct {
	mu    sync.Mutex // held by event and state
	app   *app
	began time.Time
	drawn int      // lines on the screen
	news  []string // the last events
	next  time.Time
}

func newDemoView(a *app, began time.Time) *demoView { return &demoView{app: a, began: began} }

// event tells something that happened.
func (v *demoView) event(format string, args ...any) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.eventLocked(format, args...)
}

func (v *demoView) eventLocked(format string, args ...any) {
	text := fmt.Sprintf("%5.1f s  %s", time.Since(v.began).Seconds(), fmt.Sprintf(format, args...))
	switch {
	case v.app.stdout.json:
	case v.app.stdout.terminal:
		v.news = append(v.news, text)
		if len(v.news) > 8 {
			v.news = v.news[1:]
		}
	default:
		v.write(text + "\n")
	}
}

// state tells how things stand: often on a terminal, once a second elsewhere.
func (v *demoView) state(lines []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if v.app.stdout.json || now.Before(v.next) {
		return
	}
	if !v.app.stdout.terminal {
		v.next = now.Add(time.Second)
		v.eventLocked("%s", strings.Join(lines, " · "))
		return
	}
	v.next = now.Add(100 * time.Millisecond)
	var b strings.Builder
	if v.drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", v.drawn)
	}
	screen := append([]string{v.bold("ottla demo: records")}, lines...)
	screen = append(append(screen, ""), v.news...)
	for _, line := range screen {
		b.WriteString("\r\x1b[K" + line + "\n")
	}
	v.drawn = len(screen)
	v.write(b.String())
}

func (v *demoView) bold(s string) string {
	if v.app.stdout.color {
		return "\x1b[1m" + s + "\x1b[0m"
	}
	return s
}

// write shows text at once; an error of the output is seen by the summary.
func (v *demoView) write(text string) {
	if _, err := v.app.stdout.Write([]byte(text)); err == nil {
		_ = v.app.stdout.flush()
	}
}

// end leaves the last screen where it is.
func (v *demoView) end() {
	if v.app.stdout.terminal && v.drawn > 0 {
		v.write("\n")
	}
}
