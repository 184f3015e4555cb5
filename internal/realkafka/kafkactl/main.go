// Command kafkactl is the program behind scripts/kafka: it brings a real
// Apache Kafka up for people and scripts, and takes it down again.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
)

const usage = `A real Apache Kafka for tests and people.

  scripts/kafka up [--brokers 1|3] [--version 4.4.0] [--name NAME] [--secure] [--feature name=level] [-c name=value …]
  scripts/kafka env [NAME]        lines for eval: export OTTLA_BOOTSTRAP=…
  scripts/kafka status            every cluster and its brokers
  scripts/kafka logs [ID]         what the brokers wrote
  scripts/kafka kill ID           end a broker with SIGKILL
  scripts/kafka pause ID          stop it with SIGSTOP; resume ID lets it go on
  scripts/kafka start ID          start a killed broker again, on its data and ports
  scripts/kafka down [NAME|--all] end the brokers and remove their data
  scripts/kafka fetch [VERSION]   jars into the cache, nothing started; --warm prepares for many quick starts
  scripts/kafka tool CLASS ARGS   one of Kafka's Java tools, e.g. consumer.ConsoleConsumer --topic t

--name NAME picks the cluster in every command; the default is "default".
`

// Exit statuses.
const (
	statusDone   = 0
	statusFailed = 1
	statusUsage  = 2
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// call is one invocation.
type call struct {
	ctx    context.Context
	in     io.Reader
	out    io.Writer
	errOut io.Writer
	flags  flags
	args   []string // without flags
}

// usageError is a mistake in the arguments.
type usageError struct{ text string }

func (e usageError) Error() string { return e.text }

func run(ctx context.Context, args []string, in io.Reader, out, errOut io.Writer) int {
	if len(args) == 0 || args[0] == "help" || args[0] == "--help" || args[0] == "-h" {
		fmt.Fprint(out, usage)
		return statusDone
	}
	err := dispatch(&call{ctx: ctx, in: in, out: out, errOut: errOut}, args[0], args[1:])
	if err == nil {
		return statusDone
	}
	if tool, ok := errors.AsType[*exec.ExitError](err); ok && tool.ExitCode() > 0 {
		return tool.ExitCode() // it has said why itself
	}
	fmt.Fprintf(errOut, "kafka: %v\n", err)
	if _, ok := errors.AsType[usageError](err); ok {
		fmt.Fprintln(errOut, "kafka: scripts/kafka help lists the commands")
		return statusUsage
	}
	return statusFailed
}

func dispatch(c *call, name string, args []string) error {
	cmd, ok := commands()[name]
	if !ok {
		return usageError{fmt.Sprintf("there is no command %q", name)}
	}
	var err error
	if c.flags, c.args, err = parse(name, cmd, args); err != nil {
		return err
	}
	return cmd.run(c)
}
