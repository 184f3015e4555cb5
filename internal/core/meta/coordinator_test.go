package meta

import (
	"errors"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/retry"
	"github.com/ottla/ottla/kafka"
)

var epoch = time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)

func newCoordinators() *Coordinators {
	return NewCoordinators(retry.Backoff{}, rand.New(rand.NewPCG(1, 1)))
}

func key(k string) CoordinatorKey { return CoordinatorKey{Kind: kafka.GroupCoordinator, Key: k} }

// found is one entry of a batched answer.
func found(k string, node int32, code int16) kmsg.FindCoordinatorResponseCoordinator {
	c := kmsg.FindCoordinatorResponseCoordinator{Key: k, NodeID: node, ErrorCode: code}
	if node >= 0 {
		c.Host, c.Port = "b", 9092+node
	}
	return c
}

func batched(cs ...kmsg.FindCoordinatorResponseCoordinator) *kmsg.FindCoordinatorResponse {
	return &kmsg.FindCoordinatorResponse{Version: 4, Coordinators: cs}
}

func TestK7OneLookupServesAllWhoWaitAndLeavingEndsNoLookup(t *testing.T) {
	c := newCoordinators()
	for range 3 {
		c.Want(epoch, key("g"))
	}
	l, ok := c.Next(epoch)
	if !ok || !slices.Equal(l.Keys, []string{"g"}) {
		t.Fatalf("lookup %v %v", l, ok)
	}
	if again, ok := c.Next(epoch); ok {
		t.Fatalf("a second lookup for the same key: %v", again)
	}
	c.Leave(key("g")) // the first of the three gives up
	fs := c.OnAnswer(epoch, l, batched(found("g", 3, 0)))
	if len(fs) != 1 || fs[0].Broker.ID != 3 || fs[0].Err != nil {
		t.Fatalf("found %+v", fs)
	}
	if b, ok := c.Known(key("g")); !ok || b.Addr() != "b:9095" {
		t.Errorf("the coordinator is not cached: %v", b)
	}
}

func TestK7TheAnswerIsKeptWhenEverybodyLeft(t *testing.T) {
	c := newCoordinators()
	c.Want(epoch, key("g"))
	l, _ := c.Next(epoch)
	c.Leave(key("g"))
	c.OnAnswer(epoch, l, batched(found("g", 3, 0)))
	if _, ok := c.Known(key("g")); !ok {
		t.Error("the answer was dropped")
	}
	c.Want(epoch, key("h"))
	l, _ = c.Next(epoch)
	c.Leave(key("h"))
	c.OnFailure(epoch, l, errors.New("lost"))
	if !c.Deadline().IsZero() {
		t.Error("a lookup that nobody waits for is repeated")
	}
}

func TestK7KeysGoInBatchesOfOneKind(t *testing.T) {
	c := newCoordinators()
	for _, k := range []string{"b", "", "a"} {
		c.Want(epoch, key(k))
	}
	c.Want(epoch, CoordinatorKey{Kind: kafka.TransactionCoordinator, Key: "tx"})
	l, _ := c.Next(epoch)
	if l.Kind != kafka.GroupCoordinator || !slices.Equal(l.Keys, []string{"", "a", "b"}) {
		t.Errorf("first lookup %+v", l)
	}
	l, _ = c.Next(epoch)
	if l.Kind != kafka.TransactionCoordinator || !slices.Equal(l.Keys, []string{"tx"}) {
		t.Errorf("second lookup %+v", l)
	}
}

func TestB052TheEmptyKeyHasItsOwnErrorAndAMissingAnswerIsAskedAgain(t *testing.T) {
	c := newCoordinators()
	for _, k := range []string{"a", "b", ""} {
		c.Want(epoch, key(k))
	}
	l, _ := c.Next(epoch)
	fs := c.OnAnswer(epoch, l, batched(found("a", 1, 0), found("", -1, kerr.InvalidGroupID.Code)))
	if len(fs) != 2 || fs[0].Key != "" || !errors.Is(fs[0].Err, kerr.InvalidGroupID) || fs[1].Broker.ID != 1 {
		t.Errorf("found %+v", fs)
	}
	if l, ok := c.Next(c.Deadline()); !ok || !slices.Equal(l.Keys, []string{"b"}) {
		t.Errorf("b was not asked again: %v", l)
	}
}

func TestK8WhereNobodyCanBeReachedIsNotAvailable(t *testing.T) {
	for name, bad := range map[string]kmsg.FindCoordinatorResponseCoordinator{
		"node -1":    {Key: "g", NodeID: -1, Host: "b", Port: 9092},
		"empty host": {Key: "g", NodeID: 1, Port: 9092},
		"no port":    {Key: "g", NodeID: 1, Host: "b"},
	} {
		c := newCoordinators()
		c.Want(epoch, key("g"))
		l, _ := c.Next(epoch)
		fs := c.OnAnswer(epoch, l, batched(bad))
		if _, known := c.Known(key("g")); len(fs) != 0 || known || !c.Deadline().After(epoch) {
			t.Errorf("%s: found %+v, known %v, looked up again at %v", name, fs, known, c.Deadline())
		}
		if err := c.Leave(key("g")); !errors.Is(err, kerr.CoordinatorNotAvailable) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestB049OnlyAnswersWithoutErrorAreCachedAnd15IsRepeatedWithBackoff(t *testing.T) {
	c := newCoordinators()
	c.Want(epoch, key("g"))
	now := epoch
	var last time.Duration
	for i := range 4 {
		l, ok := c.Next(now)
		if !ok {
			t.Fatalf("attempt %d is not due at its deadline", i)
		}
		resp := &kmsg.FindCoordinatorResponse{Version: 2, ErrorCode: kerr.CoordinatorNotAvailable.Code, NodeID: -1}
		if i == 2 { // no error, but nobody either
			resp.ErrorCode = 0
		}
		if fs := c.OnAnswer(now, l, resp); len(fs) != 0 {
			t.Fatalf("attempt %d ended the search: %+v", i, fs)
		}
		if _, ok := c.Known(key("g")); ok {
			t.Fatal("node -1 was cached")
		}
		wait := c.Deadline().Sub(now)
		if wait <= last {
			t.Errorf("attempt %d waits %v after %v: no growing backoff", i, wait, last)
		}
		last, now = wait, c.Deadline()
	}
	l, _ := c.Next(now)
	fs := c.OnAnswer(now, l, &kmsg.FindCoordinatorResponse{Version: 2, NodeID: 77, Host: "Far", Port: 1})
	if len(fs) != 1 || fs[0].Broker.Addr() != "far:1" {
		t.Errorf("K8: the address in the answer was not used: %+v", fs)
	}
}

func TestK7AFatalCodeEndsTheSearch(t *testing.T) {
	for _, code := range []int16{kerr.GroupAuthorizationFailed.Code, 12345} {
		c := newCoordinators()
		c.Want(epoch, key("g"))
		l, _ := c.Next(epoch)
		fs := c.OnAnswer(epoch, l, batched(found("g", -1, code)))
		if len(fs) != 1 || fs[0].Err == nil || !c.Deadline().IsZero() {
			t.Errorf("code %d: %+v", code, fs)
		}
	}
}

func TestK7B050EntriesGoWithTheirNode(t *testing.T) {
	c := newCoordinators()
	put := func(k string, node int32) {
		c.Want(epoch, key(k))
		l, _ := c.Next(epoch)
		c.OnAnswer(epoch, l, batched(found(k, node, 0)))
	}
	put("a", 1)
	put("b", 2)
	put("c", 2)
	c.Forget(key("a"), 9) // rejected by another node than the cached one
	if _, ok := c.Known(key("a")); !ok {
		t.Error("a fresh entry was dropped for a late rejection")
	}
	c.Forget(key("a"), kafka.NodeID(1))
	c.ForgetNode(2)
	for _, k := range []string{"a", "b", "c"} {
		if _, ok := c.Known(key(k)); ok {
			t.Errorf("%s is still cached", k)
		}
	}
}

func TestK7AFailedLookupIsRepeatedWhileSomebodyWaits(t *testing.T) {
	c := newCoordinators()
	c.Want(epoch, key("g"))
	l, _ := c.Next(epoch)
	lost := errors.New("lost")
	c.OnFailure(epoch, l, lost)
	if !c.Deadline().After(epoch) {
		t.Error("no backoff")
	}
	if _, ok := c.Next(c.Deadline()); !ok {
		t.Error("not repeated")
	}
	if err := c.Leave(key("g")); !errors.Is(err, lost) {
		t.Errorf("the reason is lost: %v", err)
	}
}

func TestK7WhoComesWhileALookupIsUnderWaySharesIt(t *testing.T) {
	c := newCoordinators()
	c.Want(epoch, key("g"))
	l, _ := c.Next(epoch)
	c.Leave(key("g"))
	c.Want(epoch, key("g"))
	if again, ok := c.Next(epoch); ok {
		t.Fatalf("a second look-up beside the first: %v", again)
	}
	if fs := c.OnAnswer(epoch, l, batched(found("g", 3, 0))); len(fs) != 1 {
		t.Errorf("found %+v", fs)
	}
}
