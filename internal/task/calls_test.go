package task

import (
	"errors"
	"testing"
	"testing/synctest"
)

// Mutation: a run that does not look at its context before a call.
func TestNoCallBeginsAfterCloseAndASlowOneHoldsNobodyUp(t *testing.T) {
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			c, hold, ran := NewCalls(3), make(chan struct{}), 0
			c.Add(func() { <-hold })
			synctest.Wait()
			for range 5 {
				c.Add(func() { ran++ })
			}
			if n := c.Dropped(); n != 2 {
				t.Errorf("%d were left out, want 2", n)
			}
			c.Close(errors.New("closed"))
			close(hold)
			synctest.Wait()
			if ran != 0 {
				t.Errorf("%d calls began after Close", ran)
			}
		})
	}
}
