package cli

import (
	"github.com/ottla/ottla/kafka"
)

// theBroker stands for the address that an error does not tell.
const theBroker = "the broker"

// find is the first error of type T in the tree of err, and the address that it
// is about: with several brokers that is not the first of the tree.
func find[T error](err error) (found T, addr string, ok bool) {
	eachError(err, theBroker, func(e error, at string) bool {
		found, ok = e.(T)
		addr = at
		return ok
	})
	return found, addr, ok
}

// eachError visits the errors in the tree of err, outer ones first, each with
// the address of the innermost one around it that names one, until visit returns
// true.
func eachError(err error, addr string, visit func(err error, addr string) bool) bool {
	if err == nil {
		return false
	}
	if own := addrOf(err); own != "" {
		addr = own
	}
	if visit(err, addr) {
		return true
	}
	switch e := err.(type) {
	case *kafka.UnreachableError:
		for i, sub := range e.Errs {
			if eachError(sub, e.Addrs[i], visit) {
				return true
			}
		}
	case interface{ Unwrap() error }:
		return eachError(e.Unwrap(), addr, visit)
	case interface{ Unwrap() []error }:
		for _, sub := range e.Unwrap() {
			if eachError(sub, addr, visit) {
				return true
			}
		}
	}
	return false
}

// addrOf is the address that an error itself names, empty if it names none.
func addrOf(err error) string {
	switch e := err.(type) {
	case *kafka.DialError:
		return e.Addr
	case *kafka.AuthError:
		return e.Addr
	case *kafka.ProtocolError:
		return e.Addr
	case *kafka.ConnError:
		return e.Addr
	case *kafka.TimeoutError:
		return e.Addr
	}
	return ""
}
