// Package cli is the command ottla: one file per command, and the rules that
// they share (connection, properties, output, errors, exit status, signals).
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/ottla/ottla/cluster"
	"github.com/ottla/ottla/internal/task"
)

// mostJournal is how many frames -vv shows.
const mostJournal = 200

// defaultTimeout bounds one request, and what is still in flight after the
// first signal.
const defaultTimeout = 30 * time.Second

// app is one run of the command.
type app struct {
	stdin  io.Reader
	stdout *printer
	notes  *notes

	// stop ends with the first signal: no new work starts after it.
	stop context.Context
	// work ends when nothing may go on: --timeout after the first signal, or
	// with the context of Run.
	work context.Context

	interrupt, abandon context.CancelCauseFunc // of stop and work

	timeout atomic.Int64 // nanoseconds, from --timeout
	tasks   *task.Group
	shared  sharedFlags
	journal *cluster.Journal // the last frames on the wire, for -vv

	security     security        // of the connections of this run, for errors
	endsBySignal bool            // a signal is the command's proper end
	maxVersions  map[int16]int16 // by API key, of `request --version`
}

// Run runs the command with the arguments that follow its name and returns its
// exit status: 0 done, 1 failed, 2 usage, 3 outcome unknown, 130 interrupted.
//
// The first SIGINT or SIGTERM lets the command finish what is in flight,
// bounded by --timeout; at the second one Run returns at once and leaves its
// goroutines behind, so the caller is expected to exit. SIGPIPE is caught for
// the rest of the process.
func Run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	sigs := make(chan os.Signal, 4)
	signal.Notify(sigs, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(sigs)
	// With a handler in place a write to a closed pipe fails with EPIPE, which
	// the printer turns into a quiet end.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)

	a := &app{
		stdin: stdin, stdout: newPrinter(stdout), notes: newNotes(stderr), tasks: task.New(ctx), journal: cluster.NewJournal(mostJournal),
	}
	a.stop, a.interrupt = context.WithCancelCause(ctx)
	a.work, a.abandon = context.WithCancelCause(ctx)
	a.timeout.Store(int64(defaultTimeout))

	status := make(chan int, 1)
	a.tasks.Go(func(context.Context) error {
		status <- a.execute(args)
		return nil
	})
	for signals := 0; ; {
		select {
		case s := <-status:
			a.interrupt(nil)
			a.abandon(nil)
			return s
		case <-sigs:
			if signals++; signals > 1 {
				return statusInterrupted // and cancel nothing, which would make others speak
			}
			a.interrupt(errInterrupted)
			timer := time.AfterFunc(time.Duration(a.timeout.Load()), func() { a.abandon(errInterrupted) })
			defer timer.Stop()
		}
	}
}

// execute runs the command tree and reports its error.
func (a *app) execute(args []string) (status int) {
	defer func() {
		if p := recover(); p != nil {
			a.notes.printf("ottla: internal error: %v; please report it, with the output of -vv", p)
			if a.shared.verbose > 1 {
				a.notes.printf("%s", debug.Stack())
			}
			status = statusFailed
		}
	}()
	root := a.root()
	root.SetArgs(args)
	root.SetIn(a.stdin)
	root.SetOut(a.stdout)
	root.SetErr(a.notes)
	err := root.ExecuteContext(a.work)
	if flushErr := a.stdout.flush(); err == nil {
		err = flushErr
	}
	a.notes.endProgress()
	if err == nil && a.interrupted() && !a.endsBySignal {
		err = errStoppedInOrder
	}
	a.report(err)
	return statusOf(err)
}

// root is the command tree.
func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:               "ottla",
		Short:             "Kafka at a terminal",
		Long:              "ottla talks to Apache Kafka: it produces, consumes, shows and changes what a cluster holds.\nWithout --bootstrap or OTTLA_BOOTSTRAP it looks for a broker at " + defaultBootstrap + ".",
		SilenceErrors:     true,
		SilenceUsage:      true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true},
		Args:              unknownCommand,
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
		PersistentPreRunE: a.prepare,
	}
	root.SetFlagErrorFunc(flagError)
	a.shared.register(root.PersistentFlags())
	root.AddCommand(a.commands()...)
	root.SetHelpCommand(helpCommand(a))
	root.SetUsageTemplate(usageTemplate)
	return root
}

// commands are the subcommands of the root.
func (a *app) commands() []*cobra.Command {
	return []*cobra.Command{
		produceCommand(a),
		consumeCommand(a),
		brokersCommand(a),
		topicsCommand(a),
		offsetsCommand(a),
		groupsCommand(a),
		leadCommand(a),
		leaderCommand(a),
		watchdogCommand(),
		requestCommand(a),
		benchCommand(a),
		streamsCommand(a),
		brokerCommand(a),
		demoCommand(a),
		completionCommand(a),
		versionCommand(a),
	}
}

// prepare runs before every command, with the flags parsed.
func (a *app) prepare(cmd *cobra.Command, _ []string) error {
	if a.shared.timeout <= 0 {
		return usagef("--timeout %s: must be above zero", a.shared.timeout)
	}
	a.timeout.Store(int64(a.shared.timeout))
	a.notes.quiet = a.shared.quiet
	if f := cmd.Flags().Lookup("output"); f != nil {
		switch f.Value.String() {
		case "text":
		case "json":
			a.stdout.json = true
		default:
			return usagef("-o %s: the output is text or json", f.Value)
		}
	}
	return nil
}

// unknownCommand refuses arguments of a command that has only subcommands.
func unknownCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(names, c.Name())
		}
	}
	return usagef("unknown command %q of %s%s; see `%s --help`",
		args[0], nameOf(cmd), didYouMean(near(args[0], names)), cmd.CommandPath())
}

// family makes a command that has only subcommands.
func family(use, short string, subs ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{Use: use, Short: short, Args: unknownCommand}
	cmd.AddCommand(subs...)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		var names []string
		for _, c := range subs {
			names = append(names, c.Name())
		}
		return usagef("%s needs one of: %s; see `%s --help`",
			nameOf(cmd), strings.Join(names, ", "), cmd.CommandPath())
	}
	return cmd
}

// flagError turns an error of the flag parser into a usage error.
func flagError(cmd *cobra.Command, err error) error {
	text := err.Error()
	if at := strings.Index(text, "strconv."); at >= 0 {
		text = text[:at] + text[strings.LastIndex(text, ": ")+2:] // without the words of Go's library
	}
	hint := ""
	if name, ok := strings.CutPrefix(text, "unknown flag: --"); ok {
		var names []string
		for _, f := range flagNames(cmd) {
			names = append(names, "--"+f)
		}
		hint = didYouMean(near("--"+name, names))
	}
	return usagef("%s%s; see `%s --help`", text, hint, cmd.CommandPath())
}

// nameOf is how messages call a command, behind the "ottla: " of each.
func nameOf(cmd *cobra.Command) string { return strings.TrimPrefix(cmd.CommandPath(), "ottla ") }

// takes is an argument check: the command takes exactly the named arguments.
func takes(names ...string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) < len(names) {
			return usagef("%s: %s is missing; see `%s --help`", nameOf(cmd), names[len(args)], cmd.CommandPath())
		}
		if len(args) > len(names) {
			return usagef("%s: unexpected argument %q; see `%s --help`", nameOf(cmd), args[len(names)], cmd.CommandPath())
		}
		return nil
	}
}

// atLeast is an argument check: the command takes one argument or more.
func atLeast(name string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return usagef("%s: %s is missing; see `%s --help`", nameOf(cmd), name, cmd.CommandPath())
		}
		return nil
	}
}

// outputFlag adds -o text|json to a command that prints a result.
func outputFlag(cmd *cobra.Command) *cobra.Command {
	cmd.Flags().StringP("output", "o", "text", "`FORMAT` of the result: text, json")
	return cmd
}

// report writes the one line of an error, and with -v the chain behind it.
func (a *app) report(err error) {
	if err == nil || errors.Is(err, errClosedPipe) || errors.Is(err, errStoppedInOrder) {
		return
	}
	var told *toldError
	var several itemErrors
	switch {
	case errors.As(err, &told):
	case errors.As(err, &several):
		for _, one := range several {
			a.tell(one)
		}
	default:
		a.tell(err)
	}
	if a.shared.verbose > 1 {
		for line := range strings.Lines(a.journal.String()) {
			a.notes.printf("  wire %s", strings.TrimSuffix(line, "\n"))
		}
	}
}

// tell writes the line of one error.
func (a *app) tell(err error) {
	a.notes.printf("ottla: %s", oneLine(a.explain(err)))
	a.detail(err)
}

// detail writes the chain of an error, with -v.
func (a *app) detail(err error) {
	if a.shared.verbose > 0 {
		for _, line := range chain(err) {
			a.notes.printf("  %s", line)
		}
	}
}

// interrupted reports whether the first signal has come.
func (a *app) interrupted() bool { return errors.Is(context.Cause(a.stop), errInterrupted) }

// oneLine keeps a text on one line.
func oneLine(s string) string {
	return strings.Join(strings.FieldsFunc(s, func(r rune) bool { return r == '\n' || r == '\r' }), " ")
}

// chain is the errors below err, outermost first, with their types.
func chain(err error) []string {
	var lines []string
	var walk func(err error, depth int)
	walk = func(err error, depth int) {
		if err == nil || len(lines) > 100 {
			return
		}
		lines = append(lines, oneLine(fmt.Sprintf("%s%T: %v", strings.Repeat("  ", depth), err, err)))
		switch e := err.(type) {
		case interface{ Unwrap() error }:
			walk(e.Unwrap(), depth+1)
		case interface{ Unwrap() []error }:
			for _, sub := range e.Unwrap() {
				walk(sub, depth+1)
			}
		}
	}
	walk(err, 0)
	return lines
}
