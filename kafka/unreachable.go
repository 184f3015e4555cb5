package kafka

import (
	"fmt"
	"strings"
)

// MismatchError is an address that belongs to another cluster.
type MismatchError struct {
	Addr  string
	Want  string // the cluster id of this client
	Found string // the cluster id at Addr; empty if the broker did not say
}

func (e *MismatchError) Error() string {
	s := "ottla: "
	if e.Addr != "" {
		s += e.Addr + " "
	}
	return s + fmt.Sprintf("belongs to cluster %q, this client to cluster %q", e.Found, e.Want)
}

// MayHaveHappened is false: nothing is sent to another cluster.
func (*MismatchError) MayHaveHappened() bool { return false }

// UnreachableError is a request that no broker could be asked: every address
// with its reason.
type UnreachableError struct {
	Addrs []string // in the order of the attempts
	Errs  []error  // the reason of each
}

func (e *UnreachableError) Error() string {
	if len(e.Errs) == 1 {
		return "ottla: no broker answers: " + e.reason(0)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "ottla: none of %d addresses answers", len(e.Errs))
	for i := range e.Errs {
		b.WriteString("; " + e.reason(i))
	}
	return b.String()
}

func (e *UnreachableError) reason(i int) string {
	s := strings.TrimPrefix(e.Errs[i].Error(), "ottla: ")
	if strings.Contains(s, e.Addrs[i]) {
		return s
	}
	return e.Addrs[i] + ": " + s
}

// Unwrap gives every reason to errors.Is and errors.As.
func (e *UnreachableError) Unwrap() []error { return e.Errs }

// MayHaveHappened is false only if it is false for every attempt.
func (e *UnreachableError) MayHaveHappened() bool {
	for _, err := range e.Errs {
		if MayHaveHappened(err) {
			return true
		}
	}
	return false
}
