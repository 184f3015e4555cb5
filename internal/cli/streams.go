package cli

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/streams"
)

func streamsCommand(a *app) *cobra.Command {
	return family("streams", "Streams groups (KIP-1071): list, describe, delete, join",
		streamsListCommand(a), streamsDescribeCommand(a), streamsDeleteCommand(a), streamsJoinCommand(a))
}

// streamsListing is one group in the document of `streams list`.
type streamsListing struct {
	Group string `json:"group"`
	State string `json:"state"`
}

// joinExample is an example with a member of a group that does what then says
// once it has joined.
func joinExample(group, flags, then string) string {
	return `  echo '{"subtopologies":[{"id":"0","sources":["events"]}]}' > t.json; ottla streams join --group ` + group +
		" --topology t.json" + flags + " > log & until grep -qs joined log; do sleep 0.1; done; " + then
}

func streamsListCommand(a *app) *cobra.Command {
	return outputFlag(&cobra.Command{
		Use:     "list",
		Short:   "List the Streams groups of the cluster",
		Example: "  ottla streams list\n  ottla streams list -o json",
		Args:    takes(),
		RunE: func(*cobra.Command, []string) error {
			return a.withCluster(func(ctx context.Context, c *client) error {
				ctx, cancel := context.WithTimeout(ctx, a.shared.timeout)
				defer cancel()
				groups, err := streams.List(ctx, c)
				if err != nil {
					return err
				}
				out, rows := []streamsListing{}, [][]string{}
				for _, g := range groups {
					out = append(out, streamsListing{g.Group, g.State})
					rows = append(rows, []string{g.Group, g.State})
				}
				if a.stdout.json {
					return a.stdout.document(out)
				}
				return a.stdout.table([]string{"GROUP", "STATE"}, rows)
			})
		},
	})
}

// streamsGroup is the document of `streams describe`.
type streamsGroup struct {
	Group           string          `json:"group"`
	State           string          `json:"state"`
	Epoch           int32           `json:"epoch"`
	AssignmentEpoch int32           `json:"assignment_epoch"`
	Assignor        string          `json:"assignor,omitempty"`
	Topology        *topologyFile   `json:"topology"`
	Members         []streamsMember `json:"members"`
}

// streamsMember is one member of it.
type streamsMember struct {
	ID            string            `json:"id"`
	InstanceID    string            `json:"instance_id,omitempty"`
	ProcessID     string            `json:"process_id"`
	ClientID      string            `json:"client_id"`
	Host          string            `json:"host"`
	Rack          string            `json:"rack,omitempty"`
	Endpoint      string            `json:"endpoint,omitempty"`
	Tags          map[string]string `json:"tags,omitempty"`
	Epoch         int32             `json:"epoch"`
	TopologyEpoch int32             `json:"topology_epoch"`
	Tasks         taskLists         `json:"tasks"`
	Target        taskLists         `json:"target"`
}

// taskLists are tasks by role, as texts such as 0_3.
type taskLists struct {
	Active  []string `json:"active"`
	Standby []string `json:"standby"`
	Warmup  []string `json:"warmup"`
}

func taskTexts(t streams.Tasks) taskLists {
	texts := func(ids []streams.TaskID) []string {
		out := []string{}
		for _, id := range ids {
			out = append(out, id.String())
		}
		return out
	}
	return taskLists{texts(t.Active), texts(t.Standby), texts(t.Warmup)}
}

func (t taskLists) cells() []string {
	return []string{strings.Join(t.Active, ","), strings.Join(t.Standby, ","), strings.Join(t.Warmup, ",")}
}

func streamsDescribeCommand(a *app) *cobra.Command {
	return outputFlag(&cobra.Command{
		Use:     "describe GROUP",
		Short:   "Describe a Streams group: its state, topology, members and their tasks",
		Example: joinExample("app", "", "ottla streams describe app && kill $!") + "\n" + joinExample("jobs", "", "ottla streams describe jobs -o json && kill $!"),
		Args:    takes("GROUP"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withCluster(func(ctx context.Context, c *client) error {
				ctx, cancel := context.WithTimeout(ctx, a.shared.timeout)
				defer cancel()
				g, err := streams.Describe(ctx, c, args[0], streams.DescribeOptions{})
				if err != nil {
					return err
				}
				return printStreamsGroup(a, g)
			})
		},
	})
}

func printStreamsGroup(a *app, g *streams.GroupDescription) error {
	if a.stdout.json {
		return a.stdout.document(describedStreams(g))
	}
	if err := a.stdout.printf("group %s: %s, epoch %d, assignment epoch %d", g.Group, g.State, g.Epoch, g.AssignmentEpoch); err != nil {
		return err
	}
	var rows [][]string
	for _, m := range g.Members {
		row := append([]string{m.ID, m.ProcessID, fmt.Sprint(m.Epoch)}, taskTexts(m.Tasks).cells()...)
		rows = append(rows, append(row, strings.Join(taskTexts(m.Target).Active, ",")))
	}
	return a.stdout.table([]string{"MEMBER", "PROCESS", "EPOCH", "ACTIVE", "STANDBY", "WARMUP", "TARGET"}, rows)
}

func describedStreams(g *streams.GroupDescription) *streamsGroup {
	out := &streamsGroup{
		Group: g.Group, State: g.State, Epoch: g.Epoch, AssignmentEpoch: g.AssignmentEpoch, Assignor: g.Assignor, Members: []streamsMember{},
	}
	if g.Topology != nil {
		out.Topology = topologyOf(g.Topology)
	}
	for _, m := range g.Members {
		d := streamsMember{
			ID: m.ID, InstanceID: m.InstanceID, ProcessID: m.ProcessID, ClientID: m.ClientID, Host: m.Host, Rack: m.RackID, Tags: m.Tags,
			Epoch: m.Epoch, TopologyEpoch: m.TopologyEpoch, Tasks: taskTexts(m.Tasks), Target: taskTexts(m.Target),
		}
		if m.Endpoint != nil {
			d.Endpoint = fmt.Sprintf("%s:%d", m.Endpoint.Host, m.Endpoint.Port)
		}
		out.Members = append(out.Members, d)
	}
	return out
}

func streamsDeleteCommand(a *app) *cobra.Command {
	var internal, yes bool
	cmd := &cobra.Command{
		Use:   "delete GROUP",
		Short: "Delete an empty Streams group and its committed offsets",
		Example: joinExample("old", "", "kill $!; wait; ottla streams delete old --yes") + "\n" +
			joinExample("older", "", "kill $!; wait; ottla streams delete older --yes --internal-topics"),
		Args: takes("GROUP"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withCluster(func(_ context.Context, c *client) error {
				if !yes {
					if err := a.confirm("delete " + args[0] + " and all offsets of it? [y/N] "); err != nil {
						return err
					}
				}
				work, cancel := a.changing()
				defer cancel()
				if err := streams.Delete(work, c, args[0], internal); err != nil {
					return changed(err)
				}
				return a.done(map[string][]string{"deleted": {args[0]}}, "deleted "+args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&internal, "internal-topics", false, "delete its repartition topics and changelogs too")
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return outputFlag(cmd)
}
