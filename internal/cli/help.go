package cli

import (
	"github.com/spf13/cobra"
)

// usageTemplate is the lower part of every help text.
const usageTemplate = `Usage:{{if .Runnable}}
  {{.UseLine}}{{end}}{{if .HasAvailableSubCommands}}
  {{.CommandPath}} COMMAND{{end}}{{if .HasExample}}

Examples:
{{.Example}}{{end}}{{if .HasAvailableSubCommands}}

Commands:{{range .Commands}}{{if .IsAvailableCommand}}
  {{rpad .Name .NamePadding }} {{.Short}}{{end}}{{end}}{{end}}{{if .HasAvailableLocalFlags}}

Flags:
{{.LocalFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}{{if .HasAvailableInheritedFlags}}

Shared flags:
{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}{{end}}
`

// helpCommand is `ottla help CMD`.
func helpCommand(a *app) *cobra.Command {
	return &cobra.Command{
		Use:     "help [COMMAND]",
		Short:   "Explain a command",
		Example: "  ottla help request\n  ottla help version",
		RunE: func(cmd *cobra.Command, args []string) error {
			found := cmd.Root()
			for _, name := range args {
				sub := subcommand(found, name)
				if sub == nil {
					return unknownCommand(found, []string{name})
				}
				found = sub
			}
			found.InitDefaultHelpFlag()
			return found.Help()
		},
	}
}

// subcommand finds a command by name below cmd, nil if there is none.
func subcommand(cmd *cobra.Command, name string) *cobra.Command {
	for _, c := range cmd.Commands() {
		if c.Name() == name {
			return c
		}
	}
	return nil
}
