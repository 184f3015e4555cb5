package cluster

import (
	"context"
	"errors"
	"math"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/ottla/ottla/internal/core/meta"
	"github.com/ottla/ottla/internal/netconn"
	"github.com/ottla/ottla/kafka"
)

// CoordinatorKind is Kafka's coordinator type.
type CoordinatorKind = kafka.CoordinatorKind

// The kinds of coordinators.
const (
	GroupCoordinator       = kafka.GroupCoordinator       // key: group id
	TransactionCoordinator = kafka.TransactionCoordinator // key: transactional id
	ShareCoordinator       = kafka.ShareCoordinator       // key: "group:topic id:partition"
)

// Coordinator is the broker that coordinates a key. It is cached; callers that
// look for the same key at once share one look-up, which goes on for the others
// when one of them gives up. A coordinator that is not available yet is waited
// for until ctx ends; without a deadline, for Config.RetryTimeout.
func (c *Cluster) Coordinator(ctx context.Context, kind CoordinatorKind, key string) (kafka.Broker, error) {
	return c.coordinator(ctx, kind, key)
}

func (c *client) coordinator(ctx context.Context, kind CoordinatorKind, key string) (kafka.Broker, error) {
	if ctx.Err() != nil {
		return kafka.Broker{ID: kafka.NoNode}, opError("find coordinator", kafka.NoNode, ended(ctx))
	}
	if err := fitKey(key); err != nil {
		return kafka.Broker{ID: kafka.NoNode}, opError("find "+kind.String()+" coordinator", kafka.NoNode, err)
	}
	if _, ok := ctx.Deadline(); !ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, c.cfg.RetryTimeout, errRetryTimeout)
		defer cancel()
	}
	k := keyOf(kind, key)
	a := newAnswer()
	if !c.inbox.post(func(s *state) { s.wantCoordinator(k, a) }) {
		return kafka.Broker{ID: kafka.NoNode}, ErrClosed
	}
	left := make(chan error, 1)
	err := c.wait(ctx, a, func() {
		if !c.inbox.post(func(s *state) { left <- s.leaveCoordinator(k, a) }) {
			left <- nil
		}
	})
	if err == nil {
		return a.broker, nil
	}
	if ctx.Err() != nil && !errors.Is(err, ErrClosed) {
		err = c.withReason(ctx, err, left)
	}
	return kafka.Broker{ID: kafka.NoNode}, opError("find "+kind.String()+" coordinator of "+key, kafka.NoNode, err)
}

// withReason adds why the last attempt failed to the end of a context.
func (c *client) withReason(ctx context.Context, err error, left <-chan error) error {
	select {
	case last := <-left:
		if last != nil {
			return &gaveUp{cause: context.Cause(ctx), last: last}
		}
	case <-c.done():
	}
	return err
}

func (s *state) wantCoordinator(k meta.CoordinatorKey, a *answer) {
	if b, ok := s.coords.Known(k); ok {
		a.broker = b
		a.give(nil)
		return
	}
	err := s.c.cfg.unserved(int16(kmsg.FindCoordinator))
	if err == nil {
		err = fitKey(k.Key)
	}
	if err != nil {
		a.give(err)
		return
	}
	s.coords.Want(s.now, k)
	s.coordWaits[k] = append(s.coordWaits[k], a)
}

func (s *state) wantCoordinators(kind CoordinatorKind, waits map[string]*answer) {
	for key, a := range waits {
		s.wantCoordinator(keyOf(kind, key), a)
	}
}

// fitKey refuses a key that no request can hold: one in a look-up spoils it for
// all that share it.
func fitKey(key string) error {
	if len(key) <= math.MaxInt16 {
		return nil
	}
	return &kafka.EncodeError{Name: "FindCoordinator", Field: "CoordinatorKey", Size: len(key), Limit: math.MaxInt16}
}

func keyOf(kind CoordinatorKind, key string) meta.CoordinatorKey {
	return meta.CoordinatorKey{Kind: kind, Key: key}
}

func (s *state) leaveCoordinator(k meta.CoordinatorKey, a *answer) error {
	ws := s.coordWaits[k]
	i := slices.Index(ws, a)
	if i < 0 {
		return nil
	}
	s.coordWaits[k] = slices.Delete(ws, i, i+1)
	if len(s.coordWaits[k]) == 0 {
		delete(s.coordWaits, k)
	}
	return s.coords.Leave(k)
}

// sendLookup asks some broker for coordinators: all keys at once, or, where
// brokers only know one key for each request, one by one.
func (s *state) sendLookup(l meta.Lookup) {
	s.c.counts.lookups.Add(1)
	s.ask(&ask{
		walk: meta.NewWalk(s.c.candidates(nil), s.c.rand.derive()),
		make: func() (kmsg.Request, int16) { return lookupRequest(l) },
		done: func(_ string, resp kmsg.Response, err error) { s.lookedUp(l, resp, err) },
	})
}

// batchLookup is the first version of FindCoordinator that takes several keys.
const batchLookup = 4

func lookupRequest(l meta.Lookup) (kmsg.Request, int16) {
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorType = int8(l.Kind)
	req.CoordinatorKey = l.Keys[0]
	req.CoordinatorKeys = l.Keys
	if len(l.Keys) > 1 {
		return req, batchLookup
	}
	return req, 0
}

func (s *state) lookedUp(l meta.Lookup, resp kmsg.Response, err error) {
	if err == nil {
		s.found(s.coords.OnAnswer(s.now, l, resp.(*kmsg.FindCoordinatorResponse)))
		return
	}
	var version *kafka.VersionError
	switch {
	case len(l.Keys) > 1 && errors.As(err, &version):
		for i := range l.Keys {
			s.sendLookup(meta.Lookup{Kind: l.Kind, Keys: l.Keys[i : i+1]})
		}
	case permanent(err):
		s.found(s.coords.Fail(l, err))
	default:
		s.coords.OnFailure(s.now, l, err)
	}
}

// found tells those who wait for coordinators.
func (s *state) found(fs []meta.Found) {
	for _, f := range fs {
		for _, a := range s.coordWaits[f.CoordinatorKey] {
			a.broker = f.Broker
			a.give(f.Err)
		}
		delete(s.coordWaits, f.CoordinatorKey)
	}
}

// ForgetCoordinator drops the cached coordinator of a group; the next use looks
// it up.
func (c *Cluster) ForgetCoordinator(group string) {
	c.forgetCoordinator(GroupCoordinator, group, kafka.NoNode)
}

func (c *client) forgetCoordinator(kind CoordinatorKind, key string, node kafka.NodeID) {
	k := keyOf(kind, key)
	c.inbox.post(func(s *state) { s.coords.Forget(k, node) })
}

// RequestCoordinator sends a request to the coordinator of a group, at the
// version that req is set to, or if that is negative at the highest that both
// sides speak; if the broker does not speak it, nothing is sent
// and the error is a [*kafka.VersionError]. It makes one attempt and sends
// nothing a second time: codes in the answer are the caller's, who may call
// [Cluster.ForgetCoordinator], and so is an answer that was lost. A coordinator
// that cannot be reached is forgotten; one that has not answered at ctx's deadline
// is looked up again, and kept until then. A ctx that is cancelled says nothing.
func (c *Cluster) RequestCoordinator(ctx context.Context, group string, req kmsg.Request) (kmsg.Response, error) {
	b, err := c.Coordinator(ctx, GroupCoordinator, group)
	if err != nil {
		return nil, notAsked(err)
	}
	v := req.GetVersion()
	if v < 0 {
		v = netconn.NoBound
	}
	call := netconn.NewCall(ctx, req)
	call.Min, call.Max, call.NoRedial = v, v, true
	resp, err := c.sendOn(ctx, b, laneOf(req), call)
	if err != nil {
		c.coordinatorFailed(ctx, keyOf(GroupCoordinator, group), b, err)
		return nil, opError(apiName(req), b.ID, err)
	}
	return resp, nil
}

// coordinatorFailed takes note of a coordinator that a request did not get
// through to, and of one that had no answer for it in time.
func (c *client) coordinatorFailed(ctx context.Context, k meta.CoordinatorKey, b kafka.Broker, err error) {
	switch troubleOf(ctx, err) {
	case cut:
		c.forgetCoordinator(k.Kind, k.Key, b.ID)
	case overdue:
		c.renewCoordinator(k.Kind, k.Key, b.ID)
	}
}

func (c *client) renewCoordinator(kind CoordinatorKind, key string, node kafka.NodeID) {
	k := keyOf(kind, key)
	c.inbox.post(func(s *state) { s.coords.Renew(s.now, k, node) })
}

// CoordinatorVersions is the range of versions of an API that the coordinator
// of a group speaks; ok is false if it does not have the API. It looks the
// coordinator up and connects to it if need be.
func (c *Cluster) CoordinatorVersions(ctx context.Context, group string, key int16) (lo, hi int16, ok bool, err error) {
	b, err := c.Coordinator(ctx, GroupCoordinator, group)
	if err != nil {
		return -1, -1, false, err
	}
	peer, err := c.peerOf(b)
	if err != nil {
		return -1, -1, false, err
	}
	vs, err := peer.Versions(ctx)
	if err != nil {
		c.coordinatorFailed(ctx, keyOf(GroupCoordinator, group), b, err)
		return -1, -1, false, opError("api versions", b.ID, err)
	}
	r, ok := vs.Range(key)
	return r.Min, r.Max, ok, nil
}

// toFindCoordinator looks coordinators up as the caller asks, past the cache:
// several keys in one request, or, where brokers know only one for each
// request, in one each, with the answers merged in order.
func (a *attempts) toFindCoordinator(req *kmsg.FindCoordinatorRequest) (kmsg.Response, error) {
	if len(req.CoordinatorKeys) <= 1 {
		return a.toAny()
	}
	least := a.lo
	a.lo = max(a.lo, batchLookup)
	resp, err := a.toAny()
	var version *kafka.VersionError
	if err == nil || !errors.As(err, &version) {
		return resp, err
	}
	merged := kmsg.NewPtrFindCoordinatorResponse()
	merged.Version = batchLookup
	for _, key := range req.CoordinatorKeys {
		one := *req
		one.CoordinatorKey, one.CoordinatorKeys = key, []string{key}
		each := a.c.attempts(a.ctx, &one)
		each.lo, each.hi = least, a.hi
		r, err := each.toAny()
		if err != nil {
			return nil, err
		}
		f := r.(*kmsg.FindCoordinatorResponse)
		merged.Coordinators = append(merged.Coordinators, kmsg.FindCoordinatorResponseCoordinator{
			Key: key, NodeID: f.NodeID, Host: f.Host, Port: f.Port, ErrorCode: f.ErrorCode, ErrorMessage: f.ErrorMessage,
		})
	}
	return merged, nil
}
