package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/ottla/ottla/internal/realkafka"
)

// flags are the values of all flags of all commands.
type flags struct {
	name    string
	all     bool // of down
	warm    bool // of fetch
	options realkafka.Options
}

// command is one word of the program.
type command struct {
	most int  // positional arguments; -1: any number, and flags end at the first
	need int  // of them that must be there
	up   bool // takes the flags of up
	run  func(*call) error
}

const defaultName = "default"

// parse separates flags and positional arguments, in any order.
func parse(name string, cmd command, args []string) (flags, []string, error) {
	f := flags{}
	set := flag.NewFlagSet(name, flag.ContinueOnError)
	set.SetOutput(io.Discard)
	set.StringVar(&f.name, "name", "", "")
	switch name {
	case "down":
		set.BoolVar(&f.all, "all", false, "")
	case "fetch":
		set.BoolVar(&f.warm, "warm", false, "")
	}
	if cmd.up {
		upFlags(set, &f.options)
	}
	var rest []string
	for {
		if err := set.Parse(args); err != nil {
			if errors.Is(err, flag.ErrHelp) {
				err = errors.New("scripts/kafka help explains it")
			}
			return f, nil, usageError{fmt.Sprintf("%s: %v", name, err)}
		}
		args = set.Args()
		if len(args) == 0 || cmd.most < 0 {
			rest = append(rest, args...)
			break
		}
		rest, args = append(rest, args[0]), args[1:]
	}
	if len(rest) < cmd.need {
		return f, nil, usageError{fmt.Sprintf("%s: an argument is missing", name)}
	}
	if cmd.most >= 0 && len(rest) > cmd.most {
		return f, nil, usageError{fmt.Sprintf("%s: %q is one argument too many", name, rest[cmd.most])}
	}
	return f, rest, nil
}

func upFlags(set *flag.FlagSet, o *realkafka.Options) {
	set.IntVar(&o.Brokers, "brokers", 1, "")
	set.StringVar(&o.Version, "version", "", "")
	set.BoolVar(&o.Secure, "secure", false, "")
	o.Features, o.Props = map[string]int{}, map[string]string{}
	set.Func("feature", "", func(s string) error {
		name, level, found := strings.Cut(s, "=")
		n, err := strconv.Atoi(level)
		if !found || name == "" || err != nil || n < 0 {
			return errors.New("want name=level, such as transaction.version=1")
		}
		o.Features[name] = n
		return nil
	})
	set.Func("c", "", func(s string) error {
		name, value, found := strings.Cut(s, "=")
		if !found || name == "" {
			return errors.New("want name=value, such as log.retention.ms=1000")
		}
		o.Props[name] = value
		return nil
	})
}

// cluster is the name that the flag gives, or the first argument, or the default.
func (c *call) cluster() string {
	switch {
	case c.flags.name != "":
		return c.flags.name
	case len(c.args) > 0:
		return c.args[0]
	}
	return defaultName
}

// named is the name that the flag gives, or the default; arguments mean other
// things.
func (c *call) named() string {
	if c.flags.name != "" {
		return c.flags.name
	}
	return defaultName
}

// broker is the number of a broker in the first argument.
func (c *call) broker() (int, error) {
	id, err := strconv.Atoi(c.args[0])
	if err != nil {
		return 0, usageError{fmt.Sprintf("%q is not the number of a broker", c.args[0])}
	}
	return id, nil
}
