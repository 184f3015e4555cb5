package cli

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/admin"
	"github.com/ottla/ottla/kafka"
)

func groupsCommand(a *app) *cobra.Command {
	return family("groups", "List, describe, reset and delete groups, and show their lag",
		groupsListCommand(a), groupsDescribeCommand(a), groupsLagCommand(a), groupsResetCommand(a), groupsDeleteCommand(a))
}

// withGroups connects and calls f with what looks after groups.
func (a *app) withGroups(f func(ctx context.Context, c *client, g *admin.Groups) error) error {
	return a.withCluster(func(ctx context.Context, c *client) error { return f(ctx, c, admin.New(c.Cluster).Groups()) })
}

// listedGroup is one line of `groups list`.
type listedGroup struct {
	ID       string `json:"id"`
	Type     string `json:"type,omitempty"`
	State    string `json:"state,omitempty"`
	Protocol string `json:"protocol,omitempty"`
}

func groupsListCommand(a *app) *cobra.Command {
	var filter admin.GroupFilter
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "List the groups",
		Example: "  ottla groups list\n  ottla groups list --state Empty -o json",
		Args:    takes(),
		RunE: func(*cobra.Command, []string) error {
			return a.withGroups(func(ctx context.Context, _ *client, g *admin.Groups) error { return listGroups(ctx, a, g, filter) })
		},
	}
	cmd.Flags().StringSliceVar(&filter.States, "state", nil, "only groups in these `STATES`, such as Stable,Empty")
	cmd.Flags().StringSliceVar(&filter.Types, "type", nil, "only groups of these `TYPES`: classic, consumer, share, streams")
	return outputFlag(cmd)
}

func listGroups(ctx context.Context, a *app, g *admin.Groups, filter admin.GroupFilter) error {
	groups, err := g.List(ctx, filter)
	if err != nil {
		return err
	}
	list := []listedGroup{}
	var rows [][]string
	for _, one := range groups {
		list = append(list, listedGroup{ID: one.ID, Type: one.Type, State: one.State, Protocol: one.Protocol})
		rows = append(rows, []string{one.ID, orDash(one.Type), orDash(one.State), orDash(one.Protocol)})
	}
	if a.stdout.json {
		return a.stdout.document(list)
	}
	return a.stdout.table([]string{"GROUP", "TYPE", "STATE", "PROTOCOL"}, rows)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// describedGroup is a group of `groups describe`.
type describedGroup struct {
	ID       string            `json:"id"`
	Type     string            `json:"type"`
	State    string            `json:"state"`
	Assignor string            `json:"assignor,omitempty"`
	Epoch    *int32            `json:"epoch,omitempty"`
	Members  []describedMember `json:"members"`
}

type describedMember struct {
	ID         string   `json:"id"`
	InstanceID string   `json:"instance_id,omitempty"`
	ClientID   string   `json:"client_id"`
	Host       string   `json:"host"`
	Topics     []string `json:"topics,omitempty"`
	Assigned   []string `json:"assigned"`
}

func groupsDescribeCommand(a *app) *cobra.Command {
	return outputFlag(&cobra.Command{
		Use:     "describe GROUP…",
		Short:   "Show the members of groups and what they have",
		Example: "  ottla consume events -g shipping -e && ottla groups describe shipping\n  ottla consume events -g ledger -e && ottla groups describe ledger -o json",
		Args:    atLeast("GROUP"),
		RunE: func(_ *cobra.Command, ids []string) error {
			return a.withGroups(func(ctx context.Context, _ *client, g *admin.Groups) error { return describeGroups(ctx, a, g, ids) })
		},
	})
}

func describeGroups(ctx context.Context, a *app, g *admin.Groups, ids []string) error {
	list := []describedGroup{}
	var rows [][]string
	var errs []error
	for _, r := range g.Describe(ctx, ids) {
		if r.Err != nil {
			errs = append(errs, on(r.Err, "Describe", "group "+r.Item))
			continue
		}
		d := describedGroup{ID: r.Item, Type: r.Value.Type, State: r.Value.State, Assignor: r.Value.Assignor, Members: []describedMember{}}
		if r.Value.Epoch >= 0 {
			d.Epoch = &r.Value.Epoch
		}
		for _, m := range r.Value.Members {
			one := describedMember{ID: m.ID, InstanceID: m.InstanceID, ClientID: m.ClientID, Host: m.Host, Topics: m.Topics, Assigned: partitionNames(m.Assigned)}
			d.Members = append(d.Members, one)
			rows = append(rows, []string{r.Item, d.State, m.ID, orDash(m.InstanceID), m.ClientID, m.Host, orDash(strings.Join(one.Assigned, ","))})
		}
		if len(d.Members) == 0 {
			rows = append(rows, []string{r.Item, d.State, "-", "-", "-", "-", "-"})
		}
		list = append(list, d)
	}
	var err error
	if a.stdout.json {
		err = a.stdout.document(list)
	} else if len(rows) > 0 {
		err = a.stdout.table([]string{"GROUP", "STATE", "MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"}, rows)
	}
	return items(append(errs, err)...)
}

func partitionNames(tps []kafka.TopicPartition) []string {
	names := []string{}
	for _, tp := range tps {
		names = append(names, tp.String())
	}
	return names
}

// groupLag is one line of `groups lag`.
type groupLag struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed *int64 `json:"committed"` // null: nothing
	End       int64  `json:"end"`
	Lag       int64  `json:"lag"`
	Member    string `json:"member,omitempty"`
}

func groupsLagCommand(a *app) *cobra.Command {
	return outputFlag(&cobra.Command{
		Use:   "lag GROUP",
		Short: "Show how far a group is behind",
		Long: "Show how far a group is behind, by partition.\n\n" +
			"LAG is the number of offsets between what is committed and the last stable offset; where nothing is committed,\n" +
			"between the first offset and that.",
		Example: "  ottla consume events -g search -c 1 && ottla groups lag search\n  ottla consume events -g cache -c 1 && ottla groups lag cache -o json",
		Args:    takes("GROUP"),
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withGroups(func(ctx context.Context, _ *client, g *admin.Groups) error { return showLag(ctx, a, g, args[0]) })
		},
	})
}

func showLag(ctx context.Context, a *app, g *admin.Groups, id string) error {
	lags, err := g.Lag(ctx, id)
	if err != nil {
		return on(err, "Describe", "group "+id)
	}
	list := []groupLag{}
	var rows [][]string
	var errs []error
	for _, r := range lags {
		if r.Err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", r.Item, r.Err))
			continue
		}
		one := groupLag{Topic: r.Item.Topic, Partition: r.Item.Partition, End: int64(r.Value.End), Lag: r.Value.Records, Member: r.Value.Member}
		committed := "-"
		if o := int64(r.Value.Committed); o >= 0 {
			one.Committed = &o
			committed = strconv.FormatInt(o, 10)
		}
		list = append(list, one)
		rows = append(rows, []string{one.Topic, itoa(int(one.Partition)), committed, fmt.Sprint(one.End), fmt.Sprint(one.Lag), orDash(one.Member)})
	}
	if a.stdout.json {
		err = a.stdout.document(list)
	} else {
		err = a.stdout.table([]string{"TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"}, rows)
	}
	return items(append(errs, err)...)
}

func groupsDeleteCommand(a *app) *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:     "delete GROUP…",
		Short:   "Delete groups without members, and everything that they committed",
		Example: "  ottla groups reset old --topic events --to end && ottla groups delete old --yes\n  ottla groups reset older --topic events --to end && echo yes | ottla groups delete older",
		Args:    atLeast("GROUP"),
		RunE: func(_ *cobra.Command, ids []string) error {
			return a.withGroups(func(_ context.Context, _ *client, g *admin.Groups) error { return deleteGroups(a, g, ids, yes) })
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return outputFlag(cmd)
}

func deleteGroups(a *app, g *admin.Groups, ids []string, yes bool) error {
	if !yes {
		if err := a.confirm("delete " + strings.Join(ids, ", ") + " and all offsets of it? [y/N] "); err != nil {
			return err
		}
	}
	var errs []error
	deleted := []string{}
	for _, r := range g.Delete(a.work, ids) {
		if r.Err != nil {
			errs = append(errs, changed(on(r.Err, "Delete", "group "+r.Item)))
			continue
		}
		deleted = append(deleted, r.Item)
	}
	slices.Sort(deleted)
	if len(deleted) > 0 {
		errs = append(errs, a.done(map[string][]string{"deleted": deleted}, "deleted "+strings.Join(deleted, ", ")))
	}
	return items(errs...)
}
