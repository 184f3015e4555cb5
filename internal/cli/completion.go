package cli

import (
	"github.com/spf13/cobra"
)

func completionCommand(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script that completes ottla's commands and flags",
		Long: "Print a script that completes ottla's commands and flags.\n\n" +
			"  bash  source <(ottla completion bash)\n" +
			"  zsh   ottla completion zsh > \"${fpath[1]}/_ottla\"\n" +
			"  fish  ottla completion fish > ~/.config/fish/completions/ottla.fish",
		Example:   "  ottla completion bash > /dev/null\n  ottla completion fish > /dev/null",
		ValidArgs: []string{"bash", "zsh", "fish"},
		Args:      takes("SHELL"),
		RunE: func(cmd *cobra.Command, args []string) error {
			root := cmd.Root()
			switch args[0] {
			case "bash":
				return root.GenBashCompletionV2(a.stdout, true)
			case "zsh":
				return root.GenZshCompletion(a.stdout)
			case "fish":
				return root.GenFishCompletion(a.stdout, true)
			}
			return usagef("completion %s: there are scripts for bash, zsh and fish", args[0])
		},
	}
	return cmd
}
