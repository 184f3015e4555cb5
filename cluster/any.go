package cluster

import (
	"errors"
	"reflect"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// toAny asks brokers one after the other until one answers, each once in a
// round; every round chooses anew.
func (a *attempts) toAny() (kmsg.Response, error) {
	for {
		resp, err := a.anyRound()
		if err == nil {
			code := soleCode(resp)
			if !a.repeatsCode(code) {
				return resp, nil
			}
			err = kafka.CodeError(code, nil)
		}
		if err = a.again(err); err != nil && resp != nil {
			return resp, nil
		} else if err != nil {
			return nil, opError(a.api, kafka.NoNode, err)
		}
	}
}

// round is one walk over the addresses for a request of a caller.
type round struct {
	a    *attempts
	walk *meta.Walk
	got  chan reply // room for every address: nobody blocks on it
	open int
	last string // the address that was asked last
}

// reply is the end of a request at one address.
type reply struct {
	addr string
	resp kmsg.Response
	err  error
}

// anyRound asks each address once. A request that changes nothing goes to a
// second broker while the first takes long.
func (a *attempts) anyRound() (kmsg.Response, error) {
	can := a.c.candidates(nil)
	r := &round{a: a, walk: meta.NewWalk(can, a.c.rand.derive())}
	r.got = make(chan reply, len(can.Open)+len(can.Known)+len(can.Bootstrap))
	timer := time.NewTimer(hedge)
	defer timer.Stop()
	for r.open > 0 || r.next() {
		select {
		case got := <-r.got:
			if got.err == nil || !r.goesOn(got) {
				a.c.pool.answered(got.addr, got.err)
				return got.resp, r.err(got)
			}
		case <-timer.C:
			a.c.pool.slow(r.last)
			if a.class != retry.Safe || !r.next() {
				continue
			}
		}
		timer.Reset(hedge)
	}
	return nil, r.walk.Err()
}

// goesOn takes note of a failure and reports whether another address may be
// asked.
func (r *round) goesOn(got reply) bool {
	r.open--
	r.walk.Failed(got.addr, got.err)
	return r.a.ctx.Err() == nil && r.a.elsewhere(got.err)
}

// err is the error of a round that ends with this reply.
func (r *round) err(got reply) error {
	if got.err == nil || unsendable(got.err) {
		return got.err
	}
	return r.walk.Err()
}

// next sends the request to the next address; it reports false after the last.
func (r *round) next() bool {
	for {
		addr, ok := r.walk.Next()
		if !ok {
			return false
		}
		peer, err := r.a.c.pool.at(addr)
		if err != nil {
			r.walk.Failed(addr, err)
			continue
		}
		req := r.a.req
		if r.a.class == retry.Safe {
			req = copyOf(req) // it may be on two connections at once
		}
		call := netconn.NewCall(r.a.ctx, req)
		call.Min, call.Max = r.a.lo, r.a.hi
		call.Done = func(resp kmsg.Response, err error) { r.got <- reply{addr, resp, err} }
		r.open++
		r.last = addr
		peer.Lane(laneOf(req)).Send(call)
		return true
	}
}

// elsewhere reports whether a request that failed with err at one broker may
// go to another.
func (a *attempts) elsewhere(err error) bool {
	return !unsendable(err) && (a.class.Repeatable() || !kafka.MayHaveHappened(err))
}

// unsendable reports whether no broker can be sent that request.
func unsendable(err error) bool {
	var long *kafka.EncodeError
	return errors.As(err, &long)
}

// copyOf is a copy of a request that can go out at a version of its own. Both
// share what the fields refer to.
func copyOf(req kmsg.Request) kmsg.Request {
	v := reflect.ValueOf(req)
	if v.Kind() != reflect.Pointer {
		return req
	}
	c := reflect.New(v.Elem().Type())
	c.Elem().Set(v.Elem())
	return c.Interface().(kmsg.Request)
}
