package cluster

import (
	"context"
	"errors"

	"github.com/ottla/ottla/kafka"
)

// trouble is what a failed request says about the broker that it went to, and
// so about what is cached for everybody: that this broker leads a partition,
// coordinates a key or is the controller.
type trouble uint8

const (
	// noTrouble says nothing: the broker answered, or the caller gave the
	// request up.
	noTrouble trouble = iota
	// overdue is a broker that had not answered when the caller's deadline came.
	// It may be slow, or stuck. Nothing else tells of a stuck broker where
	// deadlines are shorter than the request's own clock, so what is cached is
	// asked for anew; but one caller's deadline is no reason for others to
	// wait, so it holds until the answer is there.
	overdue
	// cut is a broker that was not reached, was lost, or let the request's own
	// clock run out. What is cached is forgotten.
	cut
)

// troubleOf is what err, of a request within ctx, says about its broker.
func troubleOf(ctx context.Context, err error) trouble {
	switch {
	case !isConnection(err):
		return noTrouble
	case isCut(err), ctx.Err() == nil, !errors.Is(err, context.Cause(ctx)):
		return cut
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return overdue
	}
	return noTrouble
}

// isConnection reports whether err is about the way to a broker, and not about
// what it answered.
func isConnection(err error) bool {
	var late *kafka.TimeoutError
	return isCut(err) || errors.As(err, &late)
}

// isCut reports whether a broker was not reached, is another cluster's, or was
// lost.
func isCut(err error) bool {
	var dial *kafka.DialError
	var lost *kafka.ConnError
	var other *MismatchError
	return errors.As(err, &dial) || errors.As(err, &lost) || errors.As(err, &other)
}
