package cluster

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// split is a request of several items that go to different brokers. Items are
// named by their place in the request.
type split interface {
	len() int
	name(i int) string                  // for errors
	part(at []int) kmsg.Request         // the request for some of the items, in their order
	take(at []int, resp kmsg.Response)  // notes the answers for those items
	code(i int) int16                   // the code of the noted answer
	fail(i int, code int16, msg string) // notes an answer of the client's own
	merged() kmsg.Response              // the answers in the order of the request
}

// router leads the items of a split request to brokers.
type router interface {
	// route is where an item goes.
	route(ctx context.Context, i int) (kafka.Broker, error)
	// rejected takes note of what a broker answered, or that it was not
	// reached, and reports whether the item is worth another attempt elsewhere.
	rejected(ctx context.Context, i int, b kafka.Broker, err error) bool
	// refresh waits until the items can be routed anew.
	refresh(ctx context.Context, items []int)
}

// outcome is what happened to one item that has no answer.
type outcome struct {
	broker kafka.NodeID
	err    error
}

// spread sends a split request in parts until every item has its answer, or
// has no further attempt.
type spread struct {
	a    *attempts
	s    split
	r    router
	open []int // items that still need an answer
	lost map[int]outcome
	// doubt holds the items of which an attempt may have happened.
	doubt map[int]bool
	// version is the highest that a part was answered at.
	version int16
}

func (a *attempts) spread(s split, r router) (kmsg.Response, error) {
	sp := &spread{a: a, s: s, r: r, lost: make(map[int]outcome), doubt: make(map[int]bool)}
	for i := range s.len() {
		sp.open = append(sp.open, i)
	}
	for len(sp.open) > 0 {
		if why := sp.round(); why != nil {
			if err := sp.a.again(why); err != nil {
				sp.giveUp(err)
				break
			}
			sp.r.refresh(a.ctx, sp.open)
		}
	}
	return sp.result()
}

// round makes one attempt at all open items. It returns an error of one of
// those that are still open.
func (sp *spread) round() (why error) {
	parts, next := sp.plan()
	calls := sp.a.startAll(parts)
	for n, p := range parts {
		resp, err := calls[n].wait()
		if err == nil {
			sp.s.take(p.items, resp)
			sp.version = max(sp.version, resp.GetVersion())
		}
		for _, i := range p.items {
			if e := sp.settle(i, p.broker, err); e != nil {
				next, why = append(next, i), e
			}
		}
	}
	if why == nil && len(next) > 0 {
		why = sp.lost[next[0]].err
	}
	slices.Sort(next)
	sp.open = next
	return why
}

// part is what goes to one broker.
type part struct {
	broker kafka.Broker
	items  []int
	req    kmsg.Request
}

// plan groups the open items by their brokers. Items without a broker stay
// open if it is worth it.
func (sp *spread) plan() (parts []part, next []int) {
	at := make(map[string]int)
	one, ok := sp.s.(interface{ alone() bool })
	alone := ok && one.alone()
	for _, i := range sp.open {
		b, err := sp.r.route(sp.a.ctx, i)
		if err != nil {
			err = sp.lose(i, kafka.NoNode, notAsked(err))
			if worthwhile(err) {
				next = append(next, i)
			}
			continue
		}
		key := b.Addr()
		if alone {
			key += "/" + sp.s.name(i)
		}
		n, ok := at[key]
		if !ok {
			n = len(parts)
			at[key] = n
			parts = append(parts, part{broker: b})
		}
		parts[n].items = append(parts[n].items, i)
	}
	for n := range parts {
		parts[n].req = sp.s.part(parts[n].items)
	}
	return parts, next
}

// settle decides on one item after an attempt: nil if it is done, else why it
// stays open.
func (sp *spread) settle(i int, b kafka.Broker, err error) error {
	code := int16(0)
	if err == nil {
		if code = sp.s.code(i); code == 0 {
			delete(sp.lost, i)
			return nil
		}
		err = kafka.CodeError(code, nil)
	}
	elsewhere := sp.r.rejected(sp.a.ctx, i, b, err)
	if code != 0 {
		delete(sp.lost, i)
		if elsewhere || sp.a.repeatsCode(code) {
			return err
		}
		return nil
	}
	err = sp.lose(i, b.ID, err)
	if sp.a.repeats(err) {
		return err
	}
	return nil
}

// lose notes that an attempt at an item ended without an answer, and gives the
// error with what is in doubt from those before it.
func (sp *spread) lose(i int, at kafka.NodeID, err error) error {
	switch {
	case kafka.MayHaveHappened(err):
		sp.doubt[i] = true
	case sp.doubt[i]:
		err = &inDoubt{err}
	}
	sp.lost[i] = outcome{at, err}
	return err
}

// giveUp ends the open items: those with an answer keep it.
func (sp *spread) giveUp(err error) {
	for _, i := range sp.open {
		if o, ok := sp.lost[i]; ok && !errors.Is(err, o.err) {
			sp.lost[i] = outcome{o.broker, &gaveUp{cause: err, last: o.err}}
		} else if ok {
			sp.lost[i] = outcome{o.broker, err}
		}
	}
}

// result merges the answers. If no item has one, and all for one reason, that
// is the error alone.
func (sp *spread) result() (kmsg.Response, error) {
	if len(sp.lost) == 0 {
		return sp.merged(), nil
	}
	pe := &PartialError{Op: sp.a.api}
	for i := range sp.s.len() {
		o, ok := sp.lost[i]
		if !ok {
			continue
		}
		pe.Failed = append(pe.Failed, Failure{Item: sp.s.name(i), Broker: o.broker, Err: o.err})
		sp.s.fail(i, clientCode(o.err), o.err.Error())
	}
	if len(pe.Failed) == sp.s.len() && sameBroker(pe.Failed) {
		f := pe.Failed[0]
		return nil, opError(sp.a.api, f.Broker, f.Err)
	}
	return sp.merged(), pe
}

func (sp *spread) merged() kmsg.Response {
	resp := sp.s.merged()
	resp.SetVersion(max(sp.version, resp.GetVersion()))
	return resp
}

func sameBroker(fs []Failure) bool {
	for _, f := range fs {
		if f.Broker != fs[0].Broker || f.Err != fs[0].Err {
			return len(fs) == 1
		}
	}
	return true
}

// clientCode is the code that stands for an error in a merged answer: the
// broker's own if there is one, else whether it may have happened.
func clientCode(err error) int16 {
	if code := kafka.CodeOf(err); code != 0 {
		return code
	}
	var nl *kafka.NoLeaderError
	switch {
	case errors.As(err, &nl):
		return kerr.LeaderNotAvailable.Code
	case kafka.MayHaveHappened(err):
		return kerr.RequestTimedOut.Code
	}
	return kerr.NetworkException.Code
}

// started is a request under way.
type started struct {
	done chan struct{}
	resp kmsg.Response
	err  error
}

func (s *started) wait() (kmsg.Response, error) {
	<-s.done
	return s.resp, s.err
}

// startAll sends every part at once. Each ends with ctx at the latest.
func (a *attempts) startAll(parts []part) []*started {
	calls := make([]*started, len(parts))
	for n, p := range parts {
		st := &started{done: make(chan struct{})}
		calls[n] = st
		peer, err := a.c.peerOf(p.broker)
		if err != nil {
			st.err = err
			close(st.done)
			continue
		}
		call := netconn.NewCall(a.ctx, p.req)
		call.Min, call.Max = a.lo, a.hi
		call.Done = func(resp kmsg.Response, err error) {
			if err != nil {
				a.c.sendFailed(err)
			}
			st.resp, st.err = resp, err
			close(st.done)
		}
		peer.Lane(laneOf(p.req)).Send(call)
	}
	return calls
}

// moved reports whether a code says that another broker is the right one.
func moved(err error, want retry.Disposition) bool {
	return kafka.CodeOf(err) != 0 && retry.Of(kafka.CodeOf(err)) == want
}
