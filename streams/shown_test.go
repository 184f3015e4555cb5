package streams

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// slowLog stands still for a while on each line, as a full pipe does.
type slowLog struct{ slog.Handler }

func (slowLog) Enabled(context.Context, slog.Level) bool { return true }

func (h slowLog) Handle(_ context.Context, r slog.Record) error { time.Sleep(time.Second); return nil }

// What a call has changed is seen by whoever it returns to. It fails if the actor
// answers a call before it shows the step that the answer is about.
func TestM41TheLossThatEndsAHeartbeatIsShownWhenItReturns(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0"))
		m := w.join(func(c *Config) { c.Logger = slog.New(slowLog{slog.DiscardHandler}) })
		w.own(m, nil)
		time.Sleep(10 * time.Second)
		w.co.fails(110, 1)
		s, err := m.Heartbeat(t.Context())
		if _, ok := m.Metadata(); err == nil || !s.Lost || ok {
			t.Errorf("%v: lost %v, an epoch to commit with: %v", err, s.Lost, ok)
		}
	})
}

func TestM40WhatWasAcknowledgedIsShownAtOnce(t *testing.T) {
	inWorld(t, func(t *testing.T, w *world) {
		w.co.assign(all("0_0", "0_1"))
		m := w.join()
		s := m.Snapshot()
		for i := range 3000 {
			owned := active("0_0", "0_1")
			owned.Active = owned.Active[:1+i%2]
			if err := m.Acknowledge(t.Context(), s, owned); err != nil {
				t.Fatal(err)
			}
			if got := m.Owned(); !got.Equal(owned) {
				t.Fatalf("round %d: %v is shown, %v was acknowledged", i, got, owned)
			}
		}
	})
}
