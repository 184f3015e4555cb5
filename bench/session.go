package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/ottla/ottla/bench/load"
)

// session is one run of all measurements.
type session struct {
	options
	bin       string
	confluent string // the program with confluent-kafka-go, "" if it cannot be built
	addr      map[string]string
	stops     []func()
	cells     []cell
	report    report
}

func newSession(ctx context.Context, o options) (s *session, err error) {
	s = &session{options: o, addr: map[string]string{}, report: newReport(o)}
	if s.bin, err = os.Executable(); err != nil {
		return nil, err
	}
	for _, c := range plan(o) {
		if o.only.MatchString(c.String()) {
			s.cells = append(s.cells, c)
		}
	}
	if len(s.cells) == 0 {
		return nil, errors.New("no cell matches -only")
	}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.confluent, err = load.BuildConfluent(ctx, "confluent"); err != nil {
		s.report.note("confluent-kafka-go could not be built here: " + err.Error())
	}
	return s, s.start(ctx)
}

// start starts the brokers that the cells need.
func (s *session) start(ctx context.Context) error {
	for _, c := range s.cells {
		if s.addr[c.place] != "" {
			continue
		}
		start := func(ctx context.Context) (string, func(), error) { return canned(ctx, s.bin) }
		if c.place == "real" {
			start = startReal
		}
		addr, stop, err := start(ctx)
		if err != nil {
			return fmt.Errorf("the %s broker: %w", c.place, err)
		}
		s.addr[c.place], s.stops = addr, append(s.stops, stop)
		if c.place == "real" {
			if err := fill(ctx, s.bin, addr, s.cells, s.scale); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *session) close() {
	for _, stop := range s.stops {
		stop()
	}
	if s.confluent != "" {
		_ = os.RemoveAll(filepath.Dir(s.confluent))
	}
}

// measure takes one cell's measurements of a round, one client after the other.
func (s *session) measure(ctx context.Context, c cell, round int) error {
	for _, e := range entries[c.op] {
		bin := s.bin
		if strings.HasPrefix(e.client, "confluent") {
			bin = s.confluent
		}
		if bin == "" || !e.runs(c, round) {
			continue
		}
		r := measure(ctx, bin, c.procs, e.job(c, s.addr[c.place], s.scale))
		if ctx.Err() != nil {
			return ctx.Err()
		}
		fmt.Fprintf(os.Stderr, "round %d, %s, %s: %s\n", round+1, c, e.label, brief(r))
		s.report.add(c, e, r)
	}
	return nil
}

// brief is a result in a line.
func brief(r load.Result) string {
	if r.Err != "" {
		return r.Err
	}
	n := float64(max(r.Records, 1))
	return fmt.Sprintf("%.3f us of CPU a record, %.0f k/s, %.4f allocations, %.0f MB", 1e6*r.CPU/n, n/r.Seconds/1e3, float64(r.Mallocs)/n, float64(r.PeakRSS)/1e6)
}
