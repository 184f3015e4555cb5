package admin

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// answers is what became of the items of one request, by their place in the
// call. An item that is not in it was left out by the broker.
type answers map[int]error

// change sends a request that changes several items, and again for those of
// which the broker says that it did nothing: it is not the controller any more
// (41), or holds changes back (89). What may have been read is not sent again.
// send makes the request for the items at some places.
func (a *client) change(ctx context.Context, n int, send func(open []int) (answers, error)) []error {
	errs := make([]error, n)
	open := make([]int, n)
	for i := range open {
		open[i] = i
	}
	for attempt := 1; len(open) > 0; attempt++ {
		got, err := send(open)
		var next []int
		for _, i := range open {
			e, named := got[i]
			switch {
			case err != nil:
				e = err
			case !named:
				e = errLeftOut
			case untouched(e):
				next = append(next, i)
			}
			errs[i] = e
		}
		open = next
		if len(open) == 0 {
			break
		}
		if errors.Is(errs[open[0]], kerr.NotController) {
			a.forgetController(ctx)
		}
		if err := a.pause(ctx, retry.Backoff{}, attempt); err != nil {
			break
		}
	}
	return errs
}

// untouched reports whether an answer says that the broker did nothing and
// that it may be asked again.
func untouched(err error) bool {
	return errors.Is(err, kerr.NotController) || errors.Is(err, kerr.ThrottlingQuotaExceeded)
}

// forgetController has the controller looked up again.
func (a *client) forgetController(ctx context.Context) {
	if b, err := a.c.Controller(ctx); err == nil {
		a.c.InvalidateController(b.ID)
	}
}

// nodes converts broker ids.
func nodes(ids []int32) []kafka.NodeID {
	out := make([]kafka.NodeID, len(ids))
	for i, id := range ids {
		out[i] = kafka.NodeID(id)
	}
	return out
}

// ids is the reverse of nodes.
func ids(ns []kafka.NodeID) []int32 {
	out := make([]int32, len(ns))
	for i, n := range ns {
		out[i] = int32(n)
	}
	return out
}
