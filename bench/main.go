// Command bench measures ottla beside other clients of Kafka, in one run on one
// machine. Each measurement is a process of its own; the broker is another.
//
//	go run . -o ../docs/performance.md    # everything, some ten minutes
//	go run . -short                       # a minute, to see that it works
//
// It writes its tables between two markers in the file, or to standard output.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"syscall"

	"github.com/ottla/ottla/bench/broker"
	"github.com/ottla/ottla/bench/load"
)

const parts = broker.Parts

// options are those of a run.
type options struct {
	rounds int
	scale  float64
	short  bool
	real   bool
	out    string
	only   *regexp.Regexp
}

func main() {
	switch {
	case len(os.Args) > 1 && os.Args[1] == "broker":
		serve()
	case len(os.Args) > 1 && os.Args[1] != "" && os.Args[1][0] == '{':
		load.Main(clients)
	default:
		if err := table(); err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
	}
}

// serve is the process of the canned broker. Its first line says where it
// listens.
func serve() {
	b, err := broker.Listen()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(b.Addr())
	fmt.Fprintln(os.Stderr, b.Serve())
	os.Exit(1)
}

func parseFlags() (o options, err error) {
	flag.IntVar(&o.rounds, "rounds", 3, "how often each measurement is taken")
	flag.Float64Var(&o.scale, "scale", 1, "of the number of records")
	flag.BoolVar(&o.short, "short", false, "one round with few records, without a real Kafka")
	flag.BoolVar(&o.real, "real", true, "measure on a real Kafka too, which is started for it")
	flag.StringVar(&o.out, "o", "", "file whose block of tables is replaced; none: standard output")
	only := flag.String("only", "", "regular expression: the cells to measure, such as 'canned consume 100 none'")
	flag.Parse()
	if o.short {
		o.rounds, o.real = 1, false
		o.scale *= 0.05
	}
	o.only, err = regexp.Compile(*only)
	return o, err
}

// table takes all measurements and writes them down.
func table() error {
	o, err := parseFlags()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := newSession(ctx, o)
	if err != nil {
		return err
	}
	defer s.close()
	for round := range o.rounds {
		for _, c := range s.cells {
			if err := s.measure(ctx, c, round); err != nil {
				return err
			}
		}
	}
	return s.report.write(o.out)
}
