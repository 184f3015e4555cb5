package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/leader"
)

// describedRole is a role as `leader -o json` shows it.
type describedRole struct {
	Role      string           `json:"role"`
	Leader    *string          `json:"leader"` // null: nobody leads
	Term      *int64           `json:"term"`
	Token     *string          `json:"token"`
	Since     *time.Time       `json:"since"`
	LeaseLeft *int64           `json:"lease_left_ms"`
	Verdict   string           `json:"verdict"`
	Roster    []describedStand `json:"roster"`
}

// describedStand is a candidate.
type describedStand struct {
	Member       string    `json:"member"`
	Rank         int       `json:"rank"`
	RegisteredAt time.Time `json:"registered_at"`
}

func leaderCommand(a *app) *cobra.Command {
	var watch, list bool
	cmd := &cobra.Command{
		Use:   "leader ROLE | --list",
		Short: "Show who leads a role",
		Long: "Show who leads a role.\n\n" +
			"The verdict is what the coordinator and the log say together: authoritative, superseded (the newest lease is of\n" +
			"somebody who no longer leads), indeterminate (a hand-over is under way), or vacant. It is advice: by the time it is\n" +
			"read it may be old.",
		Example: "  ottla leader nightly -o json\n  ottla leader --list",
		Args: func(cmd *cobra.Command, args []string) error {
			switch {
			case list && (len(args) > 0 || watch):
				return usagef("%s: --list goes with neither ROLE nor --watch", nameOf(cmd))
			case list:
				return nil
			}
			return takes("ROLE")(cmd, args)
		},
		RunE: func(_ *cobra.Command, args []string) error {
			return a.withCluster(func(ctx context.Context, c *client) error {
				e, err := leader.Open(c.Cluster, leader.Config{})
				if err != nil {
					return err
				}
				defer e.Close()
				switch {
				case list:
					return listRoles(ctx, a, e)
				case watch:
					return watchRole(ctx, a, e, args[0])
				}
				return showRole(ctx, a, e, args[0])
			})
		},
	}
	cmd.Flags().BoolVar(&watch, "watch", false, "show each change until a signal")
	cmd.Flags().BoolVar(&list, "list", false, "show every role that ever had a candidate")
	return outputFlag(cmd)
}

// described puts a state into the form that is shown.
func described(s leader.State) describedRole {
	d := describedRole{Role: s.Role, Verdict: s.Verdict.String(), Roster: []describedStand{}}
	if s.Leader != "" {
		token, left := s.Token.String(), s.LeaseLeft.Milliseconds()
		d.Leader, d.Term, d.Token, d.Since, d.LeaseLeft = &s.Leader, &s.Term, &token, &s.Since, &left
	}
	for _, m := range s.Roster {
		d.Roster = append(d.Roster, describedStand{m.Name, m.Rank, m.RegisteredAt})
	}
	if s.Vacant() && s.Verdict != leader.Indeterminate {
		d.Verdict = "vacant"
	}
	return d
}

// describe is a role; one in a cluster where nobody ever campaigned is vacant.
func describe(ctx context.Context, a *app, e *leader.Elector, role string) (describedRole, error) {
	ctx, cancel := context.WithTimeout(ctx, a.shared.timeout)
	defer cancel()
	s, err := e.Describe(ctx, role)
	if errors.Is(err, kerr.UnknownTopicOrPartition) {
		return describedRole{Role: role, Verdict: "vacant", Roster: []describedStand{}}, nil
	}
	if errors.Is(err, leader.ErrInvalidConfig) {
		return describedRole{}, asUsage(err)
	}
	return described(s), err
}

func showRole(ctx context.Context, a *app, e *leader.Elector, role string) error {
	d, err := describe(ctx, a, e, role)
	if err != nil {
		return err
	}
	return printRole(a, d)
}

func printRole(a *app, d describedRole) error {
	if a.stdout.json {
		return a.stdout.document(d)
	}
	if err := a.stdout.printf("%s", roleLine(d)); err != nil {
		return err
	}
	var rows [][]string
	for _, m := range d.Roster {
		rows = append(rows, []string{m.Member, itoa(m.Rank), m.RegisteredAt.UTC().Format(time.RFC3339)})
	}
	if len(rows) == 0 {
		return nil
	}
	return a.stdout.table([]string{"MEMBER", "RANK", "REGISTERED"}, rows)
}

func roleLine(d describedRole) string {
	if d.Leader == nil {
		return fmt.Sprintf("%s: %s", d.Role, d.Verdict)
	}
	return fmt.Sprintf("%s: %s leads in term %d, token %s, since %s, lease left %s, %s", d.Role, *d.Leader, *d.Term, *d.Token,
		d.Since.UTC().Format(time.RFC3339), (time.Duration(*d.LeaseLeft) * time.Millisecond).Round(100*time.Millisecond), d.Verdict)
}

func listRoles(ctx context.Context, a *app, e *leader.Elector) error {
	list := []describedRole{}
	roles, err := e.Roles(ctx)
	if err != nil && !errors.Is(err, kerr.UnknownTopicOrPartition) {
		return err
	}
	for _, role := range roles {
		d, err := describe(ctx, a, e, role)
		if err != nil {
			return err
		}
		list = append(list, d)
	}
	if a.stdout.json {
		return a.stdout.document(list)
	}
	var rows [][]string
	for _, d := range list {
		row := []string{d.Role, "", "", "", d.Verdict, itoa(len(d.Roster))}
		if d.Leader != nil {
			row[1], row[2], row[3] = *d.Leader, fmt.Sprint(*d.Term), (time.Duration(*d.LeaseLeft) * time.Millisecond).Round(100*time.Millisecond).String()
		}
		rows = append(rows, row)
	}
	return a.stdout.table([]string{"ROLE", "LEADER", "TERM", "LEASE LEFT", "VERDICT", "CANDIDATES"}, rows)
}

// watchRole prints a role at each change until a signal. What a change means is
// asked of the coordinator each time.
func watchRole(ctx context.Context, a *app, e *leader.Elector, role string) error {
	a.endsBySignal = false
	for _, err := range e.Watch(ctx, role) {
		if err != nil {
			return err
		}
		d, err := describe(ctx, a, e, role)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if a.stdout.json {
			err = a.stdout.document(d)
		} else {
			err = a.stdout.printf("%s", roleLine(d))
		}
		if err == nil {
			err = a.stdout.flush()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
