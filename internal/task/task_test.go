package task

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func TestWaitReturnsAfterEveryGoroutineEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := New(context.Background())
		var ended atomic.Int32
		for range 3 {
			g.Go(func(ctx context.Context) error {
				<-ctx.Done()
				ended.Add(1)
				return nil
			})
			synctest.Wait()
		}
		g.Cancel(errors.New("closed"))
		if err := g.Wait(); err != nil || ended.Load() != 3 {
			t.Fatalf("Wait = %v with %d of 3 ended", err, ended.Load())
		}
	})
}

func TestTheFirstErrorEndsTheContextAndIsReturned(t *testing.T) {
	first := errors.New("first")
	g := New(context.Background())
	g.Go(func(context.Context) error { return first })
	<-g.Context().Done()
	g.Go(func(context.Context) error { return errors.New("second") })
	if cause := context.Cause(g.Context()); cause != first {
		t.Errorf("cause %v, want the first error", cause)
	}
	if err := g.Wait(); err != first {
		t.Errorf("Wait = %v, want the first error", err)
	}
}

func TestGoIsRefusedAfterWait(t *testing.T) {
	g := New(context.Background())
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	if g.Go(func(context.Context) error { t.Error("ran after Wait"); return nil }) {
		t.Error("Go started a goroutine after Wait")
	}
}

func TestTheParentEndsTheGroupWithItsCause(t *testing.T) {
	why := errors.New("why")
	parent, cancel := context.WithCancelCause(context.Background())
	g := New(parent)
	cancel(why)
	if cause := context.Cause(g.Context()); cause != why {
		t.Errorf("cause %v, want the parent's", cause)
	}
	if err := g.Wait(); err != nil {
		t.Errorf("Wait = %v, want nil", err)
	}
}
