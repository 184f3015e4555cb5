package cluster

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// attempts counts the attempts of one request and paces them.
type attempts struct {
	c     *client
	ctx   context.Context
	req   kmsg.Request
	api   string
	class retry.Class
	limit time.Time // no attempt begins after
	lo    int16     // the lowest version that does
	hi    int16     // and the highest
	n     int       // attempts that failed
	doubt bool      // one of them may have happened all the same
}

func (c *client) attempts(ctx context.Context, req kmsg.Request) *attempts {
	return &attempts{c: c, ctx: ctx, req: req, api: apiName(req), class: retry.ClassOfRequest(req), limit: c.limit(ctx), lo: netconn.NoBound, hi: netconn.NoBound}
}

// again waits before the next attempt. It returns why there is none.
func (a *attempts) again(why error) error {
	a.n++
	a.doubt = a.doubt || kafka.MayHaveHappened(why)
	switch {
	case a.ctx.Err() != nil:
		return a.over(why)
	case !a.repeats(why):
		return a.honest(why)
	}
	d := a.c.cfg.backoff().Delay(a.n, a.c.rand.derive())
	if time.Now().Add(d).After(a.limit) {
		return a.honest(&gaveUp{cause: errRetryTimeout, last: why})
	}
	a.c.counts.retries.Add(1)
	a.c.tracer.retried(a.api, a.n+1, d, why)
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-a.ctx.Done():
		return a.over(why)
	case <-a.c.done():
		return a.honest(ErrClosed)
	}
}

// honest is err, in doubt if an attempt before it may have happened: the last
// failure says nothing about those.
func (a *attempts) honest(err error) error {
	if a.doubt && !kafka.MayHaveHappened(err) {
		return &inDoubt{err}
	}
	return err
}

// over is the error of a request whose context has ended.
func (a *attempts) over(why error) error {
	if errors.Is(why, context.Cause(a.ctx)) {
		return a.honest(why)
	}
	return a.honest(&gaveUp{cause: context.Cause(a.ctx), last: why})
}

// repeats reports whether a request that failed with err may be made again:
// it must be worth it, and have had no effect, or be repeatable.
func (a *attempts) repeats(err error) bool {
	return worthwhile(err) && (a.class.Repeatable() || !kafka.MayHaveHappened(err))
}

// worthwhile reports whether another attempt may end better, whatever the
// request.
func worthwhile(err error) bool {
	var h *hopeless
	if errors.As(err, &h) {
		return false
	}
	if permanent(err) {
		return false
	}
	var be *kafka.BrokerError
	var ue *UnreachableError
	var nl *kafka.NoLeaderError
	return isConnection(err) || errors.As(err, &be) || errors.As(err, &ue) || errors.As(err, &nl) || errors.Is(err, ErrNoController)
}

// repeatsCode reports whether a code in an answer is to be tried again at the
// same broker. Codes that leave the outcome open are repeated only for requests
// that may be.
func (a *attempts) repeatsCode(code int16) bool {
	if retry.Of(code) != retry.Retry {
		return false
	}
	return a.class.Repeatable() || !kafka.MayHaveHappened(kafka.CodeError(code, nil))
}
