package cluster

import (
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

// toOne sends the request to the one broker that find leads to, and again to
// another one if that is not it any more, which lost takes note of. doubt does
// where it may not be.
func (a *attempts) toOne(find func() (kafka.Broker, error), wrong retry.Disposition, lost, doubt func(kafka.Broker)) (kmsg.Response, error) {
	for {
		b, err := find()
		err = notAsked(err)
		var resp kmsg.Response // an answer that asks for another attempt
		if err == nil {
			resp, err = a.once(b, wrong)
		}
		if err == nil {
			return resp, nil
		}
		switch t := troubleOf(a.ctx, err); {
		case t == cut || moved(err, wrong):
			lost(b)
		case t == overdue:
			doubt(b)
		}
		if err := a.again(err); err != nil && resp != nil {
			return resp, nil
		} else if err != nil {
			return nil, opError(a.api, b.ID, err)
		}
	}
}

// once makes one attempt at a broker. An error with an answer is its code,
// which asks for another attempt.
func (a *attempts) once(b kafka.Broker, wrong retry.Disposition) (kmsg.Response, error) {
	resp, err := a.c.send(a.ctx, b, a.req, a.lo, a.hi)
	if err != nil {
		return nil, err
	}
	code := soleCode(resp)
	if retry.Of(code) == wrong || a.repeatsCode(code) {
		return resp, kafka.CodeError(code, nil)
	}
	return resp, nil
}

// toController sends the request to the controller. Another controller answers
// DescribeQuorum with NOT_LEADER_OR_FOLLOWER: it is about the partition that the
// active one leads.
func (a *attempts) toController() (kmsg.Response, error) {
	wrong := retry.FindController
	if a.req.Key() == int16(kmsg.DescribeQuorum) {
		wrong = retry.RefreshMetadata
	}
	return a.toOne(
		func() (kafka.Broker, error) { return a.c.controller(a.ctx) },
		wrong,
		func(b kafka.Broker) { a.c.invalidateController(b.ID) },
		func(kafka.Broker) { a.c.inbox.post((*state).wantBrokers) },
	)
}

// toCoordinator sends the request to the coordinator of a key.
func (a *attempts) toCoordinator(kind CoordinatorKind, key string) (kmsg.Response, error) {
	return a.toOne(
		func() (kafka.Broker, error) { return a.c.coordinator(a.ctx, kind, key) },
		retry.FindCoordinator,
		func(b kafka.Broker) { a.c.forgetCoordinator(kind, key, b.ID) },
		func(b kafka.Broker) { a.c.renewCoordinator(kind, key, b.ID) },
	)
}
