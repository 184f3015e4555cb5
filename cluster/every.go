package cluster

import (
	"cmp"
	"context"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// Question is one request to one broker, for [Cluster.Collect]. Each needs a
// request of its own.
type Question struct {
	Broker kafka.NodeID
	Req    kmsg.Request
}

// Reply is the end of one question: a response or an error.
type Reply struct {
	Broker kafka.NodeID
	Resp   kmsg.Response
	Err    error
}

// Reach says which connections a collect may use.
type Reach uint8

const (
	Dial     Reach = iota // connect where there is no connection
	OpenOnly              // a broker without an open connection is "not connected" at once
)

// Collect asks several brokers at once and waits for all of them, or until ctx
// ends. Reply i belongs to question i. Nothing is ever sent twice; the same
// broker may be asked twice. A broker that the cluster does not name, with Dial
// after one refresh, is [ErrUnknownBroker].
func (c *Cluster) Collect(ctx context.Context, qs []Question, reach Reach) []Reply {
	unknown := func(q Question) bool {
		_, ok := c.snap.Load().Broker(q.Broker)
		return !ok
	}
	if reach == Dial && slices.ContainsFunc(qs, unknown) {
		_ = c.refresh(ctx, nil, meta.Need{}) // who is still unknown is told by its reply
	}
	a := &attempts{c: c.client, ctx: ctx, lo: netconn.NoBound, hi: netconn.NoBound}
	return a.collect(qs, reach)
}

func (a *attempts) collect(qs []Question, reach Reach) []Reply {
	replies := make([]Reply, len(qs))
	calls := make([]*started, len(qs))
	for i, q := range qs {
		replies[i].Broker = q.Broker
		calls[i] = a.collectOne(q, reach)
	}
	for i, st := range calls {
		resp, err := st.wait()
		replies[i].Resp, replies[i].Err = resp, opError(apiName(qs[i].Req), qs[i].Broker, err)
	}
	return replies
}

func (a *attempts) collectOne(q Question, reach Reach) *started {
	st := &started{done: make(chan struct{})}
	peer, err := (&Broker{c: a.c, id: q.Broker}).peer()
	if err == nil && a.ctx.Err() != nil {
		err = ended(a.ctx)
	}
	if err != nil {
		st.err = err
		close(st.done)
		return st
	}
	call := netconn.NewCall(a.ctx, q.Req)
	call.Min, call.Max = a.lo, a.hi
	call.NoRedial = true
	call.OpenOnly = reach == OpenOnly
	call.Done = func(resp kmsg.Response, err error) {
		if err != nil {
			a.c.sendFailed(err)
		}
		st.resp, st.err = resp, err
		close(st.done)
	}
	peer.Lane(laneOf(q.Req)).Send(call)
	return st
}

// every is a request to all brokers.
type every struct {
	a      *attempts
	open   []kafka.NodeID // still to be asked
	got    map[kafka.NodeID]kmsg.Response
	failed map[kafka.NodeID]error
}

// toEvery asks every broker and merges what they list, without doubles.
// Brokers that do not answer are named by a [*PartialError] beside the answers
// of the others.
func (a *attempts) toEvery() (kmsg.Response, error) {
	if err := a.brokers(); err != nil {
		return nil, opError(a.api, kafka.NoNode, err)
	}
	e := &every{a: a, got: make(map[kafka.NodeID]kmsg.Response), failed: make(map[kafka.NodeID]error)}
	seen := make(map[string]bool)
	for _, b := range a.c.snap.Load().Brokers {
		if !seen[b.Addr()] { // several nodes behind one address cannot be told apart
			seen[b.Addr()] = true
			e.open = append(e.open, b.ID)
		}
	}
	for len(e.open) > 0 {
		why := e.round()
		e.open = slices.DeleteFunc(e.open, func(id kafka.NodeID) bool { return e.failed[id] == nil || !a.repeats(e.failed[id]) })
		if len(e.open) == 0 {
			break
		}
		if err := a.again(why); err != nil {
			for _, id := range e.open {
				e.failed[id] = err
			}
			break
		}
		e.open = slices.DeleteFunc(e.open, func(id kafka.NodeID) bool {
			_, known := a.c.snap.Load().Broker(id)
			return !known
		})
	}
	return e.merged()
}

// brokers waits for a refresh of the brokers.
func (a *attempts) brokers() error {
	for {
		err := a.c.refresh(a.ctx, nil, meta.Need{})
		if err == nil {
			return nil
		}
		if err = a.again(err); err != nil {
			return err
		}
	}
}

// round asks the brokers that are still open, and returns why one of them has
// no answer.
func (e *every) round() (why error) {
	qs := make([]Question, len(e.open))
	for i, id := range e.open {
		qs[i] = Question{Broker: id, Req: copyOf(e.a.req)}
	}
	for _, r := range e.a.collect(qs, Dial) {
		delete(e.failed, r.Broker)
		err := r.Err
		if err == nil {
			code := soleCode(r.Resp)
			if !e.a.repeatsCode(code) {
				e.got[r.Broker] = r.Resp
				continue
			}
			err = kafka.CodeError(code, nil)
		}
		e.failed[r.Broker] = err
		if why == nil || e.a.repeats(err) {
			why = err
		}
	}
	return why
}

// merged merges the answers of all brokers, in order of their ids.
func (e *every) merged() (kmsg.Response, error) {
	ids := slices.Sorted(maps.Keys(e.got))
	var merged kmsg.Response
	for _, id := range ids {
		if merged == nil {
			merged = e.got[id]
			continue
		}
		mergeListed(merged, e.got[id])
	}
	if len(e.failed) > 0 {
		pe := &PartialError{Op: e.a.api}
		for _, id := range slices.Sorted(maps.Keys(e.failed)) {
			pe.Failed = append(pe.Failed, Failure{Broker: id, Err: e.failed[id]})
		}
		return merged, pe
	}
	if merged == nil {
		return nil, opError(e.a.api, kafka.NoNode, errNoAddress)
	}
	return merged, nil
}

// mergeListed adds what one more broker lists, without what is already there.
func mergeListed(into, from kmsg.Response) {
	switch r := into.(type) {
	case *kmsg.ListGroupsResponse:
		f := from.(*kmsg.ListGroupsResponse)
		r.ErrorCode = cmp.Or(r.ErrorCode, f.ErrorCode)
		for _, g := range f.Groups {
			if !slices.ContainsFunc(r.Groups, func(o kmsg.ListGroupsResponseGroup) bool { return o.Group == g.Group }) {
				r.Groups = append(r.Groups, g)
			}
		}
	case *kmsg.ListTransactionsResponse:
		f := from.(*kmsg.ListTransactionsResponse)
		r.ErrorCode = cmp.Or(r.ErrorCode, f.ErrorCode)
		for _, t := range f.TransactionStates {
			if !slices.ContainsFunc(r.TransactionStates, func(o kmsg.ListTransactionsResponseTransactionState) bool {
				return o.TransactionalID == t.TransactionalID
			}) {
				r.TransactionStates = append(r.TransactionStates, t)
			}
		}
	case *kmsg.DescribeLogDirsResponse:
		f := from.(*kmsg.DescribeLogDirsResponse)
		r.ErrorCode = cmp.Or(r.ErrorCode, f.ErrorCode)
		r.Dirs = append(r.Dirs, f.Dirs...)
	}
}
