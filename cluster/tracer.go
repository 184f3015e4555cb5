package cluster

import (
	"context"
	"log/slog"
	"time"

	"github.com/ottla/ottla/internal/task"

	"github.com/ottla/ottla/kafka"
)

// tracer tells a Trace what happens. A nil tracer does nothing.
type tracer struct {
	trace *Trace
	calls *task.Calls
}

// traceBacklog is how many calls may wait for a slow Trace.
const traceBacklog = 1024

func newTracer(t *Trace) *tracer {
	if t == nil {
		return nil
	}
	return &tracer{trace: t, calls: task.NewCalls(traceBacklog)}
}

// close does not wait for a function of the user's that runs.
func (t *tracer) close() {
	if t != nil {
		t.calls.Close(ErrClosed)
	}
}

func (t *tracer) lost() int64 {
	if t == nil {
		return 0
	}
	return t.calls.Dropped()
}

func (t *tracer) dialled(addr, purpose string, took time.Duration, err error) {
	if t != nil && t.trace.Dialled != nil {
		t.calls.Add(func() { t.trace.Dialled(addr, purpose, took, err) })
	}
}

func (t *tracer) closed(addr, purpose string, err error) {
	if t != nil && t.trace.Closed != nil {
		t.calls.Add(func() { t.trace.Closed(addr, purpose, err) })
	}
}

func (t *tracer) throttled(addr, purpose string, d time.Duration) {
	if t != nil && t.trace.Throttled != nil {
		t.calls.Add(func() { t.trace.Throttled(addr, purpose, d) })
	}
}

func (t *tracer) refreshed(topics []string, addr string, took time.Duration, err error) {
	if t != nil && t.trace.Refreshed != nil {
		t.calls.Add(func() { t.trace.Refreshed(topics, addr, took, err) })
	}
}

func (t *tracer) retried(api string, attempt int, after time.Duration, why error) {
	if t != nil && t.trace.Retried != nil {
		t.calls.Add(func() { t.trace.Retried(api, attempt, after, why) })
	}
}

// log writes an event to the configured logger: one event, one line.
func (s *state) log(e kafka.Event) {
	l := s.c.cfg.Logger
	if l == nil {
		return
	}
	level, attrs := slog.LevelInfo, make([]slog.Attr, 0, 4)
	switch e.Kind {
	case ClusterMismatch:
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("addr", e.Addr), slog.String("want", e.Want), slog.String("found", e.Found))
	case TopicFailed:
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("topic", e.Topic), slog.Any("err", e.Err))
	case TopicFound, TopicGrew:
		attrs = append(attrs, slog.String("topic", e.Topic), slog.Int("before", int(e.Before)), slog.Int("after", int(e.After)))
	case TopicRecreated:
		level = slog.LevelWarn
		attrs = append(attrs, slog.String("topic", e.Topic), slog.String("old", e.OldID.String()), slog.String("new", e.NewID.String()))
	case LeaderChanged:
		attrs = append(attrs, slog.String("topic", e.Topic), slog.Int("partition", int(e.Partition)), slog.Int("node", int(e.Broker.ID)))
	case BrokerAdded, BrokerGone:
		attrs = append(attrs, slog.Int("node", int(e.Broker.ID)), slog.String("addr", e.Broker.Addr()))
	case Rebootstrapped:
		level = slog.LevelWarn
		attrs = append(attrs, slog.Any("err", e.Err))
	}
	l.LogAttrs(context.Background(), level, "cluster: "+e.Kind.String(), attrs...)
}
