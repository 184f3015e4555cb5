package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/internal/task"
	"github.com/ottla/ottla/streams"
)

// joinFlags are the flags of `streams join`.
type joinFlags struct {
	group, topology, member, instance, process string
	delay                                      time.Duration
}

func streamsJoinCommand(a *app) *cobra.Command {
	var f joinFlags
	cmd := outputFlag(&cobra.Command{
		Use:   "join --group G --topology FILE",
		Short: "Be a member of a Streams group that processes nothing",
		Long: "Be a member of a Streams group that processes nothing: it prints assignments as they change, acknowledges them, and\n" +
			"leaves on SIGINT or SIGTERM. The tasks that it holds are held back from the group's other members.",
		Example: joinExample("words", "", "kill $!") + "\n" + joinExample("counts", " -o json --delay-ack 2s", "kill $!"),
		Args:    takes(),
		RunE: func(*cobra.Command, []string) error {
			if f.group == "" || f.topology == "" {
				return usagef("ottla streams join needs --group and --topology")
			}
			if f.delay < 0 {
				return usagef("--delay-ack %s: must not be negative", f.delay)
			}
			t, err := readTopology(f.topology)
			if err != nil {
				return err
			}
			return a.withCluster(func(ctx context.Context, c *client) error { return joinStreams(ctx, a, c, f, t) })
		},
	})
	fs := cmd.Flags()
	fs.StringVar(&f.group, "group", "", "the `GROUP` (application.id)")
	fs.StringVar(&f.topology, "topology", "", "`FILE` with the topology as JSON")
	fs.StringVar(&f.member, "member", "", "member `ID`; default: a new one")
	fs.StringVar(&f.instance, "instance", "", "instance `ID` of a static member (Kafka 4.4)")
	fs.StringVar(&f.process, "process", "", "process `ID`; default: a new one")
	fs.DurationVar(&f.delay, "delay-ack", 0, "wait so long before each acknowledgement")
	return cmd
}

// joinEvent is one line of `streams join -o json`.
type joinEvent struct {
	At      time.Time    `json:"at"`
	Event   string       `json:"event"`
	Group   string       `json:"group"`
	Member  string       `json:"member"`
	Epoch   int32        `json:"epoch"`
	Active  []string     `json:"active"`
	Standby []string     `json:"standby"`
	Warmup  []string     `json:"warmup"`
	Status  []joinStatus `json:"status"`
}

type joinStatus struct {
	Code   int8   `json:"code"`
	Detail string `json:"detail"`
}

// joiner is a member at work.
type joiner struct {
	app   *app
	m     *streams.Member
	delay time.Duration
	table streams.TaskTable
	last  streams.Snapshot
	lost  bool
}

func joinStreams(ctx context.Context, a *app, c *client, f joinFlags, t streams.Topology) error {
	m, err := streams.Join(ctx, c, streams.Config{
		Group: f.group, Topology: t, MemberID: f.member, InstanceID: f.instance, ProcessID: f.process,
	})
	var bad *streams.ConfigError
	switch {
	case errors.As(err, &bad):
		return asUsage(err)
	case err != nil:
		return err
	}
	j := &joiner{app: a, m: m, delay: f.delay}
	err = j.tell("joined", m.Snapshot())
	if err == nil {
		err = j.run(ctx)
	}
	left := m.Leave(a.work) // whatever ended it: a member that stays holds its tasks back for a session
	switch {
	case err != nil && ctx.Err() == nil:
		return err
	case left != nil:
		return left
	}
	return j.tell("left", streams.Snapshot{})
}

// run follows the assignments until ctx or the member ends.
func (j *joiner) run(ctx context.Context) error {
	for s, err := range j.m.Assignments(ctx) {
		if err == nil {
			err = j.take(ctx, s)
		}
		if err != nil {
			return err
		}
		if s.Shutdown {
			j.app.notes.printf("ottla: a member asked the whole application to stop")
			return nil
		}
	}
	return nil
}

// take carries one snapshot out.
func (j *joiner) take(ctx context.Context, s streams.Snapshot) error {
	before := j.last
	j.last = s
	if fmt.Sprint(s.Statuses) != fmt.Sprint(before.Statuses) && !s.Lost {
		if err := j.tell("status", s); err != nil {
			return err
		}
	}
	if s.Lost {
		j.table, j.lost = streams.TaskTable{}, true
		if err := j.tell("lost", s); err != nil {
			return err
		}
		return j.acknowledge(ctx, s)
	}
	if j.lost {
		j.lost = false
		if err := j.tell("rejoined", s); err != nil {
			return err
		}
	}
	steps, err := j.table.Reconcile(s.Target.Update())
	if err != nil {
		return err
	}
	if len(steps) == 0 && before.HasTarget && before.Incarnation == s.Incarnation {
		return nil
	}
	if err := j.tell("assigned", s); err != nil {
		return err
	}
	if err := task.Sleep(ctx, j.delay); err != nil {
		return err
	}
	return j.acknowledge(ctx, s)
}

// acknowledge tells the group what is held, and the user once the broker has it.
func (j *joiner) acknowledge(ctx context.Context, s streams.Snapshot) error {
	err := j.m.Acknowledge(ctx, s, j.table.Tasks())
	if errors.Is(err, streams.ErrStaleAssignment) || err == nil && s.Lost {
		return nil
	}
	if err != nil {
		return err
	}
	for { // the heartbeat that has it may fail for as long as the coordinator is away
		now, err := j.m.Heartbeat(ctx)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case now.Incarnation != s.Incarnation || errors.Is(err, streams.ErrClosed):
			return nil // the next snapshot tells what became of it
		case err == nil:
			s.Target, s.Epoch = j.table.Tasks(), now.Epoch
			return j.tell("acknowledged", s)
		}
	}
}

// tell writes one event.
func (j *joiner) tell(event string, s streams.Snapshot) error {
	i := j.m.Info()
	e := joinEvent{At: time.Now(), Event: event, Group: i.Group, Member: i.MemberID, Epoch: i.Epoch, Status: []joinStatus{}}
	tasks := taskTexts(s.Target)
	e.Active, e.Standby, e.Warmup = tasks.Active, tasks.Standby, tasks.Warmup
	for _, st := range s.Statuses {
		e.Status = append(e.Status, joinStatus{int8(st.Code), st.Detail})
	}
	return errors.Join(j.write(e, s), j.app.stdout.flush())
}

func (j *joiner) write(e joinEvent, s streams.Snapshot) error {
	if j.app.stdout.json {
		return json.NewEncoder(j.app.stdout).Encode(e)
	}
	line := fmt.Sprintf("%s  %-12s epoch %d", e.At.Format("15:04:05.000"), e.Event, e.Epoch)
	if len(e.Active) > 0 {
		line += "  active " + strings.Join(e.Active, " ")
	}
	if len(e.Standby) > 0 {
		line += "  standby " + strings.Join(e.Standby, " ")
	}
	if len(e.Warmup) > 0 {
		line += "  warmup " + strings.Join(e.Warmup, " ")
	}
	for _, st := range s.Statuses {
		line += fmt.Sprintf("  %v: %s", st.Code, st.Detail)
	}
	return j.app.stdout.printf("%s", line)
}
